"""Whether numbers are near unit scale, at which networks learn; said once, with numbers and the remedy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch import Tensor

from ..errors import ScaleWarning

FAR = 10.0
"""A mean or a std above it is far from unit scale; so is a std below its inverse squared."""
_MOST_ROWS = 10_000


def warn_of_units(inputs: Tensor | None, features: Sequence[str] | None, targets: Tensor | None) -> None:
    """One warning if a feature, or a real target, has a mean or std beyond ``FAR``; the first 10,000 rows are asked.

    Of small numbers only those are told that are small everywhere: a pixel that is nearly always 0 has a std near 0.
    """
    said = [line for line in (_of_inputs(inputs, features), _of_targets(targets)) if line]
    if said:
        warnings.warn(
            f"{'; '.join(said)}: far from unit scale, at which networks learn well; standardise=True scales them, and "
            "undoes it in predictions",
            ScaleWarning,
            stacklevel=4,
        )


def _of_inputs(inputs: Tensor | None, features: Sequence[str] | None) -> str:
    if inputs is None or not inputs.is_floating_point() or not len(inputs):
        return ""
    some = inputs[:_MOST_ROWS].detach()
    if some.dim() <= 2:
        columns, word = some.reshape(len(some), -1).double(), "column"
    elif some.dim() >= 4:
        columns, word = some.transpose(0, 1).flatten(1).T.double(), "channel"
    else:
        columns, word = some.reshape(-1, 1).double(), ""
    mean, std = columns.mean(0), columns.std(0, correction=0)
    size = mean.abs().maximum(std)
    if not bool(size.isfinite().all()):
        return ""  # refused elsewhere, with the place
    far = int((size > FAR).sum())
    tiny = float(columns.abs().max()) < FAR**-2 and bool((std > 0).any())
    if not far and not tiny:
        return ""
    place = int(size.argmax())
    name = "" if not word else f" {word} {place}" if features is None else f" {word} '{features[place]}'"
    more = f" (and {far - 1} more)" if far > 1 else ""
    return f"inputs:{name} has mean {float(mean[place]):.3g}, std {float(std[place]):.3g}{more}"


def _of_targets(targets: Tensor | None) -> str:
    if targets is None or not targets.is_floating_point() or not len(targets):
        return ""
    columns = targets[:_MOST_ROWS].detach().double().reshape(min(len(targets), _MOST_ROWS), -1)
    mean, std = columns.mean(0), columns.std(0, correction=0)
    size = mean.abs().maximum(std)
    if not bool(size.isfinite().all()):
        return ""
    tiny = (std > 0) & (std < FAR**-2)
    if not bool((size > FAR).any() | tiny.any()):
        return ""
    place = int(size.argmax()) if bool((size > FAR).any()) else int(std.argmin())
    name = f" output {place}" if columns.shape[1] > 1 else ""
    return f"targets:{name} has mean {float(mean[place]):.3g}, std {float(std[place]):.3g}".replace(
        "targets: has", "targets have"
    )
