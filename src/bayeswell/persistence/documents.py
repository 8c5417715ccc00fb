"""Single JSON files, written whole or not at all, and logs of one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FileError
from .contents import JSON, decode_record, encode_record
from .folders import sync_folder, temporary, write_file

MAX_BYTES = 1 << 28
"""No document is longer: nothing beyond is ever read."""


def write_document(path: str | os.PathLike[str], record: Mapping[str, JSON]) -> None:
    """Write one JSON object to a file, in place of what may be there; a crash leaves the old or the new one."""
    write_whole(path, encode_record(record))


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, in place of what may be there; a crash leaves the old or the new one."""
    target = Path(path)
    new = temporary(target)
    try:
        write_file(new, data)
        os.replace(new, target)
        sync_folder(target.parent)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise _refused("write", target, error) from error


def _refused(what: str, path: str | os.PathLike[str], error: Exception) -> FileError:
    return FileError(f"cannot {what} {str(path)!r}: {getattr(error, 'strerror', None) or error}")


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a file; every fault is one line that names the file."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _refused("read", path, error) from error
    if len(data) > MAX_BYTES:
        raise FileError(f"{str(path)!r} is longer than {MAX_BYTES} bytes; it is not a document of bayeswell")
    try:
        return decode_record(data)
    except ValueError as error:
        raise FileError(f"{str(path)!r}: {error}") from error


class LineLog:
    """A file of one JSON object a line that can be cut back to where it was: ``size`` is its length in bytes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.size = 0

    def append(self, record: Mapping[str, JSON]) -> None:
        """Add one line behind the first ``size`` bytes, forced to disk; what lay behind them is dropped."""
        line = json.dumps(decode_record(encode_record(record)), allow_nan=False).encode("ascii") + b"\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
            with open(descriptor, "wb") as file:
                found = os.fstat(file.fileno()).st_size
                if found < self.size:
                    raise FileError(
                        f"{str(self.path)!r} has {found} bytes, but {self.size} were written: something else changes it"
                    )
                file.truncate(self.size)
                file.seek(self.size)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise _refused("write", self.path, error) from error
        self.size += len(line)

    def cut(self, size: int) -> None:
        """Go back to the first ``size`` bytes; they must be there."""
        found = self.path.stat().st_size if self.path.is_file() else 0
        if found < size:
            raise FileError(f"{str(self.path)!r} has {found} bytes, but {size} were written; restore it from a copy")
        if found > size:
            try:
                os.truncate(self.path, size)
            except OSError as error:
                raise _refused("write", self.path, error) from error
        self.size = size


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a log; a last line that a crash cut short is left out."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise _refused("read", path, error) from error
    records = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            records.append(decode_record(line))
        except ValueError as error:
            raise FileError(f"{str(path)!r}, line {number}: {error}") from error
    return records
