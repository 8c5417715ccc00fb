"""A few dozen test examples with what each draw says of them: surest, least sure, wrong, from outside."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...datasets import Data, Scaling
from ...predictive import ClassPrediction, RealPrediction
from ..scores import raw_std

EACH = 10
"""Examples of a kind."""
DRAWS = 30
CLASSES = 20
"""More classes than this are cut to the most probable ones."""
SIDE = 32
FEATURES = 24
Again = Callable[[Tensor], Any]
"""Predict again for these inputs, keeping what each draw says."""


def class_examples(
    data: Data, found: ClassPrediction, again: Again, ood_inputs: Tensor | None, outside: ClassPrediction | None
) -> dict[str, Any]:
    """Examples of classes; ``samples`` are probabilities of single draws, in thousandths."""
    inputs, targets = data.test
    entropy, labels = found.entropy.cpu().double(), targets.cpu()
    if entropy.dim() > 1:  # several places an input: there is no one distribution to show
        return {"kind": "classes", "examples": []}
    wrong = (found.labels.cpu() != labels).nonzero().flatten()
    order = entropy.sort(stable=True).indices
    kinds = {
        "most certain": order[:EACH],
        "most uncertain": order.flip(0)[:EACH],
        # The surest of the mistakes first: they are the ones to look at.
        "wrong": wrong[entropy[wrong].sort(stable=True).indices][:EACH],
    }
    examples = []
    for kind, chosen in kinds.items():
        if len(chosen):
            examples += _class_rows(data, kind, chosen.tolist(), inputs[chosen], labels[chosen].tolist(), again)
    if ood_inputs is not None and outside is not None:
        doubt = outside.entropy.cpu().double()
        # From the surest to the least sure: both ends tell something.
        places = doubt.sort(stable=True).indices[_spread(len(doubt), EACH)]
        examples += _class_rows(data, "outside", places.tolist(), ood_inputs[places], [None] * len(places), again)
    return {"kind": "classes", "examples": examples}


def _class_rows(
    data: Data, kind: str, numbers: list[int], inputs: Tensor, labels: list[Any], again: Again
) -> list[dict[str, Any]]:
    found = again(inputs)
    average = found.probabilities.cpu().double()
    samples = found.samples.cpu().double()[:DRAWS]
    rows = []
    for index, (number, label) in enumerate(zip(numbers, labels, strict=True)):
        shown = _classes_shown(average[index], label)
        rows.append(
            {
                "kind": kind,
                "number": number,
                "label": label,
                "predicted": int(average[index].argmax()),
                "entropy": float(found.entropy[index]),
                "mutual_information": float(found.mutual_information[index]),
                "classes": shown,
                "probabilities": average[index][shown].tolist(),
                "samples": (samples[:, index][:, shown] * 1000).round().int().tolist(),
                **_input(data, inputs[index]),
            }
        )
    return rows


def real_examples(data: Data, found: RealPrediction, again: Again) -> dict[str, Any]:
    """Examples of real targets, in raw units; ``samples`` are the means of single draws."""
    inputs, targets = data.test
    std = found.std.cpu().double().flatten(1).mean(1)
    mean, truth = found.mean.cpu().double(), targets.cpu().double().reshape(found.mean.shape)
    away = ((mean - truth).abs() / found.std.cpu().double()).flatten(1).amax(1)
    order = std.sort(stable=True).indices
    kinds = {
        "most certain": order[:EACH],
        "most uncertain": order.flip(0)[:EACH],
        "furthest off": away.sort(stable=True, descending=True).indices[:EACH],
    }
    scaling, examples = data.scaling, []
    for kind, chosen in kinds.items():
        part = again(inputs[chosen])
        means, stds = scaling.raw_targets(part.mean.cpu().double()), raw_std(part.std.cpu().double(), scaling)
        samples = scaling.raw_targets(part.samples.cpu().double()[:DRAWS])
        goals = scaling.raw_targets(targets[chosen].double()).reshape(means.shape)
        for index, number in enumerate(chosen.tolist()):
            examples.append(
                {
                    "kind": kind,
                    "number": number,
                    "target": _first(goals[index]),
                    "mean": _first(means[index]),
                    "std": _first(stds[index]),
                    "samples": [_first(sample) for sample in samples[:, index]],
                    **_input(data, inputs[chosen][index]),
                }
            )
    return {"kind": "real", "examples": examples}


def _first(values: Tensor) -> float:
    """The first output: there is one as a rule."""
    return float(values.reshape(-1)[0])


def _classes_shown(probabilities: Tensor, label: int | None) -> list[int]:
    count = len(probabilities)
    if count <= CLASSES:
        return list(range(count))
    best: list[int] = probabilities.sort(descending=True, stable=True).indices[:CLASSES].tolist()
    if label is not None and label not in best:
        best[-1] = label
    return sorted(best)


def _input(data: Data, standardised: Tensor) -> dict[str, Any]:
    """The input as it can be shown: 8-bit pixels (C, H, W), or its first features, or tokens."""
    raw = _raw(data.scaling, standardised)
    if raw.dim() == 3 and raw.shape[0] in (1, 3):
        return {"image": _pixels(raw)}
    values = raw.reshape(-1)[:FEATURES]
    return {"features": [float(value) if value.is_floating_point() else int(value) for value in values]}


def _raw(scaling: Scaling, standardised: Tensor) -> Tensor:
    return scaling.raw_inputs(standardised.cpu().unsqueeze(0))[0]


def _pixels(image: Tensor) -> dict[str, Any]:
    """Between 0 and 1 as it is, else scaled between its lowest and highest value; at most 32 pixels wide and high."""
    while max(image.shape[1:]) > SIDE and min(image.shape[1:]) > 1:
        image = torch.nn.functional.avg_pool2d(image.float(), 2)
    low, high = float(image.min()), float(image.max())
    slack = 1e-3
    if low < -slack or high > 1 + slack:
        image = (image - low) / max(high - low, 1e-12)
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    return {"shape": list(pixels.shape), "pixels": base64.b64encode(pixels.numpy().tobytes()).decode("ascii")}


def _spread(count: int, wanted: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, wanted)).round().long()
