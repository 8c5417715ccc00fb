"""Readers of file formats against arrays that are known, and files that lie about themselves."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from bayeswell.datasets import files
from bayeswell.datasets.files import gunzip, unpack
from bayeswell.datasets.formats import read_idx, read_npz, read_numbers, read_records
from bayeswell.errors import FileError

Pack = Callable[[Mapping[str, bytes]], bytes]


def one_line(caught: pytest.ExceptionInfo[FileError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_idx_gives_back_the_array(idx: Callable[[np.ndarray], bytes]) -> None:
    array = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)
    np.testing.assert_array_equal(read_idx(idx(array), "a"), array)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x00\x00\x0d\x01" + struct.pack(">I", 0), "not an idx file of bytes"),
        (b"\x00\x00\x08\x03\x00\x00", "ends inside its header"),
        (b"\x00\x00\x08\x01" + struct.pack(">I", 4) + b"abc", "says 4 bytes, but 3 follow"),
        (b"\x00\x00\x08\x03" + struct.pack(">3I", *(2**32 - 1,) * 3) + b"abc", "but 3 follow"),
        (b"", "not an idx file"),
    ],
)
def test_idx_that_lies_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(FileError, match=words):
        read_idx(gzip.compress(content), "some.gz")


def test_gzip_cut_short_flipped_or_followed_by_more_is_refused() -> None:
    whole = gzip.compress(bytes(range(256)) * 40)
    assert gunzip(whole, "a.gz") == bytes(range(256)) * 40
    with pytest.raises(FileError, match=r"a\.gz: the gzip file is cut short"):
        gunzip(whole[:-9], "a.gz")
    with pytest.raises(FileError, match="5 bytes follow"):
        gunzip(whole + b"extra", "a.gz")
    with pytest.raises(FileError, match="not a whole gzip"):
        gunzip(b"no gzip at all", "a.gz")


def test_gzip_bomb_is_refused_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FREE_BYTES", 1000)
    bomb = gzip.compress(bytes(1_000_000))
    with pytest.raises(FileError, match="unpacks to more than"):
        gunzip(bomb, "a.gz")
    exactly = gzip.compress(np.random.default_rng(0).bytes(1000))
    assert len(gunzip(exactly, "a.gz", most_bytes=1000)) == 1000


def test_cifar_records_put_the_red_plane_first() -> None:
    record = bytes([7]) + bytes([10]) * 1024 + bytes([20]) * 1024 + bytes(range(256)) * 4
    images, labels = read_records(record * 2, "a.bin", labels=1)
    assert labels.tolist() == [[7], [7]]
    assert images[1, 0].min() == images[1, 0].max() == 10
    assert images[1, 1].min() == images[1, 1].max() == 20
    assert images[1, 2, 0].tolist() == list(range(32))
    assert images[1, 2, 1].tolist() == list(range(32, 64))
    with pytest.raises(FileError, match="not a whole number of records of 3073 bytes"):
        read_records(record[:-1], "a.bin", labels=1)


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def npz_of_header(header: str, content: bytes = b"") -> bytes:
    """An npz file with one array x whose header says what we like."""
    text = header.encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content)
    return buffer.getvalue()


def test_npz_gives_back_numbers_texts_and_either_order() -> None:
    x = np.random.default_rng(1).normal(size=(3, 4))
    found = read_npz(npz(x=x, y=np.array(["a", "bc"]), z=np.asfortranarray(x), none=np.empty((0, 2))), "a.npz")
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["z"], x)
    assert found["y"].tolist() == ["a", "bc"]
    assert found["none"].shape == (0, 2)


class Canary:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_object_array_is_refused_and_its_code_does_not_run(tmp_path: Path) -> None:
    canary = tmp_path / "ran"
    assert pickle.loads(pickle.dumps(Canary(canary))) is None
    assert canary.exists(), "the bait must work, or the test shows nothing"
    canary.unlink()
    bait = npz(x=np.array([Canary(canary)], dtype=object))
    with pytest.raises(FileError, match="array 'x' has dtype object") as caught:
        read_npz(bait, "a.npz")
    assert not canary.exists()
    one_line(caught)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }", r"claims shape \(1000000000000,\)"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -2), }", "claims shape"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': __import__('os'), }", "no readable header"),
        ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,), }", "dtype"),
        ("nothing", "no readable header"),
    ],
)
def test_npz_header_that_lies_is_refused_before_memory_is_taken(header: str, words: str) -> None:
    with pytest.raises(FileError, match=words) as caught:
        read_npz(npz_of_header(header, bytes(16)), "a.npz")
    one_line(caught)


def test_npz_bomb_and_broken_zip_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayeswell.datasets.formats.FREE_BYTES", 1000)
    with pytest.raises(FileError, match="unpacks to 8,000,1"):
        read_npz(npz(x=np.zeros(1_000_000)), "a.npz")
    with pytest.raises(FileError, match="not a whole npz file"):
        read_npz(npz(x=np.arange(20.0))[:-30], "a.npz")
    flipped = bytearray(npz(x=np.random.default_rng(0).normal(size=50)))
    flipped[200] ^= 1
    with pytest.raises(FileError, match=r"a\.npz"):
        read_npz(bytes(flipped), "a.npz")


def test_rows_of_numbers_name_the_row_that_is_wrong() -> None:
    np.testing.assert_array_equal(read_numbers(b"1 2.5\n\n -3\t4e1 \n", "a"), [[1, 2.5], [-3, 40]])
    for text, words in [
        (b"1 2\n3\n", "row 2 has 1 columns"),
        (b"1\nx\n", "row 2"),
        (b"1\nnan\n", "row 2 .* not finite"),
    ]:
        with pytest.raises(FileError, match=words):
            read_numbers(text, "a.txt")


def tar_with(member: tarfile.TarInfo, content: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        good = tarfile.TarInfo("good.txt")
        good.size = 4
        tar.addfile(good, io.BytesIO(b"good"))
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def kind(name: str, type_: bytes, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = type_, link
    return member


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../evil.txt"),
        tarfile.TarInfo("in/../../evil.txt"),
        tarfile.TarInfo("in/../inside.txt"),
        tarfile.TarInfo("/evil.txt"),
        tarfile.TarInfo("..\\evil.txt"),
        kind("link", tarfile.SYMTYPE, "../outside"),
        kind("hard", tarfile.LNKTYPE, "good.txt"),
        kind("device", tarfile.CHRTYPE),
        kind("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda member: member.name,
)
def test_archive_that_reaches_outside_is_refused_whole(member: tarfile.TarInfo, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(tar_with(member))
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(FileError, match="refused") as caught:
        unpack(tmp_path / "a.tar.gz", target)
    one_line(caught)
    assert list(target.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "target"]


def test_archive_does_not_follow_a_link_that_lies_in_the_folder(tmp_path: Path, tar_gz: Pack) -> None:
    (tmp_path / "a.tar.gz").write_bytes(tar_gz({"door/evil.txt": b"x"}))
    (tmp_path / "outside").mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "door").symlink_to(tmp_path / "outside")
    with pytest.raises(FileError, match="leads out of the folder"):
        unpack(tmp_path / "a.tar.gz", target)
    assert list((tmp_path / "outside").iterdir()) == []


def test_archive_unpacks_files_and_refuses_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tar_gz: Pack) -> None:
    (tmp_path / "a.tar.gz").write_bytes(tar_gz({"deep/in/it.txt": b"hello"}))
    unpack(tmp_path / "a.tar.gz", tmp_path / "target")
    assert (tmp_path / "target/deep/in/it.txt").read_bytes() == b"hello"
    monkeypatch.setattr(files, "FREE_BYTES", 1000)
    (tmp_path / "bomb.tar.gz").write_bytes(tar_gz({"zeros": bytes(5_000_000)}))
    with pytest.raises(FileError, match="unpacks to more than"):
        unpack(tmp_path / "bomb.tar.gz", tmp_path / "other")
    assert not (tmp_path / "other").exists()
    (tmp_path / "cut.tar.gz").write_bytes(tar_gz({"a": np.random.default_rng(0).bytes(50_000)})[:9000])
    with pytest.raises(FileError, match="cannot be unpacked"):
        unpack(tmp_path / "cut.tar.gz", tmp_path / "third")
