"""A first call with a few examples: does the network take them, in which types, and what does it return?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..batches import ExampleStream
from ..errors import DataError
from ..nested import leaves, map_leaves, taken
from ..refusals import BYTES, explained, is_whole, shape_of
from ..types import Inputs

FEW = 2


@dataclass(frozen=True)
class Tried:
    """What the network returned, and the places of whole numbers that it takes as real ones."""

    outputs: Any
    as_real: frozenset[str] = frozenset()


def tried(call: Callable[[Inputs], Any], inputs: Inputs, dtype: torch.dtype | None, most: int = FEW) -> Tried:
    """Call a network with two of the inputs; with ``most``, if it does not take so few.

    Whole numbers are given as they are (tokens, indices); where the network refuses them so and takes them as real
    numbers, they are meant as such. Bytes are not converted: they are mostly pictures, which are to be scaled.
    """
    error: Exception | None = None
    for few in dict.fromkeys((FEW, most)):
        some = taken(inputs, slice(few))
        for as_real in _ways(some):
            try:
                with torch.no_grad(), ExampleStream(0).entered():  # what it draws at random leaves other streams alone
                    outputs = call(in_real_numbers(some, as_real, dtype))
            except (RuntimeError, TypeError, ValueError, IndexError) as refused:
                error = error or refused
                continue
            _refuse_bytes(some, as_real)
            return Tried(outputs, as_real)
    assert error is not None
    line = explained(error, taken(inputs, slice(FEW)), some=True)
    if line is None:
        raise error
    raise line from error


def in_real_numbers(inputs: Inputs, places: frozenset[str], dtype: torch.dtype | None) -> Inputs:
    """The inputs with whole numbers at these places as real ones."""
    if not places:
        return inputs
    real = dtype or torch.get_default_dtype()

    def change(place: str, leaf: Any) -> Any:
        return leaf.to(real) if place in places and isinstance(leaf, Tensor) else leaf

    return map_leaves(inputs, change, "inputs")


def whole_places(inputs: Inputs) -> list[str]:
    """Where whole numbers are."""
    return [place for place, leaf in leaves(inputs, "inputs") if is_whole(leaf)]


def _ways(inputs: Inputs) -> Iterator[frozenset[str]]:
    """As they are; then one kind of whole numbers as real ones, then all."""
    whole = whole_places(inputs)
    yield frozenset()
    if len(whole) > 1:
        yield from (frozenset({place}) for place in whole)
    if whole:
        yield frozenset(whole)


def _refuse_bytes(inputs: Inputs, as_real: frozenset[str]) -> None:
    for place, leaf in leaves(inputs, "inputs"):
        if place in as_real and leaf.dtype == torch.uint8:
            raise DataError(f"{place} of shape {shape_of(leaf, some=True)} are {BYTES}")
