"""A bundle comes back bit by bit, or not at all and with one clear line; a crash never costs the old one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import random
import resource
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bayeswell.persistence
from bayeswell.errors import FileError, SettingError
from bayeswell.persistence import Bundle, folders, read_bundle, write_bundle
from bayeswell.persistence import bundle as bundle_module
from bayeswell.persistence.manifest import FILES, MANIFEST, MAX_BYTES, RECORD, TENSORS, open_seal, seal

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


# ------------------------------------------------------------------------------------------------ damage


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


def test_no_flipped_bit_and_no_cut_is_read_silently(tmp_path: Path) -> None:
    path = tmp_path / "b"
    save_some(path)
    chance = random.Random(8)
    for case in range(400):
        file = path / FILES[case % 3]
        whole = file.read_bytes()
        if case < 300:
            place = chance.randrange(len(whole))
            damaged = bytearray(whole)
            damaged[place] ^= 1 << chance.randrange(8)
        else:
            place = chance.randrange(len(whole)) if case >= 303 else 0
            damaged = bytearray(whole[:place])
        file.write_bytes(damaged)
        assert refused(path), f"{file.name}: {'bit flipped' if case < 300 else 'cut'} at byte {place}"
        file.write_bytes(whole)
    assert_some(path, 0.37)


def test_no_bit_of_the_manifest_may_flip(tmp_path: Path) -> None:
    save_some(tmp_path / "b")
    whole = (tmp_path / "b" / MANIFEST).read_bytes()
    assert set(open_seal(whole)) == {TENSORS, RECORD}
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            with pytest.raises(ValueError, match="altered"):
                open_seal(bytes(damaged))
        with pytest.raises(ValueError, match="cut short"):
            open_seal(whole[:place])


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_longer_or_from_another_bundle_is_named(tmp_path: Path, name: str) -> None:
    save_some(tmp_path / "another", 0.38)
    for damage in ("missing", "longer", "other"):
        path = tmp_path / damage
        save_some(path)
        if damage == "missing":
            (path / name).unlink()
        elif damage == "longer":
            (path / name).write_bytes((path / name).read_bytes() + b"\n")
        else:
            (path / name).write_bytes((tmp_path / "another" / name).read_bytes())
        with pytest.raises(FileError) as fault:
            read_bundle(path)
        assert "save it again" in one_line(fault)
        # If the manifest is another bundle's, it is the first file it disowns that is named.
        assert (name if (name, damage) != (MANIFEST, "other") else TENSORS) in str(fault.value)


def test_nothing_is_parsed_before_it_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b"
    parsed: list[str] = []
    for parser in ("decode_record", "decode_tensors"):
        real: Callable[[bytes], Any] = getattr(bundle_module, parser)

        def spy(data: bytes, real: Callable[[bytes], Any] = real, parser: str = parser) -> Any:
            parsed.append(parser)
            return real(data)

        monkeypatch.setattr(bundle_module, parser, spy)
    for name in (TENSORS, RECORD):
        save_some(path)
        whole = (path / name).read_bytes()
        (path / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert refused(path)
    assert parsed == []
    save_some(path)
    read_bundle(path)
    assert parsed == ["decode_record", "decode_tensors"]


@pytest.mark.parametrize(
    ("record", "named"),
    [
        (b"[1, 2]", "not an object"),
        (b"null", "not an object"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": [-Infinity]}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not plain JSON"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b'{"a": 1', "not plain JSON"),
        (b"\xff\xfe", "not plain JSON"),
        (b"", "not plain JSON"),
    ],
)
def test_a_forged_record_is_refused(tmp_path: Path, record: bytes, named: str) -> None:
    save_some(tmp_path / "b")
    reseal(tmp_path / "b", record=record)
    with pytest.raises(FileError) as fault:
        read_bundle(tmp_path / "b")
    assert RECORD in one_line(fault)
    assert named in str(fault.value)


@pytest.mark.parametrize(
    "tensors",
    [
        struct.pack("<Q", 2**60) + b"{}",
        struct.pack("<Q", 2**63 + 2) + b"{}",
        safetensors_file({"w": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}, bytes(4)),
        safetensors_file({"w": {"dtype": "F32", "shape": [2**28], "data_offsets": [0, 2**30]}}, bytes(4)),
        safetensors_file({"w": {"dtype": "F32", "shape": [2**28], "data_offsets": [0, 4]}}, bytes(4)),
        safetensors_file({"w": {"dtype": "F32", "shape": [0, 2**62, 8], "data_offsets": [0, 0]}}),
        safetensors_file({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
        safetensors_file({"w": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}, bytes(3)),
        safetensors_file(b"[" * 100_000),
        safetensors_file(b" " * 1000),
        b"",
    ],
)
def test_a_forged_header_is_refused_before_memory_is_taken(tmp_path: Path, tensors: bytes) -> None:
    save_some(tmp_path / "b")
    reseal(tmp_path / "b", tensors=tensors)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileError, match="not a readable safetensors file") as fault:
        read_bundle(tmp_path / "b")
    assert TENSORS in one_line(fault)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_random_damage_under_a_fitting_checksum_raises_nothing_but_file_error(tmp_path: Path) -> None:
    path = tmp_path / "b"
    save_some(path)
    whole = {name: (path / name).read_bytes() for name in (TENSORS, RECORD)}
    header = 8 + struct.unpack("<Q", whole[TENSORS][:8])[0]
    chance = random.Random(5)
    read = 0
    for _ in range(200):
        tensors, record = bytearray(whole[TENSORS]), bytearray(whole[RECORD])
        for _ in range(chance.randint(1, 3)):
            tensors[chance.randrange(header)] = chance.randrange(256)
            record[chance.randrange(len(record))] = chance.randrange(256)
        reseal(path, tensors=bytes(tensors), record=whole[RECORD] if chance.random() < 0.5 else bytes(record))
        read += not refused(path)
    assert 0 < read < 200  # some damage, as to a name, is well-formed: the checks were reached


def test_a_huge_file_is_refused_by_its_size_alone(tmp_path: Path) -> None:
    for name in FILES:
        path = tmp_path / name
        save_some(path)
        os.truncate(path / name, 2**40)  # sparse: takes no room on disk, but would in memory
        start = time.monotonic()
        assert refused(path)
        assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"version": 2}, "format version 2, and this bayeswell reads 1"),
        ({"version": None}, "format version None"),
        ({"format": "zip"}, "format 'zip'"),
        ({"files": {}}, "must list"),
        ({"files": {TENSORS: {}, RECORD: {}, "../x": {}}}, "must list"),
        ({"files": {TENSORS: 3, RECORD: {}}}, "has no size"),
        ({"files": {TENSORS: {"bytes": True, "sha256": ""}, RECORD: {}}}, "has no size"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(tmp_path: Path, changes: Any, named: str) -> None:
    save_some(tmp_path / "b")
    manifest = json.loads((tmp_path / "b" / MANIFEST).read_bytes())
    del manifest["sha256"]
    head = json.dumps(manifest | changes, indent=2)[:-2]
    checksum = hashlib.sha256(head.encode()).hexdigest()
    (tmp_path / "b" / MANIFEST).write_text(f'{head},\n  "sha256": "{checksum}"\n}}\n', encoding="utf-8")
    with pytest.raises(FileError) as fault:
        read_bundle(tmp_path / "b")
    assert named in one_line(fault)
    assert MANIFEST in str(fault.value)


class Payload:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.canary),)


def test_a_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    torch.save(Payload(canary), tmp_path / "torch.pt")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Payload(canary)))
    subprocess.run([sys.executable, "-m", "pickle", str(tmp_path / "plain.pkl")], capture_output=True, check=True)
    assert canary.exists()  # the payload works where it is let
    canary.rmdir()
    for file in ("torch.pt", "plain.pkl"):
        payload = (tmp_path / file).read_bytes()
        for place in ("tensors", "record"):
            save_some(tmp_path / "b")
            reseal(tmp_path / "b", **{place: payload})
            assert refused(tmp_path / "b")
        save_some(tmp_path / "c")
        (tmp_path / "c" / MANIFEST).write_bytes(payload)
        assert refused(tmp_path / "c")
        with pytest.raises(FileError, match="is a file"):
            read_bundle(tmp_path / file)
        for name in FILES:
            (tmp_path / "c" / name).unlink()
        (tmp_path / "c").rmdir()
    assert not canary.exists()


def test_what_is_not_a_bundle_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    cases = {
        "absent": "there is no bundle",
        "absent/deeper": "there is no bundle",
        "file/deeper": "there is no bundle",
        "empty": f"{MANIFEST}: it is missing",
        "file": "is a file",
        "nul\0": "cannot be used",
        "x" * 5000: "check the path",
    }
    for name, named in cases.items():
        with pytest.raises(FileError) as fault:
            read_bundle(os.path.join(tmp_path, name))
        assert named in one_line(fault)
        assert len(str(fault.value)) < 600


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    save_some(tmp_path / "b")
    (tmp_path / "b" / name).unlink()
    os.mkfifo(tmp_path / "b" / name)
    assert refused(tmp_path / "b")


# --------------------------------------------------------------------------------------------- replacing


def test_what_is_not_a_bundle_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"dear")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("dear", encoding="utf-8")
    save_some(tmp_path / "extra")
    (tmp_path / "extra" / "notes.txt").write_text("dear", encoding="utf-8")
    (tmp_path / "namesake").mkdir()
    for name in FILES:
        (tmp_path / "namesake" / name).write_text('{"format": "another"}', encoding="utf-8")

    def everything() -> dict[str, bytes | None]:
        return {str(p): p.read_bytes() if p.is_file() else None for p in tmp_path.rglob("*")}

    before = everything()
    for name in ("file", "empty", "folder", "extra", "namesake"):
        with pytest.raises(FileError, match="move it or choose another path") as fault:
            save_some(tmp_path / name)
        one_line(fault)
    assert everything() == before
    assert_some(tmp_path / "extra", 0.37)


def test_a_bundle_whole_or_damaged_is_replaced(tmp_path: Path) -> None:
    save_some(tmp_path / "b", 0.1)
    save_some(tmp_path / "b", 0.2)
    assert_some(tmp_path / "b", 0.2)
    (tmp_path / "b" / TENSORS).unlink()
    (tmp_path / "b" / MANIFEST).write_bytes((tmp_path / "b" / MANIFEST).read_bytes()[:-9])
    assert refused(tmp_path / "b")
    save_some(tmp_path / "b", 0.3)
    assert_some(tmp_path / "b", 0.3)
    assert os.listdir(tmp_path) == ["b"]
    assert sorted(os.listdir(tmp_path / "b")) == sorted(FILES)


def test_a_link_stands_for_its_bundle(tmp_path: Path) -> None:
    save_some(tmp_path / "step-5", 0.1)
    (tmp_path / "latest").symlink_to("step-5")
    assert_some(tmp_path / "latest", 0.1)
    save_some(tmp_path / "latest", 0.2)
    assert_some(tmp_path / "step-5", 0.2)
    assert (tmp_path / "latest").is_symlink()


def test_relative_paths_and_text_paths_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_bundle("b", some_tensors(), {"value": 0.37})
    assert_some(Path("b"), 0.37)


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        save_some(tmp_path / "b")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o750
    assert {stat.S_IMODE((tmp_path / "b" / name).stat().st_mode) for name in FILES} == {0o640}


def test_leftovers_of_a_crash_are_ignored_and_cleaned_by_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "run.1"
    save_some(path, 0.1)
    half = tmp_path / ".run.1.bayeswell-tmp-0123456789abcdef"
    half.mkdir()
    (half / TENSORS).write_bytes(b"half")
    kept = [".run.2.bayeswell-tmp-0123456789abcdef", ".run.1.bayeswell-tmp-mine", ".runx1.bayeswell-old"]
    for name in kept:  # another bundle's, or not of our making
        (tmp_path / name).mkdir()
    assert_some(path, 0.1)
    assert half.exists()  # reading changes nothing
    save_some(path, 0.2)
    assert_some(path, 0.2)
    assert sorted(os.listdir(tmp_path)) == sorted(["run.1", *kept])


def test_an_old_bundle_that_a_crash_left_aside_is_read_and_put_back(tmp_path: Path) -> None:
    path = tmp_path / "b"
    save_some(path, 0.1)
    path.rename(tmp_path / ".b.bayeswell-old")
    assert_some(path, 0.1)
    assert not path.exists()
    with pytest.MonkeyPatch.context() as patch:  # the next write fails as well
        patch.setattr(os, "mkdir", lambda *_: os.open(tmp_path / "absent", os.O_RDONLY))
        with pytest.raises(FileError):
            save_some(path, 0.2)
    assert_some(path, 0.1)
    save_some(path, 0.2)
    assert_some(path, 0.2)
    assert os.listdir(tmp_path) == ["b"]


def test_an_old_bundle_left_aside_is_not_read_while_a_newer_one_is_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "b"
    save_some(path, 0.1)
    path.rename(tmp_path / "keep")
    save_some(path, 0.2)
    (tmp_path / "keep").rename(tmp_path / ".b.bayeswell-old")
    assert_some(path, 0.2)
    (path / RECORD).unlink()
    assert refused(path)
    save_some(path, 0.3)
    assert os.listdir(tmp_path) == ["b"]


# ------------------------------------------------------------------------------------- faults of the disk

STEPS = ("mkdir", "open", "fsync", "rename", "unlink", "rmdir", "listdir")


def break_disk(patch: pytest.MonkeyPatch, at: int, lasting: bool) -> list[str]:
    """Let the call number ``at`` to the disk fail, alone or with all after it; returns the log of calls."""
    calls: list[str] = []

    def breakable(step: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(step)
            if len(calls) > at and (lasting or len(calls) == at + 1):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **kwargs)

        return call

    for step in STEPS:
        patch.setattr(os, step, breakable(step, getattr(os, step)))
    patch.setattr(folders, "open", breakable("open a file", open), raising=False)
    return calls


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("replaces", [True, False], ids=["replaces", "first"])
def test_a_fault_at_any_step_leaves_the_old_bundle_or_the_new(tmp_path: Path, replaces: bool, lasting: bool) -> None:
    failures = 0
    for at in range(100):
        parent = tmp_path / str(at)
        parent.mkdir()
        path = parent / "b"
        if replaces:
            save_some(path, 0.1)
        line = ""
        with pytest.MonkeyPatch.context() as patch:
            calls = break_disk(patch, at, lasting)
            try:
                save_some(path, 0.2)
            except FileError as error:
                line = str(error)
        if len(calls) <= at:
            break
        if not line:
            assert_some(path, 0.2)
        else:
            failures += 1
            assert "\n" not in line
            assert f"{os.strerror(errno.ENOSPC)}; " in line
            assert line.endswith("free some space or choose another disk")
        if line and not lasting:  # undone in full
            assert os.listdir(parent) == ["b"] * replaces
            if replaces:
                assert_some(path, 0.1)
        elif replaces:
            assert_some(path, read_bundle(path).record["value"])
            assert read_bundle(path).record["value"] in (0.1, 0.2)
        save_some(path, 0.3)
        assert_some(path, 0.3)
        assert os.listdir(parent) == ["b"]
    else:
        pytest.fail("the write never got through")
    assert failures >= (12 if replaces else 10)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EACCES, "choose a folder that you may write to"),
        (errno.EROFS, "choose a folder that you may write to"),
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EIO, "try again"),
    ],
)
@pytest.mark.parametrize("step", ["mkdir", "fsync", "rename"])
def test_a_disk_that_refuses_is_reported_with_the_remedy(tmp_path: Path, code: int, remedy: str, step: str) -> None:
    path = tmp_path / "b"
    save_some(path, 0.1)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, step, refuse)
        with pytest.raises(FileError) as fault:
            save_some(path, 0.2)
        with pytest.raises(FileError, match="nothing was saved"):
            save_some(tmp_path / "first", 0.2)
    assert os.strerror(code) in one_line(fault)
    assert remedy in str(fault.value)
    assert "can still be read" in str(fault.value)
    assert isinstance(fault.value.__cause__, OSError)
    assert_some(path, 0.1)
    assert os.listdir(tmp_path) == ["b"]


def test_everything_is_on_disk_before_it_takes_the_place(tmp_path: Path) -> None:
    """Without the order file, folder, rename, parent a power cut may leave a bundle of empty files."""
    path = tmp_path / "b"
    save_some(path, 0.1)
    log: list[tuple[str, int]] = []
    fsync, rename, unlink = os.fsync, os.rename, os.unlink

    def logged_fsync(descriptor: int) -> None:
        fsync(descriptor)
        log.append(("sync", os.fstat(descriptor).st_ino))

    def logged_rename(old: Path, new: Path) -> None:
        log.append(("rename", os.stat(old).st_ino))
        rename(old, new)

    def logged_unlink(name: Path) -> None:
        log.append(("unlink", os.stat(name).st_ino))
        unlink(name)

    before = [path.stat().st_ino, *((path / name).stat().st_ino for name in FILES)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", logged_fsync)
        patch.setattr(os, "rename", logged_rename)
        patch.setattr(os, "unlink", logged_unlink)
        save_some(path, 0.2)
    synced = [("sync", (path / name).stat().st_ino) for name in FILES]
    swapped = [("rename", before[0]), ("rename", path.stat().st_ino), ("sync", tmp_path.stat().st_ino)]
    removed = [("rename", before[0]), *(("unlink", inode) for inode in before[1:])]
    assert log == [*synced, ("sync", path.stat().st_ino), *swapped, *removed]


def test_a_file_that_can_only_be_written_in_part_is_undone(tmp_path: Path) -> None:
    """A real fault of the system in the middle of a file: no file of this process may exceed 4096 bytes."""
    path = tmp_path / "b"
    save_some(path, 0.1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(FileError, match="cannot save the bundle") as fault:
            write_bundle(path, {"w": torch.zeros(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.strerror(errno.EFBIG) in one_line(fault)
    assert_some(path, 0.1)
    assert os.listdir(tmp_path) == ["b"]


def test_an_interrupt_while_writing_is_undone_and_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "b"
    save_some(path, 0.1)
    for at in range(8):
        with pytest.MonkeyPatch.context() as patch:
            seen = 0
            real = os.fsync

            def fsync(descriptor: int, at: int = at, real: Callable[[int], None] = real) -> None:
                nonlocal seen
                seen += 1
                if seen == at + 1:
                    raise KeyboardInterrupt
                real(descriptor)

            patch.setattr(os, "fsync", fsync)
            try:
                save_some(path, 0.2)
            except KeyboardInterrupt:
                assert_some(path, 0.1)
                assert os.listdir(tmp_path) == ["b"]
            else:
                break
    assert at == 5  # three files, the new folder, the parent
    assert_some(path, 0.2)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("absent/b", "make the folder that is to hold it first"),
        ("file/b", "the path leads through a file"),
        ("x" * 300, "choose a shorter name"),
        ("x" * 250, "choose a shorter name"),
        ("nul\0", "cannot be used"),
        ("y/" * 2500, "check"),
    ],
)
def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path, name: str, named: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(FileError) as fault:
        save_some(Path(os.path.join(tmp_path, name)))
    assert one_line(fault)
    assert named == "check" or named in str(fault.value)
    assert os.listdir(tmp_path) == ["file"]


# --------------------------------------------------------------------------- processes that die or compete

HARNESS = """
import json, os, random, signal, sys, time
import torch
from bayeswell.errors import FileError
from bayeswell.persistence import read_bundle, write_bundle

torch.set_num_threads(1)
folder = sys.argv[1]
path = os.path.join(folder, "b")


def save(value):
    write_bundle(path, {"w": torch.full((20_000,), float(value))}, {"value": value})


def value():
    bundle = read_bundle(path)
    assert bool((bundle.tensors["w"] == bundle.record["value"]).all()) and len(bundle.tensors["w"]) == 20_000
    return bundle.record["value"]


def fork(work):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def outcome(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

"""


def run_harness(folder: Path, script: str) -> Any:
    source = Path(bayeswell.persistence.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", HARNESS + script, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kill_9_before_every_step_leaves_the_old_bundle_or_the_new(tmp_path: Path) -> None:
    report = run_harness(
        tmp_path,
        """
def doomed(at, new):
    calls = 0
    for step in ("mkdir", "fsync", "rename", "unlink", "rmdir"):
        def wrapped(*args, real=getattr(os, step), **kwargs):
            nonlocal calls
            calls += 1
            if calls > at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)
        setattr(os, step, wrapped)
    save(new)


seen = []
save(0)
for at in range(100):
    old, new = 2 * at, 2 * at + 1
    status = outcome(fork(lambda: doomed(at, new)))
    gap = not os.path.exists(path)
    found = value()
    save(2 * at + 2)
    assert value() == 2 * at + 2
    assert os.listdir(folder) == ["b"], os.listdir(folder)
    if status == 0:
        break
    assert status == -signal.SIGKILL
    seen.append("gap" if gap and found == old else {old: "old", new: "new"}[found])
print(json.dumps(seen))
""",
    )
    # Old: mkdir, three files, their folder, a rename. Gap: the other rename. New: the old one is removed.
    assert report == ["old"] * 6 + ["gap"] + ["new"] * 6


def test_kill_9_at_random_moments_leaves_a_whole_bundle(tmp_path: Path) -> None:
    report = run_harness(
        tmp_path,
        """
def forever(start):
    while True:
        start += 1
        save(start)


chance = random.Random(3)
save(0)
last, amid = 0, 0
for _ in range(40):
    child = fork(lambda: forever(last))
    time.sleep(chance.uniform(0.005, 0.05))
    os.kill(child, signal.SIGKILL)
    outcome(child)
    amid += os.listdir(folder) != ["b"]
    found = value()
    assert found >= last, (found, last)
    last = found
save(-1)
assert os.listdir(folder) == ["b"]
print(json.dumps([last, amid]))
""",
    )
    written, amid = report
    assert written > 0
    assert amid > 0  # kills that fell into a write, and not between two


def test_readers_and_writers_at_the_same_time_see_whole_bundles(tmp_path: Path) -> None:
    report = run_harness(
        tmp_path,
        """
def write(sign):
    end = time.monotonic() + 2
    count = 0
    while time.monotonic() < end:
        count += 1
        save(sign * count)


save(0)
writers = [fork(lambda sign=sign: write(sign)) for sign in (1, -1)]
end = time.monotonic() + 1.9
found = []
while time.monotonic() < end:
    found.append(value())
statuses = [outcome(writer) for writer in writers]
assert statuses == [0, 0], statuses
assert os.listdir(folder) == ["b"]
print(json.dumps([len(found), len(set(found))]))
""",
    )
    reads, different = report
    assert reads > 5
    assert different > 2  # readers and writers did meet


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
