"""Zero mean and unit std, learned from training examples, and the way back to the user's units.

    standardised = (raw - shift) / scale

A std of standardised targets is multiplied by ``scale``; a log density of y is that of the standardised target minus
log ``scale``, summed over the outputs of an example.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NAMES = ("input_shift", "input_scale", "target_shift", "target_scale")
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, eq=False)
class Scaling:
    """standardised = (raw - shift) / scale, for inputs and for regression targets; the identity where none is given.

    Raw images are in [0, 1], whatever the file stores. A feature that never changes has scale 1.
    """

    input_shift: Tensor | None = None
    input_scale: Tensor | None = None
    target_shift: Tensor | None = None
    target_scale: Tensor | None = None

    def inputs(self, raw: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Raw inputs standardised, as float32 or another dtype (tokens stay whole numbers)."""
        return _standardised(raw, self.input_shift, self.input_scale, dtype)

    def raw_inputs(self, standardised: Tensor) -> Tensor:
        """The way back to raw units."""
        return _raw(standardised, self.input_shift, self.input_scale)

    def targets(self, raw: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Raw targets standardised, as float32 or another dtype (classes stay as they are)."""
        return _standardised(raw, self.target_shift, self.target_scale, dtype)

    def raw_targets(self, standardised: Tensor) -> Tensor:
        """Targets, predicted means or draws back in raw units; a std is multiplied by ``target_scale`` alone."""
        return _raw(standardised, self.target_shift, self.target_scale)

    @property
    def nll_shift(self) -> float:
        """sum_j log scale_j: nats to add to the NLL of a standardised target for that in its own units."""
        return 0.0 if self.target_scale is None else math.fsum(self.target_scale.double().log().flatten().tolist())

    def tensors(self) -> Iterator[Tensor | None]:
        """The four tensors, in order."""
        yield from (self.input_shift, self.input_scale, self.target_shift, self.target_scale)

    def as_json(self) -> dict[str, Any]:
        """Each tensor with its dtype, or None."""
        return {name: _plain(tensor) for name, tensor in zip(NAMES, self.tensors(), strict=True)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Scaling:
        """What ``as_json`` wrote; ValueError where a shift is not finite, or a scale not finite and above 0."""
        found = cls(**{name: None if record[name] is None else _tensor(record[name]) for name in NAMES})
        for name, tensor in zip(NAMES, found.tensors(), strict=True):
            if tensor is None:
                continue
            if not bool(tensor.isfinite().all()) or (name.endswith("scale") and not bool((tensor > 0).all())):
                raise ValueError(f"{name} must be finite{' and above 0' if name.endswith('scale') else ''}")
        return found


def scaling_of(kind: str, inputs: Tensor, targets: Tensor | None, *, as_they_are: Tensor | None = None) -> Scaling:
    """Shift and scale from training examples alone: nothing of validation or test leaks into them.

    ``kind`` is ``image`` (n, C, ...): mean and std (n - 1) of each channel in float32; ``table`` (n, features): mean
    and std (n) of each column in float64, as the studies of the UCI sets do; anything else leaves inputs as they are.
    ``targets`` (n, outputs), where they are real numbers, as a table; None leaves them. ``as_they_are`` (features,) are
    columns of a table that keep their numbers: the 0 and 1 of categories and of missing cells.
    """
    shift: Tensor | None = None
    scale: Tensor | None = None
    if kind == "image":
        channels = [inputs[:, channel] for channel in range(inputs.shape[1])]
        axes = (-1,) + (1,) * (inputs.dim() - 2)
        shift = torch.stack([channel.mean() for channel in channels]).reshape(axes)
        scale = torch.stack([channel.std() for channel in channels]).reshape(axes)
        if not bool(scale.isfinite().all()):  # squares beyond float32
            return scaling_of(kind, inputs.double(), targets)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    elif kind == "table":
        shift, scale = column_scaling(inputs)
        if as_they_are is not None:
            shift, scale = shift.masked_fill(as_they_are, 0.0), scale.masked_fill(as_they_are, 1.0)
    if targets is None:
        return Scaling(shift, scale)
    return Scaling(shift, scale, *column_scaling(targets))


def column_scaling(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and std (n) of each column, in float64; 1 for the std of a column that never changes."""
    columns = columns.double()
    std = columns.std(dim=0, correction=0)
    # Compared by value: rounding can give a column that never changes a std of 1e-14, and dividing by it, noise.
    constant = columns.amax(dim=0) == columns.amin(dim=0)
    return columns.mean(dim=0), torch.where(constant, torch.ones_like(std), std)


def _standardised(raw: Tensor, shift: Tensor | None, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
    if shift is None or scale is None:
        return raw.to(dtype) if raw.is_floating_point() else raw
    return ((raw - shift.to(raw.device)) / scale.to(raw.device)).to(dtype)


def _raw(standardised: Tensor, shift: Tensor | None, scale: Tensor | None) -> Tensor:
    if shift is None or scale is None:
        return standardised
    return (standardised * scale.to(standardised.device) + shift.to(standardised.device)).to(standardised.dtype)


def _plain(tensor: Tensor | None) -> dict[str, Any] | None:
    if tensor is None:
        return None
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "values": tensor.tolist()}


def _tensor(record: Mapping[str, Any]) -> Tensor:
    return torch.tensor(record["values"], dtype=_DTYPES[record["dtype"]])
