"""Checks of samplers: noise that the generator decides, and draws with the moments of the target."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from ..core.protocols import Progress
from ..core.random import make_generator
from .optimizers import STEPS, Track, build, check_resume
from .problems import normal
from .report import require, require_same

COORDINATES, CHAIN = 4000, 2000
STEP_TIMES_CURVATURE = 0.1


class SamplerChecks:
    """A sampler; ``tolerance`` is that of the std of its draws."""

    def __init__(self, part: Any, tolerance: float = 0.1) -> None:
        self.part, self.tolerance = part.planned(STEPS), tolerance
        require(self.part.samples is True, "`samples` must be True: the iterates are draws")
        Track(self.part)

    def check_resumes_exactly(self) -> None:
        check_resume(self.part)

    def check_says_when_it_samples(self) -> None:
        found = [self.part.may_sample(Progress(step, STEPS)) for step in range(STEPS)]
        require(all(isinstance(value, bool) for value in found), f"may_sample returns a {type(found[0]).__name__}")
        require(any(found), f"may_sample is False in all of {STEPS} steps")

    def check_generator_decides(self) -> None:
        first, again, other = Track(self.part), Track(self.part), Track(self.part, seed=2)
        for track in (first, again, other):
            track.steps(STEPS)
        require_same("a second chain with the same generator", again.values(), first.values())
        differ = not torch.equal(first.values()["mean"], other.values()["mean"])
        require(differ, "chains with different generators are the same: there is no noise of the generator")

    def check_adds_no_noise_to_other_parameters(self) -> None:
        ends = []
        for seed in (1, 2):
            weights = nn.Parameter(normal(8, seed=5))
            drawn = nn.Parameter(normal(8, seed=6))
            groups = [{"params": [p], "lr": self.part.lr, "noise": p is drawn} for p in (drawn, weights)]
            optimizer = build(self.part, groups, make_generator(seed), None)
            for _ in range(STEPS):
                for parameter in (drawn, weights):
                    parameter.grad = parameter.detach().clone()
                optimizer.step()
            ends.append(weights.detach())
        require_same("a group with noise=False under another generator", *ends)

    def check_draws_have_the_moments_of_the_target(self) -> None:
        """Thousands of chains on a Gaussian have its mean and, within ``tolerance``, its std."""
        curvature = STEP_TIMES_CURVATURE / self.part.lr
        size = max(1, round(curvature))  # gradients of size one
        expected = math.sqrt(1 / (size * curvature))
        weights = nn.Parameter(2 * expected * normal(COORDINATES, seed=7))
        optimizer = build(self.part, [{"params": [weights]}], make_generator(3), None, CHAIN, size)
        kept = []
        for step in range(CHAIN):
            weights.grad = curvature * weights.detach()
            optimizer.step()
            if step >= CHAIN // 2 and step % 10 == 9 and self.part.may_sample(Progress(step, CHAIN)):
                kept.append(weights.detach().clone())
        require(bool(kept), "no step of the second half of a run may be kept")
        draws = torch.stack(kept)
        std, mean = float(draws.square().mean().sqrt()), float(draws.mean())
        error = std / expected - 1
        require(
            abs(error) <= self.tolerance,
            f"draws from N(0, {expected:.4g}^2) have a std of {std:.4g}, off by {error:.0%} (tolerance "
            f"{self.tolerance:.0%}, standard error {1 / math.sqrt(2 * COORDINATES):.1%})",
        )
        limit = 5 * expected / math.sqrt(COORDINATES)
        require(abs(mean) <= limit, f"draws from N(0, {expected:.4g}^2) have a mean of {mean:.2g}, above {limit:.2g}")
