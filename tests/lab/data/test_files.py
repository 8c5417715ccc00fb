"""Folders of data, and downloads of missing files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from bayeswell.core.errors import FileError
from bayeswell.lab.data.files import SHA256, data_folders, find_file, read_members
from lab.data.published import tar, write

CONTENT = b"one file"
PATH = "set/file.bin"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BAYESWELL_DATA", raising=False)
    monkeypatch.delenv("BAYESWELL_DATA_URL", raising=False)


def test_folders_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESWELL_DATA", os.pathsep.join(["/one", "/two"]))
    assert data_folders("/own") == [Path("/own"), Path("/one"), Path("/two"), tmp_path / "cache/bayeswell"]


def test_a_file_in_a_later_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "data" / PATH, CONTENT)
    monkeypatch.setenv("BAYESWELL_DATA", os.pathsep.join([str(tmp_path / "empty"), str(tmp_path / "data")]))
    assert find_file(PATH) == tmp_path / "data" / PATH


def test_a_missing_file_is_downloaded_with_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    monkeypatch.setitem(SHA256, PATH, digest)
    monkeypatch.setenv("BAYESWELL_DATA_URL", "https://example.org/data/")

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> None:
        assert (url, known_hash) == ("https://example.org/data/set/file.bin", f"sha256:{digest}")
        write(path / fname, CONTENT)

    monkeypatch.setattr("pooch.retrieve", retrieve)
    assert find_file(PATH).read_bytes() == CONTENT
    assert find_file(PATH) == tmp_path / "cache/bayeswell" / PATH


def test_missing_files_say_where_to_put_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        FileError, match=r"mnist/a\.gz is missing; put it at .*cache/bayeswell/mnist/a\.gz, or set BAYESWELL_DATA"
    ):
        find_file("mnist/a.gz")

    def retrieve(*args: Any, **settings: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("pooch.retrieve", retrieve)
    monkeypatch.setitem(SHA256, PATH, "")
    monkeypatch.setenv("BAYESWELL_DATA_URL", "https://example.org")
    with pytest.raises(FileError, match=r"no network\); put it at .*cache/bayeswell"):
        find_file(PATH)


def test_members_of_an_archive_or_of_its_unpacked_folder(tmp_path: Path) -> None:
    write(tmp_path / "a.tar.gz", tar({"set/x": b"1", "set/y": b"2"}))
    assert read_members("a.tar.gz", ["set/y"], str(tmp_path)) == {"set/y": b"2"}
    with pytest.raises(FileError, match=r"a\.tar\.gz does not hold set/z"):
        read_members("a.tar.gz", ["set/z"], str(tmp_path))
    write(tmp_path / "set/z", b"3")
    assert read_members("a.tar.gz", ["set/z"], str(tmp_path)) == {"set/z": b"3"}
    write(tmp_path / "b.tar.gz", b"abc")
    with pytest.raises(FileError, match="cannot be read as a tar archive"):
        read_members("b.tar.gz", ["x"], str(tmp_path))
