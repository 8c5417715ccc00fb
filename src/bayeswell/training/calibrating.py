"""``fit(..., calibrate=...)``: which data are held out, who is trained on the rest, and what they say.

With ``validation`` those data are asked. Else a share of the training data is held out; of fewer than 5,000 a share
would be too few to choose by and too many to miss, so they are cross-fitted: cut into K folds, K models are trained,
each without one fold, the two numbers are chosen on all K held-out predictions together, and put to a model that is
trained on everything. That costs K times the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ..batches import Columns
from ..errors import DataError, SettingError
from ..nested import taken
from ..predictive.calibration import HeldOut, find_calibration
from ..predictive.predictor import Predictor
from ..random import derive_seed, make_generator
from .data import TensorBatches, as_batches
from .held_out import read_held_out
from .run_folder import RunFolder

FOLDS, SHARE = 5, 0.1
FEW, MOST = 5_000, 10_000
"""Fewer training examples than FEW are cross-fitted; no more than MOST are held out."""

PredictorT = TypeVar("PredictorT", bound=Predictor, covariant=True)


class Train(Protocol[PredictorT]):
    """``fit`` with everything given but the data and where the run is kept; ``main`` has the caller's callbacks."""

    def __call__(self, data: Any, validation: Any, folder: Any, *, main: bool) -> PredictorT:
        """A trained model."""
        ...


@dataclass(frozen=True)
class Holding:
    """How many examples are held out once, or into how many folds (above 1) all are cut."""

    examples: int
    folds: int = 1


def holding(calibrate: bool | int | float, examples: int) -> Holding:
    """True: a tenth of 5,000 examples or more, five folds of fewer; a share below 1; a number of folds from 2 on."""
    if calibrate is True:
        calibrate = FOLDS if examples < FEW else SHARE
    if isinstance(calibrate, int) and not isinstance(calibrate, bool) and 2 <= calibrate <= examples // 2:
        return Holding(0, calibrate)
    if isinstance(calibrate, float) and 0 < calibrate < 1:
        return Holding(max(1, min(MOST, round(calibrate * examples))))
    raise SettingError(
        f"calibrate = {calibrate!r}; give True, a share to hold out (between 0 and 1), or a number of folds (2 to half "
        f"of the {examples} examples)"
    )


def calibrated_fit(
    train: Train[PredictorT],
    data: Any,
    calibrate: bool | int | float,
    *,
    validation: Any,
    folder: Any,
    resume: bool,
    seed: int,
    dtype: torch.dtype | None,
    columns: Columns | None = None,
) -> PredictorT:
    """A model trained by ``train`` and calibrated, by the rule above."""
    if validation is not None:
        result = train(data, validation, folder, main=True)
        held_out_data = read_held_out(validation, columns or Columns(), dtype)
        chosen = {"seed": derive_seed(seed, "calibrate")}
        return result.calibrate(held_out_data.inputs, held_out_data.targets, **chosen)
    whole = as_batches(data, 1, dtype, columns=columns)
    if not isinstance(whole, TensorBatches):
        raise DataError(
            f"calibrate: a {type(data).__name__} cannot be cut in two; hold out data yourself and give "
            "validation=(inputs, targets), or give tensors or arrays"
        )
    plan = holding(calibrate, whole.examples)
    order = torch.randperm(whole.examples, generator=make_generator(derive_seed(seed, "held out")))
    if plan.folds == 1:
        left, rest = order[: plan.examples].sort().values, order[plan.examples :].sort().values
        result = train(_part(whole, rest), None, folder, main=True)
        held_out = [_held_out(result, whole, left)]
    else:
        result = train(data, None, folder, main=True)
        held_out = []
        for fold, (left, rest) in enumerate(_folds(order, plan.folds)):
            model = train(_part(whole, rest), None, _folder(folder, resume, fold), main=False)
            held_out.append(_held_out(model, whole, left))
    return result.calibrated(find_calibration(held_out, seed=derive_seed(seed, "calibrate")))


def _folds(order: Tensor, folds: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The examples of each fold, and all others."""
    parts = order.tensor_split(folds)
    for fold in range(folds):
        others = [part for place, part in enumerate(parts) if place != fold]
        yield parts[fold].sort().values, torch.cat(others).sort().values


def _part(whole: TensorBatches, rows: Tensor) -> tuple[Any, ...]:
    """Some of the examples, as ``fit`` takes them."""
    weights = () if whole.weights is None else (whole.weights[rows],)
    return (taken(whole.inputs, rows), whole.targets[rows], *weights)


def _held_out(trained: Predictor, whole: TensorBatches, rows: Tensor) -> HeldOut:
    return HeldOut(trained.model, trained.likelihood, *_part(whole, rows))


def _folder(folder: Any, resume: bool, fold: int) -> RunFolder | None:
    """Where a fold's run is kept: below the run's own."""
    if folder is None:
        return None
    own = folder if isinstance(folder, RunFolder) else RunFolder(folder, resume=resume)
    return RunFolder(
        Path(own.path) / "folds" / str(fold), resume=own.resume, force=own.force, longer=own.longer,
        checkpoint_steps=own.checkpoint_steps, checkpoint_seconds=own.checkpoint_seconds, finish=False,
    )  # fmt: skip
