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
from ..core.random import make_generator
from ..nn import BayesianModule, evaluation_mode
from ..tables import as_tensors
from .draws import draws

LOADER_BATCH = 1000


def like_of(model: BayesianModule) -> Tensor:
    """Return a tensor with the floating dtype and the device of the model."""
    tensors = chain(model.parameters(), model.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))


def as_inputs(model: BayesianModule, inputs: Any) -> Inputs:
    """Return inputs as tensors; floating numbers take the dtype of the model, integers too if it fails on integers.

    ``inputs`` are a tensor, an array, or a tuple (positional) or mapping (keywords) of them, or a DataLoader or
    Dataset, whose targets are ignored.
    """
    if isinstance(inputs, DataLoader | Dataset):
        inputs = read_loader(inputs)[0]
    dtype = like_of(model).dtype
    converted = as_tensors(inputs, dtype, "inputs")
    tensors = tree_tensors(converted)
    if not tensors or any(tensor.numel() == 0 for tensor in tensors):
        raise DataError(
            f"inputs of type {type(inputs).__name__} hold no examples; give a tensor, an array or a DataLoader"
        )
    if len({tuple(tensor.shape[:1]) for tensor in tensors}) > 1:
        shapes = [tuple(tensor.shape) for tensor in tensors]
        raise DataError(f"the inputs have shapes {shapes}; give equal numbers of examples")
    for tensor in tensors:
        if not bool(tensor.isfinite().all()):
            index = tuple((~tensor.isfinite()).nonzero()[0].tolist())
            raise DataError(f"the inputs hold {tensor[index].item():g} at index {index}; every number must be finite")
    if all(tensor.is_floating_point() for tensor in tensors) or can_be_called(model, converted):
        return converted
    return tree_map(lambda tensor: tensor.to(dtype), converted)


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


@torch.no_grad()
def can_be_called(model: BayesianModule, inputs: Inputs) -> bool:
    """Return whether the network runs on the first two examples."""
    # As in training: layers that index or encode integers cannot be known by their classes.
    like = like_of(model)
    few = on_device(tree_index(inputs, slice(2)), like.device)
    try:
        with evaluation_mode(model):
            model.call(next(draws(model, 1, make_generator(0, like.device))), few)
    except (RuntimeError, TypeError, IndexError):  # of torch, for another dtype, shape or number of inputs
        return False
    return True
