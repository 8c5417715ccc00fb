"""Checks of steppers, on quadratic losses; those of samplers alone are in ``samplers``."""

from __future__ import annotations

import copy

import torch

from .report import Omitted, Suite, require, require_same
from .samplers import (
    says_when_it_samples,
    spread_is_that_of_the_target,
    takes_no_noise_where_none_belongs,
    the_generator_decides,
)
from .tracks import STEPS, Case, Track

_WARM_UP = 10


def first_step_goes_downhill(case: Case) -> None:
    """The first step has a part along the negative gradient, for every parameter; later ones lower the loss."""
    case.only(samples=False)
    track = Track(case.part)
    before = track.values()
    losses = track.steps(1)
    for name, value in track.parameters.items():
        along = ((value.detach() - before[name]) * (track.aims[name] - before[name])).sum()
        require(float(along) > 0, f"the first step moves '{name}' by {float(along):.3g} downhill, expected more than 0")
    end = track.steps(STEPS - 1)[-1]
    require(end < losses[0], f"{STEPS} steps bring a quadratic loss from {losses[0]:.5g} to {end:.5g}")


def leaves_what_has_no_gradient(case: Case) -> None:
    """A parameter without a gradient stays as it is, bit for bit."""
    track = Track(case.part)
    before = track.values()["idle"]
    track.steps(5)
    require_same("a parameter without a gradient has moved", track.idle.detach(), before)


def goes_on_bit_for_bit(case: Case) -> None:
    """A state loaded into a new optimizer ends as the uninterrupted one."""
    whole, first, second = (Track(case.part) for _ in range(3))
    whole.steps(12)
    first.steps(7)
    with torch.no_grad():
        for name, value in first.values().items():
            {**second.parameters, "idle": second.idle}[name].copy_(value)
    # What a checkpoint keeps: the optimizer's state, and the generator that it was built with.
    second.generator.set_state(first.generator.get_state())
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    second.steps(5)
    require_same("parameters after a saved state was loaded", second.values(), whole.values())


def rates_of_groups_count(case: Case) -> None:
    """A group whose lr is set to 0 does not move; of a sampler, whose velocity goes on, from the start."""
    track = Track(case.part)
    track.steps(0 if case.part.samples else 2)
    track.optimizer.param_groups[0]["lr"] = 0.0
    before = track.values()["mean"]
    track.steps(1)
    require_same("the means have moved at a rate of 0", track.values()["mean"], before)


def step_bound_holds(case: Case) -> None:
    """Under a steady gradient of any size no step of the stds is longer than ``step_bound`` learning rates.

    That is what the bound is for: whether stds get where they belong in time (they have no weight decay). The first
    steps may be others (RAdam's are those of SGD).
    """
    bound = case.part.step_bound
    if bound is None or case.part.samples:
        raise Omitted("it declares no `step_bound`")
    for size in (1e-4, 1.0, 1e4):
        track = Track(case.part)
        for step in range(STEPS):
            before = track.values()
            for value in track.parameters.values():
                value.grad = torch.full_like(value, size)
            track.optimizer.step()
            if step < _WARM_UP:
                continue
            moved = float((track.parameters["log_std"].detach() - before["log_std"]).abs().max()) / case.part.lr
            require(
                moved <= bound * 1.001,
                f"step {step} moves a log std by {moved:.4g} learning rates, step_bound says {bound:g}",
            )


_CHECKS = (
    first_step_goes_downhill,
    leaves_what_has_no_gradient,
    goes_on_bit_for_bit,
    rates_of_groups_count,
    step_bound_holds,
    says_when_it_samples,
    the_generator_decides,
    takes_no_noise_where_none_belongs,
    spread_is_that_of_the_target,
)
SUITE = Suite(Case, _CHECKS, ("tolerance",))
