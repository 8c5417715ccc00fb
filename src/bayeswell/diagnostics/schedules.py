"""What a schedule will do, before anything is trained, and what the rates were, step by step."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import require_count
from ..optimizers import RATES
from ..schedules import KL_WEIGHTS
from ..training.run import Callback, Run
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


class RateTrace(Callback):
    """Keeps the learning rate with which each group took (at most) 2,000 of the steps, of the first member.

    ``paths`` has ``steps``, ``values`` and the ``quantity`` by group, as ``plot_schedules`` takes them: with schedules,
    plateaus, a sampler's own decay and what a stepper found by itself, all in one number.
    """

    def __init__(self) -> None:
        self.paths: dict[str, dict[str, Any]] = {}

    def after_step(self, run: Run) -> None:
        step = run.step - 1  # the one that has just been taken
        every = -(-run.total_steps // _MOST)
        if run.member or (step % every and step != run.total_steps - 1):
            return
        for name, rate in run.assembly.learning_rates().items():
            path = self.paths.setdefault(name, _rates([], []))
            path["steps"].append(float(step))
            path["values"].append(rate)

    def state_dict(self) -> dict[str, Any]:
        return {"paths": copy.deepcopy(self.paths)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.paths = {name: _rates(path["steps"], path["values"]) for name, path in state["paths"].items()}


def _rates(steps: Iterable[float], values: Iterable[float]) -> dict[str, Any]:
    return {"steps": list(steps), "values": list(values), "quantity": "learning rate"}


def _path(value: Any, total_steps: int, batches: int) -> dict[str, list[float]]:
    require_count("a schedule", "total_steps", total_steps)
    require_count("a schedule", "batches", batches)
    looks = min(_MOST, total_steps)
    steps = [look * (total_steps - 1) // max(1, looks - 1) for look in range(looks)]
    values = [float(value(Progress(step, total_steps, step % batches, batches))) for step in steps]
    return {"steps": [float(step) for step in steps], "values": values}
