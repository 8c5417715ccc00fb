"""Finished runs below some folders, as one comparison."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...core.errors import FileError
from ..comparison import COMPARISON, ComparedRun, Comparison
from ..measure import RESULT, RunRecord


def read_comparison(paths: Iterable[str | os.PathLike[str]]) -> Comparison:
    """Return the runs of all folders: comparisons, runs, or folders of them."""
    runs: list[ComparedRun] = []
    references: list[str] = []
    for path in paths:
        found = list(_comparisons(Path(path)))
        if not found:
            raise FileError(f"{path} holds no finished run; a folder with {RESULT} below it is needed")
        runs += [run for comparison in found for run in comparison.runs]
        references += [comparison.reference for comparison in found]
    return Comparison(tuple(_distinct(runs)), references[0])


def _comparisons(place: Path) -> Iterator[Comparison]:
    covered: set[Path] = set()
    for document in sorted(place.rglob(COMPARISON)):
        comparison = Comparison.load(document.parent)
        covered |= {(document.parent / run.folder / RESULT).resolve() for run in comparison.runs}
        yield comparison
    single = [_single(path.parent) for path in sorted(place.rglob(RESULT)) if path.resolve() not in covered]
    if single:
        yield Comparison(tuple(single))


def _single(folder: Path) -> ComparedRun:
    record = RunRecord.load(folder)
    return ComparedRun(record.problem, record.label, record.seed, record.fold, record, "", str(folder))


def _distinct(runs: Sequence[ComparedRun]) -> Iterator[ComparedRun]:
    # Another run of the same problem, method, seed and fold gets a number in its label.
    seen: dict[tuple[object, ...], int] = {}
    for run in runs:
        key = (run.problem, run.method, run.seed, run.fold)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 1:
            yield run
        else:
            label = f"{run.method} ({seen[key]})"
            yield ComparedRun(run.problem, label, run.seed, run.fold, run.record, run.error, run.folder)
