"""How near a prediction is to that of the true posterior, which a long run of an exact sampler stands for.

Accuracy and likelihood may be better away from the posterior (a cold one often scores well); these numbers ask only
whether the method draws what it claims to. Izmailov et al. 2021, "What are Bayesian neural network posteriors really
like?", section 6 for the two of classification.
"""

from __future__ import annotations

import math

from torch import Tensor

from ..errors import DataError
from .checks import require_numbers
from .estimates import Estimate, mean_of
from .probabilities import require_probabilities


def agreement(probabilities: Tensor, reference: Tensor) -> Estimate:
    """The share of inputs (S, ..., K) whose most probable class is the reference's; of tied classes the lowest."""
    found, truth = _pair_of_probabilities(probabilities, reference)
    return mean_of((found.argmax(-1) == truth.argmax(-1)).double())


def total_variation(probabilities: Tensor, reference: Tensor) -> Estimate:
    """The mean over inputs of sum_k |p_k - r_k| / 2: 0 if all are equal, 1 if no class is shared."""
    found, truth = _pair_of_probabilities(probabilities, reference)
    return mean_of(0.5 * (found.double() - truth.double()).abs().sum(-1))


def mean_error(mean: Tensor, reference_mean: Tensor, reference_std: Tensor) -> float:
    """sqrt(mean ((m - r) / std_r)^2) over inputs and outputs: how many posterior stds the mean function is off.

    The reference stds are those of the function itself, without the noise of the data. A mean of D independent draws
    of the exact posterior has 1 / sqrt(D).
    """
    found, truth, spread = _matched(mean=mean, reference_mean=reference_mean, reference_std=reference_std)
    _require_above_zero("reference_std", spread)
    return math.sqrt(float(((found - truth) / spread).square().mean()))


def std_ratio(std: Tensor, reference_std: Tensor) -> float:
    """mean (std / std_r) over inputs and outputs: 1 is right, 0 a network without uncertainty.

    Both are stds of the function itself, without the noise of the data.
    """
    found, truth = _matched(std=std, reference_std=reference_std)
    _require_above_zero("reference_std", truth)
    if not bool((found >= 0).all()):
        raise DataError(f"std: the smallest is {float(found.min()):g}; it must be at least 0")
    return float((found / truth).mean())


def _pair_of_probabilities(probabilities: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    found, truth = require_probabilities(probabilities), require_probabilities(reference)
    if found.shape != truth.shape:
        raise DataError(f"probabilities have shape {tuple(found.shape)}; the reference has shape {tuple(truth.shape)}")
    return found, truth


def _matched(**tensors: Tensor) -> list[Tensor]:
    """All as float64 on the CPU; one shape, as (S,) against (S, 1) would silently become (S, S)."""
    values = [require_numbers(name, tensor) for name, tensor in tensors.items()]
    for name, value in zip(tensors, values, strict=True):
        if value.shape != values[-1].shape:
            last = list(tensors)[-1]
            raise DataError(f"{name}: shape {tuple(value.shape)}; {last} has shape {tuple(values[-1].shape)}")
    return values


def _require_above_zero(name: str, values: Tensor) -> None:
    if not bool((values > 0).all()):
        raise DataError(f"{name}: the smallest is {float(values.min()):g}; it must be above 0")
