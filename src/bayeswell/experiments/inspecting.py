"""Everything a page shows of a trained run, measured once and kept as plain numbers in its folder.

``RUN/inspection.json``: all metrics with their standard errors over test examples, and ``records`` by the names of the
plots that draw them. Training needs to know nothing of it: the model and the data are loaded again.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..datasets import Data
from ..errors import BayeswellError, BayeswellWarning, FileError
from ..metrics import (
    accuracy,
    calibration_bins,
    classification_estimates,
    flat_record,
    regression_estimates,
    risk_coverage,
)
from ..metrics.uncertainty import least_confidence
from ..persistence import read_document, write_document
from ..persistence.manifest import MANIFEST
from ..plain import plain
from ..predictive import ClassPrediction, RealPrediction
from ..predictive.predictor import Predictor
from ..training.run_folder import MODEL
from .data_card import DataCard
from .evaluating import BATCH, load_model
from .experiment import Experiment
from .inspected_examples import class_examples, real_examples
from .inspected_posterior import posterior_records
from .measuring import ECE_BINS, raw_mean_and_std
from .paths import path_of
from .problem import load_problem
from .running import experiment_of

INSPECTION = "inspection.json"
FORMAT = 1
_KEPT = 20_000_000
"""So many probabilities of draws are kept at once at most (draws x examples x classes)."""
_SCORES = 1000
"""More scores of one kind than this are kept as a fine histogram."""
_CELLS = 500
_POINTS = 200
_PLACES = 161


@dataclass(frozen=True)
class Seen:
    """What a run is inspected by: its model, its data, and what it predicts for them."""

    experiment: Experiment
    predictor: Predictor
    data: Data
    ood_inputs: Tensor | None
    found: ClassPrediction | RealPrediction
    outside: ClassPrediction | None


def inspection_of(path: str | os.PathLike[str], *, full: bool = False) -> dict[str, Any] | None:
    """What an earlier inspection of this very model has left; None if there is none that will do."""
    folder = path_of(path)
    if not (folder / INSPECTION).exists():
        return None
    try:
        record = read_document(folder / INSPECTION)
        stamp = _stamp(folder)
    except FileError:
        return None
    fits = record.get("format") == FORMAT and record.get("model_sha256") == stamp
    return record if fits and (record.get("full") or not full) else None


def inspect_run(path: str | os.PathLike[str], *, full: bool = False, again: bool = False) -> dict[str, Any]:
    """Measure a finished run, keep the record in ``RUN/inspection.json``, and give it back.

    An earlier record is taken as it is unless ``again``. ``full`` also measures what takes long for large networks
    (k-hat, the loss plane, sharpness, ranks). What cannot be measured is said in ``left_out``, and the rest is there.
    """
    folder = path_of(path)
    earlier = None if again else inspection_of(folder, full=full)
    if earlier is not None:
        return earlier
    seen = _look(folder)
    columns = DataCard.read(folder).columns
    record: dict[str, Any] = {
        "format": FORMAT,
        "model_sha256": _stamp(folder),
        "full": full,
        "draws": seen.found.draws,
        "class_names": None if seen.data.class_names is None else list(seen.data.class_names),
        "columns": None if columns is None else list(columns),
        "metrics": {},
        "records": {},
        "left_out": {},
    }
    for name, measure in _parts(seen, full).items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BayeswellWarning)  # they stand in the records
                found = measure()
        except (BayeswellError, RuntimeError) as error:  # a RuntimeError is torch's: memory, a layer without gradient
            record["left_out"][name] = " ".join(str(error).split())[:300]
            continue
        record["left_out"] |= found.pop("left_out", {})
        record["metrics"] |= found.pop("metrics", {})
        record["records"] |= found
    rounded = _rounded(plain(record, finite=True))
    assert isinstance(rounded, dict)
    write_document(folder / INSPECTION, rounded)
    return rounded


def _look(folder: Path) -> Seen:
    experiment = experiment_of(folder)
    predictor = load_model(folder)
    problem = load_problem(experiment)

    def predict(inputs: Tensor, keep: bool = False) -> Any:
        return predictor.predict(inputs, draws=experiment.draws, batch_size=BATCH, keep_samples=keep)

    inputs = problem.data.test[0]
    keep = experiment.draws * len(inputs) * problem.data.outputs <= _KEPT
    found = predict(inputs, keep)
    outside = None if problem.ood_inputs is None else predict(problem.ood_inputs)
    return Seen(experiment, predictor, problem.data, problem.ood_inputs, found, outside)


def _parts(seen: Seen, full: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    parts: dict[str, Callable[[], dict[str, Any]]] = {"predictions": lambda: _predictions(seen)}
    if isinstance(seen.found, RealPrediction) and seen.data.input_shape == (1,) and seen.data.outputs == 1:
        parts["regression_band"] = lambda: {"regression_band": _band(seen)}
    posterior = posterior_records(seen.experiment, seen.predictor, seen.data, full=full)
    return {**parts, "examples": lambda: _examples(seen), **posterior}


def _predictions(seen: Seen) -> dict[str, Any]:
    """Metrics, and what the plots of predictions draw."""
    found, outside, data = seen.found, seen.outside, seen.data
    targets = data.test[1].cpu()
    if isinstance(found, RealPrediction):
        mean, std = raw_mean_and_std(found, data.scaling)
        truth = data.scaling.raw_targets(targets.double()).reshape(mean.shape)
        risk = _curve((mean - truth).square().flatten(1).mean(1), std.flatten(1).mean(1))
        return {"metrics": flat_record(regression_estimates(mean, std.square(), truth)), "risk_coverage": risk}
    probabilities = found.probabilities.cpu()
    samples = None if found.kept is None else found.kept.cpu()
    strange: dict[str, Tensor] = {}
    if outside is not None:
        strange = {"ood": outside.probabilities.cpu(), "ood_mutual_information": outside.mutual_information.cpu()}
    metrics = classification_estimates(
        probabilities, targets, samples=samples,
        mutual_information=None if samples is not None else found.mutual_information.cpu(), **strange,
    )  # fmt: skip
    bins = calibration_bins(probabilities, targets, bins=ECE_BINS)
    hits = accuracy.of_examples(probabilities, targets)
    entropy, right = found.entropy.cpu(), hits.bool()
    records: dict[str, Any] = {
        "metrics": flat_record(metrics),
        "reliability": {
            **{name: getattr(bins, name).tolist() for name in ("low", "high", "count", "confidence", "accuracy")},
            "ece": metrics["ece"],
        },
        "risk_coverage": {**_curve(1 - hits, least_confidence(probabilities)), "aurc": metrics["aurc"]},
        "entropy": {
            "correct": _scores(entropy[right]),
            "wrong": _scores(entropy[~right]),
            "ood": None if outside is None else _scores(outside.entropy.cpu()),
            "classes": probabilities.shape[-1],
        },
    }
    if outside is None:
        del records["entropy"]["ood"]
        return records
    assert isinstance(seen.experiment.ood, Mapping)
    scores = {
        "entropy": (entropy, outside.entropy.cpu()),
        "max_probability": (least_confidence(probabilities), least_confidence(outside.probabilities.cpu())),
        "mutual_information": (found.mutual_information.cpu(), outside.mutual_information.cpu()),
    }
    records["ood_scores"] = [
        {
            "inside": _scores(here), "outside": _scores(there), "score": name,
            "auroc": metrics.get(f"ood_auroc_{name}"), "inside_label": data.name,
            "outside_label": str(seen.experiment.ood["name"]),
        }
        for name, (here, there) in scores.items()
    ]  # fmt: skip
    return records


def _examples(seen: Seen) -> dict[str, Any]:
    draws = seen.experiment.draws

    def again(inputs: Tensor) -> Any:
        # The networks drawn depend on the seed alone: these are the ones the averages were taken over.
        return seen.predictor.predict(inputs, draws=draws, batch_size=BATCH, keep_samples=True)

    if isinstance(seen.found, RealPrediction):
        return {"examples": real_examples(seen.data, seen.found, again)}
    return {"examples": class_examples(seen.data, seen.found, again, seen.ood_inputs, seen.outside)}


def _band(seen: Seen) -> dict[str, Any]:
    """The prediction along a line of inputs, a quarter of their range beyond them on both sides; in raw units."""
    (inputs, targets), scaling = seen.data.train, seen.data.scaling
    low, high = float(inputs.min()), float(inputs.max())
    beyond = 0.25 * (high - low)
    line = torch.linspace(low - beyond, high + beyond, _PLACES).unsqueeze(1)
    found = seen.predictor.predict(line, draws=seen.experiment.draws, batch_size=BATCH)
    assert isinstance(found, RealPrediction)
    scale = 1.0 if scaling.target_scale is None else scaling.target_scale.double()
    every = max(1, len(targets) // _POINTS)

    def column(values: Tensor) -> list[float]:
        return [float(value) for value in values.reshape(-1)]

    return {
        "x": column(scaling.raw_inputs(line.double())),
        "mean": column(scaling.raw_targets(found.mean.cpu().double())),
        "epistemic_std": column(found.epistemic_variance.cpu().double().sqrt() * scale),
        "aleatoric_std": column(found.aleatoric_variance.cpu().double().sqrt() * scale),
        "train_x": column(scaling.raw_inputs(inputs[::every].double())),
        "train_y": column(scaling.raw_targets(targets[::every].double())),
    }


def _curve(losses: Tensor, scores: Tensor) -> dict[str, Any]:
    curve = risk_coverage(losses, scores)
    count = len(curve.coverage)
    chosen = torch.linspace(0, count - 1, min(count, _POINTS)).round().long().unique()
    return {"coverage": curve.coverage[chosen].tolist(), "risk": curve.risk[chosen].tolist()}


def _scores(scores: Tensor) -> list[float] | dict[str, list[float]]:
    """The scores in order; of very many, the mean of each cell of a fine grid and how many are in it."""
    ordered = scores.double().reshape(-1).sort().values
    if len(ordered) <= _SCORES:
        return [float(score) for score in ordered]
    width = float(ordered[-1] - ordered[0]) or 1.0
    cell = ((ordered - ordered[0]) / width * _CELLS).long().clamp_max(_CELLS - 1)
    counts = torch.bincount(cell, minlength=_CELLS)
    sums = torch.zeros(_CELLS, dtype=torch.float64).index_add_(0, cell, ordered)
    taken = counts > 0
    return {"values": (sums[taken] / counts[taken]).tolist(), "counts": counts[taken].tolist()}


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
