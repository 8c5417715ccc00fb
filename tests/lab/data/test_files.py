"""Folders of data, and downloads of missing files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from bayeswell.core.errors import FileError
from bayeswell.lab.data.files import DataFile, data_folders, obtain, read_members

CONTENT = b"one file"
FILE = DataFile("set/file.bin", "https://example.org/file.bin", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BAYESWELL_DATA", raising=False)
    monkeypatch.delenv("BAYESWELL_OFFLINE", raising=False)


def test_folders_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESWELL_DATA", os.pathsep.join(["/one", "/two"]))
    assert data_folders("/own") == [Path("/own"), Path("/one"), Path("/two"), tmp_path / "cache/bayeswell"]


def test_a_file_in_a_later_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data/set").mkdir(parents=True)
    (tmp_path / "data/set/file.bin").write_bytes(CONTENT)
    monkeypatch.setenv("BAYESWELL_DATA", os.pathsep.join([str(tmp_path / "empty"), str(tmp_path / "data")]))
    assert obtain("set", FILE) == CONTENT


def test_a_missing_file_is_downloaded_with_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> None:
        assert (url, known_hash) == (FILE.url, f"sha256:{FILE.sha256}")
        path.mkdir(parents=True)
        (path / fname).write_bytes(CONTENT)

    monkeypatch.setattr("pooch.retrieve", retrieve)
    assert obtain("set", FILE) == CONTENT
    assert (tmp_path / "cache/bayeswell/set/file.bin").read_bytes() == CONTENT


def test_missing_files_say_where_to_put_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def retrieve(*args: Any, **settings: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("pooch.retrieve", retrieve)
    with pytest.raises(FileError, match=r"no network\); put set/file.bin into .*cache/bayeswell"):
        obtain("set", FILE)
    with pytest.raises(FileError, match="no origin is known"):
        obtain("set", DataFile("set/file.bin"))
    monkeypatch.setenv("BAYESWELL_OFFLINE", "1")
    with pytest.raises(FileError, match="BAYESWELL_OFFLINE forbids"):
        obtain("set", FILE)


def test_a_broken_archive_is_refused() -> None:
    with pytest.raises(FileError, match="not a whole tar archive"):
        read_members(b"abc", "file", bool)
