"""The table of scores, and every score of given predictions at once.

``measure`` takes arrays by name and returns every score whose ``needs`` are among them:

- classes: ``probabilities`` (S, ..., K), ``labels``, ``mutual_information`` (S, ...); of out-of-distribution inputs
  ``ood_probabilities``, ``ood_mutual_information``;
- numbers: ``mean``, ``targets``, ``crps``, ``pit`` = P(Y <= y), for counts also ``below`` = P(Y < y), and the ends
  ``lower_90``, ``upper_90`` of central intervals;
- both: ``losses`` (S,), the NLL of each example under the averaged prediction, and ``expected_losses`` (S,), the mean
  NLL of single draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from ..core.errors import SettingError, nearest
from .calibration import ece
from .classification import accuracy, brier, least_confidence, predictive_entropy
from .estimates import Array, Estimate, MeanScore, as_numbers
from .ranking import aupr, aurc, auroc
from .regression import calibration_error, interval_coverage, interval_width, mae, r2, rmse


@dataclass(frozen=True)
class Score:
    """One score: ``key`` in records and files, ``heading`` in tables and plots.

    ``direction`` says which is better, "lower" or "higher" ("": neither). The unit "y" is that of the targets.
    ``needs`` names the arrays that ``function`` takes, in order; it is None for scores that are measured elsewhere.
    """

    key: str
    heading: str
    direction: str
    unit: str = ""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    needs: tuple[str, ...] = ()
    function: Callable[..., Estimate] | None = None

    @property
    def sign(self) -> int:
        """1 if lower is better, -1 if higher is, 0 if neither: ``sign * value`` is to be minimized."""
        return {"lower": 1, "higher": -1}.get(self.direction, 0)


@MeanScore
def _mean_of(values: Array) -> Tensor:
    return as_numbers("values", values)


def _aurc(probabilities: Array, labels: Array) -> Estimate:
    losses = 1 - accuracy.by_example(probabilities, labels)
    return aurc(losses, least_confidence.by_example(probabilities))


def _detect(score: Callable[..., Estimate], uncertainty: MeanScore[Array], inside: Array, outside: Array) -> Estimate:
    """Return a score of OOD detection; the uncertainty of an input is the mean over its positions."""
    here, there = (uncertainty.by_example(values) for values in (inside, outside))
    return score(here.reshape(len(here), -1).mean(1), there.reshape(len(there), -1).mean(1))


def _detection_scores(name: str, label: str, uncertainty: MeanScore[Array], array: str) -> list[Score]:
    needs = (array, f"ood_{array}")
    return [
        Score(f"ood_{key}_{name}", heading + label, "higher", "", _SHARE, needs, partial(_detect, score, uncertainty))
        for key, heading, score in (("auroc", "OOD AUROC", auroc), ("aupr", "OOD AUPR", aupr))
    ]


_SHARE = (0.0, 1.0)
_POSITIVE = (0.0, math.inf)
_CLASSES = ("probabilities", "labels")
_REALS = ("mean", "targets")
_PIT = ("pit", "below")

_TABLE = (
    Score("accuracy", "Accuracy", "higher", "", _SHARE, _CLASSES, accuracy),
    Score("rmse", "RMSE", "lower", "y", _POSITIVE, _REALS, rmse),
    Score("mae", "MAE", "lower", "y", _POSITIVE, _REALS, mae),
    Score("r2", "R²", "higher", "", (-math.inf, 1.0), _REALS, r2),
    Score("nll", "NLL", "lower", "nats", needs=("losses",), function=_mean_of),
    Score("expected_nll", "Expected NLL", "lower", "nats", needs=("expected_losses",), function=_mean_of),
    Score("crps", "CRPS", "lower", "y", needs=("crps",), function=_mean_of),
    Score("ece", "ECE", "lower", "", _SHARE, _CLASSES, ece),
    Score("ece_20", "ECE, 20 bins", "lower", "", _SHARE, _CLASSES, partial(ece, bins=20)),
    Score("ece_quantile", "ECE, adaptive", "lower", "", _SHARE, _CLASSES, partial(ece, binning="quantile")),
    Score("brier", "Brier", "lower", "", (0.0, 2.0), _CLASSES, brier),
    Score("aurc", "AURC", "lower", "", _SHARE, _CLASSES, _aurc),
    Score("calibration_error", "Calibration error", "lower", "", _SHARE, ("continuous_pit",), calibration_error),
    Score("coverage_50", "Coverage 50 %", "", "", _SHARE, _PIT, partial(interval_coverage, level=0.5)),
    Score("coverage_90", "Coverage 90 %", "", "", _SHARE, _PIT, partial(interval_coverage, level=0.9)),
    Score("coverage_95", "Coverage 95 %", "", "", _SHARE, _PIT, partial(interval_coverage, level=0.95)),
    Score("width_90", "Width 90 %", "", "y", _POSITIVE, ("lower_90", "upper_90"), interval_width),
    *_detection_scores("entropy", "", predictive_entropy, "probabilities"),
    *_detection_scores("max_probability", ", max p", least_confidence, "probabilities"),
    *_detection_scores("mutual_information", ", MI", _mean_of, "mutual_information"),
    Score("predictive_entropy", "Entropy", "", "nats", _POSITIVE, ("probabilities",), predictive_entropy),
    Score("mutual_information", "Mutual information", "", "nats", _POSITIVE, ("mutual_information",), _mean_of),
    Score("ood_predictive_entropy", "OOD entropy", "", "nats", _POSITIVE, ("ood_probabilities",), predictive_entropy),
    Score("ood_mutual_information", "OOD MI", "", "nats", _POSITIVE, ("ood_mutual_information",), _mean_of),
    Score("shifted_accuracy", "Shifted accuracy", "higher", "", _SHARE),
    Score("shifted_nll", "Shifted NLL", "lower", "nats"),
    Score("shifted_ece", "Shifted ECE", "lower", "", _SHARE),
    Score("negative_elbo", "-ELBO", "lower", "nats"),
    Score("std_ratio", "std / prior std", "", "", _POSITIVE),
)

SCORES: dict[str, Score] = {score.key: score for score in _TABLE}
"""All scores by key, in the order of tables."""


def find_score(name: str) -> Score:
    """Return the score of a key, or of a dotted name such as "validation.nll"."""
    key = name.rpartition(".")[2]
    if key not in SCORES:
        raise SettingError(f"unknown score {name!r}; {nearest(key, SCORES)}")
    return SCORES[key]


def measure(arrays: Mapping[str, Array]) -> dict[str, Estimate]:
    """Return every score that these arrays allow, by key."""
    if "pit" in arrays and "below" not in arrays:
        arrays = {**arrays, "below": arrays["pit"], "continuous_pit": arrays["pit"]}
    return {
        score.key: score.function(*(arrays[name] for name in score.needs))
        for score in SCORES.values()
        if score.function is not None and all(name in arrays for name in score.needs)
    }


def measure_examples(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return the (S, ...) numbers behind every score of these arrays that is a mean over examples."""
    return {
        score.key: score.function.by_example(*(arrays[name] for name in score.needs))
        for score in SCORES.values()
        if isinstance(score.function, MeanScore) and all(name in arrays for name in score.needs)
    }
