"""What a result says of itself: never without a reason, and with the right numbers when there is one."""

from __future__ import annotations

import json
import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import VerdictWarning
from bayeswell.training.chains import away_from
from bayeswell.training.disagreement import disagreement_of
from bayeswell.training.verdicts import Trust
from bayeswell.training.verdicts.baseline import constant_nll
from bayeswell.training.verdicts.conclude import Ended, Examples, conclude
from bayeswell.training.verdicts.curvature import std_factor
from truths.linear_regression import LinearRegression


def problem(seed: int = 1, count: int = 300) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    y = (x[:, 0] + 0.4 * torch.randn(count, generator=generator) > 0.5).long()
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), (x, y)


def test_the_baseline_is_the_entropy_of_the_class_frequencies() -> None:
    labels = torch.tensor([0] * 30 + [1] * 60 + [2] * 10)
    shares = torch.tensor([0.3, 0.6, 0.1])
    entropy = -float((shares * shares.log()).sum())
    assert constant_nll(bw.Categorical(), torch.zeros(2, 3), labels, None) == pytest.approx(entropy, abs=1e-5)
    # A third class that never occurs costs nothing; weights count.
    weights = torch.where(labels == 1, 0.5, 1.0)
    weighted = torch.tensor([30.0, 30.0, 10.0])
    expected = -float((weighted * (weighted / 70).log()).sum()) / 100
    assert constant_nll(bw.Categorical(), torch.zeros(2, 3), labels, weights) == pytest.approx(expected, abs=1e-5)


def test_the_baseline_of_real_numbers_is_their_mean_and_variance() -> None:
    values = 7 + 3 * torch.randn(200, 1, generator=torch.Generator().manual_seed(2))
    variance = float(values.var(correction=0))
    expected = 0.5 * math.log(2 * math.pi * math.e * variance)
    learned = bw.Gaussian("learned")
    before = [p.detach().clone() for p in learned.parameters()]
    assert constant_nll(learned, torch.zeros(2, 1), values, None) == pytest.approx(expected, abs=1e-4)
    assert all(torch.equal(p, b) for p, b in zip(learned.parameters(), before, strict=True))
    known = constant_nll(bw.Gaussian("known", 2.0), torch.zeros(2, 1), values, None)
    assert known == pytest.approx(0.5 * math.log(2 * math.pi * 4) + variance / 8, abs=1e-4)
    assert constant_nll(learned, torch.zeros(2, 50), values.expand(-1, 50), None) is None  # 50 numbers, 200 examples


@pytest.mark.parametrize("scale", [1.0, 0.02, 80.0])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_stds_against_the_exact_curvature(scale: float, temperature: float) -> None:
    """Linear regression: 1 / sqrt(diagonal of the precision) is exact; 4 probes a point leave the median 30 %."""
    truth = LinearRegression.make(5, count=200, dimension=24, noise_std=0.5, prior_std=3.0)
    net = nn.Linear(24, 1, bias=False).double()
    model = bw.bayesian(net, "mean_field", {"name": "normal", "std": 3.0})
    with torch.no_grad():
        model.posterior.set_stds(scale * torch.tensor(truth.mean_field_std(temperature)))
    inputs, _ = truth.tensors()
    found = std_factor(model, bw.Gaussian("known", 0.5), inputs, 200, 200, temperature)
    assert found == pytest.approx(scale, rel=0.3)


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # of so short a run
def test_at_temperature_0_there_is_no_std_to_compare_with() -> None:
    net, data = problem()
    trust = bw.fit(net, data, "bbb", epochs=1, batch_size=32, temperature=0).trust
    assert trust.std_factor is None
    assert "at temperature 0 the best std is 0" in {note.about: note.line for note in trust.unmeasured}["std_factor"]


def told(name: str, **settings: object) -> list[str]:
    net, data = problem()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = bw.fit(net, data, name, batch_size=32, **settings)
    lines = [str(one.message) for one in caught if issubclass(one.category, VerdictWarning)]
    assert lines == [f"method '{name}': {line}" for line in result.trust.other_warnings]
    assert json.loads(json.dumps(result.trust.as_json(), allow_nan=False))["warnings"] == list(result.trust.warnings)
    return lines


def test_a_huge_rate_is_called_divergence() -> None:
    (line,) = told("map", epochs=3, lr=1e6)
    assert "training has diverged: NLL" in line
    assert line.endswith("lower lr")


def test_nothing_learned_is_said_with_both_numbers() -> None:
    (line,) = told("map", epochs=3, lr=1e-9)
    assert "it has learned nothing: NLL" in line
    assert "a prediction that ignores the inputs 0." in line


def test_good_fits_say_nothing() -> None:
    assert told("map", epochs=20, lr=0.05) == []
    assert told("bbb", epochs=20, lr=0.05, temperature=0.03) == []


def test_a_prediction_worse_than_its_mean_network_is_said() -> None:
    net, (x, y) = problem()
    settings = {"temperature": 0.1, "stepper": {"beta2": 0.9}}
    good = bw.fit(net, (x[:200], y[:200]), "ivon", epochs=20, batch_size=32, **settings)
    held_out = Examples(x[200:], y[200:])
    history = good.histories
    lines = {}
    for factor in (1.0, 12.0):
        with torch.no_grad():
            good.model.posterior.set_stds(factor * good.model.posterior.std_vector())
        ended = Ended(good.model, good.likelihood, "ivon", 0.1, history, 200, False, False)
        _, trust = conclude(ended, Examples(x[:200], y[:200]), held_out, Trust())
        lines[factor] = [note.line for note in trust.notes if note.about == "validation"]
    assert lines[1.0] == []
    (line,) = lines[12.0]
    assert "worse on validation than that of its own mean network: NLL" in line
    assert "lower temperature (here 0.1)" in line


def test_disagreement_of_members_by_hand() -> None:
    logits = torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]], [[0.1, 0.9]]]).log()
    assert disagreement_of(logits, bw.Categorical()) == pytest.approx((0.4 + 0 + 0.4) / 3, abs=1e-6)
    means = torch.tensor([[[1.0]], [[3.0]]])
    assert disagreement_of(means, bw.Gaussian("known", 2.0)) == pytest.approx(math.sqrt(1 / (1 + 4)))


def test_members_that_disagree_where_they_have_learned() -> None:
    lines = told("deep-ensemble", epochs=1, members=3, lr=1e-6, means="prior")
    assert any("the 3 members disagree on their own training inputs" in line for line in lines)
    assert told("deep-ensemble", epochs=15, members=3, lr=0.05) == []


def test_inputs_away_from_the_given_ones() -> None:
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(4)) * torch.tensor([1.0, 10.0, 0.1]) + 5
    x[:, 1] = 10 * x[:, 0]  # as dependent as can be
    tokens = torch.arange(400)[:, None] * torch.tensor([1, 1000])
    away = away_from({"x": x, "tokens": tokens})
    assert bool(torch.isin(away["x"][::2], x).all())  # every second example is made of features as they are
    assert abs(float(torch.corrcoef(away["x"].T)[0, 1])) < 0.2
    for column in range(2):  # tokens only change places
        assert torch.equal(away["tokens"][:, column].sort().values, tokens[:, column].sort().values)
    wider = away["x"][1::2].std(0) / away["x"][::2].std(0)
    torch.testing.assert_close(wider, torch.full((3,), math.sqrt(2.0)), rtol=0.2, atol=0)
    assert torch.equal(away_from(x), away_from(x))


def test_chains_are_also_looked_at_elsewhere() -> None:
    net, data = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bw.fit(net, data, "sghmc", epochs=12, batch_size=64, members=2)
    here, there = result.trust.chains, result.trust.chains_elsewhere
    assert here is not None
    assert there is not None
    assert here == result.chains
    assert (there.chains, there.quantities) == (2, here.quantities)
    assert there.r_hat != here.r_hat
