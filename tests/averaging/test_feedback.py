"""Averages that are fed back into training: a restart, and draws that steps see.

Statistical checks fail correct code at a rate of 1e-6 each, with fixed seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import bayeswell as bw
from averaging.paths import path, put, vector_model
from bayeswell.averaging import HWA
from bayeswell.averaging.columns import Columns
from bayeswell.posteriors.low_rank import LowRankPosterior
from bayeswell.types import Progress
from nets import covariance_of
from truths.statistics import assert_covariance_close, assert_mean_close


def test_restart_moves_the_iterate_to_the_average() -> None:
    means, stds = path(6, 3)
    model = vector_model(3, "mean_field")
    collector = HWA(start=0, cycle=2, feedback="restart").build(model, 6, 6)
    taken: list[Tensor] = []
    for step in range(6):
        put(model, means[step], stds[step])
        collector.observe(model, Progress(step, 6))
        if step % 2:
            taken.append(means[step])
            torch.testing.assert_close(model.posterior.mean_vector().detach(), torch.stack(taken).mean(0))
        else:
            assert torch.equal(model.posterior.mean_vector(), means[step])
        torch.testing.assert_close(model.posterior.std_vector().detach(), stds[step])


@pytest.mark.parametrize("parameter", ["log_std", "rho"])
def test_sample_feedback_makes_steps_see_the_average_covariance(parameter: str) -> None:
    """After every step the posterior is N(iterate, Sigma_H), whatever the optimizer did to its stds."""
    means, stds = path(6, 4)
    model = vector_model(4, {"name": "mean_field", "parameter": parameter})
    collector = HWA(start=0, cycle=2, feedback="sample").build(model, 6, 6)
    spread = torch.zeros(4)
    for step in range(6):
        put(model, means[step])
        with torch.no_grad():
            getattr(model.posterior, parameter).copy_(
                stds[step].log() if parameter == "log_std" else torch.expm1(stds[step]).log()
            )
        collector.observe(model, Progress(step, 6))
        assert torch.equal(model.posterior.mean_vector(), means[step])
        if step == 0:  # no snapshot yet
            torch.testing.assert_close(model.posterior.std_vector().detach(), stds[0])
            continue
        so_far = means[1 : step + 1 : 2]
        spread = (stds[1].square() + so_far.var(0, correction=0)).sqrt()
        torch.testing.assert_close(model.posterior.std_vector().detach(), spread)
    torch.testing.assert_close(collector.result()[1].std_vector().detach(), spread)


def test_sample_feedback_of_the_swag_variance_waits_for_a_second_snapshot() -> None:
    means, stds = path(3, 4)
    model = vector_model(4, "mean_field")
    collector = HWA(start=0, cycle=1, feedback="sample", variance="swag").build(model, 3, 3)
    put(model, means[0], stds[0])
    collector.observe(model, Progress(0, 3))
    torch.testing.assert_close(model.posterior.std_vector().detach(), stds[0])
    put(model, means[1], stds[1])
    collector.observe(model, Progress(1, 3))
    torch.testing.assert_close(model.posterior.std_vector().detach(), means[:2].std(0, correction=0))


def fed_back(
    variance: str, posterior: dict[str, object], steps: int = 9
) -> tuple[bw.BayesianModule, Tensor, np.ndarray]:
    """A model after its last step, at the iterate's mean; what its mean and its covariance must be, by numpy.

    Snapshots are taken after steps 1, 3, 5, 7; the last step takes none, and moves mean, stds and columns all the same.
    """
    means, stds = path(steps, 5)
    model = vector_model(5, posterior)
    part = HWA(start=0, cycle=2, variance=variance, covariance="low_rank", feedback="sample", columns=3)
    collector = part.build(model, steps, steps)
    learned = np.zeros(5)
    for step in range(steps):
        put(model, means[step], stds[step])
        if step == 1:  # the first snapshot, the last whose stds were learned
            learned = np.diagonal(covariance_of(model.posterior).detach().numpy()).copy()
        collector.observe(model, Progress(step, steps))
    taken = means[1::2].numpy()
    columns = np.stack([taken[n] - taken[: n + 1].mean(0) for n in range(len(taken))][-3:], axis=1)
    truth = np.diag(taken.var(0)) / 2 + columns @ columns.T / (2 * (3 - 1))
    return model, means[-1], truth + (np.diag(learned) if variance == "mixture" else 0)


def check_sampled_moments(variance: str) -> None:
    """What a step draws: 100,000 weight vectors see a covariance that is off by 6 percent of its stds."""
    model, mean, covariance = fed_back(variance, {"name": "low_rank", "rank": 4})
    noise = torch.randn(100_000, model.posterior.noise_size, generator=bw.make_generator(3), dtype=torch.float64)
    drawn, _ = model.posterior.sample_and_kl(noise, model.prior)
    assert drawn is not None
    assert_mean_close(drawn.detach(), mean, std=np.sqrt(np.diag(covariance)))
    assert_covariance_close(drawn.detach(), covariance)


@pytest.mark.parametrize("variance", ["mixture", "swag"])
def test_low_rank_sample_feedback_draws_from_equation_5_around_the_iterate(variance: str) -> None:
    model, mean, covariance = fed_back(variance, {"name": "low_rank", "rank": 4})
    assert torch.equal(model.posterior.mean_vector(), mean)
    np.testing.assert_allclose(covariance_of(model.posterior).detach().numpy(), covariance, rtol=1e-11, atol=1e-14)
    check_sampled_moments(variance)


def _no_root(true: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """scale in place of its root, as in the block-wise sampler of SWAG's authors."""
    return lambda self, scale: true(self, scale) * scale**0.5


def _one_less(true: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """k for k - 1."""
    return lambda self, scale: true(self, scale) * ((len(self.held) - 1) / len(self.held)) ** 0.5


@pytest.mark.parametrize("plant", [_no_root, _one_less], ids=["no root", "k for k - 1"])
def test_the_check_of_sampled_moments_sees_a_wrong_factor(
    plant: Callable[..., Callable[..., Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Columns, "factor", plant(Columns.factor))
    with pytest.raises(AssertionError, match="covariance"):
        check_sampled_moments("mixture")


def test_the_check_of_sampled_moments_sees_columns_that_are_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LowRankPosterior, "set_factor", lambda self, factor: None)
    with pytest.raises(AssertionError, match="covariance"):
        check_sampled_moments("swag")


def test_low_rank_sample_feedback_waits_for_a_second_snapshot_and_fits_the_rank() -> None:
    means, stds = path(6, 5)
    model = vector_model(5, {"name": "low_rank", "rank": 2})
    collector = HWA(start=0, cycle=1, covariance="low_rank", feedback="sample").build(model, 6, 6)
    put(model, means[0], stds[0])
    learned = covariance_of(model.posterior).detach()
    collector.observe(model, Progress(0, 6))
    assert torch.equal(covariance_of(model.posterior), learned)
    for step in range(1, 6):
        put(model, means[step], stds[step])
        collector.observe(model, Progress(step, 6))
    part, result = collector.result()
    assert part == bw.POSTERIORS.resolve({"name": "low_rank", "rank": 2})
    torch.testing.assert_close(covariance_of(model.posterior), covariance_of(result))
    assert all(parameter.requires_grad for parameter in model.posterior.parameters())


def test_a_run_of_algorithm_2_with_equation_5_trains() -> None:
    """Every step after the second snapshot sees the average's covariance, and the mean is found all the same."""
    generator = bw.make_generator(4)
    inputs = torch.randn(200, 3, generator=generator)
    targets = inputs @ torch.tensor([[0.7], [-1.2], [0.4]]) + 0.1 * torch.randn(200, 1, generator=generator)
    method = bw.find_method("low-rank").changed(
        collector={"name": "hwa", "covariance": "low_rank", "feedback": "sample", "start": 0.3}
    )
    result = bw.fit(
        torch.nn.Linear(3, 1), (inputs, targets), method, "gaussian", epochs=20, batch_size=40, lr=0.05, seed=1,
        progress=False,
    )  # fmt: skip
    weights = result.model.layout.unflatten(result.model.posterior.mean_vector().detach())["weight"]
    torch.testing.assert_close(weights, torch.tensor([[0.7, -1.2, 0.4]]), rtol=0, atol=0.1)
