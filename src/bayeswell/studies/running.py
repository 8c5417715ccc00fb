"""The runs of a study: those of ``compare``, each in its folder; a result that is there is not made again."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BayeswellError, BayeswellWarning
from ..experiments.comparing import Told, train_all
from ..experiments.dry_run import dry_run
from ..experiments.paths import place_in
from ..experiments.side_by_side import Outcome, Task
from .cells import Cell
from .definition import Scale, Study
from .results import Line, append_line, line_of, lines_of, read_results

RUNS = "runs"


@dataclass(frozen=True)
class Job:
    """One run of a study: a cell with a seed; ``line`` what is known of it."""

    cell: Cell
    seed: int
    place: Path
    line: Line | None = None

    @property
    def task(self) -> Task:
        """For the engine of ``compare``."""
        return Task(self.place, self.cell.experiment.changed({"seed": self.seed}))

    @property
    def state(self) -> str:
        """In a word."""
        if self.line is None:
            return "begun" if self.place.exists() else "to do"
        return "done" if self.line.parts_hash == self.cell.parts_hash else "done, with other defaults"


def results_path(study: Study, scale: str, out: Path) -> Path:
    """Beside the study; what the smoke scale gives is no result and stays with its runs."""
    return study.results if scale != "smoke" else out / study.name / "smoke.jsonl"


def jobs_of(study: Study, scale: Scale, out: Path, lines: Sequence[Line]) -> list[Job]:
    """All runs of a scale, seed by seed: after the first seed there is something to see of every cell."""
    known = {cell.folder: lines_of(lines, scale.name, cell) for cell in scale.cells}
    root = out / study.name / scale.name
    return [
        Job(cell, seed, place_in(root, f"{cell.folder}-seed{seed}"), known[cell.folder].get(seed))
        for seed in scale.seeds for cell in scale.cells
    ]  # fmt: skip


def run_study(
    study: Study, scale_name: str, out: Path, *, workers: int = 1, renew: bool = False, told: Told | None = None,
    **options: Any,
) -> list[Line]:  # fmt: skip
    """Train what is missing, add a line for each run as it ends, and give back all lines of the study.

    A run is known by its settings: with a line in the results it is done, even if its folder is gone. ``renew`` makes
    those again whose method has other defaults by now. A run that was cut off goes on; one that failed is tried again.
    """
    scale = study.scale(scale_name)
    path = results_path(study, scale_name, out)
    jobs = jobs_of(study, scale, out, read_results(path))
    waiting = [job for job in jobs if job.line is None or (renew and job.line.parts_hash != job.cell.parts_hash)]
    by_place = {job.place: job for job in waiting}
    if waiting:
        first = {job.cell.name: job.task.experiment for job in reversed(waiting)}
        dry_run(first)

        def ended(task: Task, outcome: Outcome) -> None:
            job = by_place[task.place]
            try:
                line = line_of(scale_name, job.cell, job.seed, task.place, outcome.result, outcome.error)
            except BayeswellError as error:  # trained, but not to be measured as the study asks
                line = line_of(scale_name, job.cell, job.seed, task.place, None, str(error))
            append_line(path, line)

        (out / study.name / scale_name).mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            if not scale.judges:  # that so short a training has learned nothing is no news
                warnings.simplefilter("ignore", BayeswellWarning)
            train_all([job.task for job in waiting], told, workers, ended=ended, **options)
    return read_results(path)
