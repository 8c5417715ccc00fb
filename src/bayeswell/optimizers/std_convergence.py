"""Can the stds get where they belong in the planned number of steps?"""

from __future__ import annotations

import math

from ..errors import require_positive
from .checks import require_at_least_zero


def reachable_log_std(lr: float, steps: float) -> float:
    """How far Adam can move a log std at most, about: lr x steps (Unlu & Aitchison 2021, section 5.1).

    Adam's step |m^| / sqrt(v^) is 1 where all gradients agree and less where they are noisy. With a schedule
    ``steps`` is the sum of its factors over the run. It holds for rho too while the std is well below 1.
    """
    require_at_least_zero("reachable_log_std", "lr", lr)
    require_at_least_zero("reachable_log_std", "steps", steps)
    return lr * steps


def stds_out_of_reach(std_ratio: float, lr: float, steps: float, margin: float = 2.0) -> str | None:
    """A line of warning if stds that start at ``std_ratio`` times the prior's cannot get back to it, else None.

    A weight that the data say nothing about must return to the prior, |log(std_ratio)| away; the others stop on the
    way there. As gradients are noisy, ``margin`` times that distance is asked for: in variational Laplace's own
    experiment a reach of 4 for a distance of 3 was not enough.
    """
    require_positive("stds_out_of_reach", "std_ratio", std_ratio)
    require_positive("stds_out_of_reach", "margin", margin)
    distance, reach = abs(math.log(std_ratio)), reachable_log_std(lr, steps)
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
