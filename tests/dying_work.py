"""Work for processes, some of which it ends: number 1 the first time, number 2 always."""

from __future__ import annotations

import os
from pathlib import Path


def work(cell: dict) -> dict:
    """The number, and at what priority it was found."""
    mark = Path(cell["folder"]) / str(cell["number"])
    if cell["number"] == 2 or (cell["number"] == 1 and not mark.exists()):
        mark.touch()
        os._exit(3)
    return {"nll": float(cell["number"]), "nice": os.nice(0)}
