"""Averages that are fed back into training: a restart, and draws that steps see.

Statistical checks fail correct code at a rate of 1e-6 each, with fixed seeds.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from averaging.paths import path, put, vector_model
from bayeswell.averaging import HWA
from bayeswell.types import Progress


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
