"""Can the stds get where they belong in the planned number of steps?"""

from __future__ import annotations

import math

import torch

from ..errors import require_count, require_positive
from ..types import KLWeight, Posterior, Prior, Progress, Rate
from .checks import require_at_least_zero

_LOOKS = 1000
_GOLDEN = (math.sqrt(5) - 1) / 2


def std_convergence_warning(
    posterior: Posterior,
    prior: Prior,
    lr: float,
    step_bound: float | None,
    rate: Rate,
    kl_weight: KLWeight,
    total_steps: int,
    batches: int,
) -> str | None:
    """A line of warning if the stds cannot get back to the prior's in the planned steps, else None.

    ``lr`` is the rate of the stds and ``step_bound`` the stepper's; None, a step that depends on the gradient, says
    nothing about the way, and no warning is given.
    """
    if step_bound is None:
        return None
    steps = counted_steps(rate, kl_weight, total_steps, batches)
    with torch.no_grad():
        ratio = float((posterior.std_vector() / prior.std_vector()).log_().mean().exp())
    return stds_out_of_reach(ratio, lr, steps, speed=step_bound * posterior.log_std_speed)


def counted_steps(rate: Rate, kl_weight: KLWeight, total_steps: int, batches: int) -> float:
    """The sum over the planned steps of (factor of the rate) x min(1, KL weight).

    Only the KL pulls a std that the data say nothing about, and while its weight is small the noise of the data's
    gradient sets the length of Adam's steps; a weight above 1 makes no step longer.
    """
    require_count("counted_steps", "total_steps", total_steps)
    require_count("counted_steps", "batches", batches)
    # A thousand of the steps stand for all: a schedule of millions would take longer than the first epoch. One in each
    # thousandth, never at the same place in it, or weights that change within an epoch would be met at one batch only.
    looks = min(_LOOKS, total_steps)
    every = total_steps / looks
    total = 0.0
    for look in range(looks):
        step = int((look + (look * _GOLDEN) % 1) * every) if every > 1 else look
        at = Progress(step, total_steps, step % batches, batches)
        total += rate.factor(at) * min(1.0, kl_weight(at))
    return total * every


def reachable_log_std(lr: float, steps: float, speed: float = 1.0) -> float:
    """How far a log std can move at most, about: speed x lr x steps (Unlu & Aitchison 2021, section 5.1).

    Adam's step |m^| / sqrt(v^) is 1 where all gradients agree and less where they are noisy (``Stepper.step_bound``).
    With a schedule ``steps`` is the sum of its factors over the run. ``speed`` is how far a log std moves as each
    parameter moves by one (``Posterior.log_std_speed``: 2 where it is the sum of two). It holds for rho too while the
    std is well below 1.
    """
    require_at_least_zero("reachable_log_std", "lr", lr)
    require_at_least_zero("reachable_log_std", "steps", steps)
    require_positive("reachable_log_std", "speed", speed)
    return speed * lr * steps


def stds_out_of_reach(
    std_ratio: float, lr: float, steps: float, margin: float = 2.0, speed: float = 1.0
) -> str | None:  # fmt: skip
    """A line of warning if stds that start at ``std_ratio`` times the prior's cannot get back to it, else None.

    A weight that the data say nothing about must return to the prior, |log(std_ratio)| away; the others stop on the
    way there. As gradients are noisy, ``margin`` times that distance is asked for: in variational Laplace's own
    experiment a reach of 4 for a distance of 3 was not enough.
    """
    require_positive("stds_out_of_reach", "std_ratio", std_ratio)
    require_positive("stds_out_of_reach", "margin", margin)
    distance, reach = abs(math.log(std_ratio)), reachable_log_std(lr, steps, speed)
    if reach >= margin * distance:
        return None
    certain = "cannot" if reach < distance else "may not"
    # Upwards, so that the advice is enough.
    advice = "" if reach == 0 else f": multiply the rate of the stds, or the steps, by {_up(margin * distance / reach)}"
    return (
        f"the stds {certain} converge: they start at {std_ratio:.3g} of the prior std, {distance:.3g} away in log std, "
        f"and {steps:.6g} steps at rate {lr:.3g} move them by about {reach:.3g} at most{advice}"
    )


def _up(value: float) -> str:
    """Two digits, rounded up."""
    digits = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / digits) * digits:.6g}"
