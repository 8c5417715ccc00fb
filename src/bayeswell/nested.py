"""What networks take and give: a tensor, or tensors in tuples, lists and mappings, which may lie in one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def leaves(value: Any, name: str = "", *, deep: bool = True) -> Iterator[tuple[str, Any]]:
    """Everything that is not a tuple, list or mapping, with its place: ``name[0]``, ``name['key'][1]``.

    Not ``deep``, only the outermost one is gone into, and those within it are leaves.
    """
    if isinstance(value, Mapping | tuple | list):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            place = f"{name}[{key!r}]"
            yield from leaves(part, place) if deep else ((place, part),)
    else:
        yield name, value


def map_leaves(value: Any, change: Callable[[str, Any], Any], name: str = "", *, deep: bool = True) -> Any:
    """The same structure with each leaf changed; ``change`` is told its place too."""

    def within(key: Any, part: Any) -> Any:
        place = f"{name}[{key!r}]"
        return map_leaves(part, change, place) if deep else change(place, part)

    if isinstance(value, Mapping):
        return {key: within(key, part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        changed = [within(key, part) for key, part in enumerate(value)]
        return changed if isinstance(value, list) else tuple(changed)
    return change(name, value)


def tensors_in(value: Any, *, deep: bool = True) -> Iterator[Tensor]:
    """The tensors, in order."""
    return (leaf for _, leaf in leaves(value, deep=deep) if isinstance(leaf, Tensor))


def map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same structure with each tensor changed; other leaves (flags, None) stay as they are."""
    return map_leaves(value, lambda _, leaf: change(leaf) if isinstance(leaf, Tensor) else leaf)


def taken(inputs: Any, chosen: Tensor | slice) -> Any:
    """Some of the examples, which lie on the first axis of every tensor."""
    if isinstance(inputs, Tensor):
        return inputs[chosen]
    return map_tensors(inputs, lambda tensor: tensor[chosen])


def joined(pieces: Sequence[Any]) -> Any:
    """Examples of several batches, one behind the other; leaves that are no tensors are those of the first."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    if isinstance(first, Mapping):
        return {key: joined([piece[key] for piece in pieces]) for key in first}
    if isinstance(first, tuple | list):
        return tuple(joined([piece[index] for piece in pieces]) for index in range(len(first)))
    return torch.cat(list(pieces)) if isinstance(first, Tensor) else first
