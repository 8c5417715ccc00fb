"""What can only be seen while a network trains: kept with the run, for the report."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from ..diagnostics import GradientSNR, RateTrace, StdTrace
from ..errors import BayeswellError
from ..persistence import read_document, write_document
from ..random import make_generator
from ..training import Callback, EpochRecord, Run
from ..training.finalize import collected_model, one_pass
from ..training.scores import validation_on
from ..training.streams import own_global_stream

RECORDS = "records.json"
"""What was measured besides, by us or by a program: the name of a plot and its record, drawn as they stand."""

AVERAGES = "averages.json"
"""Scores of the averaged model (HWA, SWA, SWAG, a bank of draws) after each epoch that had one."""

_WINDOWS, _BATCHES = 40, 10
_DRAWS = 10


class AverageTrace(Callback):
    """After each epoch, how good the model is that the collector would end with now, on held-out data.

    The log has the iterate, which is another model. Training goes on as if nobody had looked: a copy is measured, with
    random numbers of its own. Epochs before a resumption are not in it.
    """

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.validate = validation_on(inputs, targets, draws=_DRAWS)
        self.epochs: list[dict[str, float]] = []

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        collector = run.assembly.collector
        if collector is None or run.member or run.engine.rank:
            return
        with own_global_stream():
            try:
                model = collected_model(
                    copy.deepcopy(run.assembly.model), collector, lambda: (inputs for inputs, _ in one_pass(run)),
                    run.batches.count, make_generator(0, run.engine.device),
                )  # fmt: skip
            except BayeswellError:  # too few snapshots so far
                return
            scores = self.validate(model, run.assembly.likelihood)
        self.epochs.append({"epoch": record.epoch, "step": run.step, **scores})

    def write(self, folder: Path) -> None:
        """Write ``averages.json``, if there is anything in it."""
        if self.epochs:
            write_document(folder / AVERAGES, {"epochs": list(self.epochs)})


def averages_of(folder: Path) -> list[dict[str, float]]:
    """What ``AverageTrace`` has left in the folder of a run."""
    return list(read_document(folder / AVERAGES)["epochs"]) if (folder / AVERAGES).exists() else []


class Traces:
    """Gradient signal-to-noise in about forty windows of ten batches, the stds of every layer after each epoch, and the
    learning rates by step.
    """

    def __init__(self, total_steps: int) -> None:
        self.snr = GradientSNR(_BATCHES, every=max(_BATCHES, total_steps // _WINDOWS))
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
