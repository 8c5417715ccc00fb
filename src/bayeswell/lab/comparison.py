"""The runs of a comparison: tables of scores and paired differences."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from ..core.errors import FileError, SettingError
from ..metrics import Estimate, PairedDifference, Score, best_methods, find_score, mean_over_seeds, paired_difference
from ..metrics.statistics import SIGNIFICANCE
from .files import read_json, write_json
from .measure import RESULT, RunRecord
from .terminal import WIDTH, table_text

COMPARISON = "comparison.json"
HEADLINES = {
    "classes": ("nll", "accuracy", "ece", "brier", "ood_auroc_entropy"),
    "real": ("nll", "rmse", "crps", "coverage_90"),
}
"""Scores of the printed table, most important first."""

Repeat = tuple[int, str | None]
"""Seed and fold of a run."""


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """One run of a comparison; ``record`` is None if it failed, and ``error`` says why in one line."""

    problem: str
    method: str
    seed: int
    fold: str | None = None
    record: RunRecord | None = None
    error: str = ""
    folder: str = ""
    """Relative to that of the comparison."""

    @property
    def title(self) -> str:
        fold = "" if self.fold is None else f", fold {self.fold}"
        return f"{self.problem}, {self.method}, seed {self.seed}{fold}"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Runs of several methods on several problems; prints as one table for each problem.

    Args:
        runs: in the order of problems, methods and seeds.
        reference: label of the method that others are compared with.
        folder: of the runs; None if they are in memory alone.
    """

    runs: tuple[ComparedRun, ...]
    reference: str = "map"
    folder: Path | None = None

    @property
    def problems(self) -> list[str]:
        return list(dict.fromkeys(run.problem for run in self.runs))

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(run.method for run in self.runs))

    @property
    def finished(self) -> list[RunRecord]:
        return [run.record for run in self.runs if run.record is not None]

    @property
    def failed(self) -> list[ComparedRun]:
        return [run for run in self.runs if run.record is None]

    def records(self, problem: str, method: str) -> dict[Repeat, RunRecord]:
        """Return the finished runs of a method on a problem by (seed, fold)."""
        own = [run for run in self.runs if (run.problem, run.method) == (problem, method)]
        return {(run.seed, run.fold): run.record for run in own if run.record is not None}

    def values(self, problem: str, method: str, score: str) -> dict[Repeat, float]:
        """Return one score of each run of a method on a problem by (seed, fold)."""
        every = {key: record.all_scores() for key, record in self.records(problem, method).items()}
        return {key: scores[score].value for key, scores in every.items() if score in scores}

    def scores(self, problem: str | None = None) -> list[str]:
        """Return the keys of all scores that were measured."""
        own = [run.record for run in self.runs if run.record and problem in (None, run.problem)]
        return list(dict.fromkeys(key for record in own for key in record.all_scores()))

    def table(self, scores: Sequence[str] | None = None) -> pandas.DataFrame:
        """Return means over seeds with standard errors, a row for each problem and method.

        Columns: ``KEY`` and ``KEY_se`` of each score (None: all of them), ``cost`` relative to ordinary training,
        ``seconds`` of training, ``runs`` and ``failed``.
        """
        keys = self.scores() if scores is None else _checked(scores)
        rows = {(p, m): self._row(p, m, keys) for p in self.problems for m in self.methods}
        index = pandas.MultiIndex.from_tuples(list(rows), names=["problem", "method"])
        return pandas.DataFrame(list(rows.values()), index=index)

    def _row(self, problem: str, method: str, keys: Sequence[str]) -> dict[str, float]:
        records = list(self.records(problem, method).values())
        row: dict[str, float] = {}
        for key in keys:
            found = _mean(list(self.values(problem, method, key).values()))
            row |= {key: found.value, f"{key}_se": math.nan if found.se is None else found.se}
        for name, entry in (("cost", "relative"), ("seconds", "seconds")):
            row[name] = _mean([record.cost[entry] for record in records]).value
        failed = sum((run.problem, run.method) == (problem, method) for run in self.failed)
        return {**row, "runs": len(records), "failed": failed}

    def differences(self, reference: str | None = None, scores: Sequence[str] | None = None) -> pandas.DataFrame:
        """Return method minus reference, paired by seed, with Student's t-test; a row for each score.

        Columns: ``difference``, ``se``, ``low`` and ``high`` (95 % confidence), ``p_value``, ``pairs``, and ``better``:
        True or False if significant at 5 %, else None. Two or three seeds have little power.
        """
        base = self._reference(reference)
        others = [method for method in self.methods if method != base]
        rows = {
            (problem, method, key): _difference(self._pair(problem, method, base, key), key)
            for problem in self.problems
            for method in others
            for key in (self.scores(problem) if scores is None else _checked(scores))
        }
        index = pandas.MultiIndex.from_tuples(list(rows), names=["problem", "method", "score"])
        columns = ["difference", "se", "low", "high", "p_value", "pairs", "better"]
        return pandas.DataFrame(list(rows.values()), index, columns).astype({"better": object})

    def paired(self, score: str = "nll", reference: str | None = None) -> dict[str, dict[str, PairedDifference]]:
        """Return method minus reference by problem and method, over the seeds and folds that both have."""
        base = self._reference(reference)
        others = [method for method in self.methods if method != base]
        found = {p: {m: self._pair(p, m, base, score) for m in others} for p in self.problems}
        return {p: {m: one for m, one in own.items() if one is not None} for p, own in found.items()}

    def _pair(self, problem: str, method: str, base: str, key: str) -> PairedDifference | None:
        first, second = (_finite(self.values(problem, name, key)) for name in (method, base))
        shared = [repeat for repeat in first if repeat in second]
        return paired_difference([first[one] for one in shared], [second[one] for one in shared]) if shared else None

    def best(self, score: str = "nll") -> dict[str, list[str]]:
        """Return, for each problem, the methods that are not significantly worse than the best one, best first.

        Seeds that not all methods have are left out, and so are methods without a finished run.
        """
        direction = _score(score).direction
        if not direction:
            raise SettingError(f"score {score!r} has no better or worse; choose another")
        found = {}
        for problem in self.problems:
            values = {method: _finite(self.values(problem, method, score)) for method in self.methods}
            values = {method: own for method, own in values.items() if own}
            shared = [one for one in next(iter(values.values()), {}) if all(one in own for own in values.values())]
            usable = {method: [own[one] for one in shared] for method, own in values.items() if shared}
            found[problem] = best_methods(usable, direction) if usable else []
        return found

    def text(self, width: int = WIDTH, scores: Sequence[str] | None = None) -> str:
        """Return one table for each problem: means ± standard errors over seeds."""
        base = self._reference(None)
        parts = [self._problem_text(problem, base, width, scores) for problem in self.problems]
        notes = [
            "mean ± standard error over runs; cost 1x is ordinary training",
            f"+ better, - worse than {base}: significant at 5 % (paired t-test over runs)",
        ]
        notes += [f"failed: {run.title}: {run.error}" for run in self.failed]
        return "\n\n".join([*parts, "\n".join(notes)])

    def _problem_text(self, problem: str, base: str, width: int, scores: Sequence[str] | None) -> str:
        records = [run.record for run in self.runs if run.problem == problem and run.record is not None]
        if not records:
            return f"{problem}: no run has finished"
        wanted = HEADLINES[records[0].task] if scores is None else _checked(scores)
        known = self.scores(problem)
        keys = [key for name in wanted for key in known if key.partition(".")[0] == name.partition(".")[0]]
        table, changes = self.table(keys).loc[problem], self.differences(base, keys)
        rows = []
        for method in self.methods:
            own = table.loc[method]
            better = {key: None if method == base else changes.loc[(problem, method, key), "better"] for key in keys}
            cells = [_cell(own[key], own[f"{key}_se"], better[key]) for key in keys]
            rows.append([method, *cells[:2], f"{own['cost']:.3g}x", *cells[2:]])
        headings = [f"{_heading(key)}  " for key in keys]
        repeats = len({(record.seed, record.fold) for record in records})
        title = f"{problem}: {repeats} {'run' if repeats == 1 else 'runs'} of each method"
        return table_text(["method", *headings[:2], "cost", *headings[2:]], rows, width, title=title)

    def __repr__(self) -> str:
        return self.text()

    def to_json(self) -> dict[str, Any]:
        """Return means, differences and failures as plain data."""
        table, changes = self.table().reset_index(), self.differences().reset_index()
        return {
            "reference": self._reference(None),
            "table": table.to_dict("records"),
            "differences": changes.to_dict("records"),
            "failed": [{"run": run.title, "error": run.error} for run in self.failed],
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``comparison.json`` and, where they are not there yet, the records of all runs."""
        place = Path(folder)
        for run in self.runs:
            if run.record is not None and not (place / run.folder / RESULT).exists():
                run.record.save(place / run.folder)
        names = ("problem", "method", "seed", "fold", "folder", "error")
        runs = [{name: getattr(run, name) for name in names} for run in self.runs]
        write_json(place / COMPARISON, {"reference": self.reference, "runs": runs})

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Comparison:
        """Return the comparison of a folder; runs without a result count as failed."""
        place = Path(folder)
        document = read_json(place / COMPARISON)
        try:
            return cls(tuple(_loaded(place, entry) for entry in document["runs"]), document["reference"], place)
        except (KeyError, TypeError) as error:
            raise FileError(f"{place / COMPARISON} is damaged or of another version") from error

    def _reference(self, asked: str | None) -> str:
        if asked is not None and asked not in self.methods:
            raise SettingError(f"reference {asked!r} is none of the methods: {', '.join(self.methods)}")
        return asked or (self.reference if self.reference in self.methods else self.methods[0])


def _difference(found: PairedDifference | None, key: str) -> dict[str, Any]:
    if found is None:
        return {"pairs": 0, "better": None}
    low, high = found.interval()
    sign = _score(key).sign
    significant = sign != 0 and found.p_value < SIGNIFICANCE
    return {
        "difference": found.value,
        "se": math.nan if found.se is None else found.se,
        "low": low,
        "high": high,
        "p_value": found.p_value,
        "pairs": found.df + 1,
        "better": sign * found.value < 0 if significant else None,
    }


def _loaded(place: Path, entry: Mapping[str, Any]) -> ComparedRun:
    record = RunRecord.load(place / entry["folder"]) if (place / entry["folder"] / RESULT).exists() else None
    error = "" if record is not None else entry["error"] or "not finished"
    return ComparedRun(**{**entry, "error": error}, record=record)


def _score(key: str) -> Score:
    return find_score(key.partition(".")[0])


def _checked(scores: Sequence[str]) -> list[str]:
    for score in scores:
        _score(score)
    return list(scores)


def _heading(key: str) -> str:
    return " ".join([_score(key).heading, *key.split(".")[1:]])


def _mean(values: Sequence[float]) -> Estimate:
    finite = [value for value in values if math.isfinite(value)]
    return mean_over_seeds(finite) if finite and len(finite) == len(values) else Estimate(math.nan)


def _finite(values: Mapping[Repeat, float]) -> dict[Repeat, float]:
    return {repeat: value for repeat, value in values.items() if math.isfinite(value)}


def _cell(value: float, se: float, better: bool | None) -> str:
    if math.isnan(value):
        return "failed  "
    mark = "  " if better is None else (" +" if better else " -")
    text = f"{value:.4g} ± 0" if se == 0 else str(Estimate(value, None if math.isnan(se) else se))
    return f"{text}{mark}"
