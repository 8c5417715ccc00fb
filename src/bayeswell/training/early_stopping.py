"""Stop when a held-out number no longer gets better, and keep the weights that were best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..errors import CompositionError, SettingError, nearest, require_count
from ..methods import Method
from .records import EpochRecord
from .run import Callback, Run

HIGHER_IS_BETTER = frozenset({"accuracy"})


class KeepBest(Callback):
    """Keep the weights of the epoch with the best ``metric`` of validation; they are what the run ends with.

    With ``patience`` the run also ends after so many epochs without an improvement of more than ``min_change``.
    """

    def __init__(self, metric: str = "nll", patience: int | None = None, min_change: float = 0.0) -> None:
        if patience is not None:
            require_count("early stopping", "patience", patience)
        if not 0 <= min_change < math.inf:
            raise SettingError(f"early stopping: min_change = {min_change!r}; it must be a finite number of at least 0")
        if str(metric).split(".")[0] == "test":
            raise SettingError(
                f"early stopping: metric = '{metric}': nothing is chosen by test data; name a score on validation "
                "data, such as 'nll'"
            )
        self.metric, self.patience, self.min_change = metric, patience, min_change
        self.best: float | None = None
        self.best_epoch = -1
        self.waited = 0
        self.weights: dict[str, dict[str, Tensor]] = {}

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        if self.metric not in record.validation:
            raise SettingError(f"early stopping: metric = '{self.metric}'; {nearest(self.metric, record.validation)}")
        value = record.validation[self.metric]
        if self._improves(value):
            self.best, self.best_epoch, self.waited = value, record.epoch, 0
            self.weights = {name: _copy(module) for name, module in _modules(run).items()}
            return
        self.waited += 1
        if self.patience is not None and self.waited >= self.patience:
            run.stop(f"validation {self.metric} has not improved for {self.waited} epochs (best {self.best})")

    def end(self, run: Run) -> None:
        for name, module in _modules(run).items():
            if name in self.weights:
                module.load_state_dict(self.weights[name])

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_epoch": self.best_epoch, "waited": self.waited, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.best_epoch, self.waited = state["best"], state["best_epoch"], state["waited"]
        self.weights = state["weights"]

    def _improves(self, value: float) -> bool:
        if self.best is None:
            return math.isfinite(value)
        gain = value - self.best if self.metric in HIGHER_IS_BETTER else self.best - value
        return gain > self.min_change


def keep_best(asked: KeepBest | int | None, method: Method, *, validates: bool) -> KeepBest | None:
    """What ``fit(early_stopping=...)`` asks for: a whole number is the patience. Refused where it cannot work."""
    if asked is not None:
        if not validates:
            raise SettingError("early_stopping needs validation=(inputs, targets) to look at")
        if method.collector is not None:
            raise CompositionError(
                f"early_stopping keeps the weights of one epoch, but the collector of method "
                f"'{method.name}' needs the whole path; leave one of them out, or use method 'bbb'"
            )
    return KeepBest(patience=asked) if isinstance(asked, int) else asked


def _modules(run: Run) -> dict[str, nn.Module]:
    found = {"model": run.assembly.model, "likelihood": run.assembly.likelihood}
    return {name: module for name, module in found.items() if isinstance(module, nn.Module)}


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
