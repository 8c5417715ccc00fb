"""Temperature scaling: one number, fitted on held-out data, that makes probabilities less or more sure.

Guo et al. 2017: softmax(logits / T), which is p_k^(1/T) over its sum. It leaves every ranking of classes, and so the
accuracy, as it is. T is to be fitted on examples that neither trained the network nor test it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError, require_positive
from .checks import require_numbers
from .classification import DRAW_FLOOR, nll
from .probabilities import require_labelled, require_labels, require_probabilities

TEMPERATURE_RANGE = (0.05, 20.0)
"""Where T is looked for: without a wrong example in the held-out data the best T would be 0."""

_STEPS = 100


def fit_temperature(probabilities: Tensor, labels: Tensor) -> float:
    """The T in 0.05 to 20 with the lowest NLL of ``scale_by_temperature(probabilities, T)``; never worse than T = 1.

    ``probabilities`` (S, ..., K) may be averaged over draws: T then acts on the logs of the average.
    """
    values, truth = require_labelled(probabilities, labels)
    found = _best_temperature(_logs(values), truth)
    # Probabilities below the floor of the NLL count as equal there, but not in the fit.
    return found if nll(scale_by_temperature(values, found), truth) <= nll(values, truth) else 1.0


def fit_temperature_of_logits(logits: Tensor, labels: Tensor) -> float:
    """The same from logits (S, ..., K) with the classes on the last axis: the T for softmax(logits / T)."""
    values = require_numbers("logits", logits)
    if values.dim() < 2:
        raise DataError(f"logits: shape {tuple(values.shape)}; they must be (S, ..., K)")
    return _best_temperature(values.log_softmax(-1), require_labels(labels, values.shape))


def scale_by_temperature(probabilities: Tensor, temperature: float) -> Tensor:
    """(S, ..., K) -> (S, ..., K): p_k^(1/T) / sum_j p_j^(1/T), in the dtype given (float32 at least).

    Probabilities below 1.2e-38 count as that.
    """
    require_positive("scale_by_temperature", "temperature", temperature)
    values = require_probabilities(probabilities)
    if temperature == 1:
        return values
    return (_logs(values) / temperature).softmax(-1).to(values.dtype)


def _logs(values: Tensor) -> Tensor:
    return values.double().clamp_min(DRAW_FLOOR).log()


def _best_temperature(logs: Tensor, truth: Tensor) -> float:
    """Newton's steps, kept inside a bracket, on the derivative by a = 1/T: the NLL is convex in a."""
    low, high = 1 / TEMPERATURE_RANGE[1], 1 / TEMPERATURE_RANGE[0]
    rows = logs.reshape(-1, logs.shape[-1])
    chosen = rows.gather(-1, truth.reshape(-1, 1)).squeeze(-1)
    # All probabilities of every example equal: no T makes a difference.
    if bool((rows == rows[:, :1]).all()):
        return 1.0
    # The slope rises with a: its sign at an end tells whether the best lies beyond.
    if _slope_and_curvature(rows, chosen, low)[0] >= 0:
        return 1 / low
    if _slope_and_curvature(rows, chosen, high)[0] <= 0:
        return 1 / high
    inverse = 1.0
    for _ in range(_STEPS):
        slope, curvature = _slope_and_curvature(rows, chosen, inverse)
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        proposed = inverse - slope / curvature if curvature > 0 else low
        previous, inverse = inverse, proposed if low < proposed < high else 0.5 * (low + high)
        if abs(inverse - previous) <= 1e-10 * inverse:
            break
    return 1 / inverse


def _slope_and_curvature(rows: Tensor, chosen: Tensor, inverse: float) -> tuple[float, float]:
    """Of mean(logsumexp(a z) - a z_y): mean(E_a[z] - z_y) and mean Var_a[z]."""
    weights = (inverse * rows).softmax(-1)
    expected = torch.einsum("nk,nk->n", weights, rows)
    variance = torch.einsum("nk,nk->n", weights, (rows - expected[:, None]).square())
    return float((expected - chosen).mean()), float(variance.mean())
