"""Temperature scaling: softmax(logits / T) with one T, fitted on held-out data (Guo et al. 2017)."""

from __future__ import annotations

import math

from torch import Tensor

from ..core.errors import DataError, check_number
from .classification import DRAW_FLOOR, as_labels, as_probabilities
from .estimates import Array, as_numbers

TEMPERATURE_RANGE = (0.05, 20.0)
"""Without a wrong example in the held-out data the best T would be 0."""


def fit_temperature(logits: Array, labels: Array) -> float:
    """Return the T in 0.05 to 20 with the lowest NLL of softmax(logits / T); logits (S, ..., K), labels (S, ...).

    The log of averaged probabilities will do for logits. Fit on examples that are used neither to train nor to test.
    The NLL is convex in a = 1/T, with the derivative mean(E_a[z] - z_y): bisection in log T.
    """
    values = as_numbers("logits", logits)
    if values.dim() < 2:
        raise DataError(f"logits: shape {tuple(values.shape)}; they must be (S, ..., K)")
    truth = as_labels(labels, values.shape)
    rows = values.log_softmax(-1).reshape(-1, values.shape[-1])
    chosen = rows.gather(-1, truth.reshape(-1, 1)).squeeze(-1)
    if bool((rows == rows[:, :1]).all()):
        return 1.0  # T makes no difference
    low, high = (math.log(t) for t in TEMPERATURE_RANGE)
    for _ in range(50):
        middle = 0.5 * (low + high)
        weights = (rows / math.exp(middle)).softmax(-1)
        too_sure = float(((weights * rows).sum(-1) - chosen).mean()) > 0
        low, high = (middle, high) if too_sure else (low, middle)
    return math.exp(0.5 * (low + high))


def scale_by_temperature(probabilities: Array, temperature: float) -> Tensor:
    """Return p_k^(1/T) / sum_j p_j^(1/T); probabilities below 1.2e-38 count as that."""
    check_number("scale_by_temperature", "temperature", temperature, 0, above=True)
    values = as_probabilities(probabilities)
    if temperature == 1:
        return values
    return (values.double().clamp_min(DRAW_FLOOR).log() / temperature).softmax(-1).to(values.dtype)
