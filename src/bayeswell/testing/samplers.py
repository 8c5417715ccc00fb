"""Checks of samplers: noise that the generator decides, and draws as wide as the target."""

from __future__ import annotations

import math

import torch
from torch import nn

from ..random import make_generator
from ..types import Progress
from .problems import normal
from .report import require, require_same
from .tracks import STEPS, Case, Track, build

_COORDINATES, _CHAIN = 4000, 2000
_STEP_TIMES_CURVATURE = 0.1


def says_when_it_samples(case: Case) -> None:
    """``sampling(at)`` is True or False, and True at some step."""
    found = [case.part.sampling(Progress(step, STEPS)) for step in range(STEPS)]
    require(all(isinstance(value, bool) for value in found), f"sampling(at) gives a {type(found[0]).__name__}")
    require(any(found), f"sampling(at) is False in all of {STEPS} steps")


def the_generator_decides(case: Case) -> None:
    """The same generator gives the same chain, another one another."""
    case.only(samples=True)
    first, again, other = Track(case.part), Track(case.part), Track(case.part, seed=2)
    for track in (first, again, other):
        track.steps(STEPS)
    require_same("two chains with the same generator", again.values(), first.values())
    differ = not torch.equal(first.values()["mean"], other.values()["mean"])
    require(differ, "chains with different generators are the same: there is no noise, or not from the generator given")


def takes_no_noise_where_none_belongs(case: Case) -> None:
    """A group that carries ``noise`` False (parameters without a posterior) is moved by the gradient alone."""
    case.only(samples=True)
    ends = []
    for seed in (1, 2):
        weights = nn.Parameter(normal(8, seed=5))
        groups = [{"params": [weights], "lr": case.part.lr, "noise": False}]
        optimizer = build(case.part, groups, make_generator(seed), None)
        for _ in range(STEPS):
            weights.grad = weights.detach().clone()
            optimizer.step()
        ends.append(weights.detach())
    require_same("a group with noise = False depends on the generator", ends[0], ends[1])


def spread_is_that_of_the_target(case: Case) -> None:
    """Thousands of independent chains on a Gaussian target have its mean and, within ``tolerance``, its std."""
    case.only(samples=True)
    curvature = _STEP_TIMES_CURVATURE / case.part.lr
    size = max(1, round(curvature))  # so that gradients are of size one, whatever the rate
    expected = math.sqrt(1 / (size * curvature))
    weights = nn.Parameter(2 * expected * normal(_COORDINATES, seed=7))
    optimizer = build(case.part, [{"params": [weights]}], make_generator(3), None, _CHAIN, size)
    found: list[float] = []
    means: list[float] = []
    for step in range(_CHAIN):
        weights.grad = curvature * weights.detach()
        optimizer.step()
        if step >= _CHAIN // 2 and step % 10 == 9 and case.part.sampling(Progress(step, _CHAIN)):
            found.append(float(weights.detach().square().mean()))
            means.append(float(weights.detach().mean()))
    require(bool(found), "no step of the second half of a run may be kept")
    std, mean = math.sqrt(sum(found) / len(found)), sum(means) / len(means)
    error = std / expected - 1
    doubt = f"tolerance {case.tolerance:.0%}, standard error {1 / math.sqrt(2 * _COORDINATES):.1%}"
    require(
        abs(error) <= case.tolerance,
        f"draws from N(0, {expected:.4g}^2) have a std of {std:.4g}, off by {error:.0%} ({doubt}; lr x curvature is "
        f"{_STEP_TIMES_CURVATURE:g})",
    )
    limit = 5 * expected / math.sqrt(_COORDINATES)
    require(
        abs(mean) <= limit,
        f"draws from N(0, {expected:.4g}^2) have a mean of {mean:.2g}, expected 0 within {limit:.2g}",
    )
