"""What a run leaves when it is done: the model, a card of its data, and what came out.

``fit(folder=...)`` writes all three by itself. The command line writes the same with more in it: scores on test data,
and how its data are scaled.

``model/``       the trained model, for ``bayeswell.load``
``data.json``    what the model must know of its data to meet new ones: shape of an input, classes, scaling
``result.json``  method, seed, what the posterior is like, cost and time; ``test`` is null where nothing was measured
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import BayeswellError, BayeswellWarning
from ..lifting import BayesianModule
from ..metrics.chains import ChainReport
from ..persistence import write_document
from ..plain import fields_of, plain
from ..predictive import ClassPrediction
from .data import Batches
from .examples import first_examples
from .result import Result
from .run_folder import MODEL, RunFolder
from .streams import own_global_stream

RESULT_FORMAT = 1
CARD, CARD_FORMAT = "data.json", 1
_LOOKED_AT = 8


def result_record(
    result: Result, *, batches: int, draws: int, seconds: float, timed_steps: int | None, **about: Any
) -> dict[str, Any]:
    """The record of ``result.json``; ``about``: what the run was about and what was measured (data, model, test, ...).

    ``batches`` are those of an epoch, ``timed_steps`` how many steps the ``seconds`` were spent on (None: all). All but
    ``time`` is the same for the same run.
    """
    method, calibration = result.method, result.calibration
    taken = batches * sum(len(history.epochs) for history in result.histories)
    timed = taken if timed_steps is None else timed_steps
    return {
        "format": RESULT_FORMAT,
        "method": method.name,
        "seed": result.seed,
        "draws": draws,
        **about,
        "calibration": None if calibration is None else {**fields_of(calibration), "text": str(calibration)},
        "variational_parameters": result.variational_parameters,
        "std_ratio": result.std_ratio,
        "temperature": result.temperature,
        "plan": result.plan or None,
        "chains": _chains(result.chains),
        "elbo": None if result.elbo is None else result.elbo.as_json(),
        "trust": result.trust.as_json(),
        "stopped": result.stopped,
        "cost": {
            "unit": "forward passes of a batch; a backward pass counts as two",
            "per_step": method.cost,
            "members": method.members,
            "steps": taken,
            # K folds, each without a Kth of the data, and all of it once.
            "total": taken * method.cost / method.members * (1 if calibration is None else calibration.folds),
        },
        # All that a second run of the same experiment may find otherwise.
        "time": {
            "train_seconds": seconds,
            "evaluate_seconds": 0.0,
            "timed_steps": timed,
            "resumed": timed < taken,
        },
    }


def finish_run(folder: RunFolder, result: Result, batches: Batches, seconds: float) -> None:
    """Leave a whole run in the folder of ``fit``; what cannot be kept is told, and the rest of the folder stays.

    The time of a run that was resumed is not known: only that since then was measured.
    """
    if not first_process():
        return
    try:
        result.save(folder.path / MODEL)
    except BayeswellError as error:
        told = f"the model is not kept in {str(folder.path)!r}: {error}"
        warnings.warn(told, BayeswellWarning, stacklevel=4)
        return
    inputs, _, _ = next(iter(batches.weighted(0)))
    some = first_examples(inputs, _LOOKED_AT)
    with own_global_stream():
        found = replace(result, preparation=None).predict(some, draws=2)  # the batches are prepared already
    classes = isinstance(found, ClassPrediction)
    outputs = found.probabilities.shape[-1] if isinstance(found, ClassPrediction) else found.mean[0].numel()
    name = f"own data {batches.fingerprint()[:8]}"
    shape = list(inputs.shape[1:]) if isinstance(inputs, Tensor) else []
    names = [str(label) for label in range(outputs)] if classes else None
    about = {"name": name, "input_shape": shape, "outputs": outputs, "class_names": names, **_prepared(result)}
    write_document(folder.path / CARD, data_card(**about))
    record = result_record(
        result, batches=batches.count, draws=100, seconds=seconds, timed_steps=None if folder.is_new else 0,
        data=name, model=type(result.model.net).__name__, parameters=_parameters(result.model),
        examples={"train": batches.examples, "test": 0}, test=None, ood=None, validation=_held_out(result),
    )  # fmt: skip
    folder.write_result(record)


def _prepared(result: Result) -> dict[str, Any]:
    """What the card says of data that were prepared: columns of a table, scales, names of classes."""
    own = result.preparation
    if own is None:
        return {}
    columns = (
        {} if own.columns is None else {"table": own.columns.as_json(), "columns": list(own.columns.names)}
    )  # fmt: skip
    names = {} if own.class_names is None else {"class_names": list(own.class_names)}
    return {"scaling": own.scaling.as_json(), **columns, **names}


def data_card(
    name: str,
    input_shape: list[int],
    outputs: int,
    class_names: list[str] | None,
    *,
    vocabulary: int | None = None,
    scaling: dict[str, Any] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """The record of ``data.json``; ``scaling`` None is that of data that were taken as they are."""
    unscaled = dict.fromkeys(("input_shift", "input_scale", "target_shift", "target_scale"))
    usual = {"columns": None, "target_name": None, "delimiter": ",", "raw_scale": 1.0}
    return {
        "format": CARD_FORMAT, "name": name, "input_shape": input_shape, "outputs": outputs,
        "class_names": class_names, "vocabulary": vocabulary, "scaling": scaling or unscaled, **usual, **others,
    }  # fmt: skip


def first_process() -> bool:
    """Whether this process is the only one, or the first of several."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not distributed or torch.distributed.get_rank() == 0


def _parameters(model: BayesianModule) -> int:
    """How many numbers the network has, drawn ones and others."""
    return model.layout.size + sum(one.numel() for one in model.net.parameters())


def _held_out(result: Result) -> dict[str, float] | None:
    """The last scores on ``validation``, where there was any."""
    epochs = result.histories[-1].epochs
    return dict(plain(epochs[-1].validation)) if epochs and epochs[-1].validation else None


def _chains(report: ChainReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    names = ("r_hat", "ess", "typical_ess", "chains", "draws", "quantities", "constant")
    numbers = {name: plain(getattr(report, name), finite=True) for name in names}
    return {**numbers, "converged": report.converged, "warnings": list(report.warnings)}
