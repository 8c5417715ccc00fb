"""Members that are distributions are kept as such: a mixture, drawn from equally often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

import bayeswell as bw
from bayeswell.posteriors import MeanFieldPosterior, MixturePosterior
from bayeswell.training.member_runs import fit_member
from bayeswell.training.run import Callback, Run

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # short runs
X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)) + 0.5
Y = (X[:, 0] > 0.5).long() + (X[:, 1] > 1).long()
HOW: dict[str, Any] = {"epochs": 4, "batch_size": 15, "seed": 5}


def _net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def _with_batch_norm() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


def _mixture() -> tuple[MixturePosterior, Tensor, Tensor]:
    model = bw.bayesian(_net(), "delta")
    means = torch.stack([torch.full((model.layout.size,), value) for value in (-3.0, 0.5, 4.0)])
    stds = torch.stack([torch.full((model.layout.size,), value) for value in (0.2, 0.7, 0.4)])
    parts = [MeanFieldPosterior(model.layout, mean, std) for mean, std in zip(means, stds, strict=True)]
    return MixturePosterior(model.layout, parts), means, stds


def test_the_density_and_the_moments_are_those_of_the_mixture() -> None:
    mixture, means, stds = _mixture()
    exact = MixtureSameFamily(Categorical(torch.ones(3)), Independent(Normal(means, stds), 1))
    torch.testing.assert_close(mixture.mean_vector(), exact.mean)
    torch.testing.assert_close(mixture.std_vector().square(), exact.variance, rtol=1e-5, atol=0)
    points = means + 0.3
    torch.testing.assert_close(mixture(points), exact.log_prob(points), rtol=1e-4, atol=1e-4)


def test_every_component_is_drawn_from_equally_often() -> None:
    mixture, means, stds = _mixture()
    drawn = torch.stack(
        [mixture.layout.flatten(tensors) for tensors in mixture.draws(9, torch.Generator().manual_seed(2))]
    )
    nearest = torch.cdist(drawn, means).argmin(1)
    assert nearest.bincount().tolist() == [3, 3, 3]
    # sample() chooses by its last number: thirds of the normal distribution, whatever the others are.
    noise = torch.zeros(3, mixture.noise_size)
    noise[:, -1] = torch.tensor([-1.0, 0.0, 1.0])
    noise[:, :-1] = 2.0
    torch.testing.assert_close(mixture.sample(noise), means + 2 * stds)


@pytest.mark.parametrize("method", ["bbb", "k-tied", "hwa", "swag", "ivon", "low-rank"])
def test_the_components_are_the_members(method: str, tmp_path: Path) -> None:
    settings = {**HOW, "epochs": 12} if method in ("hwa", "swag") else HOW
    result = bw.fit(_net(), (X, Y), method, members=2, progress=False, **settings)
    posterior = result.model.posterior
    assert isinstance(posterior, MixturePosterior)
    for index, component in enumerate(posterior.components):
        alone = fit_member(_net(), (X, Y), method, "categorical", index, members=2, **settings).posterior
        for name, value in alone.state_dict().items():
            assert torch.equal(component.state_dict()[name], value), name
    assert result.predict(X, draws=50).draws == 50  # not bounded by what a bank would hold
    result.save(tmp_path / "kept")
    again = bw.load(tmp_path / "kept")
    for draws in (3, 20):
        before, after = (one.predict(X, draws=draws, seed=7).probabilities for one in (result, again))
        assert torch.equal(before, after)


def test_each_component_has_its_own_statistics(tmp_path: Path) -> None:
    result = bw.fit(_with_batch_norm(), (X, Y), "bbb", members=2, progress=False, **HOW)
    posterior = result.model.posterior
    alone = [fit_member(_with_batch_norm(), (X, Y), "bbb", "categorical", i, members=2, **HOW) for i in (0, 1)]
    expected = torch.stack([one.net.get_buffer("1.running_mean") for one in alone])
    assert not torch.equal(expected[0], expected[1])
    drawn = torch.stack([one["1.running_mean"] for one in posterior.draws(2, torch.Generator().manual_seed(0))])
    order = drawn[:, 0].argsort()
    assert torch.equal(drawn[order], expected[expected[:, 0].argsort()])
    result.save(tmp_path / "kept")
    again = bw.load(tmp_path / "kept")
    assert torch.equal(again.predict(X, draws=6).probabilities, result.predict(X, draws=6).probabilities)


class Cut(Callback):
    """A power cut in the second member."""

    def after_epoch(self, run: Run, record: Any) -> None:
        if run.member == 1 and run.epoch == 2:
            raise RuntimeError("cut")


def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = bw.fit(_net(), (X, Y), "k-tied", members=2, progress=False, **HOW)
    with pytest.raises(RuntimeError, match="cut"):
        bw.fit(_net(), (X, Y), "k-tied", members=2, folder=tmp_path, callbacks=[Cut()], progress=False, **HOW)
    rest = bw.fit(_net(), (X, Y), "k-tied", members=2, folder=tmp_path, resume=True, progress=False, **HOW)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(rest.model.state_dict()[name], value), name


def test_a_mixture_has_no_centre() -> None:
    result = bw.fit(_net(), (X, Y), "bbb", members=2, progress=False, **HOW)
    with pytest.raises(bw.SettingError, match="several distributions, which has no centre"):
        result.model.centre()
    with pytest.raises(bw.CompositionError, match="no training can go on"):
        bw.fit(result.model, (X, Y), "bbb", "categorical", progress=False)
