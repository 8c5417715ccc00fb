"""What can only be seen while a network trains: kept with the run, for the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..diagnostics import GradientSNR, StdTrace
from ..persistence import write_document
from ..training import Callback

RECORDS = "records.json"
"""What was measured besides, by us or by a program: the name of a plot and its record, drawn as they stand."""

_WINDOWS, _BATCHES = 40, 10


class Traces:
    """Gradient signal-to-noise in about forty windows of ten batches, and the stds of every layer after each epoch."""

    def __init__(self, total_steps: int) -> None:
        self.snr = GradientSNR(_BATCHES, every=max(_BATCHES, total_steps // _WINDOWS))
        self.stds = StdTrace()

    @property
    def callbacks(self) -> list[Callback]:
        """To be hung into training."""
        return [self.snr, self.stds]

    def write(self, folder: Path) -> None:
        """Write ``records.json``: each record by the name of its plot. A point has no stds to show."""
        windows = [window.as_json() for window in self.snr.windows]
        records: dict[str, Any] = {"snr": windows} if windows else {}
        if self.stds.paths and any(any(values) for values in self.stds.paths[0].layers.values()):
            records["std_paths"] = self.stds.paths[0].as_json()
        write_document(folder / RECORDS, records)
