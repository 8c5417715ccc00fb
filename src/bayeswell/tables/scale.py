"""A check of the scale of inputs and targets: networks learn best near unit scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

FAR = 10.0
"""A mean or std above it is far from unit scale; so are numbers that are all below 1 / FAR^2."""
_ROWS = 10_000


def scale_warning(inputs: Any, targets: Any = None, features: Sequence[str] | None = None) -> str | None:
    """Return a warning if a column of the inputs or of real targets is far from unit scale, else None.

    Args:
        inputs: tables (n, columns) are checked by column and images by channel; tokens and nested inputs are not.
        targets: class numbers are not checked.
        features: names of the columns of the inputs.
    """
    found = [_far_column("inputs", inputs, features), _far_column("targets", targets, None)]
    notes = [note for note in found if note is not None]
    if not notes:
        return None
    return f"{'; '.join(notes)}: networks learn best near unit scale; standardize=True scales the data and predictions"


def _far_column(name: str, values: Any, features: Sequence[str] | None) -> str | None:
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.numel() == 0:
        return None
    some = values[:_ROWS].detach().double()
    columns = some.transpose(0, 1).flatten(1).T if some.dim() >= 4 else some.reshape(len(some), -1)
    mean, std = columns.mean(0), columns.std(0, correction=0)
    size = mean.abs().maximum(std)
    tiny = float(columns.abs().max()) < FAR**-2 and bool((std > 0).any())
    if not bool(size.isfinite().all()) or not (bool((size > FAR).any()) or tiny):
        return None
    place = int(size.argmax())
    column = "" if len(size) == 1 else f" column {place if features is None else repr(features[place])}"
    return f"{name}{column} with mean {float(mean[place]):.3g} and std {float(std[place]):.3g}"
