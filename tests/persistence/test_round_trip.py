"""A bundle comes back bit by bit, with every type, shape and record; what cannot be saved is refused."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from bayeswell.errors import FileError, SettingError
from bayeswell.persistence import Bundle, folders, read_bundle, write_bundle
from bayeswell.persistence.contents import encode_record
from bayeswell.persistence.manifest import FILES, MANIFEST, MAX_BYTES
from persistence.bundles import assert_same, one_line, reseal, safetensors_file, save_some

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool),
)


def random_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Any bits at all, so NaN payloads, infinities and subnormal numbers too; a bool has only two."""
    size = torch.empty((), dtype=dtype).element_size()
    values = torch.randint(0, 2 if dtype == torch.bool else 256, (*shape, size), dtype=torch.uint8)
    return values.view(dtype).reshape(shape)


# ---------------------------------------------------------------------------------------------- round trip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_and_shape_comes_back_bit_by_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    shapes = [(), (0,), (3, 0, 2), (1,), (7,), (5, 3), (2, 3, 4, 5)]
    tensors = {f"block.{shape}": random_tensor(dtype, shape) for shape in shapes}
    write_bundle(tmp_path / "b", tensors, {})
    assert_same(read_bundle(tmp_path / "b").tensors, tensors)


def test_memory_that_is_shared_strided_or_lazy_is_saved_as_it_looks(tmp_path: Path) -> None:
    base = torch.randn(6, 8)
    tensors: dict[str, Tensor] = {
        "whole": base,
        "same": base,
        "transposed": base.T,
        "every second": base[:, ::2],
        "overlapping rows": base[1:4],
        "expanded": base[0, :1].expand(5),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "needs graph": torch.nn.Parameter(torch.randn(3)) * 2,
        "negated view": torch.randn(1, dtype=torch.complex64).conj().imag,  # of one, so without gaps
    }
    expected = {
        name: torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach()) for name, tensor in tensors.items()
    }
    write_bundle(tmp_path / "b", tensors, {})
    found = read_bundle(tmp_path / "b").tensors
    assert_same(found, expected)
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) == len(found)
    assert not any(tensor.requires_grad for tensor in found.values())
    found["whole"].add_(1.0)
    assert torch.equal(found["same"], expected["same"])


def test_a_lazily_conjugated_tensor_keeps_its_sign(tmp_path: Path) -> None:
    tensor = torch.randn(5, dtype=torch.complex64).conj()
    write_bundle(tmp_path / "b", {"z": tensor}, {})
    assert torch.equal(read_bundle(tmp_path / "b").tensors["z"], tensor.resolve_conj())


class Name(str):
    """Text that says something else of itself."""

    def __str__(self) -> str:
        return "said"


def test_what_is_derived_from_plain_data_is_written_as_that() -> None:
    inside = (Name("x"), "\ud800", signal.SIGINT, numpy.float64(0.1), OrderedDict(), MappingProxyType({"a": 1}), ())
    record = {Name("key"): Name("value"), "said": inside}
    expected = {"said": ["said", "\ud800", 2, 0.1, {}, {"a": 1}, []]}
    assert encode_record(record) == json.dumps(expected, indent=2).encode("ascii") + b"\n"


def test_any_record_comes_back_equal_and_in_order(tmp_path: Path) -> None:
    record: dict[str, Any] = {
        "z first": {
            "rank": 3,
            "std": 0.1 + 0.2,
            "tiny": 5e-324,
            "huge": 1.7976931348623157e308,
            "minus": -0.0,
        },
        "a later": [None, True, False, -(2**70), "", 'ü € \u2028 " \\ \x00 \ud800', [], {}, [[1.0], 1]],
    }
    write_bundle(tmp_path / "b", {}, record)
    bundle = read_bundle(tmp_path / "b")
    assert bundle == Bundle({}, record)
    assert json.dumps(bundle.record) == json.dumps(record)  # order, and int or float, which == overlooks


def test_a_tuple_is_a_list_afterwards(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", {}, {"betas": (0.9, 0.99)})
    assert read_bundle(tmp_path / "b").record == {"betas": [0.9, 0.99]}


def test_the_same_contents_give_the_same_bytes(tmp_path: Path) -> None:
    tensors = {f"t{i}": torch.randn(i + 1) for i in range(20)}
    for name in ("one", "two"):
        write_bundle(tmp_path / name, tensors, {"b": 1, "a": 2})
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_device_is_the_one_asked_for(tmp_path: Path) -> None:
    save_some(tmp_path / "b")
    assert {t.device.type for t in read_bundle(tmp_path / "b").tensors.values()} == {"cpu"}
    assert {t.device.type for t in read_bundle(tmp_path / "b", device="meta").tensors.values()} == {"meta"}
    with pytest.raises(SettingError, match="device = 'nonsense'") as fault:
        read_bundle(tmp_path / "b", device="nonsense")
    one_line(fault)


def test_version_1_written_by_hand_is_read(tmp_path: Path) -> None:
    """The layout on disk, spelled out: it must be read for ever, whatever happens to the code."""
    tensors = safetensors_file(
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, struct.pack("<2f", 0.25, -3.0)
    )
    record = b'{"seed": 7}'
    entries = [
        f'    "{name}": {{\n      "bytes": {len(data)},\n      "sha256": "{digest}"\n    }}'
        for name, data in (("tensors.safetensors", tensors), ("record.json", record))
        for digest in [hashlib.sha256(data).hexdigest()]
    ]
    head = '{\n  "format": "bayeswell-bundle",\n  "version": 1,\n  "files": {\n' + ",\n".join(entries) + "\n  }"
    checksum = hashlib.sha256(head.encode()).hexdigest()
    (tmp_path / "tensors.safetensors").write_bytes(tensors)
    (tmp_path / "record.json").write_bytes(record)
    (tmp_path / "manifest.json").write_text(f'{head},\n  "sha256": "{checksum}"\n}}\n', encoding="utf-8")
    bundle = read_bundle(tmp_path)
    assert bundle.record == {"seed": 7}
    assert_same(bundle.tensors, {"w": torch.tensor([0.25, -3.0])})
    reseal(tmp_path)  # and it is what is still written
    assert (tmp_path / "manifest.json").read_text(encoding="utf-8") == f'{head},\n  "sha256": "{checksum}"\n}}\n'


# ------------------------------------------------------------------------------------ what cannot be saved


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"fit": {"loss": [0.5, float("nan")]}}, "record['fit']['loss'][1] = nan"),
        ({"a": float("-inf")}, "record['a'] = -inf"),
        ({"a": {3: 1}}, "record['a'] has the key 3"),
        ({"a": {1, 2}}, "record['a'] is a set"),
        ({"a": torch.tensor(1.0)}, "record['a'] is a Tensor"),
        ({"a": b"x"}, "record['a'] is a bytes"),
        ({"a": 10**5000}, "record cannot be written"),
        ([1], "record is a list"),
    ],
)
def test_a_record_that_is_not_plain_is_refused(tmp_path: Path, record: Any, named: str) -> None:
    with pytest.raises(SettingError) as fault:
        write_bundle(tmp_path / "b", {}, record)
    assert named in one_line(fault)
    assert os.listdir(tmp_path) == []


def test_a_record_that_contains_itself_is_refused(tmp_path: Path) -> None:
    record: dict[str, Any] = {}
    record["self"] = record
    with pytest.raises(SettingError, match="contains itself") as fault:
        write_bundle(tmp_path / "b", {}, record)
    one_line(fault)


@pytest.mark.parametrize(
    ("name", "tensor", "named"),
    [
        ("w", torch.ones(2, dtype=torch.complex128), "'w' has the type torch.complex128"),
        ("w", torch.ones(2).to(torch.float8_e8m0fnu), "'w' has the type torch.float8_e8m0fnu"),
        ("w", torch.eye(2).to_sparse(), "'w' has the layout torch.sparse_coo"),
        ("w", torch.ones(2, device="meta"), "'w' is on the device 'meta'"),
        ("w", [1.0], "'w' is a list"),
        ("__metadata__", torch.ones(2), "named '__metadata__'"),
        ("\ud800", torch.ones(2), "named '\\ud800'"),
        (3, torch.ones(2), "named 3"),
    ],
)
def test_a_tensor_that_cannot_be_saved_is_refused(tmp_path: Path, name: Any, tensor: Any, named: str) -> None:
    with pytest.raises(SettingError) as fault:
        write_bundle(tmp_path / "b", {name: tensor}, {})
    assert named in one_line(fault)
    assert os.listdir(tmp_path) == []


# --------------------------------------------------------------------------- processes that die or compete


def test_a_writer_that_waits_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(folders, "WAIT_SECONDS", 0.05)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(FileError, match="another process has been writing") as fault:
            save_some(tmp_path / "b")
        one_line(fault)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        save_some(tmp_path / "b")
    finally:
        os.close(descriptor)


def test_the_manifest_stays_far_below_what_is_read_of_it(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", {f"layer.{i}": torch.ones(1) for i in range(2000)}, {"x": "y" * 100_000})
    assert (tmp_path / "b" / MANIFEST).stat().st_size < MAX_BYTES // 64
