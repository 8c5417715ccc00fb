"""How good a model still is on corrupted images: corruption by corruption, and the mean of each family.

As in Hendrycks & Dietterich 2019 and in table 5 of Nguyen et al. 2023: a score is taken at each severity and averaged
over them, then over the corruptions of a family, and over all. The ECE is the mean of such ECEs, not that of all images
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..datasets import CORRUPTIONS, FAMILIES, Data, load_inputs
from ..datasets.corruptions import SEVERITIES, check_corruption
from ..errors import SettingError, require_count
from ..predictive.predictor import Predictor
from .scores import evaluation_of

SCORES = ("accuracy", "nll", "ece", "brier")
ALL = "all"
_IMAGES = 1000


def corrupted_scores(
    predictor: Predictor,
    data: Data,
    corruptions: str | Sequence[str] = ALL,
    *,
    severities: Sequence[int] = SEVERITIES,
    images: int | None = _IMAGES,
    draws: int = 100,
    seed: int = 0,
    prediction: str | None = None,
) -> dict[str, Any]:
    """``by_corruption``, ``by_family`` and ``mean``: accuracy, NLL, ECE and Brier score of the first test images.

    ``corruptions`` are names, or families, or "all"; ``images`` so many of the test images (None: all of them). The
    same images with the same noise for every model.
    """
    names = names_of(corruptions)
    for name in names:
        for severity in severities:
            check_corruption(name, severity)
    if images is not None:
        require_count("corrupted_scores", "images", images)
    if data.class_names is None or len(data.input_shape) != 3:
        raise SettingError(f"corruptions: '{data.name}' is not a set of images with classes")
    some = replace(data, test=(data.test[0][:images], data.test[1][:images]))
    found: dict[str, dict[str, float]] = {}
    for name in names:
        at = []
        for severity in severities:
            inputs = load_inputs({"name": "corrupted", "corruption": name, "severity": severity}, some)
            shifted = replace(some, test=(inputs, some.test[1]))
            at.append(evaluation_of(predictor, shifted, draws=draws, seed=seed, prediction=prediction))
        found[name] = _mean([{score: float(one[score]) for score in SCORES} for one in at])
    families = {family: [found[name] for name in members if name in found] for family, members in FAMILIES.items()}
    return {
        "images": len(some.test[1]),
        "severities": list(severities),
        "by_corruption": found,
        "by_family": {family: _mean(scores) for family, scores in families.items() if scores},
        "mean": _mean(list(found.values())),
    }


def names_of(corruptions: str | Sequence[str]) -> tuple[str, ...]:
    """The corruptions meant by names, families or "all", each once."""
    named = [corruptions] if isinstance(corruptions, str) else list(corruptions)
    if not named:
        raise SettingError("corruptions: none is named; 'all' takes every one")
    found: dict[str, None] = {}
    for one in named:
        members = tuple(CORRUPTIONS) if one == ALL else FAMILIES.get(one, (one,))
        for name in members:
            check_corruption(name, SEVERITIES[0])
            found[name] = None
    return tuple(found)


def _mean(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(one[name] for one in scores) / len(scores) for name in SCORES}
