"""Inputs and targets as tensors, checked once, and cut into batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from ..core.errors import DataError
from ..core.protocols import Inputs
from ..core.pytree import num_examples, tree_cat, tree_index, tree_map, tree_tensors
from ..nn import evaluation_mode
from ..tables import as_tensors
from .draws import Model, draws

LOADER_BATCH = 1000


def like_of(model: Model) -> Tensor:
    """Return a tensor with the floating dtype and the device of the model."""
    for tensor in chain(model.parameters(), model.buffers()):
        if tensor.is_floating_point():
            found: Tensor = tensor
            return found
    return torch.empty(0)


def as_inputs(model: Model, inputs: Any) -> Inputs:
    """Return inputs as tensors; floating numbers take the dtype of the model, integers too if it refuses integers.

    ``inputs`` are a tensor, an array, or a tuple (positional) or mapping (keywords) of them, or a DataLoader or
    Dataset, whose targets are ignored.
    """
    if isinstance(inputs, DataLoader | Dataset):
        inputs = read_loader(inputs)[0]
    like = like_of(model)
    converted = as_tensors(inputs, like.dtype, "inputs")
    tensors = tree_tensors(converted)
    if not tensors or tensors[0].dim() == 0 or tensors[0].numel() == 0:
        raise DataError(
            f"inputs of type {type(inputs).__name__} hold no examples; give a tensor, an array or a DataLoader"
        )
    for tensor in tensors:
        if tensor.dim() == 0 or len(tensor) != len(tensors[0]):
            raise DataError(
                f"the inputs have {len(tensors[0])} and {tuple(tensor.shape)[:1]} examples; give equal numbers"
            )
        _check_finite(tensor)
    return converted if all(t.is_floating_point() for t in tensors) else _with_accepted_integers(model, converted, like)


def as_targets(targets: Any, examples: int) -> Tensor:
    """Return one target for each example as a tensor."""
    found = as_tensors(targets, None, "targets")
    if not isinstance(found, Tensor) or found.dim() == 0 or len(found) != examples:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(targets).__name__
        raise DataError(f"targets have shape {shape}; the inputs hold {examples} examples")
    return found


def with_targets(inputs: Any, targets: Any) -> tuple[Any, Any]:
    """Return inputs and targets; those of a DataLoader or Dataset are read if ``targets`` is None."""
    if targets is not None:
        return inputs, targets
    if isinstance(inputs, DataLoader | Dataset):
        inputs, targets = read_loader(inputs)
    elif isinstance(inputs, tuple | list) and len(inputs) == 2:
        inputs, targets = inputs
    if targets is None:
        raise DataError("targets are missing; give them after the inputs, or a DataLoader of (inputs, targets)")
    return inputs, targets


def read_loader(data: Any) -> tuple[Inputs, Any]:
    """Read a DataLoader or Dataset in its order: inputs, and targets or None. It must not shuffle."""
    loader = data if isinstance(data, DataLoader) else DataLoader(data, LOADER_BATCH)
    if isinstance(loader.sampler, RandomSampler):
        raise DataError("the DataLoader shuffles, so predictions could not be matched to examples; use shuffle=False")
    pairs = [_split(batch) for batch in loader]
    if not pairs:
        raise DataError("the DataLoader has no batch")
    targets = None if pairs[0][1] is None else tree_cat([pair[1] for pair in pairs])
    return tree_cat([pair[0] for pair in pairs]), targets


def batches_of(inputs: Inputs, batch_size: int | None) -> Iterator[Inputs]:
    """Yield views of consecutive examples; all at once without a batch size."""
    size = num_examples(inputs)
    step = size if batch_size is None else batch_size
    for start in range(0, size, step):
        yield inputs if step >= size else tree_index(inputs, slice(start, start + step))


def on_device(inputs: Inputs, device: torch.device) -> Inputs:
    return inputs if device.type == "cpu" else tree_map(lambda tensor: tensor.to(device), inputs)


def _split(batch: Any) -> tuple[Inputs, Any]:
    if isinstance(batch, Mapping):
        rest = {name: value for name, value in batch.items() if name != "labels"}
        return rest, batch.get("labels")
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        return batch[0], batch[1]
    return (batch[0] if isinstance(batch, tuple | list) else batch), None


def _check_finite(tensor: Tensor) -> None:
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        index = tuple((~tensor.isfinite()).nonzero()[0].tolist())
        raise DataError(f"the inputs hold {tensor[index].item():g} at index {index}; every number must be finite")


@torch.no_grad()
def _with_accepted_integers(model: Model, inputs: Inputs, like: Tensor) -> Inputs:
    weights = next(iter(draws(model, 1, torch.Generator(like.device).manual_seed(0))))
    few = on_device(tree_index(inputs, slice(2)), like.device)
    real = tree_map(lambda t: t if t.is_floating_point() else t.to(like.dtype), inputs)
    for candidate, chosen in ((few, inputs), (tree_map(lambda t: t.to(like.dtype), few), real)):
        try:
            with evaluation_mode(model):
                model.call(weights, candidate)
        except (RuntimeError, TypeError, ValueError, IndexError):
            continue
        return chosen
    return inputs
