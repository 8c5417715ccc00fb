"""Everything that decides a run, as plain data: to be kept with it, and compared before it goes on."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

import torch
from torch import nn

from ..fingerprint import sha256_of
from ..methods import Method
from ..persistence import JSON
from ..plain import fields_of, plain
from ..version import __version__

_FORMAT = 1


def plain_settings(
    method: Method, likelihood: Any, net: nn.Module, data_fingerprint: str, **others: Any
) -> dict[str, JSON]:
    """Method, likelihood, fingerprints of network and data, versions, and the rest by name."""

    return {
        "format": _FORMAT,
        "versions": {"bayeswell": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "method": described(method),
        "likelihood": described(likelihood),
        "network": network_fingerprint(net),
        "data": data_fingerprint,
        **{name: described(value) for name, value in others.items()},
    }


def network_fingerprint(net: nn.Module) -> str:
    """SHA-256 of the network's structure as it prints itself, and of all its numbers."""
    return sha256_of((repr(net), dict(net.state_dict())))


def described(value: Any) -> JSON:
    """Settings as JSON: parts by name and settings; what has no plain form by the name of its kind."""
    return plain(value, _described_object)  # type: ignore[no-any-return]


def _described_object(value: Any) -> JSON:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"name": str(getattr(value, "name", type(value).__name__)), **fields_of(value, _described_object)}
    named = value if isinstance(value, type) or callable(value) else type(value)
    state = dict(vars(value)) if _is_simple(value) else {}
    return {"kind": getattr(named, "__qualname__", type(value).__qualname__), **state}


def _is_simple(value: Any) -> bool:
    """Whether an object's attributes are all plain: then they describe it."""
    attributes = getattr(value, "__dict__", {})
    return not callable(value) and all(
        part is None or isinstance(part, bool | int | float | str) for part in attributes.values()
    )
