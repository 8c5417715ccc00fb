"""Inputs that a network refuses: torch's long words for a wrong shape or type, as one line with the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .errors import BayeswellError, DataError, NetworkError
from .nested import leaves

_SHAPES = re.compile(
    "shapes cannot be multiplied|size mismatch|must match the size|Given groups|Given normalized_shape|"
    "expected .*input|Expected .*input|to have \\d+ channels|input_size|shape .* is invalid for input|"
    "running_mean should contain|Kernel size can't be greater|is too small|embed_dim|embedding dim"
)
_TYPES = re.compile(
    "same dtype|expected scalar type|scalar types|not implemented for '|should be the same|expected m1 and m2|"
    "Input type|Expected tensor for argument"
)
_OUT_OF_TABLE = re.compile("index out of range|out of bounds")
_ARGUMENTS = re.compile(
    "(unexpected keyword argument|required positional argument|positional arguments? but|multiple values)"
)
_INDEX = re.compile(r"at index \(?(\d+)")
BYTES = "bytes (uint8), not real numbers: for pictures give x.float() / 255, for other numbers x.float()"
_WHOLE = "whole numbers go to an Embedding as they are, to other layers as real numbers: x.float()"


def explained(error: Exception, inputs: Any, *, some: bool = False) -> BayeswellError | None:
    """One line for an error of torch's that inputs of a wrong shape, type or number cause; None: another error.

    What a network's own code raises is its own to tell.
    """
    if isinstance(error, BayeswellError) or not isinstance(error, RuntimeError | TypeError | IndexError | ValueError):
        return None
    text, given = " ".join(str(error).split()), described(inputs, some=some)
    if isinstance(error, TypeError) and _ARGUMENTS.search(text):
        return NetworkError(f"the network cannot be called with {given}: {text:.200}")
    if isinstance(error, IndexError) and _OUT_OF_TABLE.search(text):
        whole = [(place, leaf) for place, leaf in leaves(inputs, "inputs") if is_whole(leaf) and leaf.numel()]
        found = ", ".join(f"{place} from {int(leaf.min())} to {int(leaf.max())}" for place, leaf in whole)
        return DataError(f"an index lies outside its table (an Embedding has fewer rows): {found or given}")
    if not isinstance(error, RuntimeError):
        return None
    if _TYPES.search(text):
        kinds = {leaf.dtype for _, leaf in leaves(inputs, "inputs") if isinstance(leaf, Tensor)}
        whole_given = any(not kind.is_floating_point and not kind.is_complex for kind in kinds)
        remedy = f"; {BYTES if torch.uint8 in kinds else _WHOLE}" if whole_given else "; bring both to one dtype"
        return NetworkError(f"the network cannot take {given}{remedy} ({text:.160})")
    if _SHAPES.search(text):
        return NetworkError(f"the network cannot take {given}: {text:.200}")
    return None


@contextmanager
def one_line(inputs: Any) -> Iterator[None]:
    """Within the block, errors of torch's that the inputs cause are told in one line."""
    try:
        yield
    except (RuntimeError, TypeError, IndexError) as error:
        line = explained(error, inputs)
        if line is None:
            raise
        raise line from error


def with_row(error: DataError, rows: Sequence[int] | None = None, of: str = "example {} of the data set") -> DataError:
    """The error with the row of the user's data: what stands first in the index that it names.

    ``rows`` are the places in the data of the examples of a batch; None: the index counts the rows themselves.
    """
    found = _INDEX.search(str(error))
    if found is None or (rows is not None and int(found[1]) >= len(rows)):
        return error
    place = int(found[1]) if rows is None else rows[int(found[1])]
    line = f"{str(error)[: found.start(1)]}{place}{str(error)[found.end(1) :]}"
    return DataError(f"{line} ({of.format(place)})")


def is_whole(value: Any) -> bool:
    """Whether it is a tensor of whole numbers or booleans."""
    return isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex()


def described(inputs: Any, *, some: bool = False) -> str:
    """Shapes and types of all inputs, in words; of ``some`` examples their number is left open."""
    found = [
        f"{place} of shape {shape_of(leaf, some=some)} ({str(leaf.dtype).removeprefix('torch.')})"
        for place, leaf in leaves(inputs, "inputs")
        if isinstance(leaf, Tensor)
    ]
    return ", ".join(found[:4]) or f"inputs of type {type(inputs).__name__}"


def shape_of(tensor: Tensor, *, some: bool = False) -> str:
    """The shape of a tensor; of ``some`` examples their number is left open."""
    return f"({', '.join(['n', *map(str, tensor.shape[1:])])})" if some and tensor.dim() else str(tuple(tensor.shape))
