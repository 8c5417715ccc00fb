"""Which settings a trial has: asked of Optuna, or known from the trial's number."""

from __future__ import annotations

import math
from typing import Any

from ..extras import needs_extra
from ..random import derive_seed
from ..random_settings import drawn_near
from .definition import Definition
from .grid import GRID, grid_point
from .space import Choices, Near, Spread, Value

with needs_extra("lab", "a sweep"):
    import optuna

_FAR = 11.0
"""N(v, v/2) is not above 11 v: that is 20 standard deviations."""


def suggest(study: optuna.Study, definition: Definition, trial: optuna.Trial) -> dict[str, Value]:
    """The trial's settings; Optuna gives those again that are recorded already.

    The sampler begins anew for each, from the sweep's seed, the trial's number and the setting's name: settings of a
    random sweep depend on nothing else, whichever worker draws them and whatever was killed in between.
    """
    known = grid_point(definition.space, trial.number) if definition.sampler == GRID else {}
    settings: dict[str, Value] = {}
    for name, spread in definition.space.items():
        seed = derive_seed(definition.seed, "sweep", trial.number, name)
        if isinstance(spread, Near):
            known[name] = drawn_near(spread.values, seed, spread.below)
        study.sampler = _Known(known[name]) if name in known else _sampler(definition.sampler, seed)
        settings[name] = _suggested(trial, name, spread)
    return settings


def _suggested(trial: optuna.Trial, name: str, spread: Spread) -> Value:
    if isinstance(spread, Choices):
        chosen: Value = trial.suggest_categorical(name, spread.values)  # type: ignore[assignment]  # none is None
        return chosen
    if isinstance(spread, Near):
        return trial.suggest_float(name, 0.0, spread.below if spread.below < math.inf else _FAR * max(spread.values))
    if spread.whole:
        return trial.suggest_int(name, int(spread.low), int(spread.high), log=spread.log)
    return trial.suggest_float(name, spread.low, spread.high, log=spread.log)


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    small = seed % 2**32  # all that numpy's old generators take
    return optuna.samplers.RandomSampler(small) if name == "random" else optuna.samplers.TPESampler(seed=small)


class _Known(optuna.samplers.BaseSampler):
    """Gives the value that it was given: Optuna records it as any other."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """None is drawn together with others."""
        return {}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        """None is drawn together with others."""
        return {}

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        """The value."""
        return self.value
