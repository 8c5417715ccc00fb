"""Inputs that a network refuses: torch's long words for a wrong shape or type, as one line with the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .errors import BayeswellError, DataError, NetworkError
from .nested import leaves

_SHAPES = re.compile(
    "shapes cannot be multiplied|size mismatch|must match the size|Given groups|Given normalized_shape|"
    "expected .*input|Expected .*input|to have \\d+ channels|input_size|shape .* is invalid for input|"
    "running_mean should contain|embed_dim|embedding dim"
)
_TYPES = re.compile(
    "same dtype|expected scalar type|scalar types|not implemented for '|should be the same|expected m1 and m2|"
    "Input type|Expected tensor for argument"
)
_OUT_OF_TABLE = re.compile("index out of range|out of bounds")
_ARGUMENTS = re.compile(
    "(unexpected keyword argument|required positional argument|positional arguments? but|multiple values)"
)
BYTES = "bytes (uint8) are no real numbers: for pictures give x.float() / 255, for other numbers x.float()"
_WHOLE = "whole numbers go to an Embedding as they are, to other layers as real numbers: x.float()"


def explained(error: Exception, inputs: Any) -> BayeswellError | None:
    """One line for an error of torch's that inputs of a wrong shape, type or number cause; None: another error.

    What a network's own code raises is its own to tell.
    """
    if isinstance(error, BayeswellError) or not isinstance(error, RuntimeError | TypeError | IndexError | ValueError):
        return None
    text = " ".join(str(error).split())
    if isinstance(error, TypeError) and _ARGUMENTS.search(text):
        return NetworkError(f"the network cannot be called with {described(inputs)}: {text:.200}")
    if isinstance(error, IndexError) and _OUT_OF_TABLE.search(text):
        whole = [(place, leaf) for place, leaf in leaves(inputs, "inputs") if is_whole(leaf) and leaf.numel()]
        found = ", ".join(f"{place} from {int(leaf.min())} to {int(leaf.max())}" for place, leaf in whole)
        return DataError(f"an index lies outside its table (an Embedding has fewer rows): {found or described(inputs)}")
    if not isinstance(error, RuntimeError):
        return None
    if _TYPES.search(text):
        kinds = {leaf.dtype for _, leaf in leaves(inputs, "inputs") if isinstance(leaf, Tensor)}
        whole_given = any(not kind.is_floating_point and not kind.is_complex for kind in kinds)
        remedy = f"; {BYTES if torch.uint8 in kinds else _WHOLE}" if whole_given else "; bring both to one dtype"
        return NetworkError(f"the network cannot take {described(inputs)}{remedy} ({text:.160})")
    if _SHAPES.search(text):
        return NetworkError(f"the network cannot take {described(inputs)}: {text:.200}")
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


def is_whole(value: Any) -> bool:
    """Whether it is a tensor of whole numbers or booleans."""
    return isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex()


def described(inputs: Any) -> str:
    """Shapes and types of all inputs, in words."""
    found = [
        f"{place} of shape {tuple(leaf.shape)} ({str(leaf.dtype).removeprefix('torch.')})"
        for place, leaf in leaves(inputs, "inputs")
        if isinstance(leaf, Tensor)
    ]
    return ", ".join(found[:4]) or f"inputs of type {type(inputs).__name__}"
