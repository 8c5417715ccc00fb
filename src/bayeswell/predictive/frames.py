"""Predictions and scores as columns by name, and as a pandas DataFrame where pandas is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..extras import needs_extra

Columns = dict[str, list[Any]]
"""One entry an example in each."""


def class_columns(prediction: Any) -> Columns:
    """Of a ``ClassPrediction``: label, p_<class> for each class, entropy and its parts in nats; numbered by place."""
    probabilities = prediction.probabilities
    names = prediction.class_names or tuple(map(str, range(probabilities.shape[-1])))
    parts = (prediction.entropy, prediction.epistemic, prediction.aleatoric)
    found: Columns = {}
    labels, values = _places(prediction.labels), probabilities.detach().cpu().flatten(1, -2)
    if probabilities.dim() == 2:
        values = probabilities.detach().cpu().unsqueeze(1)
    for place, ending in enumerate(_endings(len(labels))):
        found[f"label{ending}"] = [names[label] for label in labels[place]]
        found |= {f"p_{name}{ending}": values[:, place, k].tolist() for k, name in enumerate(names)}
        for kind, part in zip(("entropy", "epistemic", "aleatoric"), parts, strict=True):
            found[f"{kind}{ending}"] = _places(part)[place]
    return found


def real_columns(
    prediction: Any, interval: float | None, quantiles: Sequence[float] = (), seed: int = 0
) -> Columns:
    """Of a ``RealPrediction``: mean, std and its parts, lower and upper of an interval, q_<level>; numbered by output."""
    columns = {
        "mean": prediction.mean,
        "std": prediction.std,
        "epistemic_std": prediction.epistemic_std,
        "aleatoric_std": prediction.aleatoric_std,
    }
    if interval is not None:
        columns["lower"], columns["upper"] = prediction.interval(interval, seed=seed)
    columns |= {f"q_{level:g}": prediction.quantile(level, seed=seed) for level in quantiles}
    places = {name: _places(values) for name, values in columns.items()}
    endings = _endings(len(places["mean"]))
    return {f"{name}{ending}": values[at] for at, ending in enumerate(endings) for name, values in places.items()}


def data_frame(columns: Mapping[str, Sequence[Any]], index: Sequence[Any] | None = None) -> Any:
    """A pandas DataFrame; what needs pandas says so where it is not installed."""
    with needs_extra("lab", "a DataFrame"):
        import pandas
    return pandas.DataFrame(dict(columns), index=None if index is None else pandas.Index(index))


def _places(values: Tensor) -> list[list[Any]]:
    """(S, ...) as one list for each place of an example."""
    flat = values.detach().cpu().reshape(len(values), -1)
    return [list(column) for column in flat.T.tolist()]


def _endings(places: int) -> list[str]:
    return [""] if places == 1 else [f"_{number}" for number in range(1, places + 1)]
