"""A bundle that was damaged or forged is refused with one clear line, before memory is taken or code could run."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bayeswell.errors import FileError
from bayeswell.persistence import bundle as bundle_module
from bayeswell.persistence import read_bundle
from bayeswell.persistence.manifest import FILES, MANIFEST, RECORD, TENSORS, open_seal
from persistence.bundles import assert_some, one_line, refused, reseal, safetensors_file, save_some


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
