"""Published results on the standard splits of the UCI tables, as (mean, standard error).

Sources: PBP, Hernandez-Lobato & Adams 2015, "Probabilistic backpropagation"; MC-dropout, Gal & Ghahramani 2016,
"Dropout as a Bayesian approximation", both with standard errors; deep ensembles, Lakshminarayanan et al. 2017, table 1.
That table gives standard deviations over splits (its column of MC-dropout is the same means with errors larger by the
square root of 20), so its numbers are divided here by the square root of the number of splits.

All three: one hidden layer of 50 ReLU (protein: 100), 40 epochs, 90/10 splits, 20 of them (protein: 5).
Log-likelihoods are in nats with the target in its own units. All were printed with two decimals: half a unit of the
last one is part of the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ROUNDING = 0.005


@dataclass(frozen=True)
class Published:
    """A printed mean with its standard error."""

    mean: float
    error: float


_LIKELIHOOD = {  # PBP, MC-dropout (mean, error); deep ensembles (mean, std)
    "boston": ((-2.57, 0.09), (-2.46, 0.06), (-2.41, 0.25)),
    "concrete": ((-3.16, 0.02), (-3.04, 0.02), (-3.06, 0.18)),
    "energy": ((-2.04, 0.02), (-1.99, 0.02), (-1.38, 0.22)),
    "kin8nm": ((0.90, 0.01), (0.95, 0.01), (1.20, 0.02)),
    "naval": ((3.73, 0.01), (3.80, 0.01), (5.63, 0.05)),
    "power-plant": ((-2.84, 0.01), (-2.80, 0.01), (-2.79, 0.04)),
    "protein": ((-2.97, 0.00), (-2.89, 0.00), (-2.83, 0.02)),
    "wine-red": ((-0.97, 0.01), (-0.93, 0.01), (-0.94, 0.12)),
    "yacht": ((-1.63, 0.02), (-1.55, 0.03), (-1.18, 0.21)),
}
_RMSE = {
    "boston": ((3.01, 0.18), (2.97, 0.19), (3.28, 1.00)),
    "concrete": ((5.67, 0.09), (5.23, 0.12), (6.03, 0.58)),
    "energy": ((1.80, 0.05), (1.66, 0.04), (2.09, 0.29)),
    "kin8nm": ((0.10, 0.00), (0.10, 0.00), (0.09, 0.00)),
    "naval": ((0.01, 0.00), (0.01, 0.00), (0.00, 0.00)),
    "power-plant": ((4.12, 0.03), (4.02, 0.04), (4.11, 0.17)),
    "protein": ((4.73, 0.01), (4.36, 0.01), (4.71, 0.06)),
    "wine-red": ((0.64, 0.01), (0.62, 0.01), (0.64, 0.04)),
    "yacht": ((1.02, 0.05), (1.11, 0.09), (1.58, 0.48)),
}
STUDIES = ("PBP", "MC-dropout", "deep ensembles")


def published(metric: str, problem: str) -> dict[str, Published]:
    """By study: "nll" (lower is better, so the log-likelihood with its sign turned) or "rmse"."""
    sign, table = (-1.0, _LIKELIHOOD) if metric == "nll" else (1.0, _RMSE)
    splits = 5 if problem == "protein" else 20
    scales = (1.0, 1.0, 1 / math.sqrt(splits))
    return {
        study: Published(sign * mean, scale * error)
        for study, scale, (mean, error) in zip(STUDIES, scales, table[problem], strict=True)
    }


def best(metric: str, problem: str) -> tuple[str, Published]:
    """The study with the lowest mean."""
    found = published(metric, problem)
    name = min(found, key=lambda study: found[study].mean)
    return name, found[name]


def allowance(metric: str, problem: str, own_error: float) -> float:
    """How far above the best published mean still counts as level: two combined standard errors, and the rounding."""
    return 2 * math.hypot(best(metric, problem)[1].error, own_error) + ROUNDING
