from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bayeswell.likelihoods import LIKELIHOODS
from bayeswell.methods import AutoTemperature
from bayeswell.methods.temperature import COLD_START, SHARE, TargetSpread


def spread_of(likelihood, *batches):
    likelihood = LIKELIHOODS.resolve(likelihood)
    spread = TargetSpread()
    for targets in batches:
        spread.observe(likelihood, targets)
    return lambda **metrics: spread.unexplained(likelihood, metrics)


def entropy(*frequencies):
    return -sum(f * math.log(f) for f in frequencies)


def test_classes_by_the_entropy_of_their_frequencies():
    share = spread_of("categorical", torch.tensor([0, 0, 2, 1]), torch.tensor([0, 0, 0, 2]))
    assert share(nll=0.3) == pytest.approx(0.3 / entropy(5 / 8, 1 / 8, 2 / 8), rel=1e-12)
    assert share(nll=5.0) == 1.0
    assert share(nll=0.0) == 0.0


def test_ignored_labels_do_not_count():
    likelihood = {"name": "categorical", "ignore_index": -100}
    share = spread_of(likelihood, torch.tensor([0, 0, 2, -100]), torch.tensor([0, 0, 0, 2]))
    assert share(nll=0.3) == pytest.approx(0.3 / entropy(5 / 7, 2 / 7) / (7 / 8), rel=1e-12)


def test_several_labels_an_example_share_its_nll():
    share = spread_of("categorical", torch.tensor([[0, 1, 1], [1, 1, 0]]))
    assert share(nll=0.6) == pytest.approx(0.2 / entropy(1 / 3, 2 / 3), rel=1e-12)


def test_next_tokens_are_those_that_are_predicted():
    share = spread_of("next_token", torch.tensor([[7, 1, 1, 2], [9, 2, 1, 1]]))
    assert share(nll=1.2) == pytest.approx(1.2 / (3 * entropy(4 / 6, 2 / 6)), rel=1e-12)


def test_real_targets_by_squared_error_over_variance():
    targets = torch.randn(50, 2, dtype=torch.float64) * 3 + 1
    share = spread_of("gaussian", *targets.split(8))
    variance = float(targets.var(0, correction=0).mean())
    assert share(nll=-9.0, rmse=0.4) == pytest.approx(0.16 / variance, rel=1e-9)


def test_float_zeros_and_ones_by_their_entropy():
    share = spread_of("bernoulli", torch.tensor([[0.0], [1.0], [1.0], [1.0]]))
    assert share(nll=0.2) == pytest.approx(0.2 / entropy(0.25, 0.75), rel=1e-9)


def test_counts_by_their_moments():
    rates = torch.full((20_000,), 30.0)
    counts = torch.poisson(rates, generator=torch.Generator().manual_seed(0)).long()
    share = spread_of("poisson", counts)
    own = float(-torch.distributions.Poisson(rates).log_prob(counts.float()).mean())
    # The NLL of the true rate is the entropy. Standard error 0.005 of each side: failure rate below 1e-4.
    assert share(nll=own) == pytest.approx(1.0, abs=0.02)
    assert share(nll=own / 2) == pytest.approx(0.5, abs=0.02)


def test_large_counts_take_no_memory():
    share = spread_of("poisson", torch.tensor([10**9, 10**9 + 50, 10**9 - 50]))
    assert 0 < share(nll=3.0) <= 1


def test_targets_without_spread_give_a_default():
    assert spread_of("gaussian", torch.ones(5))(nll=0.1, rmse=0.1) == 0.05
    assert spread_of("gaussian")(nll=0.1, rmse=0.1) == 0.05
    assert spread_of("categorical", torch.zeros(5, dtype=torch.long))(nll=0.1) == 0.05


def automatic(until=1.0, dropout=()):
    elbo = SimpleNamespace(likelihood=LIKELIHOODS.resolve("categorical"), temperature=1.0)
    optimizer = torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "ess": 5.0, "temperature": COLD_START}])
    found = AutoTemperature(elbo, optimizer, dropout, until=until)
    found.spread.observe(found.elbo.likelihood, torch.tensor([0, 1, 0, 1]))
    return found


def test_temperature_is_a_tenth_of_the_unexplained_share():
    layer = nn.Dropout()
    found = automatic(dropout=[layer])
    assert found.temperature == found.elbo.temperature == layer.p == COLD_START
    found.after_epoch(0.29, {"nll": 0.3})
    assert found.temperature == COLD_START
    found.after_epoch(0.3, {"nll": 0.3})
    expected = SHARE * 0.3 / math.log(2)
    assert found.elbo.temperature == layer.p == pytest.approx(expected)
    group = found.optimizer.param_groups[0]
    assert group["temperature"] == pytest.approx(expected)
    assert group["ess"] == pytest.approx(5.0 * COLD_START / expected)
    found.after_epoch(1.0, {"nll": 0.0})
    assert found.temperature == pytest.approx(SHARE * COLD_START)


def test_temperature_stays_after_its_last_change():
    found = automatic(until=0.5)
    found.after_epoch(0.5, {"nll": 0.3})
    settled = found.temperature
    found.after_epoch(0.51, {"nll": 0.6})
    assert found.temperature == settled != COLD_START


def test_state_is_restored():
    first, second = automatic(), automatic()
    first.after_epoch(0.5, {"nll": 0.3})
    first.spread.observe(first.elbo.likelihood, torch.tensor([0, 0]))
    second.load_state_dict(first.state_dict())
    assert second.temperature == first.temperature
    first.after_epoch(0.6, {"nll": 0.2})
    second.after_epoch(0.6, {"nll": 0.2})
    assert second.temperature == first.temperature
