"""Warning for stds that cannot reach the prior's in the planned steps."""

from __future__ import annotations

import math

import torch

from ..core.protocols import KLWeight, Posterior, Prior, Progress, Schedule

_POINTS = 1000


def counted_steps(schedule: Schedule, kl_weight: KLWeight, total_steps: int, batches: int) -> float:
    """Return the sum over the run of (learning-rate factor) x min(1, KL weight), from at most a thousand steps."""
    count = min(_POINTS, total_steps)
    golden = (math.sqrt(5) - 1) / 2
    total = 0.0
    for point in range(count):
        # Never at the same place of each interval, or weights within an epoch would be met at one batch only.
        step = point if count == total_steps else int((point + (point * golden) % 1) * total_steps / count)
        progress = Progress(step, total_steps, step % batches, batches)
        total += schedule.factor(progress) * min(1.0, kl_weight(progress))
    return total * total_steps / count


def std_convergence_warning(
    posterior: Posterior, prior: Prior, lr: float, steps: float, step_bound: float | None, margin: float = 2.0
) -> str | None:
    """Return a warning if stds cannot return from their start to the prior's, else None.

    A log std moves by at most step_bound x lr x steps (Unlu & Aitchison 2021, section 5.1). A weight that the data say
    nothing about has to move by |log(std / prior std)|. Gradients are noisy, so ``margin`` times that is asked for.
    """
    with torch.no_grad():
        distance = abs(float((posterior.std() / prior.std()).log().mean()))
    if step_bound is None or step_bound * lr * steps >= margin * distance:
        return None
    return (
        f"the stds may not converge: they start {distance:.3g} away from the prior's in log std, and {steps:.4g} steps "
        f"at learning rate {lr:.3g} move them by at most {step_bound * lr * steps:.3g}; raise std_lr or train longer"
    )
