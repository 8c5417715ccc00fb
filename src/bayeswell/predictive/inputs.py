"""Inputs read, checked once, before any work, and cut into batches of views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..batches import USUAL_SIZE, Collated, Columns, MappedArrays, is_source, read_all
from ..errors import DataError
from ..finite import first_not_finite
from ..modes import evaluation_mode
from ..nested import map_leaves, tensors_in
from ..tables import as_array, as_arrays
from ..types import Inputs
from .contracts import Drawable
from .trial import in_real_numbers, tried, whole_places


@dataclass(frozen=True)
class Home:
    """Where a model computes: the device of its first parameter or buffer, and its real dtype."""

    device: torch.device
    dtype: torch.dtype


def home_of(model: Drawable) -> Home:
    """The model's device and real dtype; the CPU and torch's default where it holds no tensors."""
    tensors = [
        tensor
        for module in model.modules()
        for tensor in chain(module.parameters(recurse=False), module.buffers(recurse=False))
    ]
    device = tensors[0].device if tensors else torch.device("cpu")
    real = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return Home(device, real[0] if real else torch.get_default_dtype())


@dataclass(frozen=True)
class Batch:
    """The inputs of examples ``start`` to ``stop``: ``read`` gives them, from memory or from a file."""

    start: int
    stop: int
    read: Callable[[], Inputs]

    @property
    def inputs(self) -> Inputs:
        """As they are; those of a file are held by who asked for them."""
        return self.read()

    def on(self, device: torch.device) -> Inputs:
        """The inputs on a device; a copy only while the batch is in use."""
        inputs = self.read()
        return inputs if isinstance(inputs, Tensor) and inputs.device == device else _on(inputs, device)


def with_targets(model: Drawable, inputs: Inputs, targets: Any = None) -> tuple[Inputs, Any]:
    """Inputs and targets of data that carry both, read once: a loader, a data set, columns by name.

    ``targets`` None are those in the data, a text is the name of their column; other targets, and inputs that are not
    read, stay as they are.
    """
    if (targets is not None and not isinstance(targets, str)) or not (is_source(inputs) or isinstance(inputs, Mapping)):
        if targets is None or isinstance(targets, str):
            raise DataError(
                f"targets = {targets!r}; give them beside the inputs, (inputs, targets), or inputs that carry them: a "
                "DataLoader, a data set"
            )
        return inputs, targets
    columns = Columns(model, targets)
    if isinstance(inputs, Mapping):
        columns.require_target(list(inputs))
        return columns.split(inputs)
    if isinstance(inputs, MappedArrays) and (mapped := inputs.targets()) is not None:
        return inputs, mapped
    parts = read_all(inputs, columns)
    if parts.targets is None:
        raise DataError(f"the batches of the {type(inputs).__name__} have no targets: they must be (inputs, targets)")
    return parts.inputs, parts.targets


def cut_into_batches(inputs: Inputs, batch_size: int | None, home: Home, model: Drawable | None = None) -> list[Batch]:
    """Batches that are views of the inputs, after refusing empty, unequal or non-finite ones.

    A loader or data set is read, in its order, and its targets are left out; batches that are each padded to a length
    of their own stay as they are. Whole numbers become real ones where the model takes them only so. Mapped files are
    not held: each batch is read when its turn comes.
    """
    if isinstance(inputs, MappedArrays):
        return _cut_mapped(inputs, batch_size or USUAL_SIZE, home, model)
    if is_source(inputs):
        inputs = read_all(inputs, Columns(model), batch_size, ordered=True).inputs
    elif isinstance(inputs, Mapping) and model is not None:
        inputs = Columns(model).inputs_of(inputs)
    if not isinstance(inputs, Collated):
        return _cut_one(inputs, batch_size, home, model)
    batches: list[Batch] = []
    for piece in inputs.pieces:
        start = batches[-1].stop if batches else 0
        own = _cut_one(piece, batch_size, home, model, start)
        batches += [Batch(start + batch.start, start + batch.stop, batch.read) for batch in own]
    return batches


def _cut_one(inputs: Inputs, batch_size: int | None, home: Home, model: Drawable | None, row: int = 0) -> list[Batch]:
    tensors = map_tensors(as_arrays(inputs), lambda name, value: _as_tensor(name, value, home))
    sizes: dict[str, int] = {}

    def inspect(name: str, tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or tensor.numel() == 0:
            raise DataError(f"{name}: shape {tuple(tensor.shape)} holds no examples")
        _require_finite(name, tensor, row)
        sizes[name] = tensor.shape[0]
        return tensor

    map_tensors(tensors, inspect)
    if not sizes:
        raise DataError("inputs hold no tensor")
    first, size = next(iter(sizes.items()))
    for name, other in sizes.items():
        if other != size:
            raise DataError(f"{name} has {other} examples; {first} has {size}")
    if model is not None and whole_places(tensors):
        tensors = _as_taken(model, tensors, home)
    step = size if batch_size is None else batch_size
    return [_cut(tensors, start, min(start + step, size)) for start in range(0, size, step)]


def _cut_mapped(file: MappedArrays, size: int, home: Home, model: Drawable | None) -> list[Batch]:
    """Every number is looked at once, a batch at a time; what the model makes of whole numbers, the first one tells."""
    bounds = [(start, min(start + size, len(file))) for start in range(0, len(file), size)]
    for start, stop in bounds:
        _require_finite("inputs", file.rows(start, stop), start)
    first = _as_tensor("inputs", file.rows(*bounds[0]), home)
    if model is not None and whole_places(first):
        first = _as_taken(model, first, home)
    dtype = first.dtype

    def reading(start: int, stop: int) -> Batch:
        return Batch(start, stop, lambda: file.rows(start, stop).to(dtype))

    return [reading(start, stop) for start, stop in bounds]


def _as_taken(model: Drawable, tensors: Inputs, home: Home) -> Inputs:
    """Whole numbers as the model takes them, found by a call of one drawn network."""
    with torch.no_grad(), evaluation_mode(model):
        drawn = next(iter(model.draws(1, torch.Generator(home.device).manual_seed(0))))
        found = tried(
            lambda some: model.call(drawn, _on(some, home.device)), tensors, home.dtype, len(next(tensors_in(tensors)))
        )
    return in_real_numbers(tensors, found.as_real, home.dtype)


def _on(inputs: Inputs, device: torch.device) -> Inputs:
    return map_tensors(inputs, lambda _, tensor: tensor.to(device))


def map_tensors(inputs: Inputs, change: Callable[[str, Any], Any]) -> Inputs:
    """The same structure with each tensor or array changed; other values (flags, None) stay as they are."""

    def visit(name: str, value: Any) -> Any:
        return change(name, value) if isinstance(value, Tensor | np.ndarray) else value

    if isinstance(inputs, Tensor | np.ndarray | tuple | Mapping):
        return map_leaves(inputs, visit, "inputs", deep=False)
    raise DataError(
        f"inputs are a {type(inputs).__name__}; allowed: a tensor, a numpy array, a tuple (positional) or a "
        "mapping (keywords) of them, a DataLoader, a Dataset"
    )


def as_targets(targets: Any, examples: int) -> Tensor:
    """Targets as a tensor with one entry for each example."""
    targets = as_array(targets, "targets")
    if isinstance(targets, np.ndarray):
        targets = _from_numpy("targets", targets)
    if not isinstance(targets, Tensor):
        raise DataError(f"targets are a {type(targets).__name__}; they must be a tensor or a numpy array")
    if targets.dim() == 0 or targets.shape[0] != examples:
        raise DataError(f"targets have shape {tuple(targets.shape)}; the inputs hold {examples} examples")
    return targets


def _cut(tensors: Inputs, start: int, stop: int) -> Batch:
    held = map_tensors(tensors, lambda _, tensor: tensor[start:stop])
    return Batch(start, stop, lambda: held)


def _as_tensor(name: str, value: Tensor | np.ndarray[Any, Any], home: Home) -> Tensor:
    tensor = value if isinstance(value, Tensor) else _from_numpy(name, value)
    # Real numbers are taken in the network's dtype, as in ``fit``.
    return tensor.to(home.dtype) if tensor.is_floating_point() else tensor


def _from_numpy(name: str, array: np.ndarray[Any, Any]) -> Tensor:
    try:
        # A copy: torch can neither hold read-only arrays safely nor negative strides at all.
        return torch.from_numpy(array.copy())
    except TypeError:
        raise DataError(f"{name}: a numpy array of dtype {array.dtype}; it must hold numbers") from None


def _require_finite(name: str, tensor: Tensor, row: int = 0) -> None:
    index = first_not_finite(tensor)
    if index is not None:
        at = (index[0] + row, *index[1:])
        raise DataError(f"{name}: {tensor[index].item():g} at index {at}, row {at[0]}; every number must be finite")
