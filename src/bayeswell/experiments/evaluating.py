"""How good a trained model is on data."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..datasets import CORRUPTIONS, FAMILIES, Data, find_data, load_data, load_inputs
from ..datasets.load import as_real, numbers_of
from ..errors import DataError, FileError, NetworkNeeded, SettingError, nearest, require_count
from ..persistence.folders import refuse_link_out
from ..persistence.manifest import MANIFEST
from ..predictive import ClassPrediction
from ..predictive.predictor import Predictor, load
from ..tables import Table
from ..training.run_folder import CONFIG, MODEL, RunFolder
from .config_parsing import as_data_choice
from .corrupted_scores import ALL, IMAGES, corrupted_scores, published_scores
from .data_spec import NAME, DataSpec
from .experiment import BY_THE_DATA, BegunInPython, experiment_of
from .given import NOTHING, Given, code_needed
from .paths import path_of
from .problem import channels_of, data_of, load_ood
from .scores import BATCH, as_json, evaluation_of, ood_scores

_OF_A_PROGRAM = ":data"


def scores_of(
    predictor: Predictor,
    data: Data,
    ood_inputs: Tensor | None,
    *,
    draws: int,
    seed: int = 0,
    prediction: str | None = None,
) -> dict[str, Any]:
    """``test`` scores and, with inputs from outside the distribution, ``ood`` scores: part of a result.

    ``draws`` are those that were used: an ensemble of 3 has 3, whatever was asked for; ``prediction`` says how.
    ``expected_nll`` is the mean NLL of single draws on the test part.
    """
    _require_fitting(predictor.predict(data.test[0][:1], draws=1, prediction=prediction), data)
    evaluation = evaluation_of(predictor, data, draws=draws, seed=seed, prediction=prediction)
    scores: dict[str, Any] = {
        "test": as_json(evaluation), "ood": None, "draws": evaluation.draws, "prediction": evaluation.prediction,
        "expected_nll": None if evaluation.expected_nll is None else float(evaluation.expected_nll),
    }  # fmt: skip
    if ood_inputs is not None:
        found = evaluation.found
        strange = predictor.predict(ood_inputs, draws=draws, batch_size=BATCH, seed=seed, prediction=prediction)
        if not isinstance(found, ClassPrediction) or not isinstance(strange, ClassPrediction):
            raise SettingError("ood: out-of-distribution scores need classes; this model predicts real numbers")
        scores["ood"] = {"examples": len(ood_inputs), **as_json(ood_scores(found, strange))}
    return scores


def evaluate(
    path: str | os.PathLike[str],
    data: Any = None,
    *,
    draws: int = 100,
    ood: Any = None,
    seed: int = 0,
    prediction: str | None = None,
    corruptions: str | Sequence[str] | None = None,
    corrupted_images: int | None = IMAGES,
    given: Given = NOTHING,
) -> dict[str, Any]:
    """Measure a run (or a model that ``Result.save`` wrote) on the test part of data: its own, or others.

    Other data are scaled as the run's own were; columns of a csv file and classes are matched by name. Of a file of
    one's own the setting ``test_share`` 1 takes every row. ``{"name": "corrupted", "corruption": ..., "severity": 3}``
    are the run's own test images, corrupted. A bare model takes data scaled by themselves. ``ood`` as in
    ``Experiment``, ``prediction`` as in ``predict``: None leaves it to the model. ``corruptions`` (names, families or
    "all") also measures on corrupted test images, as ``corrupted_scores`` does; a folder of published ones
    (CIFAR-10-C) is measured as ``published_scores`` does. ``corrupted_images`` of each severity are looked at; None:
    all.
    """
    require_count("evaluate", "draws", draws)
    folder = path_of(path)
    predictor = load_model(folder, given)
    if not (folder / CONFIG).exists():
        if data is None:
            raise SettingError(f"{str(folder)!r} is a model without a run: say which data to measure it on")
        chosen = load_data(as_data_choice("data", data))
    else:
        chosen = _data_of_run(folder, data, given)
    ood_inputs = load_ood(None if ood is None else as_data_choice("ood", ood), chosen, seed)
    scores = scores_of(predictor, chosen, ood_inputs, draws=draws, seed=seed, prediction=prediction)
    if corruptions is not None:
        folder_of_files = _published(corruptions)
        how: dict[str, Any] = {"images": corrupted_images, "draws": draws, "seed": seed, "prediction": prediction}
        scores["corruptions"] = (
            corrupted_scores(predictor, chosen, corruptions, **how)
            if folder_of_files is None
            else published_scores(predictor, chosen, folder_of_files, **how)
        )
    said = {} if predictor.calibration is None else {"calibration": str(predictor.calibration)}
    return {"run": folder.name, "data": chosen.name, "examples": len(chosen.test[1]), **scores, **said}


def _published(corruptions: str | Sequence[str]) -> Path | None:
    """The folder that is meant, where it is one; a path that leads nowhere is for the reader to refuse."""
    named = [corruptions] if isinstance(corruptions, str) else list(corruptions)
    if len(named) != 1 or named[0] in (ALL, *CORRUPTIONS, *FAMILIES):
        return None
    folder = Path(named[0])
    return folder if folder.is_dir() or len(folder.parts) > 1 else None


def load_model(path: str | os.PathLike[str], given: Given = NOTHING) -> Predictor:
    """The model of a finished run, or a model folder itself; a network of one's own that no file holds is ``given``."""
    folder = path_of(path)
    if not folder.is_dir():
        raise FileError(f"{str(folder)!r}: there is no such folder")
    if not (folder / CONFIG).exists():
        if not (folder / MANIFEST).exists():
            raise FileError(f"{str(folder)!r} holds neither a run nor a model")
        return _loaded(folder, None, given, lambda: given.net(None, seed=0, input_shape=(), outputs=0))
    if not (folder / MODEL).is_dir() or not (folder / NAME).is_file():
        raise FileError(f"the run in {str(folder)!r} is not finished; {_how_to_go_on(folder)}")
    refuse_link_out(folder / MODEL)
    spec = DataSpec.read(folder)
    model, outputs = _network_of(folder, spec)
    found = _loaded(
        folder / MODEL, model, given,
        lambda: given.net(model, seed=0, input_shape=spec.input_shape, outputs=outputs),
    )  # fmt: skip
    # The card of a run's data says what is done to them; a model alone does it itself.
    return replace(found, preparation=None)


def _loaded(folder: Path, model: Any, given: Given, build: Callable[[], nn.Module]) -> Predictor:
    given.warn_of_change(model)
    try:
        return load(folder, None if given.network is None else build())
    except NetworkNeeded as error:
        raise FileError(str(error) if model is None else f"the network {code_needed(model)}") from error


def _network_of(folder: Path, spec: DataSpec) -> tuple[Any, int]:
    """What the run says of its network, and how many numbers that gives."""
    try:
        experiment = experiment_of(folder)
    except BegunInPython:
        return {"name": f":{(RunFolder(folder).result() or {}).get('model', 'Net')}"}, spec.outputs
    usual = "gaussian" if spec.class_names is None else "categorical"
    chosen = experiment.likelihood
    likelihood = usual if not isinstance(chosen, Mapping) or chosen["name"] == BY_THE_DATA else dict(chosen)
    return experiment.model, channels_of(likelihood, spec)


def _how_to_go_on(folder: Path) -> str:
    try:
        experiment_of(folder)
    except BegunInPython:
        return "run the program that began it again, with fit(..., folder=..., resume=True)"
    return f"`bayeswell resume {folder}` goes on with it"


def _data_of_run(folder: Path, choice: Any, given: Given) -> Data:
    other = None if choice is None else as_data_choice("data", choice)
    if other is not None and find_data(other).name != "corrupted":
        own_choice = _own_choice(folder)
        if own_choice["name"] == _OF_A_PROGRAM and hasattr(find_data(other), "test_share"):
            other = {"test_share": 1.0, **other}  # no part of the file was trained on: all of it tests
        return _other_data(other, own_choice, DataSpec.read(folder))
    try:
        own = data_of(experiment_of(folder), given)
    except BegunInPython as error:
        raise SettingError(
            f"the data of the run in {str(folder)!r} were objects of a program and are not in the folder: say which "
            "file to measure it on (--data held_out.csv)"
        ) from error
    if other is None:
        return own
    return replace(own, name=str(other.get("corruption", "corrupted")), test=(load_inputs(other, own), own.test[1]))


def _own_choice(folder: Path) -> Mapping[str, Any]:
    """What the run says of its own data; of a program's, nothing."""
    try:
        choice = experiment_of(folder).data
    except BegunInPython:
        choice = {"name": _OF_A_PROGRAM}
    assert isinstance(choice, Mapping)
    return choice


def _other_data(other: Mapping[str, Any], own: Mapping[str, Any], spec: DataSpec) -> Data:
    """The test part of other data, with columns and classes in the order of the run's, scaled as they were."""
    part = find_data({**_known_of(other, own, spec), **other})
    raw = part.read(None)
    inputs, targets = raw.test
    if isinstance(inputs, Table):
        inputs = numbers_of(inputs, spec.table)
    shape = tuple(inputs.shape[1:])
    if (shape, raw.vocabulary) != (spec.input_shape, spec.vocabulary):
        raise DataError(f"'{raw.name}' has inputs of shape {shape}, the run was trained on {spec.input_shape}")
    if (raw.class_names is None) != (spec.class_names is None):
        kinds = ("real numbers", "classes") if raw.class_names is None else ("classes", "real numbers")
        raise DataError(f"'{raw.name}' has {kinds[0]} for targets, the run was trained on {kinds[1]}")
    if raw.class_names is not None and spec.class_names is not None:
        targets = _places(raw.name, raw.class_names, spec.class_names)[targets]
    elif targets.shape[1] != spec.outputs:
        raise DataError(
            f"'{raw.name}' has {targets.shape[1]} targets an example, the run was trained on {spec.outputs}"
        )
    if part.name == "npz" and spec.raw_scale != 1:
        inputs = spec.pixels(inputs, whole=inputs.dtype == torch.uint8, owner=raw.name)
    test = (spec.scaling.inputs(as_real(inputs)), spec.scaling.targets(targets))
    return Data(
        name=raw.name,
        train=test,  # nothing is learned from it
        validation=None,
        test=test,
        input_shape=spec.input_shape,
        outputs=spec.outputs,
        likelihood="gaussian" if spec.class_names is None else "categorical",
        class_names=spec.class_names,
        scaling=spec.scaling,
        vocabulary=spec.vocabulary,
        raw_scale=spec.raw_scale,
    )


def _known_of(other: Mapping[str, Any], own: Mapping[str, Any], spec: DataSpec) -> dict[str, Any]:
    """What the run knows of how data of one's own are to be read; what is said of them wins."""
    kind = other["name"]
    if kind == "images" and len(spec.input_shape) == 3:
        return {"size": spec.input_shape[1], "grey": spec.input_shape[0] == 1}
    if kind not in {"csv", "npz"}:
        return {}
    known: dict[str, Any] = {"task": "regression" if spec.class_names is None else "classification"}
    if kind == own["name"] == "csv":
        known |= {key: own[key] for key in ("delimiter", "header") if key in own}
        if spec.columns is not None and {**known, **other}.get("header", True):
            known |= {"columns": spec.columns}
            known |= {} if spec.target_name is None else {"target": spec.target_name}
            known |= {} if spec.table is None else {"categories": sorted(spec.table.texts)}
    return known


def _places(name: str, found: Sequence[str], known: Sequence[str]) -> Tensor:
    """For each class of other data, which one of the run's it is."""
    if not any(each in known for each in found) and all(each.isdigit() and int(each) < len(known) for each in found):
        return torch.tensor([int(each) for each in found])  # labels as numbers, for classes that have names
    for each in found:
        if each not in known:
            raise DataError(f"'{name}' has a class '{each}' that the run does not know; {nearest(each, known)}")
    return torch.tensor([known.index(each) for each in found])


def _require_fitting(prediction: Any, data: Data) -> None:
    classes = isinstance(prediction, ClassPrediction)
    if classes != (data.class_names is not None):
        kinds = ("classes", "real numbers") if classes else ("real numbers", "classes")
        raise DataError(f"the model predicts {kinds[0]}, but '{data.name}' has {kinds[1]}")
    if classes and prediction.probabilities.shape[-1] != data.outputs:
        raise DataError(
            f"the model knows {prediction.probabilities.shape[-1]} classes, but '{data.name}' has {data.outputs}"
        )
