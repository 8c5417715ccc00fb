"""Where numbers go while a network trains, besides ``metrics.jsonl``: TensorBoard, and all that looks on, as one."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..extras import needs_extra
from ..training import Callback, EpochRecord, Run


class Watchers(Callback):
    """Callbacks that only look on, as one: called in the first of several processes alone, and closed together.

    ``steps`` counts the steps of this session: what is refused before the first is bad input, not a failed run.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = tuple(callbacks)
        self.steps = 0

    def start(self, run: Run) -> None:
        for callback in self._here(run):
            callback.start(run)

    def after_step(self, run: Run) -> None:
        self.steps += 1
        for callback in self._here(run):
            callback.after_step(run)

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        for callback in self._here(run):
            callback.after_epoch(run, record)

    def end(self, run: Run) -> None:
        for callback in self._here(run):
            callback.end(run)

    def close(self) -> None:
        """Let go of terminals and files; also after an error."""
        for callback in self.callbacks:
            getattr(callback, "close", _nothing)()

    def _here(self, run: Run) -> Sequence[Callback]:
        """One process speaks for all."""
        return self.callbacks if run.engine.rank == 0 else ()


class TensorBoardLogger(Callback):
    """The numbers of every epoch for TensorBoard, one folder of events a member: ``fit(..., callbacks=[this])``."""

    every_step = False

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._writer: Any = None
        with needs_extra("tensorboard", "the log for TensorBoard"):
            importlib.import_module("tensorboard")

    def start(self, run: Run) -> None:
        if run.engine.rank != 0:
            return
        # Imported here: it is optional, and takes seconds.
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        name = f"member{run.member}" if run.members > 1 else ""
        self._writer = SummaryWriter(str(self.folder / name), purge_step=run.step)

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        if self._writer is None:  # another process writes
            return
        for name, value in record.values().items():
            self._writer.add_scalar(name.replace(".", "/"), value, run.step)

    def end(self, run: Run) -> None:
        self.close()

    def close(self) -> None:
        """Write what is waiting."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _nothing() -> None:
    """For what has nothing to let go of."""
