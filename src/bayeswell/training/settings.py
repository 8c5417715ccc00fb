"""Everything that decides a run, as plain data: to be kept with it, and compared before it goes on."""

from __future__ import annotations

import dataclasses
import functools
import platform
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

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
    if isinstance(value, functools.partial):
        return {"of": described(value.func), "given": described([*value.args, dict(value.keywords)])}
    if isinstance(value, Distribution):
        return {"kind": type(value).__qualname__, "sha256": sha256_of(_tensors_of(value))}
    if isinstance(value, nn.Module):
        return {"kind": type(value).__qualname__, "sha256": network_fingerprint(value)}
    if isinstance(value, FunctionType):
        return {"kind": value.__qualname__, "sha256": sha256_of((_code(value.__code__), _closure(value)))}
    named = value if isinstance(value, type) else type(value)
    state = {} if isinstance(value, type) else {k: v for k, v in _attributes(value).items() if _is_plain(v)}
    return {"kind": getattr(named, "__qualname__", type(value).__qualname__), **state}


def _tensors_of(value: Distribution) -> list[Any]:
    """Its kind and every number in it, also of the distributions that it is made of."""
    found: list[Any] = [type(value).__qualname__]
    for name, part in sorted(_attributes(value).items()):
        if isinstance(part, Tensor):
            found += [name, part]
        elif isinstance(part, Distribution):
            found += [name, *_tensors_of(part)]
    return found


def _code(code: CodeType) -> list[Any]:
    """What a function does, as far as its code says: the same for the same text."""
    constants = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return [code.co_code.hex(), constants, [*code.co_names], [*code.co_varnames]]


def _closure(function: FunctionType) -> list[Any]:
    """The numbers and words that a function has from around it."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [v if _is_plain(v) else type(v).__qualname__ for v in [*cells, *(function.__defaults__ or ())]]


def _attributes(value: Any) -> dict[str, Any]:
    return dict(getattr(value, "__dict__", {}))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
