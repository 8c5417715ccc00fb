"""What the results of a study at one scale say: of its cells, and of its claims."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import SettingError
from ..metrics.estimates import Estimate
from .cells import Cell
from .claims import UNKNOWN, UNTESTED, Claim, Verdict, judge
from .definition import Scale, Study
from .results import TIMES, Line, lines_of
from .statistics import chosen, over_seeds, values_of

_SHARE = re.compile(r"share\((?P<score>[\w.]+)\s*(?P<sign>[<>])\s*(?P<limit>[-+.\deE]+)\)")


@dataclass(frozen=True)
class Findings:
    """The lines of a study, read at one scale."""

    study: Study
    scale: Scale
    lines: Sequence[Line]

    def cell(self, label: str, at: Mapping[str, Any]) -> Cell | None:
        """The cell of a label at a point of the grid; without a point the one that validation data choose."""
        cells = [cell for cell in self.scale.cells if cell.label == label]
        if at:
            return next((cell for cell in cells if all(cell.at.get(key) == value for key, value in at.items())), None)
        if len(cells) < 2:
            return cells[0] if cells else None
        if self.study.choose is None:
            raise SettingError(
                f"{self.study.path}: cell '{label}' has {len(cells)} points of the grid: say at = {{...}}, or "
                "[choose] by"
            )
        return chosen(self.lines, self.scale.name, cells, self.study.choose)

    def values(self, label: str, at: Mapping[str, Any], score: str) -> dict[int, float]:
        """A score by seed. ``share(accuracy > 0.15)`` is the share of the cell's points of which that is true."""
        counted = _SHARE.fullmatch(score)
        if counted is not None:
            return self._shares(label, counted["score"], counted["sign"], float(counted["limit"]))
        cell = self.cell(label, at)
        return {} if cell is None else values_of(self.lines, self.scale.name, cell, score)

    def _shares(self, label: str, score: str, sign: str, limit: float) -> dict[int, float]:
        """Over all points of a cell, seed by seed, where all of them were run; a run that failed is not above it."""
        cells = [cell for cell in self.scale.cells if cell.label == label]
        found = [self._with_failures(cell, score) for cell in cells]
        seeds = set.intersection(*(set(one) for one in found)) if found else set()
        beyond = operator.gt if sign == ">" else operator.lt
        return {seed: sum(beyond(one[seed], limit) for one in found) / len(found) for seed in sorted(seeds)}

    def _with_failures(self, cell: Cell, score: str) -> dict[int, float]:
        failed = {line.seed: math.nan for line in self.failures if line.settings_hash == cell.settings_hash}
        return {**failed, **values_of(self.lines, self.scale.name, cell, score)}

    def points(self, label: str, along: str, score: str) -> list[dict[int, float]]:
        """A score by seed at each value of a setting, in the order of the file."""
        cells = [cell for cell in self.scale.cells if cell.label == label and along in cell.at]
        return [values_of(self.lines, self.scale.name, cell, score) for cell in cells]

    def score(self, cell: Cell, score: str) -> Estimate | None:
        """Mean and standard error over seeds."""
        return over_seeds(values_of(self.lines, self.scale.name, cell, score))

    def printed(self, label: str, at: Mapping[str, Any], score: str) -> float | None:
        """The paper's number."""
        for one in self.study.printed:
            if one.cell == label and dict(one.at) == dict(at) and score in one.values:
                return one.values[score]
        return None

    def verdict(self, claim: Claim) -> Verdict:
        """By the rule of the claim, of what was run, and of cells that something set apart."""
        found = judge(claim, self.scale.name, self.scale.judges, self.values, self.points, self.printed)
        if found.word == UNKNOWN and not (self.done or self.study.runs_on_a_processor):
            return replace(found, word=UNTESTED, said="only at the scale paper")
        if found.found is not None and claim.rule in ("better", "same") and self._nothing_apart(claim):
            return replace(found, word=UNTESTED, said=f"{found.said}; equal in every run: nothing set the two apart")
        return found

    def _nothing_apart(self, claim: Claim) -> bool:
        """Whether the two cells of a claim are the same in every score of every run: a schedule that never acted."""
        first, second = (self.cell(label, at) for label, at in claim.two_cells)
        if first is None or second is None or first.settings_hash == second.settings_hash:
            return False
        runs, others = (lines_of(self.lines, self.scale.name, cell) for cell in (first, second))
        shared = runs.keys() & others.keys()
        return bool(shared) and all(_without_times(runs[seed]) == _without_times(others[seed]) for seed in shared)

    @property
    def done(self) -> int:
        """How many runs there are."""
        return sum(len(lines_of(self.lines, self.scale.name, cell)) for cell in self.scale.cells)

    @property
    def wanted(self) -> int:
        """How many there should be."""
        return len(self.scale.cells) * len(self.scale.seeds)

    @property
    def seconds(self) -> float:
        """What the runs took."""
        found = [line for cell in self.scale.cells for line in lines_of(self.lines, self.scale.name, cell).values()]
        return sum(line.seconds for line in found)

    @property
    def failures(self) -> list[Line]:
        """Runs that failed, and never ended well."""
        hashes = {cell.settings_hash for cell in self.scale.cells}
        return [
            line for line in self.lines if line.error and line.scale == self.scale.name and line.settings_hash in hashes
        ]

    @property
    def stale(self) -> int:
        """Runs made with other defaults than the package has now."""
        return sum(line.parts_hash != cell.parts_hash for cell in self.scale.cells
                   for line in lines_of(self.lines, self.scale.name, cell).values())  # fmt: skip


def best_findings(study: Study, lines: Sequence[Line]) -> Findings | None:
    """At the largest scale of which there is a result; the smoke scale is none."""
    for name in ("paper", "cpu"):
        if name in study.scales:
            found = Findings(study, study.scales[name], lines)
            if found.done:
                return found
    return None


def _without_times(line: Line) -> dict[str, float]:
    return {name: value for name, value in line.scores.items() if name not in TIMES}
