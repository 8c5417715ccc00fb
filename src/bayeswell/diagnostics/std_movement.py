"""Whether the stds have arrived: how fast log std still moves at the end of training."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import DataError, SettingError, require_count, require_positive
from ..training import Callback, Run
from .parameters import STDS
from .records import Record

TOLERANCE = 0.01
"""Nats an epoch: slower than 1 % an epoch counts as arrived."""

_BRAKED = 0.1
"""Epochs at the end whose learning rate is below this share of the highest say nothing: all stands still then."""


@dataclass(frozen=True)
class StdMovement(Record):
    """A line through the log std ratios of the last epochs.

    ``slope`` in nats an epoch, with its standard error around the line; ``moved`` is the change since the first epoch.
    ``converged`` is None if there are too few epochs (3) to say. ``braked`` epochs at the end were left out, as their
    learning rate was next to nothing.
    """

    layer: str
    epochs: int
    braked: int
    last: int
    slope: float | None
    slope_error: float | None
    moved: float
    tolerance: float
    converged: bool | None


def std_movement(
    std_ratios: Sequence[float],
    rates: Sequence[float] = (),
    *,
    last: int = 5,
    tolerance: float = TOLERANCE,
    layer: str = "all",
) -> StdMovement:
    """How far log(std / prior std) still moves, from its value after each epoch.

    For a run that is over: ``std_movement([record.std_ratio for record in history.epochs])``. The slope is that of the
    least-squares line through the last ``last`` epochs; ``converged`` if it is at most ``tolerance`` either way.

    ``rates`` are the learning rates of the stds (``record.rates["stds"]``), where they change: a rate that falls to
    nothing stops the stds wherever they are, so epochs at the end below a tenth of the highest rate are left out.
    """
    require_count("std movement", "last", last)
    if last < 3:
        raise SettingError(f"std movement: last = {last}; a line with an error needs at least 3 epochs")
    require_positive("std movement", "tolerance", tolerance)
    if not std_ratios or not all(0 < ratio < math.inf for ratio in std_ratios):
        raise DataError("std movement: std ratios must be finite numbers above 0, one for each epoch")
    if rates and len(rates) != len(std_ratios):
        raise DataError(f"std movement: {len(rates)} rates for {len(std_ratios)} epochs; give one for each")
    logs = [math.log(ratio) for ratio in std_ratios]
    braked = next((n for n, rate in enumerate(reversed(rates)) if rate >= _BRAKED * max(rates)), 0)
    chosen = logs[: len(logs) - braked][-last:]
    moved = logs[-1] - logs[0]
    if len(chosen) < 3:
        return StdMovement(layer, len(logs), braked, len(chosen), None, None, moved, tolerance, None)
    count = len(chosen)
    times = range(count)
    slope, start = statistics.linear_regression(times, chosen)
    residuals = [value - start - slope * time for time, value in zip(times, chosen, strict=True)]
    error = math.sqrt(sum(r * r for r in residuals) / (count - 2) / (count * statistics.pvariance(times)))
    return StdMovement(layer, len(logs), braked, count, slope, error, moved, tolerance, abs(slope) <= tolerance)


@dataclass(frozen=True)
class StdPath(Record):
    """exp(mean of log(std / prior std)) of each layer, before training and after each epoch, of one member.

    ``rates`` are the learning rates of the stds, one an epoch (empty if none are trained).
    """

    member: int
    rates: list[float]
    layers: Mapping[str, list[float]]


class StdTrace(Callback):
    """Keeps the geometric mean of std / prior std of every layer before the first step and after each epoch."""

    def __init__(self) -> None:
        self.paths: list[StdPath] = []

    def start(self, run: Run) -> None:
        if run.step == 0:
            self.paths.append(StdPath(run.member, [], {site.name: [] for site in run.assembly.model.layout.sites}))
            self._add(run)

    def after_epoch(self, run: Run, record: Any) -> None:
        self._add(run)
        if STDS in record.rates:
            self.paths[-1].rates.append(record.rates[STDS])

    def movement(self, *, last: int = 5, tolerance: float = TOLERANCE, member: int = 0) -> tuple[StdMovement, ...]:
        """How fast each layer's log std still moves; a layer without stds (zero) is left out."""
        path = next((path for path in self.paths if path.member == member), None)
        if path is None:
            raise SettingError(f"std trace: member = {member} was not seen")
        return tuple(
            std_movement(values[1:], path.rates, last=last, tolerance=tolerance, layer=layer)
            for layer, values in path.layers.items()
            if len(values) > 1 and min(values) > 0
        )

    def _add(self, run: Run) -> None:
        model = run.assembly.model
        with torch.no_grad():
            logs = (model.posterior.std_vector() / model.prior.std_vector()).double().log()
            for layer, part in model.layout.slices.items():
                self.paths[-1].layers[layer].append(float(logs[part].mean().exp()))

    def state_dict(self) -> dict[str, Any]:
        return {"paths": [path.as_json() for path in self.paths]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.paths = [StdPath(path["member"], list(path["rates"]), dict(path["layers"])) for path in state["paths"]]
