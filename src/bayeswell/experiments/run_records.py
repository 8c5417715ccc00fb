"""What can only be seen while a network trains: kept with the run, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..diagnostics import GradientSNR, RateTrace, StdTrace, StepTrace
from ..persistence import read_document, write_document
from ..training import Callback, EpochRecord, Run
from ..training.finalize import average_so_far
from ..training.scores import validation_on
from ..training.streams import own_global_stream

RECORDS = "records.json"
"""What was measured besides, by us or by a program: the name of a plot and its record, drawn as they stand."""

AVERAGES = "averages.json"
"""Scores of the averaged model (HWA, SWA, SWAG, a bank of draws) after each epoch that had one."""

STEPS = "steps.json"
"""With ``trace_steps``: what ``StepTrace`` has kept."""

_WINDOWS, _BATCHES = 40, 10
_DRAWS = 10


class AverageTrace(Callback):
    """After each epoch, how good the model is that the collector would end with now, on held-out data.

    The log has the iterate, which is another model. Training goes on as if nobody had looked: a copy is measured, with
    random numbers of its own.
    """

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.scores = validation_on(inputs, targets, draws=_DRAWS)
        self.epochs: list[dict[str, float]] = []

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        if run.assembly.collector is None or run.member or run.engine.rank:
            return
        with own_global_stream():
            model = average_so_far(run)
            if model is None:
                return
            scores = self.scores.with_bound(model, run.assembly.likelihood, run.batches.examples, record.temperature)
        self.epochs.append({"epoch": record.epoch, "step": run.step, **scores})

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": [dict(one) for one in self.epochs]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.epochs = [dict(one) for one in state["epochs"]]

    def write(self, folder: Path) -> None:
        """Write ``averages.json``, if there is anything in it."""
        if self.epochs:
            write_document(folder / AVERAGES, {"epochs": list(self.epochs)})


def averages_of(folder: Path) -> list[dict[str, float]]:
    """What ``AverageTrace`` has left in the folder of a run."""
    return list(read_document(folder / AVERAGES)["epochs"]) if (folder / AVERAGES).exists() else []


def write_steps(folder: Path, trace: StepTrace) -> None:
    """Write ``steps.json``."""
    write_document(folder / STEPS, {"every": trace.every, "rows": [dict(row) for row in trace.rows]})


def steps_of(folder: Path) -> list[dict[str, float]]:
    """The rows of ``steps.json``; none of a run without it."""
    return list(read_document(folder / STEPS)["rows"]) if (folder / STEPS).exists() else []


class Traces:
    """Gradient signal-to-noise in windows of ten batches, every ``every`` steps (None: about forty windows), the stds
    of every layer after each epoch, and the learning rates by step.
    """

    def __init__(self, total_steps: int, every: int | None = None) -> None:
        self.snr = GradientSNR(_BATCHES, every=max(_BATCHES, every or total_steps // _WINDOWS))
        self.stds = StdTrace()
        self.rates = RateTrace()

    @property
    def callbacks(self) -> list[Callback]:
        """To be hung into training."""
        return [self.snr, self.stds, self.rates]

    def write(self, folder: Path) -> None:
        """Write ``records.json``: each record by the name of its plot. A point has no stds to show."""
        windows = [window.as_json() for window in self.snr.windows]
        records: dict[str, Any] = {"snr": windows} if windows else {}
        if self.stds.paths and any(any(values) for values in self.stds.paths[0].layers.values()):
            records["std_paths"] = self.stds.paths[0].as_json()
        if self.rates.paths:
            records["schedules"] = self.rates.paths
        write_document(folder / RECORDS, records)
