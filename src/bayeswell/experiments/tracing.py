"""What can only be seen while a network trains: kept with the run, for the report."""

from __future__ import annotations

from pathlib import Path

from ..diagnostics import GradientSNR, StdTrace
from ..persistence import write_document
from ..training import Callback

RECORDS = "records.json"
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
        """Write ``records.json``: each record by the name of its plot."""
        paths = [path.as_json() for path in self.stds.paths]
        stds = {"std_paths": paths[0]} if paths and paths[0]["layers"] else {}
        windows = [window.as_json() for window in self.snr.windows]
        write_document(folder / RECORDS, {**({"snr": windows} if windows else {}), **stds})
