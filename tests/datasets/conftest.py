"""Small files of our own in place of the published ones, and where the published ones may lie."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from bayeswell.datasets import DATASETS
from bayeswell.datasets.files import DataFile, Release

_NAMED = os.environ.get("BAYESWELL_DATA")
_NEXT_TO_THE_PROJECT = Path(__file__).parents[2].parent / "shared" / "data"

Publish = Callable[[str, Mapping[str, bytes]], Path]


@pytest.fixture(autouse=True)
def nothing_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reaches the network or the user's own cache."""
    monkeypatch.setenv("BAYESWELL_OFFLINE", "1")
    monkeypatch.setenv("BAYESWELL_DATA", str(tmp_path / "none"))


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Write files and let a data set expect exactly them, checksums included; returns the data folder."""

    def write(name: str, contents: Mapping[str, bytes]) -> Path:
        folder = tmp_path / "data"
        files = []
        for path, content in contents.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
            files.append(DataFile(path, hashlib.sha256(content).hexdigest()))
        monkeypatch.setattr(DATASETS[name], "releases", (Release(tuple(files)),))
        return folder

    return write


@pytest.fixture
def real_files() -> Callable[[str], str]:
    """The folders of published files, for a set that is there; else the test is skipped."""

    def find(name: str) -> str:
        folders = _NAMED or str(_NEXT_TO_THE_PROJECT)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BAYESWELL_DATA", folders)
            from bayeswell.datasets import data_status

            if data_status(name) != "present":
                pytest.skip(f"the files of {name} are not in BAYESWELL_DATA")
        return folders

    return find


@pytest.fixture
def idx() -> Callable[[np.ndarray], bytes]:
    """Makes an array of bytes a gzipped idx file."""

    def pack(array: np.ndarray) -> bytes:
        header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        return gzip.compress(header + array.astype(np.uint8).tobytes())

    return pack


@pytest.fixture
def tar_gz() -> Callable[[Mapping[str, bytes]], bytes]:
    """Packs files into a tar.gz."""

    def pack(contents: Mapping[str, bytes]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in contents.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return buffer.getvalue()

    return pack
