"""Inputs of networks: a tensor, a tuple of tensors (positional) or a mapping (keywords), possibly nested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree


def tree_map(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """Apply a function to every tensor; other leaves stay."""
    return _pytree.tree_map_only(Tensor, function, tree)


def tree_tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def tree_index(tree: Any, index: Any) -> Any:
    """Return the chosen examples of every tensor."""
    return tree_map(lambda tensor: tensor[index], tree)


def tree_cat(trees: Sequence[Any]) -> Any:
    """Concatenate the examples of several trees of one structure."""
    structure = _pytree.tree_structure(trees[0])
    columns = zip(*(_pytree.tree_leaves(tree) for tree in trees), strict=True)
    joined = [torch.cat(column) if isinstance(column[0], Tensor) else column[0] for column in columns]
    return _pytree.tree_unflatten(joined, structure)


def num_examples(tree: Any) -> int:
    """Return the length of the first axis of the first tensor."""
    return len(tree_tensors(tree)[0])
