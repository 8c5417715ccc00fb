"""``fit(calibrate=...)``: which data are held out, and who is trained on the rest.

With ``validation`` these data calibrate. Else a share of the training data is held out; small data are cross-fitted: K
models are trained without one fold each, the two numbers are chosen on all held-out predictions together, and they are
applied to a model that is trained on all data. That costs K + 1 trainings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..core.errors import DataError, SettingError
from ..core.random import derive_seed, make_generator
from ..nn import BayesianModule
from ..prediction import HeldOut, find_calibration
from .data import TensorData
from .members import Plan

if TYPE_CHECKING:
    from .result import Result

FOLDS, SHARE = 5, 0.1
SMALL, MOST = 5_000, 10_000
"""Fewer examples than SMALL are cross-fitted; at most MOST are held out."""


def calibrated_fit(train: Callable[[Plan], Result], plan: Plan, calibrate: bool | int | float) -> Result:
    """Train and calibrate."""
    data, seed = plan.data, derive_seed(plan.seed, "calibrate")
    held_out = []
    if plan.validation is not None:
        result = train(plan)
        held_out.append(HeldOut(result.model, result.likelihood, *plan.validation.some(MOST, seed)))
        return result.calibrated(find_calibration(held_out, seed=seed))
    if isinstance(plan.net, BayesianModule) or plan.epochs == 0:
        raise SettingError("`calibrate` needs `validation` data: the model was trained on these data before")
    if not isinstance(data, TensorData):
        raise DataError("`calibrate` cannot split a Dataset or DataLoader; give `validation` data")
    folds, count = _folds(calibrate, data.examples)
    order = torch.randperm(data.examples, generator=make_generator(seed))
    if folds == 1:
        result = train(dataclasses.replace(plan, data=data.part(order[count:].sort().values)))
        held_out.append(HeldOut(result.model, result.likelihood, *data.all.rows(order[:count].sort().values)))
        return result.calibrated(find_calibration(held_out, seed=seed))
    result = train(plan)
    parts = order.tensor_split(folds)
    for number, left in enumerate(parts):
        rest = torch.cat([part for place, part in enumerate(parts) if place != number]).sort().values
        folder = None if plan.folder is None else plan.folder.below(f"folds/{number}")
        fold = train(dataclasses.replace(plan, data=data.part(rest), folder=folder, callbacks=(), progress=False))
        held_out.append(HeldOut(fold.model, fold.likelihood, *data.all.rows(left.sort().values)))
    return result.calibrated(find_calibration(held_out, seed=seed))


def _folds(calibrate: bool | int | float, examples: int) -> tuple[int, int]:
    # The number of folds, and of held-out examples if it is one.
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
