"""What the predictions of a run are like: metrics, curves, bands, and examples to look at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...datasets import Data
from ...metrics import (
    accuracy,
    calibration_bins,
    classification_estimates,
    ece,
    flat_record,
    risk_coverage,
)
from ...metrics.regression import CALIBRATION_LEVELS, interval_coverage
from ...metrics.uncertainty import least_confidence
from ...predictive import ClassPrediction, RealPrediction
from ...predictive.predictor import Predictor
from ..experiment import Experiment
from ..scores import BATCH, ECE_BINS, evaluation_of, raw_std
from .by_example import class_influences, detection_influences, kept, quantile_influences, real_influences
from .examples import class_examples, real_examples

_SCORES = 1000
"""More scores of one kind than this are kept as a fine histogram."""
_CELLS = 500
_POINTS = 200
_RESIDUALS = 500
_PLACES = 161
_WIDE = 0.1


@dataclass(frozen=True)
class Seen:
    """What a run is inspected by: its model, its data, and what it predicts for them."""

    experiment: Experiment
    predictor: Predictor
    data: Data
    ood_inputs: Tensor | None
    found: ClassPrediction | RealPrediction
    outside: ClassPrediction | None
    temperature: float


def prediction_records(seen: Seen, curve_bins: int = ECE_BINS) -> dict[str, Any]:
    """Metrics, and what the plots of predictions draw."""
    found, outside, data = seen.found, seen.outside, seen.data
    targets = data.test[1].cpu()
    if isinstance(found, RealPrediction):
        evaluation = evaluation_of(seen.predictor, data, draws=seen.experiment.draws)
        std = raw_std(found.variance.cpu().double().sqrt(), data.scaling)
        risk = _curve(evaluation.by_example["squared_error"], std.flatten(1).mean(1))
        pit = _pit(seen, found)
        return {
            "metrics": evaluation.as_dict(),
            "by_example": kept(
                real_influences(evaluation.by_example) | ({} if pit is None else quantile_influences(pit))
            ),
            "risk_coverage": risk,
            **({} if pit is None else quantile_records(pit)),
            **residual_records(seen, found),
        }
    probabilities = found.probabilities.cpu()
    samples = None if found.kept is None else found.kept.cpu()
    strange: dict[str, Tensor] = {}
    if outside is not None:
        strange = {"ood": outside.probabilities.cpu(), "ood_mutual_information": outside.mutual_information.cpu()}
    metrics = classification_estimates(
        probabilities, targets, samples=samples,
        mutual_information=None if samples is not None else found.mutual_information.cpu(), **strange,
    )  # fmt: skip
    bins = calibration_bins(probabilities, targets, bins=curve_bins, binning="quantile")
    hits = accuracy.of_examples(probabilities, targets)
    entropy, right = found.entropy.cpu(), hits.bool()
    records: dict[str, Any] = {
        "metrics": flat_record(metrics),
        "by_example": kept(class_influences(probabilities, targets)) if targets.dim() == 1 else {},
        "reliability": {
            **{name: getattr(bins, name).tolist() for name in ("low", "high", "count", "confidence", "accuracy")},
            "ece": ece(probabilities, targets, bins=curve_bins, binning="quantile"),
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
    if entropy.dim() == 1:
        records["by_example"] |= kept(detection_influences(entropy, outside.entropy.cpu()))
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


def _pit(seen: Seen, found: RealPrediction) -> Tensor | None:
    """P(Y <= y) of every test target; None of counts, and of a law that cannot be asked."""
    law = found.law
    if (
        law is None
        or law.is_discrete
        or not (hasattr(law.likelihood, "cdf") or hasattr(law.likelihood, "sample_targets"))
    ):
        return None
    return law.cdf(seen.data.test[1].reshape(found.mean.shape)).cpu().double().clamp(0, 1)


def quantile_records(pit: Tensor) -> dict[str, Any]:
    """Of levels 0.05 to 0.95 the share of targets at or below the quantile, and in the central interval."""
    values, levels = pit.reshape(-1), list(CALIBRATION_LEVELS)
    below = [float((values <= level).double().mean()) for level in levels]
    inside = [float(interval_coverage(values, level)) for level in levels]
    # Targets of one example are not independent: bands go by the examples.
    common = {"levels": levels, "count": len(pit)}
    return {
        "quantile_calibration": {**common, "observed": below},
        "interval_coverage": {**common, "observed": inside},
    }


def residual_records(seen: Seen, found: RealPrediction) -> dict[str, Any]:
    """Mean, residual and std of the first output of some test examples, in raw units; nothing without a std."""
    scaling, every = seen.data.scaling, max(1, -(-len(found.mean) // _RESIDUALS))
    mean = scaling.raw_targets(found.mean.cpu().double()).reshape(len(found.mean), -1)
    truth = scaling.raw_targets(seen.data.test[1].cpu().double()).reshape(mean.shape)
    std = raw_std(found.variance.cpu().double().sqrt(), scaling).reshape(mean.shape)
    columns = {"predicted": mean, "residual": truth - mean, "std": std}
    chosen = {name: values[::every, 0].tolist() for name, values in columns.items()}
    good = all(0 < value < math.inf for value in chosen["std"])
    return {"residuals": chosen} if good else {}


def example_records(seen: Seen) -> dict[str, Any]:
    """A few examples with what each draw says of them."""
    draws = seen.experiment.draws

    def again(inputs: Tensor) -> Any:
        # The networks drawn depend on the seed alone: these are the ones the averages were taken over.
        return seen.predictor.predict(inputs, draws=draws, batch_size=BATCH, keep_samples=True)

    if isinstance(seen.found, RealPrediction):
        return {"examples": real_examples(seen.data, seen.found, again)}
    return {"examples": class_examples(seen.data, seen.found, again, seen.ood_inputs, seen.outside)}


def regression_band(seen: Seen) -> dict[str, Any]:
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
        **_gap(seen, line[:, 0], found),
    }


def _gap(seen: Seen, line: Tensor, along: RealPrediction) -> dict[str, Any]:
    """The widest stretch without training inputs, if it is wide, and how the prediction is in it and elsewhere.

    Wide is a tenth of the range. ``epistemic`` is the mean epistemic std along the line, ``covered`` the share of test
    targets in the central 90 % interval; both among the training inputs' range only.
    """
    data = seen.data
    ordered = data.train[0].flatten().sort().values
    low, high = float(ordered[0]), float(ordered[-1])
    steps = ordered.diff()
    if not len(steps) or float(steps.max()) < _WIDE * (high - low):
        return {}
    left, right = (float(end) for end in ordered[int(steps.argmax()) :][:2])
    assert isinstance(seen.found, RealPrediction)
    inside = seen.found.interval(0.9).contains(data.test[1]).flatten().cpu()
    epistemic = along.epistemic_variance.cpu().double().sqrt().flatten()
    scale = 1.0 if data.scaling.target_scale is None else float(data.scaling.target_scale)

    def hollow(places: Tensor, within: bool) -> Tensor:
        inner = (places > left) & (places < right)
        return inner if within else ~inner & (places >= low) & (places <= high)

    def share(places: Tensor, values: Tensor, within: bool) -> float | None:
        chosen = values[hollow(places, within)]
        return float(chosen.double().mean()) if len(chosen) else None

    tests, ends = data.test[0].flatten(), torch.tensor([[left], [right]], dtype=torch.float64)
    return {
        "gap": {
            "ends": data.scaling.raw_inputs(ends).flatten().tolist(),
            "epistemic": [share(line, epistemic * scale, within) for within in (True, False)],
            "covered": [share(tests, inside, within) for within in (True, False)],
            "tests": [int(hollow(tests, within).sum()) for within in (True, False)],
        }
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
