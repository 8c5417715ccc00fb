"""Numbers behind a plot, from predictions with their targets or from the records of finished runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...core.errors import DataError
from ...prediction import ClassPrediction, RealPrediction
from ..measure import RunRecord

Source = ClassPrediction | RealPrediction | RunRecord
Sources = Source | Mapping[str, Source]
"""One prediction or run, or several by the label in the legend."""


def by_label(sources: Any, kind: type | tuple[type, ...] = (ClassPrediction, RealPrediction, RunRecord)) -> Any:
    """Return ``{label: source}``; a single source has the label of its method, or none."""
    if isinstance(sources, Mapping) and not isinstance(sources, kind):
        if not sources:
            raise DataError("a plot needs at least one prediction or run, got none")
        return dict(sources)
    return {sources.method if isinstance(sources, RunRecord) else "": sources}


def class_arrays(source: Source, targets: Any = None) -> tuple[Tensor, Tensor]:
    """Return probabilities (S, K) in float64 and labels (S,)."""
    if isinstance(source, RunRecord):
        return _kept(source, "probabilities").double(), _kept(source, "target").long()
    if not isinstance(source, ClassPrediction):
        raise DataError(f"this plot needs class probabilities, got {type(source).__name__}")
    probabilities = source.probabilities.detach().cpu().double()
    labels = _targets(targets).long()
    if labels.numel() != probabilities[..., 0].numel():
        raise DataError(f"targets have shape {tuple(labels.shape)}; predicted were {tuple(probabilities.shape[:-1])}")
    return probabilities.reshape(-1, probabilities.shape[-1]), labels.reshape(-1)


def uncertainty(source: Source, score: str) -> Tensor:
    """(S,): entropy, epistemic uncertainty or 1 - confidence of each example, or the std of a real prediction."""
    if isinstance(source, RunRecord):
        names = ("std", "epistemic_std") if source.task == "real" else ("entropy", "epistemic")
        found = {"entropy": names[0], "epistemic": names[1]}.get(score, "confidence")
        values = _kept(source, found).double()
    elif isinstance(source, RealPrediction):
        values = source.epistemic_std if score == "epistemic" else source.std
    else:
        values = getattr(source, score)
    values = values.detach().cpu().double().reshape(-1)
    return 1 - values if score == "confidence" else values


def ood_uncertainty(record: RunRecord, score: str) -> dict[str, Tensor]:
    """Return the uncertainty of each OOD set of a run."""
    names = [name.removeprefix("ood.").removesuffix(".entropy") for name in record.per_example if _is_ood(name)]
    return {name: record.per_example[f"ood.{name}.{score}"].double().reshape(-1) for name in names}


def pit_values(source: Source, targets: Any = None) -> Tensor:
    """(S,): P(Y <= y) of each target under its prediction."""
    if isinstance(source, RunRecord):
        return _kept(source, "pit").double().reshape(-1)
    if not isinstance(source, RealPrediction):
        raise DataError(f"this plot needs real-valued predictions, got {type(source).__name__}")
    return source.cdf(_targets(targets)).detach().cpu().double().reshape(-1)


def as_column(values: Any, name: str) -> Tensor:
    """Return numbers as (S,) in float64."""
    found = torch.as_tensor(values).detach().cpu().double()
    if found.dim() == 0 or found.numel() != len(found):
        raise DataError(f"{name}: shape {tuple(found.shape)}; a line needs one number for each example")
    return found.reshape(-1)


def _targets(targets: Any) -> Tensor:
    if targets is None:
        raise DataError("a prediction does not know its targets; give `targets`")
    return torch.as_tensor(targets).detach().cpu()


def _kept(record: RunRecord, name: str) -> Tensor:
    if name not in record.per_example:
        raise DataError(f"the run of {record.method!r} on {record.problem!r} has kept no `{name}` of its examples")
    return record.per_example[name]


def _is_ood(name: str) -> bool:
    return name.startswith("ood.") and name.endswith(".entropy")
