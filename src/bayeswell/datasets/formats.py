"""Readers of file formats: bytes in, arrays out. A header is believed only if the bytes behind it agree."""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import DataError, FileError
from .files import FREE_BYTES, MOST_BYTES, MOST_RATIO, gunzip

Array = npt.NDArray[np.generic]
Bytes = npt.NDArray[np.uint8]


_MOST_AXES = 32
"""Of an array; numpy itself ends at 64, with an error of its own."""


def read_idx(data: bytes, owner: str | Path) -> Bytes:
    """An array of bytes in the idx format of MNIST, gzipped: magic 0 0 8 d, d sizes as big-endian int32, the bytes."""
    content = gunzip(data, owner)
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise FileError(f"{owner}: not an idx file of bytes (it begins with {content[:4].hex(' ')}, not 00 00 08)")
    axes = content[3]
    if axes > _MOST_AXES:
        raise FileError(f"{owner}: the idx file claims {axes} axes; at most {_MOST_AXES} are read")
    start = 4 + 4 * axes
    if len(content) < start:
        raise FileError(f"{owner}: the idx file ends inside its header")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        claimed = " x ".join(map(str, shape))
        raise FileError(f"{owner}: the header says {claimed} bytes, but {len(content) - start:,} follow")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_records(data: bytes, owner: str | Path, *, labels: int) -> tuple[Bytes, Bytes]:
    """Images (n, 3, 32, 32) and labels (n, ``labels``) of CIFAR's binary version: each record labels, then pixels."""
    size = labels + 3 * 32 * 32
    if not data or len(data) % size:
        raise FileError(f"{owner}: {len(data):,} bytes are not a whole number of records of {size} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, size)
    return records[:, labels:].reshape(-1, 3, 32, 32), records[:, :labels]


def read_npz(data: bytes, owner: str | Path) -> dict[str, Array]:
    """The arrays of an npz file: numbers and texts only, and no larger than the file can hold.

    numpy allocates what a header claims, so each header is read and compared with the size of its member first.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            limit = min(MOST_BYTES, max(FREE_BYTES, MOST_RATIO * len(data)))
            total = sum(member.file_size for member in archive.infolist())
            if total > limit:
                raise FileError(f"{owner}: unpacks to {total:,} bytes, more than {limit:,}; refused")
            for member in archive.infolist():
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    packed = f"packed by method {member.compress_type}; numpy writes it stored or deflated"
                    raise FileError(f"{owner}: array '{member.filename[:60]}' is {packed}")
            return {
                member.filename.removesuffix(".npy"): _read_npy(archive, member, owner) for member in archive.infolist()
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FileError(f"{owner}: not a whole npz file ({error})") from error


def _read_npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, owner: str | Path) -> Array:
    name = member.filename.removesuffix(".npy")
    # Never more than the directory of the zip file promised, whose sum was checked.
    content = archive.read(member)
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"npy version {version}")
        shape, fortran, dtype = readers[version](stream)
    except Exception as error:  # numpy reads the header as Python's own parser does, with all of its errors
        raise FileError(f"{owner}: array '{name}' has no readable header ({' '.join(str(error).split())})") from error
    if dtype.kind not in "biufUS":
        raise FileError(f"{owner}: array '{name}' has dtype {dtype}; only numbers and texts are read, never objects")
    if dtype.itemsize == 0 or len(shape) > _MOST_AXES:
        raise FileError(
            f"{owner}: array '{name}' has {len(shape)} axes of dtype {dtype}; it holds nothing to learn from"
        )
    claimed = math.prod(shape) * dtype.itemsize
    held = len(content) - stream.tell()
    if claimed != held or min(shape, default=0) < 0:
        raise FileError(f"{owner}: array '{name}' claims shape {shape} ({claimed:,} bytes), but holds {held:,} bytes")
    flat = np.frombuffer(content, dtype, offset=stream.tell()) if held else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def read_numbers(text: bytes, owner: str | Path) -> npt.NDArray[np.float64]:
    """Rows of numbers between blanks, as in the txt files of the UCI sets; empty lines are skipped."""
    rows: list[list[float]] = []
    for number, line in enumerate(text.decode("ascii", errors="replace").splitlines(), start=1):
        cells = line.split()
        try:
            row = [float(cell) for cell in cells]
        except ValueError as error:
            raise FileError(f"{owner}: row {number}: {error}") from error
        if not row:
            continue
        if rows and len(row) != len(rows[0]):
            raise FileError(f"{owner}: row {number} has {len(row)} columns, those before it {len(rows[0])}")
        if not all(map(math.isfinite, row)):
            raise FileError(f"{owner}: row {number} holds a number that is not finite")
        rows.append(row)
    return np.array(rows, np.float64)


def finite_number(cell: str, where: str) -> float:
    """The number in a cell of a table; anything else is refused with its place."""
    if not cell.strip():
        raise DataError(f"{where}: the cell is empty; it must hold a finite number")
    if not is_number(cell):
        raise DataError(f"{where}: '{cell.strip()[:40]}' is not a finite number")
    return float(cell)


def is_number(cell: str) -> bool:
    """Whether a cell holds a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
