"""Verdicts on claims, from the recorded runs alone.

A claim has one rule:

- ``{better, than, score}``: gain d of the first cell over the second, paired by seed; ``not_worse_by = m`` claims
  d > -m; ``than_score`` compares two scores; ``moved = [a, b], along = path`` compares how far the score moves between
  two points of the grid;
- ``{same = [a, b], score, within}``: the difference lies inside +-within;
- ``{value, score, between}`` and ``{ratio, to, score, between}``: a score, or a ratio of scores, lies in an interval;
- ``{trend = "rises" or "falls", of, along, score}``: slope of the score over the points of the grid;
- ``{rounds_to, value, score}``: the number rounds to the printed one.

Each interval is that of Student's t at 95 % over the seeds there are. The claim holds if the whole interval agrees with
it, the opposite holds if the whole interval contradicts it; else there is no significant difference. There is no
verdict (not run at this scale) without runs, from runs of less than ``LEAST_EPOCHS`` of the paper's epochs, from a cell
that is no better than chance, and where the claim itself says why.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayeswell.metrics.statistics import SIGNIFICANCE, mean_over_seeds, student_quantile

from .definition import Cell, Claim, Point, Scale, Study
from .results import UNTRAINED, Line, read_lines

HOLDS, OPPOSITE, UNDECIDED, NOT_RUN = "holds", "the opposite", "no significant difference", "not run at this scale"
VERDICTS = (HOLDS, OPPOSITE, UNDECIDED, NOT_RUN)
LEAST_EPOCHS = 0.05
"""Share of the paper's epochs below which runs give no verdict."""
ABOVE_CHANCE = 0.05
"""Accuracy above 1 / classes from which a network has learned."""
CLASSES = {"cifar100": 100, "imdb": 2} | dict.fromkeys(("mnist", "fashion_mnist", "cifar10", "svhn", "digits"), 10)
NO_TRAINING = ("num_params", "step_ms")
"""Scores that need no training."""
_HIGHER = ("accuracy", "auroc", "entropy", "std_ratio", "snr", "snr_median", "share")
_SHARE = re.compile(r"share\((?P<score>[\w.]+) *(?P<sign>[<>]) *(?P<limit>[-+.\deE]+)\)")
BySeed = dict[int, float]


@dataclass(frozen=True)
class Verdict:
    """A verdict with the number that decided.

    Args:
        word: one of ``VERDICTS``.
        value: mean over seeds; None without runs.
        half: half the width of the 95 % interval.
        printed: the paper's number.
        note: why there is no verdict.
    """

    word: str
    value: float | None = None
    half: float = 0.0
    printed: float | None = None
    note: str = ""

    @property
    def number(self) -> str:
        if self.value is None:
            return ""
        return f"{self.value:.4g} ± {self.half:.2g}" if self.half else f"{self.value:.7g}"


class NoVerdict(Exception):
    """Why a claim gets no verdict."""


@dataclass(frozen=True)
class Findings:
    """The runs of a study at one scale."""

    study: Study
    scale: Scale
    lines: Sequence[Line]

    @classmethod
    def of(cls, study: Study, lines: Sequence[Line] | None = None) -> Findings:
        """Return the findings at the largest scale that has runs; the scale smoke has none."""
        found = read_lines(study.results) if lines is None else lines
        names = [name for name in ("paper", "small") if name in study.scales]
        done = [name for name in names if any(line.scale == name for line in found)]
        return cls(study, study.scales[(done or names)[0]], found)

    @property
    def runs(self) -> list[Line]:
        """Runs of the scale that did not fail."""
        return [line for line in self.lines if line.scale == self.scale.name and not line.error]

    def points(self, label: str) -> list[Point]:
        return list(dict.fromkeys(line.point for line in self.runs if line.cell == label))

    def at(self, label: str, point: Point, score: str) -> BySeed:
        """Return a score by seed at one point of the grid."""
        own = [line for line in self.runs if line.cell == label and line.point == point]
        return {line.seed: line.scores[score] for line in own if score in line.scores}

    def point(self, label: str, at: Mapping[str, object] | None = None) -> Point:
        """Return the point with the settings ``at``; without any, the one that validation data choose."""
        found = [point for point in self.points(label) if (at or {}).items() <= dict(point).items()]
        if not found:
            raise NoVerdict("no runs")
        if len(found) == 1:
            return found[0]
        by = self.study.choose
        means = {point: self.at(label, point, by) for point in found} if by else {}
        means = {point: values for point, values in means.items() if values}
        if not means:
            raise NoVerdict("the rule needs a point of the grid")
        sign = -1 if higher_is_better(by) else 1
        return min(means, key=lambda point: sign * mean(means[point]))

    def values(self, label: str, at: Mapping[str, object] | None, score: str) -> BySeed:
        """Return a score by seed; ``share(accuracy > 0.15)`` is the share of all points of which that is true."""
        if score in NO_TRAINING:
            lines = [line for line in self.lines if line.scale == UNTRAINED and line.cell == label]
            return {line.seed: line.scores[score] for line in lines if score in line.scores}
        share = _SHARE.fullmatch(score)
        if share is not None:
            return self._share(label, share["score"], share["sign"], float(share["limit"]))
        return self.at(label, self.point(label, at), score)

    def _share(self, label: str, score: str, sign: str, limit: float) -> BySeed:
        """A run that failed is not beyond the limit."""
        beyond = operator.gt if sign == ">" else operator.lt
        own = [line for line in self.lines if line.cell == label and line.scale == self.scale.name]
        seeds = sorted({line.seed for line in own})
        found = {seed: [line.scores.get(score, math.nan) for line in own if line.seed == seed] for seed in seeds}
        return {seed: sum(beyond(value, limit) for value in values) / len(values) for seed, values in found.items()}

    def printed(self, label: str, score: str) -> float | None:
        return self.study.printed.get(label, {}).get(score)

    def cell(self, label: str, at: Mapping[str, object]) -> Cell | None:
        """Return the cell of the study file, for its settings; random points have those of their label."""
        own = [cell for cell in self.scale.cells if cell.label == label]
        return next((cell for cell in own if at.items() <= dict(cell.at).items()), own[0] if own else None)

    def verdict(self, claim: Claim) -> Verdict:
        """Return the verdict on a claim or a control."""
        printed = printed_of(self, claim)
        try:
            if not claim.rule:
                raise NoVerdict(claim.not_run)
            if claim.rule["score"] not in NO_TRAINING:
                self._check_trained(claim)
            values, low, high = measured(self, claim)
            if not values:
                raise NoVerdict("no runs")
            value, half = mean(values), half_width(values)
        except NoVerdict as reason:
            return Verdict(NOT_RUN, printed=printed, note=str(reason))
        if claim.not_run and self.scale.name != "paper":
            return Verdict(NOT_RUN, value, half if math.isfinite(half) else 0.0, printed, claim.not_run)
        if claim.kind == "rounds_to":
            unit = claim.rule["rounds_to"]
            same = printed is not None and round(value / unit) == round(printed / unit)
            return Verdict(HOLDS if same else OPPOSITE, value, 0.0, printed)
        if math.isinf(half):
            return Verdict(NOT_RUN, value, 0.0, printed, "one seed")
        return Verdict(decide(value, half, low, high), value, half, printed)

    def _check_trained(self, claim: Claim) -> None:
        """Refuse a verdict from cells at chance, or from too few epochs."""
        rule = claim.rule
        if self.scale.name != "paper":
            for label in labels_of(rule):
                self._check_epochs(label)
        if "share(" in rule["score"]:
            return
        for label, at in zip(labels_of(rule), (rule.get("at"), rule.get("than_at", rule.get("at"))), strict=False):
            along = rule.get("along")
            for point in self.points(label) if along else [self.point(label, at)]:
                self._check_chance(label, point)

    def _check_epochs(self, label: str) -> None:
        paper = self.study.scales.get("paper")
        small, full = (
            max((cell.settings.get("epochs", 0) for cell in scale.cells if cell.label == label), default=0)
            for scale in (self.scale, paper or self.scale)
        )
        if full and small < LEAST_EPOCHS * full:
            raise NoVerdict(f"{small} of {full} epochs")

    def _check_chance(self, label: str, point: Point) -> None:
        accuracies = self.at(label, point, "accuracy")
        cell = self.cell(label, dict(point))
        data = dict(point).get("data") or (cell.settings.get("data") if cell else None)
        classes = CLASSES.get(str(data["name"] if isinstance(data, Mapping) else data))
        if classes and accuracies and mean(accuracies) < 1 / classes + ABOVE_CHANCE:
            raise NoVerdict(f"{label} is no better than chance")


def decide(value: float, half: float, low: float, high: float) -> str:
    """Return the verdict on "the number lies between low and high" from its interval value +- half."""
    if (low < value - half and value + half < high) or (half == 0 and low <= value <= high):
        return HOLDS
    return OPPOSITE if value + half < low or value - half > high else UNDECIDED


def measured(found: Findings, claim: Claim) -> tuple[BySeed, float, float]:
    """Return the number of a rule by seed, and the interval that the claim puts it in."""
    rule, kind = claim.rule, claim.kind
    score, at = str(rule["score"]), rule.get("at")
    if kind in ("value", "rounds_to"):
        return (found.values(rule["value"], at, score), *rule.get("between", (-math.inf, math.inf)))
    if kind == "trend":
        sign = 1 if rule["trend"] == "rises" else -1
        return {seed: sign * one for seed, one in slopes(found, rule).items()}, 0.0, math.inf
    first, second = two_cells(rule)
    if "moved" in rule:
        one, other = (moved(found, label, rule) for label in (first, second))
    else:
        one = found.values(first, at, score)
        other = found.values(second, rule.get("than_at", at), rule.get("than_score", score))
    shared = sorted(one.keys() & other.keys())
    if kind == "ratio":
        return ({seed: one[seed] / other[seed] for seed in shared if other[seed]}, *rule["between"])
    upward = kind == "same" or ("moved" not in rule and higher_is_better(score))
    sign = 1 if upward else -1
    differences = {seed: sign * (one[seed] - other[seed]) for seed in shared}
    if first != second and shared and not any(differences.values()):
        raise NoVerdict("equal in every run: nothing set the two apart")
    if kind == "same":
        return differences, -rule["within"], rule["within"]
    return differences, -rule.get("not_worse_by", 0.0), math.inf


def two_cells(rule: Mapping[str, Any]) -> tuple[str, str]:
    """Return the labels that a rule compares."""
    if "same" in rule:
        first, second = rule["same"]
    elif "better" in rule:
        first, second = rule["better"], rule["than"]
    else:
        first, second = rule["ratio"], rule["to"]
    return first, second


def labels_of(rule: Mapping[str, Any]) -> list[str]:
    """Return all labels of a rule, twice if it compares a cell with itself."""
    if "trend" in rule:
        return [str(rule["of"])]
    return [str(rule["value"])] if "value" in rule else list(two_cells(rule))


def slopes(found: Findings, rule: Mapping[str, Any]) -> BySeed:
    """Return the least-squares slope over the number of the point, 0, 1, 2, ..., by seed."""
    points = [point for point in found.points(rule["of"]) if rule["along"] in dict(point)]
    points.sort(key=lambda point: dict(point)[rule["along"]])
    values = [found.at(rule["of"], point, rule["score"]) for point in points]
    if len(values) < 2:
        raise NoVerdict("no runs")
    center = (len(values) - 1) / 2
    squares = sum((place - center) ** 2 for place in range(len(values)))
    shared = set.intersection(*(set(one) for one in values))
    return {seed: sum((i - center) * one[seed] for i, one in enumerate(values)) / squares for seed in sorted(shared)}


def moved(found: Findings, label: str, rule: Mapping[str, Any]) -> BySeed:
    """Return |difference| of a score between two points of the grid, by seed."""
    ends = [found.values(label, {rule["along"]: end}, str(rule["score"])) for end in rule["moved"]]
    return {seed: abs(ends[0][seed] - ends[1][seed]) for seed in sorted(ends[0].keys() & ends[1].keys())}


def printed_of(found: Findings, claim: Claim) -> float | None:
    """Return the paper's number in the unit of ours, if it prints one."""
    rule = claim.rule
    if not rule or claim.kind == "trend" or {"at", "moved"} & rule.keys():
        return None
    score = str(rule["score"])
    if claim.kind in ("value", "rounds_to"):
        return found.printed(rule["value"], score)
    first, second = two_cells(rule)
    one, other = found.printed(first, score), found.printed(second, rule.get("than_score", score))
    if one is None or other is None:
        return None
    if claim.kind == "ratio":
        return one / other
    return (1 if claim.kind == "same" or higher_is_better(score) else -1) * (one - other)


def higher_is_better(score: str) -> bool:
    """Return the direction of a score by the words of its name, such as ``validation.accuracy``."""
    return any(word in _HIGHER or word.endswith("_entropy") for word in re.split(r"[.( ]", score))


def mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)


def half_width(values: Mapping[int, float]) -> float:
    """Return half the 95 % interval of the mean over seeds by Student's t; infinite for one seed."""
    se = mean_over_seeds(list(values.values())).se
    return math.inf if se is None else se * student_quantile(SIGNIFICANCE, len(values) - 1)
