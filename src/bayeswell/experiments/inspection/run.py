"""Everything a page shows of a trained run, measured once and kept as plain numbers in its folder.

``RUN/inspection.json``: all metrics with their standard errors over test examples, and ``records`` by the names of the
plots that draw them. Training needs to know nothing of it: the model and the data are loaded again.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import BayeswellError, BayeswellWarning, FileError
from ...persistence import write_document
from ...persistence.manifest import MANIFEST
from ...plain import plain
from ...predictive import ClassPrediction, RealPrediction
from ...training.run_folder import MODEL, RunFolder
from ..data_spec import DataSpec
from ..evaluating import load_model
from ..experiment import BegunInPython, experiment_of
from ..given import NOTHING, Given
from ..paths import path_of
from ..problem import data_of, load_ood
from ..running import finished_result
from ..scores import BATCH
from .by_example import shifted_records
from .knobs import USUAL, Knobs
from .posterior import posterior_records, without_data
from .predictions import Seen, example_records, prediction_records, regression_band

INSPECTION = "inspection.json"
FORMAT = 3
_KEPT = 20_000_000
"""So many probabilities of draws are kept at once at most (draws x examples x classes)."""


def inspection_of(path: str | os.PathLike[str], *, full: bool = False, knobs: Knobs = USUAL) -> dict[str, Any] | None:
    """What an earlier inspection of this very model has left; None if there is none that will do.

    Who asks for nothing special takes what is there, whatever that was measured with.
    """
    folder = path_of(path)
    if not (folder / INSPECTION).exists():
        return None
    try:
        record = RunFolder(folder).document(INSPECTION)
        stamp = _stamp(folder)
    except FileError:
        return None
    fits = record.get("format") == FORMAT and record.get("model_sha256") == stamp
    same = knobs == USUAL or record.get("knobs") == plain(knobs)
    return record if fits and same and (record.get("full") or not full) else None


def inspect_run(
    path: str | os.PathLike[str],
    *,
    full: bool = False,
    again: bool = False,
    knobs: Knobs = USUAL,
    given: Given = NOTHING,
) -> dict[str, Any]:
    """Measure a finished run, keep the record in ``RUN/inspection.json``, and give it back.

    An earlier record is taken as it is unless ``again``. ``full`` also measures what takes long for large networks
    (k-hat, the loss plane, sharpness, ranks). What cannot be measured is said in ``left_out``, and the rest is there.
    A run that ``fit`` has left has no data: its posterior alone is looked at. ``given`` holds the network and data that
    the run only names.
    """
    folder = path_of(path)
    earlier = None if again else inspection_of(folder, full=full, knobs=knobs)
    if earlier is not None:
        return earlier
    try:
        seen = _look(folder, knobs, given)
        draws, parts = seen.found.draws, _parts(seen, full, knobs, given)
    except BegunInPython:
        draws, parts = 0, without_data(load_model(folder, given).model, knobs)
    spec = DataSpec.read(folder)
    record: dict[str, Any] = {
        "format": FORMAT,
        "model_sha256": _stamp(folder),
        "full": full,
        "knobs": plain(knobs),
        "draws": draws,
        "class_names": None if spec.class_names is None else list(spec.class_names),
        "columns": None if spec.columns is None else list(spec.columns),
        "metrics": {},
        "by_example": {},
        "records": {},
        "left_out": {},
    }
    for name, measure in parts.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BayeswellWarning)  # they stand in the records
                found = measure()
        except (BayeswellError, RuntimeError) as error:  # a RuntimeError is torch's: memory, a layer without gradient
            record["left_out"][name] = " ".join(str(error).split())[:300]
            continue
        record["left_out"] |= found.pop("left_out", {})
        record["metrics"] |= found.pop("metrics", {})
        record["by_example"] |= found.pop("by_example", {})
        record["records"] |= found
    rounded = _rounded(plain(record, finite=True))
    assert isinstance(rounded, dict)
    write_document(folder / INSPECTION, rounded)
    return rounded


def _look(folder: Path, knobs: Knobs, given: Given) -> Seen:
    experiment = experiment_of(folder)
    predictor = load_model(folder, given)
    data = data_of(experiment, given)
    ood_inputs = load_ood(experiment.ood, data, experiment.seed)
    if knobs.draws is not None:
        experiment = experiment.changed({"draws": knobs.draws})

    def predict(inputs: Tensor, keep: bool = False) -> Any:
        return predictor.predict(inputs, draws=experiment.draws, batch_size=BATCH, keep_samples=keep)

    inputs = data.test[0]
    keep = experiment.draws * len(inputs) * data.outputs <= _KEPT
    found = predict(inputs, keep)
    outside = None if ood_inputs is None else predict(ood_inputs)
    asked = experiment.method_part.temperature
    usual = asked if isinstance(asked, int | float) else 1.0
    temperature = float((finished_result(folder) or {}).get("temperature", usual))
    return Seen(experiment, predictor, data, ood_inputs, found, outside, temperature)


def _parts(seen: Seen, full: bool, knobs: Knobs, given: Given) -> dict[str, Callable[[], dict[str, Any]]]:
    parts: dict[str, Callable[[], dict[str, Any]]] = {"predictions": lambda: prediction_records(seen, knobs.bins)}
    if isinstance(seen.found, RealPrediction) and seen.data.input_shape == (1,) and seen.data.outputs == 1:
        parts["regression_band"] = lambda: {"regression_band": regression_band(seen)}
    if isinstance(seen.found, ClassPrediction) and len(seen.data.input_shape) == 3:
        parts["shifted"] = lambda: shifted_records(seen.predictor, seen.data, seen.experiment.draws)
    posterior = posterior_records(
        seen.experiment, seen.predictor, seen.data, seen.temperature, full=full, knobs=knobs, given=given
    )
    return {**parts, "examples": lambda: example_records(seen), **posterior}


def _stamp(folder: Path) -> str:
    """Which model it is: its manifest holds the checksums of its files."""
    try:
        return hashlib.sha256((folder / MODEL / MANIFEST).read_bytes()).hexdigest()
    except OSError as error:
        raise FileError(f"cannot read {str(folder / MODEL / MANIFEST)!r}: {error.strerror or error}") from error


def _rounded(value: Any) -> Any:
    """Six digits are more than a picture shows, and a third of the bytes."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
