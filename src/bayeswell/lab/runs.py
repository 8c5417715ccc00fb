"""Runs: training with one record of settings, in a folder that survives a kill; evaluation and prediction of folders.

The folder of a run has ``settings.json`` (written first), ``checkpoints``, ``metrics-0.csv`` for each member, ``model``
(for ``bayeswell.load``), ``per_example.safetensors`` and ``result.json`` (written last).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.errors import BayeswellError, FileError, SettingError
from ..io import folder_exists, folder_lock, load_folder
from ..io.folders import MANIFEST
from ..prediction import ClassPrediction, Evaluation, Predictor, RealPrediction, load, predict
from ..training import Callback, Devices, KeepBest, RunFolder, fit
from ..training.fingerprint import differences, fingerprint
from .comparison import COMPARISON
from .data import Augmentation, DataSet, load_data
from .files import read_json, write_json
from .inputs import check_units, read_file
from .measure import BATCH, DRAWS, RESULT, SETTINGS, RunRecord, measure, ood_scores
from .models import MODELS, build_model, default_model
from .settings import Code, CodeRecord, RunSettings, call_with, run_code

MODEL = "model"
SMALL = 100_000
"""Weights below which one thread is faster than several."""
_WIDE_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase, nn.MultiheadAttention)
_NOT_IDENTITY = ("folder", "workers")
"""Settings that do not change the numbers of a run."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Data and the network of a run before training; ``start`` is a trained model to start from."""

    data: DataSet
    net: nn.Module
    start: Predictor | None = None


def train(
    settings: RunSettings,
    *,
    data: Any = None,
    net: Any = None,
    resume: bool = False,
    progress: bool | None = False,
    callbacks: Sequence[Callback] = (),
    label: str = "",
    name: str = "",
) -> RunRecord:
    """Train, save and measure one run in ``settings.folder``; None: in memory.

    Args:
        settings: of the run.
        data: a ``DataSet``, or (train, test) pairs, in place of ``settings.data``.
        net: an ``nn.Module``, or a function that makes one, in place of ``settings.model``.
        resume: continue an unfinished run bit for bit, and return the record of a finished one.
        progress: show a progress bar on stderr; None: if it is a terminal.
        callbacks: of the training.
        label: of the method in a comparison.
        name: of the problem; "": that of the data.
    """
    if settings.folder is None:
        return _train(settings, load_problem(settings, data, net, name), None, False, progress, callbacks, label)
    folder = Path(settings.folder)
    # Checked before the folder is made.
    _ = settings.method_part
    problem = load_problem(settings, data, net, name)
    with folder_lock(folder):
        if settings.threads is None:
            settings = settings.changed(threads=default_threads(problem.net))
        document = _document(settings, problem, data is not None, net is not None)
        if not resume:
            _check_new(folder)
        elif (folder / SETTINGS).exists():
            _check_same(folder, document)
        if (folder / RESULT).exists():
            return RunRecord.load(folder)
        write_json(folder / SETTINGS, document)
        try:
            return _train(settings, problem, folder, resume, progress, callbacks, label)
        except BayeswellError:
            if not folder_exists(RunFolder(folder).checkpoint(0)):
                (folder / SETTINGS).unlink()  # Nothing was trained: the corrected command finds the folder free.
            raise


def _train(
    settings: RunSettings,
    problem: Problem,
    folder: Path | None,
    resume: bool,
    progress: bool | None,
    callbacks: Sequence[Callback],
    label: str,
) -> RunRecord:
    data = problem.data
    stop = settings.early_stopping
    with use_threads(settings.threads or default_threads(problem.net)):
        began = time.perf_counter()
        result = fit(
            problem.start or problem.net,
            data.train,
            settings.method_part,
            data.scaled_likelihood(run_code("likelihood", settings.likelihood)),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            seed=settings.seed,
            validation=data.validation,
            early_stopping=None if stop is None else KeepBest(settings.early_stopping_metric, stop),
            folder=None if folder is None else RunFolder(folder),
            resume=resume,
            callbacks=callbacks,
            progress=progress,
            calibrate=settings.calibrate,
            workers=settings.workers,
            devices=Devices(settings.accelerator, settings.devices, precision=settings.precision),
            augment=None if settings.augment is None else Augmentation(**settings.augment),
        )
        seconds = time.perf_counter() - began
        if folder is not None:
            data.attach(result).save(folder / MODEL)
        record = measure(result, data, settings, seconds=seconds, label=label)
    if folder is not None:
        record.save(folder)
    return record


def resume(
    folder: str | os.PathLike[str],
    *,
    data: Any = None,
    net: Any = None,
    progress: bool | None = False,
    callbacks: Sequence[Callback] = (),
) -> RunRecord:
    """Continue the run in a folder from its settings alone; objects and code have to be given again."""
    settings = run_settings(folder)
    for name, code in (("data", data), ("model", net)):
        if isinstance(code, Code):
            _check_code(getattr(settings, name), code)
            settings = settings.changed(**{name: code})
    data, net = (None if isinstance(one, Code) else one for one in (data, net))
    settings = settings.changed(folder=os.fspath(folder))
    return train(settings, data=data, net=net, resume=True, progress=progress, callbacks=callbacks)


def run_settings(folder: str | os.PathLike[str]) -> RunSettings:
    """Return the settings of the run in a folder."""
    path = Path(folder) / SETTINGS
    if not path.exists():
        raise FileError(f"{os.fspath(folder)!r} is no folder of a run: it has no {SETTINGS}")
    return RunSettings.from_dict(read_json(path)["settings"])


def load_run(folder: str | os.PathLike[str], net: Any = None) -> Predictor:
    """Return the trained model of a run, which takes raw inputs.

    Args:
        folder: of a finished run, or of a saved model.
        net: the network, if it is the user's own code.
    """
    place = Path(folder)
    if not (place / SETTINGS).exists():
        return load(place, None if net is None else _made(net, {}, {}))
    if not folder_exists(place / MODEL):
        raise FileError(f"{place} has no trained model yet; `bayeswell resume {place}` finishes the run")
    document = read_json(place / SETTINGS)
    if net is None and document["network"]["choice"] is not None:
        found = MODELS.resolve(document["network"]["choice"])
        shape = tuple(document["network"]["input_shape"])
        net = found.build(shape, document["network"]["outputs"], document["network"]["vocabulary"])
    elif net is not None:
        _check_code(document["settings"].get("model"), net)
        net = _made(net, document["network"], document["settings"].get("model_settings", {}))
    return load(place / MODEL, net)


def evaluate(
    folder: str | os.PathLike[str],
    *,
    data: Any = None,
    ood: Any = None,
    draws: int | None = None,
    seed: int = 0,
    prediction: str | None = None,
    net: Any = None,
) -> Evaluation:
    """Return the scores of a finished run, from its record if nothing else is asked for.

    Args:
        folder: of the run.
        data: other data of the same kind; None: its own.
        ood: out-of-distribution data, one choice or several.
        draws: the number of networks; None: as in the run.
        seed: of the draws.
        prediction: "sampled", "linearized" or "mean"; None: as in the run.
        net: the network, if it is the user's own code.
    """
    settings = run_settings(folder)
    if data is None and ood is None and draws is None and seed == 0 and prediction is None:
        return _recorded(RunRecord.load(folder))
    model = load_run(folder, net)
    own = load_data(
        settings.data_choice if data is None else data,
        ood=() if ood is None else ood,
        preparation=model.preparation,
        fold=settings.fold if data is None else None,
    )
    counts: dict[str, Any] = {"draws": settings.draws if draws is None else draws, "batch_size": BATCH}
    counts |= {"seed": seed, "prediction": prediction}
    with use_threads(settings.threads or default_threads(model.model.net)):
        found = own.evaluate(model, **counts)
        scores = dict(found.scores)
        for name, inputs in own.ood.items():
            outside = own.prepared.restore(predict(model.model, inputs, model.likelihood, **counts))
            ending = "" if len(own.ood) == 1 else f".{name}"
            scores |= {f"{key}{ending}": value for key, value in ood_scores(found, outside).items()}
    return dataclasses.replace(found, scores=scores)


def _recorded(record: RunRecord) -> Evaluation:
    return Evaluation(
        scores=record.all_scores(),
        examples=record.cost["test"],
        draws=record.cost["draws"],
        prediction=record.posterior["prediction"],
        likelihood=record.likelihood,
        per_example=record.per_example,
    )


def predict_file(
    folder: str | os.PathLike[str],
    inputs: str | os.PathLike[str],
    *,
    draws: int = DRAWS,
    seed: int = 0,
    prediction: str | None = None,
    net: Any = None,
) -> ClassPrediction | RealPrediction:
    """Return the prediction of a finished run for a file of new inputs.

    Args:
        folder: of the run, or of a saved model.
        inputs: a table (.csv, .tsv or .parquet, columns by name), an array ``x`` (.npz), or a picture.
        draws: the number of networks.
        seed: of the draws.
        prediction: "sampled", "linearized" or "mean"; None: as in the run.
        net: the network, if it is the user's own code.
    """
    model = load_run(folder, net)
    known = Path(folder) / SETTINGS
    shape = read_json(known)["network"]["input_shape"] if known.exists() else None
    by_name = model.preparation is not None and model.preparation.columns is not None
    found = read_file(inputs, shape, by_name=by_name)
    if model.preparation is not None and model.preparation.input_scaling is not None:
        check_units(inputs, model.preparation.inputs(found))
    return model.predict(found, draws=draws, batch_size=BATCH, seed=seed, prediction=prediction)


@dataclass(frozen=True)
class Verdict:
    """A file or folder, and what is wrong with it in one line; "" if it is as it was written."""

    path: Path
    fault: str = ""


def verify(folder: str | os.PathLike[str]) -> list[Verdict]:
    """Check every checksum in a folder and below it: runs, comparisons and saved models."""
    place = Path(folder)
    if not place.is_dir():
        raise FileError(f"{os.fspath(folder)!r}: there is no such folder")
    paths = [path for path in sorted(place.rglob("*.json")) if path.name in _CHECKS]
    # Hidden folders are those of writers that were killed; a finished run checks its settings itself.
    paths = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(place).parts)]
    found = [_verdict(path) for path in paths if path.name != SETTINGS or not (path.parent / RESULT).exists()]
    if not found:
        raise FileError(f"{os.fspath(folder)!r} has no run, comparison or saved model")
    return found


_CHECKS: dict[str, Callable[[Path], Any]] = {
    MANIFEST: lambda path: load_folder(path.parent),
    RESULT: lambda path: RunRecord.check(path.parent),
    SETTINGS: read_json,
    COMPARISON: read_json,
}


def _verdict(path: Path) -> Verdict:
    try:
        _CHECKS[path.name](path)
    except FileError as error:
        return Verdict(path, str(error))
    return Verdict(path)


def load_problem(settings: RunSettings, data: Any = None, net: Any = None, name: str = "") -> Problem:
    """Return the data and the network that settings name, or that are given as objects."""
    start = None if settings.init is None else load_run(settings.init)
    if settings.fold is not None and isinstance(data, DataSet):
        raise SettingError(f"`fold` = {settings.fold!r} needs data by name or as arrays: a DataSet is split already")
    found = load_data(
        settings.data_choice if data is None else data,
        validation=settings.validation,
        validation_rule=settings.validation_rule,
        train_size=settings.train_size,
        fold=settings.fold,
        seed=settings.seed,
        standardize=settings.standardize,
        ood=settings.ood,
        preparation=None if start is None else start.preparation,
    )
    found = dataclasses.replace(found, name=name) if name else found
    if start is not None:
        return Problem(found, start.model.net, dataclasses.replace(start, preparation=None))
    choice = settings.model if net is None else net
    likelihood = run_code("likelihood", settings.likelihood)
    network = build_model(choice, found, likelihood=likelihood, seed=settings.seed, **settings.model_settings)
    return Problem(found, network)


def _made(net: Any, offered: Mapping[str, Any], settings: Mapping[str, Any]) -> nn.Module:
    found = net.load() if isinstance(net, Code) else net
    made = found if isinstance(found, nn.Module) else call_with("model", found, settings, offered)
    if not isinstance(made, nn.Module):
        raise SettingError(f"model: a {type(made).__name__} was made; it must be a torch.nn.Module")
    return made


def _document(settings: RunSettings, problem: Problem, own_data: bool, own_net: bool) -> dict[str, Any]:
    choice: Any = None
    if settings.init is not None:
        choice = read_json(Path(settings.init) / SETTINGS)["network"]["choice"]
    elif not own_net and not isinstance(settings.model, Code | CodeRecord):
        choice = default_model(problem.data) if settings.model in (None, "auto") else settings.model
        choice = {"name": choice, **settings.model_settings} if isinstance(choice, str) else choice
    objects: dict[str, Any] = {"data": [problem.data.train, problem.data.test]} if own_data else {}
    objects |= {"net": problem.net} if own_net else {}
    network = {
        "choice": choice,
        "input_shape": list(problem.data.input_shape),
        "outputs": problem.data.channels(run_code("likelihood", settings.likelihood)),
        "vocabulary": problem.data.vocabulary,
    }
    return {"settings": settings.to_dict(), "network": network, "objects": fingerprint(objects)}


def _check_new(folder: Path) -> None:
    if (folder / RESULT).exists() or folder_exists(RunFolder(folder).checkpoint(0)):
        raise SettingError(f"{folder} has a run already; choose another --folder, or `bayeswell resume {folder}`")


def _check_same(folder: Path, document: Mapping[str, Any]) -> None:
    before = read_json(folder / SETTINGS)
    old, new = (
        {key: value for key, value in one["settings"].items() if key not in _NOT_IDENTITY} for one in (before, document)
    )
    changed = differences(old, new) + differences(before["objects"], document["objects"])
    if changed:
        raise SettingError(f"{folder} has a run with other settings: {'; '.join(changed[:4])}; choose another folder")


def _check_code(recorded: Any, net: Any) -> None:
    found = CodeRecord(**recorded) if isinstance(recorded, Mapping) and "sha256" in recorded else recorded
    if isinstance(found, CodeRecord) and isinstance(net, Code):
        found.check_same(net)


def default_threads(net: nn.Module) -> int:
    """Return 1 for small networks without convolutions, recurrence or attention, else the threads of this process."""
    small = sum(parameter.numel() for parameter in net.parameters()) < SMALL
    narrow = not any(isinstance(module, _WIDE_LAYERS) for module in net.modules())
    return 1 if small and narrow else torch.get_num_threads()


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
