"""Files that would hang a reader, exhaust it, start another program or end in a raw error: one clear line each."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import bayeswell as bw
from bayeswell.datasets.files import read_bytes
from bayeswell.datasets.formats import read_idx, read_npz
from bayeswell.datasets.own import read_picture
from bayeswell.experiments.config_parsing import read_config


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def npz(member: bytes, packing: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        archive.writestr("x.npy", member)
    return stream.getvalue()


GOOD = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", np.ones(2).tobytes())


def test_the_plain_file_is_read() -> None:
    assert read_npz(npz(GOOD, zipfile.ZIP_DEFLATED), "plain.npz")["x"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("packing", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_packings_that_numpy_never_writes_are_refused(packing: int) -> None:
    with pytest.raises(bw.FileError, match="packed by method"):
        read_npz(npz(GOOD, packing), "odd.npz")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2,",
        "{'descr': '<U0', 'fortran_order': False, 'shape': (10,), }",
        "{'descr': '|S0', 'fortran_order': False, 'shape': (10,), }",
        "(" * 3000,
        "{'descr': '<f8', 'fortran_order': False, 'shape': " + str((1,) * 70) + ", }",
        "\x00\x00'''",
        "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }",
    ],
)
def test_headers_of_any_kind_end_in_one_line(header: str) -> None:
    with pytest.raises(bw.FileError, match=r"odd\.npz: array 'x'") as caught:
        read_npz(npz(npy(header)), "odd.npz")
    assert "\n" not in str(caught.value)


def test_an_idx_file_of_many_axes_is_refused() -> None:
    content = b"\x00\x00\x08" + bytes([70]) + struct.pack(">70I", *[1] * 70) + b"\x05"
    with pytest.raises(bw.FileError, match="claims 70 axes"):
        read_idx(gzip.compress(content), "odd.idx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    pipe = tmp_path / "data.csv"
    os.mkfifo(pipe)
    with pytest.raises(bw.FileError, match="not a regular file"):
        read_bytes(pipe)
    with pytest.raises(bw.FileError, match="not a regular file"):
        read_config(pipe, ["epochs"])
    with pytest.raises(bw.FileError, match="not a regular file"):
        read_bytes(Path(os.devnull))


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "{b = " * 5000, "[" + "a." * 2000 + "a]"])
def test_settings_that_are_nested_without_end_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises((bw.FileError, bw.SettingError)) as caught:
        read_config(file, ["epochs"])
    assert "\n" not in str(caught.value)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n/x { } def\n%%EOF\n"


def test_a_picture_is_what_its_format_says_and_not_what_its_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostScript under the name of a picture would start Ghostscript."""
    marker = tmp_path / "started"
    gs = tmp_path / "bin" / "gs"
    gs.parent.mkdir()
    gs.write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
    gs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gs.parent}{os.pathsep}{os.environ['PATH']}")
    assert shutil.which("gs") == str(gs)
    picture = tmp_path / "0.png"
    picture.write_bytes(EPS)
    with pytest.raises(bw.FileError, match="not a picture that can be read"):
        read_picture(picture, 8, grey=True)
    assert not marker.exists()
