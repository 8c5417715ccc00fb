"""``fit(calibrate=...)``: which data are held out, and who is trained on the rest.

With ``validation`` these data calibrate. Else a share of the training data is held out; small data are cross-fitted: K
models are trained without one fold each, the two numbers are chosen on all held-out predictions together, and they are
applied to a model that is trained on all data. That costs K + 1 trainings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from ..core.errors import DataError, SettingError
from ..core.pytree import tree_index
from ..core.random import derive_seed, make_generator
from ..prediction import HeldOut, Predictor, find_calibration
from .data import Batch, TensorData, as_data, held_out
from .options import FitOptions
from .preparing import Ready

if TYPE_CHECKING:
    from .result import Result

FOLDS, SHARE = 5, 0.1
SMALL, MOST = 5_000, 10_000
"""Fewer examples than SMALL are cross-fitted; at most MOST are held out."""


class Train(Protocol):
    """``fit`` on prepared data."""

    def __call__(self, data: Any, options: FitOptions) -> Result: ...


def calibrated_fit(train: Train, ready: Ready, options: FitOptions) -> Result:
    """Train and calibrate."""
    columns, seed = ready.columns(options.target), derive_seed(options.seed, "calibrate")
    if ready.validation is not None:
        result = train(ready.data, options)
        validation = held_out(ready.validation, columns, ready.dtype).some(MOST, seed)
        return result.calibrated(find_calibration([_held_out(result, validation)], seed=seed))
    if ready.previous is not None or options.epochs == 0:
        raise SettingError("`calibrate` needs `validation` data: the model was trained on these data before")
    whole = as_data(ready.data, columns, ready.dtype)
    if not isinstance(whole, TensorData):
        raise DataError(f"`calibrate` cannot split a {type(ready.data).__name__}; give `validation` data")
    folds, count = _plan(options.calibrate, whole.examples)
    order = torch.randperm(whole.examples, generator=make_generator(seed))
    if folds == 1:
        rest, left = order[count:].sort().values, order[:count].sort().values
        result = train(_rows(whole.all, rest), options)
        return result.calibrated(find_calibration([_held_out(result, _rows(whole.all, left))], seed=seed))
    result = train(ready.data, options)
    parts = []
    for number, (rest, left) in enumerate(_splits(order, folds)):
        folder = None if options.folder is None else options.folder.below(f"folds/{number}")
        inner = dataclasses.replace(options, folder=folder, callbacks=(), progress=False, validation=None)
        parts.append(_held_out(train(_rows(whole.all, rest), inner), _rows(whole.all, left)))
    return result.calibrated(find_calibration(parts, seed=seed))


def _plan(calibrate: bool | int | float, examples: int) -> tuple[int, int]:
    """Return the number of folds, and of held-out examples for one."""
    if calibrate is True:
        calibrate = FOLDS if examples < SMALL else SHARE
    if isinstance(calibrate, int) and 2 <= calibrate <= examples // 2:
        return calibrate, 0
    if isinstance(calibrate, float) and 0 < calibrate < 1:
        return 1, max(1, min(MOST, round(calibrate * examples)))
    raise SettingError(
        f"`calibrate` = {calibrate!r}; give True, a share of the data between 0 and 1, or a number of folds from 2 to "
        f"half of the {examples} examples"
    )


def _splits(order: Tensor, folds: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the rows of all other folds and those of each fold."""
    parts = order.tensor_split(folds)
    for fold, left in enumerate(parts):
        rest = torch.cat([part for place, part in enumerate(parts) if place != fold])
        yield rest.sort().values, left.sort().values


def _rows(batch: Batch, rows: Tensor) -> tuple[Any, ...]:
    weight = () if batch.sample_weight is None else (batch.sample_weight[rows],)
    return (tree_index(batch.inputs, rows), batch.targets[rows], *weight)


def _held_out(trained: Predictor, rows: tuple[Any, ...]) -> HeldOut:
    return HeldOut(trained.model, trained.likelihood, *rows)
