"""Small files in the formats of published data sets."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def idx(array: np.ndarray[Any, Any]) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


def write_mnist(folder: Path, name: str = "mnist", train: int = 30, test: int = 20) -> dict[str, np.ndarray[Any, Any]]:
    """Write images in the idx format and return them by "train" and "test"."""
    rng = np.random.default_rng(0)
    images = {}
    for part, prefix, count in (("train", "train", train), ("test", "t10k", test)):
        if count:
            images[part] = rng.integers(0, 256, (count, 28, 28), np.uint8)
            write(folder / name / f"{prefix}-images-idx3-ubyte.gz", idx(images[part]))
            write(folder / name / f"{prefix}-labels-idx1-ubyte.gz", idx(np.arange(count) % 10))
    return images


def tar(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()
