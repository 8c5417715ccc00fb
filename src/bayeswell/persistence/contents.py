"""Tensors and plain data to bytes and back, with safetensors and strict JSON: formats that cannot run code.

Where we differ from the libraries underneath: tensors that share memory, have gaps or are lazily conjugated
are written as what they look like (safetensors refuses the first two and writes the third wrongly), and
NaN or infinity in JSON is refused both ways (Python's json writes and reads both, which no other reader may).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import safetensors.torch
import torch
from torch import Tensor

from ..errors import SettingError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""Plain data. A tuple is written as a list, and comes back as one."""


def encode_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The tensors as the bytes of a safetensors file. The same tensors always give the same bytes."""
    if not isinstance(tensors, Mapping):
        raise SettingError(f"tensors is a {type(tensors).__name__}; it must be a mapping from names to tensors")
    dense: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
        packed = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if packed.untyped_storage().data_ptr() in storages:
            packed = packed.clone()
        storages.add(packed.untyped_storage().data_ptr())
        dense[name] = packed
    return bytes(safetensors.torch.save(dense))


def decode_tensors(data: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU, by sorted name; any fault is a one-line ValueError."""
    try:
        views: dict[str, Tensor] = safetensors.torch.load(data)
        # A clone has memory of torch's own, aligned as usual: kernels may round differently without.
        return {name: views.pop(name).clone() for name in sorted(views)}
    except Exception as error:  # safetensors and torch raise five kinds of their own on a bad header
        raise ValueError(f"it is not a readable safetensors file ({_one_line(error)})") from error


def encode_record(record: Mapping[str, JSON]) -> bytes:
    """The record as strict JSON; what cannot be written exactly is refused, with the place where it is."""
    if not isinstance(record, Mapping):
        raise SettingError(f"record is a {type(record).__name__}; it must be a mapping")
    try:
        return json.dumps(_plain(record, "record"), allow_nan=False, indent=2).encode("ascii") + b"\n"
    except RecursionError as error:
        raise SettingError("record is nested too deeply, or contains itself; it must be plain data") from error
    except ValueError as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(f"record cannot be written as JSON ({_one_line(error)})") from error


def decode_record(data: bytes) -> dict[str, Any]:
    """The object in strict JSON; any fault is a one-line ValueError."""
    try:
        record = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError among them
        raise ValueError(f"it is not plain JSON ({_one_line(error)})") from error
    if not isinstance(record, dict):
        raise ValueError(f"it holds a JSON {type(record).__name__}, not an object")
    return record


def _check_tensor(name: str, tensor: Tensor) -> None:
    if not isinstance(name, str) or name == "__metadata__" or not _is_unicode(name):
        raise SettingError(f"a tensor is named {name!r}; names must be text, other than '__metadata__'")
    if not isinstance(tensor, Tensor):
        raise SettingError(f"tensor '{name}' is a {type(tensor).__name__}; it must be a torch.Tensor")
    if tensor.layout != torch.strided or tensor.is_nested:
        raise SettingError(f"tensor '{name}' has the layout {tensor.layout}; it must be dense (to_dense())")
    if tensor.is_meta:
        raise SettingError(f"tensor '{name}' is on the device 'meta' and has no values to save")
    if not _is_storable(tensor.dtype):
        raise SettingError(f"tensor '{name}' has the type {tensor.dtype}, which safetensors cannot store")


@functools.cache
def _is_storable(dtype: torch.dtype) -> bool:
    """Whether this version of safetensors reads back what it writes; it does not for every type it writes."""
    try:
        return "probe" in safetensors.torch.load(safetensors.torch.save({"probe": torch.empty(1, dtype=dtype)}))
    except Exception:  # the kind differs by type and version
        return False


def _is_unicode(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: Any, where: str) -> Any:
    """A copy made of dict, list, str, int, float, bool and None alone."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SettingError(f"{where} = {value!r}; JSON has no such number: save it as a tensor or as None")
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise SettingError(f"{where} has the key {key!r} of type {type(key).__name__}; keys must be str")
        return {str(key): _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise SettingError(
        f"{where} is a {type(value).__name__}; it must be None, a bool, int, float, str, list or mapping"
    )


def _refuse_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a JSON number")


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):  # 1e999 is well-formed JSON, and infinity in Python
        raise ValueError(f"{literal:.40} is too large")
    return value


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{text:.160}" or type(error).__name__
