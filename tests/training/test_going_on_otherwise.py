"""Going on with other data, batches or settings, or after an early stop."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from unjudged import unjudged

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")

NOISE = 0.5


def line(count: int, seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 1, generator=bw.make_generator(seed), dtype=torch.float64)
    return x, 1.5 * x + NOISE * torch.randn(count, 1, generator=bw.make_generator(seed + 100), dtype=torch.float64)


def exact_std(x: Tensor) -> float:
    return float((x.square().sum() / NOISE**2 + 1).rsqrt())


def fit_line(start: Any, data: tuple[Tensor, Tensor], *method: Any, epochs: int, **settings: Any) -> bw.Result:
    first = {"likelihood": bw.Gaussian("known", NOISE), "temperature": 1.0, "prior": bw.Normal(1.0)}
    return bw.fit(start, data, *method, epochs=epochs, **({} if isinstance(start, bw.Result) else first), **settings)


def test_a_verdict_changes_nothing_that_is_learned_now_or_later() -> None:
    """What `unjudged` of other tests stands on."""
    data = line(40, 6)

    def learned() -> list[Tensor]:
        first = fit_line(nn.Linear(1, 1).double(), data, "swag", epochs=8, batch_size=20, seed=3)
        second = fit_line(first, data, epochs=2, batch_size=20, seed=3)
        return [*first.model.state_dict().values(), *second.model.state_dict().values()]

    torch.manual_seed(0)
    judged = learned()
    torch.manual_seed(0)
    with unjudged():
        assert all(torch.equal(*pair) for pair in zip(learned(), judged, strict=True))


@pytest.mark.parametrize("method", ["ivon", "bbb"])
def test_other_data_begin_anew_from_the_posterior(method: str) -> None:
    """Ten times the data: the std is that of the new data, not of a stepper that still counts the old ones."""
    old, new = line(40, 1), line(400, 2)
    how: dict[str, Any] = {"rate": "cosine", "batch_size": 400}
    if method == "ivon":
        how["stepper"] = {"name": "ivon", "lr": 0.1, "beta2": 0.99, "hess_init": 1.0}
    else:
        how["lr"] = 0.03
    first = fit_line(nn.Linear(1, 1, bias=False).double(), old, method, epochs=400, **how)
    second = fit_line(first, new, epochs=400, batch_size=400)
    assert first.model.posterior.std_vector().item() == pytest.approx(exact_std(old[0]), rel=0.2)
    assert second.model.posterior.std_vector().item() == pytest.approx(exact_std(new[0]), rel=0.2)
    assert len(second.histories[0].epochs) == 400  # begun anew


def test_another_batch_size_begins_anew() -> None:
    data = line(64, 3)
    first = fit_line(nn.Linear(1, 1, bias=False).double(), data, "bbb", epochs=4, batch_size=4)
    second = fit_line(first, data, epochs=3, batch_size=32)
    assert [epoch.epoch for epoch in second.histories[0].epochs] == [0, 1, 2]
    assert second.histories[0].epochs[0].rates["means"] > 0


def test_the_posterior_becomes_the_prior_only_when_asked_for() -> None:
    old, new = line(30, 4), line(30, 5)
    how: dict[str, Any] = {"lr": 0.03, "rate": "constant", "batch_size": 30}
    first = fit_line(nn.Linear(1, 1, bias=False).double(), old, "bbb", epochs=20, **how)
    second = fit_line(first, new, epochs=20, prior="posterior", batch_size=30)
    third = fit_line(second, new, epochs=5, batch_size=30)
    assert torch.equal(third.model.prior.centre, first.model.posterior.mean_vector())
    assert len(third.histories[0].epochs) == 25  # the same run, longer
    longer = fit_line(first, new, epochs=25, prior="posterior", batch_size=30)
    assert torch.equal(third.model.posterior.mean_vector(), longer.model.posterior.mean_vector())


def test_a_run_that_stopped_early_goes_on() -> None:
    x, y = line(60, 6)
    held_out = line(60, 7)
    stop = {"validation": held_out, "early_stopping": bw.KeepBest(patience=1, min_change=10.0)}
    first = fit_line(nn.Linear(1, 1, bias=False).double(), (x, y), "bbb", epochs=20, batch_size=20, **stop)
    assert len(first.histories[0].epochs) < 20
    second = fit_line(first, (x, y), epochs=3, batch_size=20)
    assert len(second.histories[0].epochs) == len(first.histories[0].epochs) + 3


def test_other_settings_of_a_posterior_begin_at_its_mean() -> None:
    data = line(40, 8)
    net = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    first = fit_line(net, data, "k-tied", epochs=2)
    second = fit_line(first, data, epochs=1, posterior={"rank": 3}, lr=1e-9)
    assert second.model.posterior.rank == 3
    np.testing.assert_allclose(
        second.model.posterior.mean_vector().detach(), first.model.posterior.mean_vector().detach(), atol=1e-6
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"where": "last_layer"}, ["where"]),
        ({"means": "prior"}, ["means"]),
        ({"dropout": 0.2}, ["dropout"]),
        ({"method": "mc-dropout"}, ["mc-dropout", "dropout"]),
    ],
)
def test_what_a_trained_model_has_decided_is_refused(settings: dict[str, Any], words: list[str]) -> None:
    data = line(40, 9)
    first = fit_line(nn.Linear(1, 1).double(), data, "bbb", epochs=1)
    with pytest.raises(bw.BayeswellError) as caught:
        bw.fit(first, data, epochs=1, **settings)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_rate_that_depends_on_the_length_is_told_of() -> None:
    data = line(40, 10)
    first = fit_line(nn.Linear(1, 1).double(), data, "bbb", epochs=2, rate="cosine")
    with pytest.warns(bw.BayeswellWarning, match="the rate 'cosine' depends on the planned length"):
        fit_line(first, data, epochs=1)
    first = fit_line(nn.Linear(1, 1).double(), data, "bbb", epochs=2, rate="constant", std_rate="cosine")
    with pytest.warns(bw.BayeswellWarning, match="the std_rate 'cosine' depends on the planned length"):
        fit_line(first, data, epochs=1)


nadam, student = functools.partial(functools.partial, torch.optim.NAdam), torch.distributions.StudentT


def weighted(scale: float) -> Any:
    return lambda at: scale * 0.5


@pytest.mark.parametrize(
    ("begun", "resumed"),
    [
        (
            {"stepper": functools.partial(torch.optim.NAdam, lr=0.1)},
            {"stepper": functools.partial(torch.optim.NAdam, lr=0.2)},
        ),
        ({"stepper": torch.optim.NAdam}, {"stepper": torch.optim.RAdam}),
        (
            {"prior": torch.distributions.StudentT(4.0, scale=0.3)},
            {"prior": torch.distributions.StudentT(4.0, scale=3.0)},
        ),
        ({"kl_weight": lambda at: 0.5}, {"kl_weight": lambda at: 0.25}),
        ({"kl_weight": weighted(1.0)}, {"kl_weight": weighted(2.0)}),
    ],
)
def test_a_run_is_not_resumed_with_other_parts(begun: dict[str, Any], resumed: dict[str, Any], tmp_path: Path) -> None:
    x, y = torch.randn(40, 3), torch.randint(0, 2, (40,))
    where = tmp_path / "run"
    bw.fit(nn.Linear(3, 2), (x, y), "bbb", epochs=1, folder=where, **begun)
    with pytest.raises(bw.SettingError, match="was begun otherwise"):
        bw.fit(nn.Linear(3, 2), (x, y), "bbb", epochs=1, folder=where, resume=True, **resumed)


def test_starts_from_the_prior_lie_around_its_centre() -> None:
    net = nn.Linear(3, 2)
    with torch.no_grad():
        net.weight.fill_(3.0)
    model = bw.bayesian(net, "delta", bw.Normal(0.05, centre="network"), means="prior")
    away = (model.posterior.mean_vector()[:6] - 3).detach().abs()
    assert 0 < float(away.max()) < 0.05 * 3**0.5 + 1e-6


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"prior": torch.distributions.Uniform(-1.0, 1.0)}, ["Uniform", "real number"]),
        ({"prior": torch.distributions.StudentT(2.0)}, ["StudentT", "finite std"]),
        ({"likelihood": nn.MSELoss()}, ["MSELoss"]),
        ({"kl_weight": lambda at: -1.0}, ["KL weight", "at least 0"]),
        ({"kl_weight": lambda: 1.0}, ["KL weight", "fails"]),
        ({"rate": lambda at: -0.5}, ["rate", "at least 0"]),
        ({"rate": torch.optim.lr_scheduler.CosineAnnealingLR}, ["T_max"]),
    ],
)
def test_ordinary_objects_that_will_not_do_are_refused_in_one_line(choice: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(bw.BayeswellError) as caught:
        bw.fit(nn.Linear(3, 2), (torch.randn(20, 3), torch.randint(0, 2, (20,))), "map", epochs=1, **choice)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value


def test_mixtures_and_transforms_are_priors_too() -> None:
    d = torch.distributions
    mixture = d.MixtureSameFamily(
        d.Categorical(torch.tensor([0.3, 0.7])), d.Normal(torch.zeros(2), torch.tensor([0.1, 1.0]))
    )
    model = bw.bayesian(nn.Linear(2, 1).double(), "mean_field", mixture)
    weights = torch.randn(2, 3, dtype=torch.float64)
    torch.testing.assert_close(model.prior.log_prob(weights), mixture.log_prob(weights).sum(-1))
    assert isinstance(bw.PRIORS.resolve(d.Normal(0.0, 0.3)), bw.Normal)


def test_a_sampler_may_end_in_a_gaussian() -> None:
    result = bw.fit(
        nn.Linear(3, 2), (torch.randn(40, 3), torch.randint(0, 2, (40,))), "sgld", epochs=8, collector="swag"
    )
    assert result.chains is None
