"""Bundles to save, damage and compare."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bayeswell.errors import FileError
from bayeswell.persistence import read_bundle, write_bundle
from bayeswell.persistence.manifest import FILES, MANIFEST, RECORD, TENSORS, seal


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert bits(found[name]) == bits(tensor), name


def some_tensors(value: float = 0.37) -> dict[str, Tensor]:
    return {"mean": torch.linspace(-value, 1.7, 60).reshape(5, 12), "steps": torch.tensor([3, 1, 4])}


def save_some(path: Path, value: float = 0.37) -> None:
    write_bundle(path, some_tensors(value), {"value": value})


def assert_some(path: Path, value: float) -> None:
    bundle = read_bundle(path)
    assert bundle.record == {"value": value}
    assert_same(bundle.tensors, some_tensors(value))


def one_line(fault: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(fault.value)
    assert text
    assert "\n" not in text
    return text


def reseal(path: Path, **changed: bytes) -> None:
    """Put other bytes into the record or the tensors and make the checksums fit, as a forger would."""
    files = {name: (path / name).read_bytes() for name in (TENSORS, RECORD)}
    files |= {{"tensors": TENSORS, "record": RECORD}[key]: data for key, data in changed.items()}
    for name, data in files.items():
        (path / name).write_bytes(data)
    (path / MANIFEST).write_bytes(seal(files))


def safetensors_file(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def refused(path: Path) -> bool:
    """Whether reading fails with FileError; any other error is a fault of its own and comes through."""
    try:
        read_bundle(path)
    except FileError as error:
        line = str(error)
    else:
        return False
    assert "\n" not in line
    assert any(name in line for name in FILES)
    return True
