"""How good a model still is on corrupted images: corruption by corruption, and the mean of each family.

As in Hendrycks & Dietterich 2019 and in table 5 of Nguyen et al. 2023: a score is taken at each severity and averaged
over them, then over the corruptions of a family, and over all. The ECE is the mean of such ECEs, not that of all images
together. The images are the test images corrupted here, or files that others published (CIFAR-10-C).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..datasets import CORRUPTIONS, FAMILIES, Data, PublishedCorruptions, load_inputs
from ..datasets.corruptions import SEVERITIES, check_corruption
from ..datasets.data import Pair
from ..datasets.published_corruptions import EXTRA
from ..errors import SettingError, require_count
from ..predictive.predictor import Predictor
from .scores import evaluation_of

SCORES = ("accuracy", "nll", "ece", "brier")
ALL = "all"
IMAGES = 1000
"""How many of the test images are corrupted, if nobody says."""


def corrupted_scores(
    predictor: Predictor,
    data: Data,
    corruptions: str | Sequence[str] = ALL,
    *,
    severities: Sequence[int] = SEVERITIES,
    images: int | None = IMAGES,
    draws: int = 100,
    seed: int = 0,
    prediction: str | None = None,
) -> dict[str, Any]:
    """Accuracy, NLL, ECE and Brier score of the first test images, corrupted.

    They stand ``by_corruption``, ``by_family`` and ``by_severity``, and as one ``mean``.
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

    def pair(name: str, severity: int) -> Pair:
        return load_inputs({"name": "corrupted", "corruption": name, "severity": severity}, some), some.test[1]

    found = _at_each(predictor, some, names, severities, pair, draws=draws, seed=seed, prediction=prediction)
    return _table(found, FAMILIES, severities, len(some.test[1]))


def published_scores(
    predictor: Predictor,
    data: Data,
    folder: str | os.PathLike[str],
    *,
    images: int | None = IMAGES,
    draws: int = 100,
    seed: int = 0,
    prediction: str | None = None,
) -> dict[str, Any]:
    """The same table from a folder of published files, such as CIFAR-10-C; ``mean`` is over the benchmark's fifteen.

    The family ``extra`` (files beside the fifteen) has a row of its own and no part in ``mean``, unless there is
    nothing else. ``images`` are the first of each severity; None takes all, as papers do.
    """
    if images is not None:
        require_count("corruptions", "images", images)
    published = PublishedCorruptions(Path(folder))
    published.check(data)

    def pair(name: str, severity: int) -> Pair:
        return published.pair(name, severity, data, images)

    names = published.names
    found = _at_each(predictor, data, names, SEVERITIES, pair, draws=draws, seed=seed, prediction=prediction)
    return _table(found, published.families, SEVERITIES, min(images or published.images, published.images))


_Found = Mapping[str, Sequence[Mapping[str, float]]]
"""The scores of each corruption at each severity."""


def _at_each(
    predictor: Predictor,
    data: Data,
    names: Sequence[str],
    severities: Sequence[int],
    pair: Callable[[str, int], Pair],
    **how: Any,
) -> _Found:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for name in names:
        for severity in severities:
            scores = evaluation_of(predictor, replace(data, test=pair(name, severity)), **how)
            found[name].append({score: float(scores[score]) for score in SCORES})
    return found


def _table(
    found: _Found, families: Mapping[str, Sequence[str]], severities: Sequence[int], images: int
) -> dict[str, Any]:
    by_corruption = {name: _mean(at) for name, at in found.items()}
    members = {family: [name for name in names if name in found] for family, names in families.items()}
    counted = [name for name in found if name not in members.get(EXTRA, ())] or list(found)
    return {
        "images": images,
        "severities": list(severities),
        "by_corruption": by_corruption,
        "by_family": {
            family: _mean([by_corruption[name] for name in names]) for family, names in members.items() if names
        },
        "by_severity": {
            str(severity): _mean([found[name][place] for name in counted]) for place, severity in enumerate(severities)
        },
        "mean": _mean([by_corruption[name] for name in counted]),
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
