"""What a schedule will do, before anything is trained."""

from __future__ import annotations

from typing import Any

from ..errors import require_count
from ..optimizers import RATES
from ..schedules import KL_WEIGHTS
from ..types import Progress

_MOST = 2000


def rate_path(rate: Any, total_steps: int, batches: int = 1) -> dict[str, list[float]]:
    """``steps`` and ``values``: the factor of a rate (a part, its name, its settings) along a run.

    ``batches`` are those of an epoch. Of more than 2,000 steps 2,000 are looked at, the first and the last among them.
    """
    part = RATES.resolve(rate)
    return _path(part.factor, total_steps, batches)


def kl_weight_path(weight: Any, total_steps: int, batches: int = 1) -> dict[str, list[float]]:
    """The same of a KL weight."""
    return _path(KL_WEIGHTS.resolve(weight), total_steps, batches)


def _path(value: Any, total_steps: int, batches: int) -> dict[str, list[float]]:
    require_count("a schedule", "total_steps", total_steps)
    require_count("a schedule", "batches", batches)
    looks = min(_MOST, total_steps)
    steps = [look * (total_steps - 1) // max(1, looks - 1) for look in range(looks)]
    values = [float(value(Progress(step, total_steps, step % batches, batches))) for step in steps]
    return {"steps": [float(step) for step in steps], "values": values}
