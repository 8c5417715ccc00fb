"""Single JSON files, written whole or not at all, and logs of one JSON object a line; all of them sealed (seals.py)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import BayeswellWarning, FileError, SettingError
from .contents import JSON, decode_record, encode_record
from .folders import leftovers_of, open_regular, sync_folder, temporary, write_file
from .seals import (
    KEY,
    SEAL,
    NotSealed,
    check_seal,
    first_link,
    is_torn,
    looks_sealed,
    next_link,
    seal_document,
    sealed_line,
    signing_key,
    split_line,
)  # fmt: skip

MAX_BYTES = 1 << 28
"""No document is longer: nothing beyond is ever read."""

_LEFT_SECONDS = 600.0
"""A temporary file that is older is not being written any more."""

_RESTORE = "restore it from a copy"


def write_document(path: str | os.PathLike[str], record: Mapping[str, JSON]) -> None:
    """Write one JSON object to a file, sealed, in place of what may be there; a crash leaves the old or the new one."""
    if SEAL in record:
        raise SettingError(f"a document has the key {SEAL!r}, which is kept for its seal; choose another")
    write_whole(path, seal_document(encode_record(record)))


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, in place of what may be there; a crash leaves the old or the new one. A link is replaced."""
    target = Path(path)
    new = temporary(target)
    try:
        _clear_leftovers(target)
        write_file(new, data)
        os.replace(new, target)
        sync_folder(target.parent)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise _refused("write", target, error) from error


def _clear_leftovers(target: Path) -> None:
    """Remove what killed writers of the same file have left."""
    with contextlib.suppress(OSError):
        for path in leftovers_of(target.parent, target.name):
            if time.time() - path.lstat().st_mtime > _LEFT_SECONDS:
                path.unlink()


def _refused(what: str, path: str | os.PathLike[str], error: Exception) -> FileError:
    return FileError(f"cannot {what} {str(path)!r}: {getattr(error, 'strerror', None) or error}")


def _read(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file that is no link, and not too long."""
    try:
        with open_regular(Path(path)) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _refused("read", path, error) from error
    if len(data) > MAX_BYTES:
        raise FileError(f"{str(path)!r} is longer than {MAX_BYTES} bytes; it is not a document of bayeswell")
    return data


def read_document(path: str | os.PathLike[str], *, users: bool = False, sealed: bool = False) -> dict[str, Any]:
    """The JSON object in a file, without its seal; every fault is one line that names the file.

    One that was altered since it was sealed is refused. One that was never sealed, because an earlier version wrote it,
    is read with a word; without one if it is the ``users`` own; not at all where it must be ``sealed``, since others
    beside it are.
    """
    data = _read(path)
    try:
        try:
            check_seal(data)
        except NotSealed:
            record = decode_record(data)
            if looks_sealed(record):
                raise ValueError(f"its seal was altered; {_RESTORE}") from None
            if sealed:
                raise ValueError(f"it has no seal, but what was written with it has; {_RESTORE}") from None
            _allow_unsealed(path, silently=users)
            return record
    except ValueError as error:
        raise FileError(f"{str(path)!r}: {error}") from error
    try:
        record = decode_record(data)
    except ValueError as error:
        raise FileError(f"{str(path)!r}: {error}") from error
    del record[SEAL]
    return record


def read_plain(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str]:
    """The JSON object in a file whose seal lies elsewhere, and the SHA-256 of the file."""
    data = _read(path)
    try:
        return decode_record(data), hashlib.sha256(data).hexdigest()
    except ValueError as error:
        raise FileError(f"{str(path)!r}: {error}") from error


def _allow_unsealed(path: str | os.PathLike[str], silently: bool = False) -> None:
    """Where there is a key nothing goes unsigned; else a word says that nothing vouches for this file."""
    if signing_key() is not None:
        raise ValueError(f"it has neither seal nor signature, and {KEY} is set: whoever made it must sign it")
    if not silently:
        note = f"{str(path)!r} has no seal: an earlier version wrote it, and whether it was altered cannot be told"
        warnings.warn(note, BayeswellWarning, stacklevel=4)


class LineLog:
    """A file of one JSON object a line that can be cut back to where it was.

    ``size`` is its length in bytes, ``link`` the seal of its last line, which stands for all lines above it too.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.size = 0
        self.link = ""

    def append(self, record: Mapping[str, JSON]) -> None:
        """Add one line behind the first ``size`` bytes, forced to disk; what lay behind them is dropped."""
        body = json.dumps(decode_record(encode_record(record)), allow_nan=False).encode("ascii")
        link = next_link(self.link, body)
        line = sealed_line(body, link)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
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
        self.size, self.link = self.size + len(line), link

    def cut(self, size: int, link: str | None = None, *, force: bool = False) -> None:
        """Go back to the first ``size`` bytes; they must be there, and end with the seal ``link`` if one is given.

        With ``force`` lines that were altered stay as they are, with a word.
        """
        data = _read(self.path) if size or self.path.exists() else b""
        if len(data) < size:
            raise FileError(f"{str(self.path)!r} has {len(data)} bytes, but {size} were written; {_RESTORE}")
        try:
            found = _checked_lines(data[:size], self.path)[1]
            if link is not None and found != link:
                raise FileError(f"{str(self.path)!r} was altered: it is not the log that was written; {_RESTORE}")
        except FileError as error:
            if not force or link is None:
                raise
            warnings.warn(f"{error}: going on behind it", BayeswellWarning, stacklevel=2)
            found = link
        if len(data) > size:
            try:
                os.truncate(self.path, size)
            except OSError as error:
                raise _refused("write", self.path, error) from error
        self.size, self.link = size, found


def read_lines(path: str | os.PathLike[str], least: int = 0, link: str | None = None) -> list[dict[str, Any]]:
    """The records of a log; a last line that a crash cut short is left out, one that was altered is refused.

    Where it is known that ``least`` bytes were written, up to the seal ``link``, a log without them is refused.
    """
    data = _read(path)
    if len(data) < least:
        raise FileError(f"{str(path)!r} has {len(data)} bytes, but {least} were written; {_RESTORE}")
    if link is not None and _checked_lines(data[:least], path)[1] != link:
        raise FileError(f"{str(path)!r} was altered: it is not the log that was written; {_RESTORE}")
    records, _, are_sealed = _checked_lines(data, path)
    if records and not are_sealed:
        try:
            _allow_unsealed(path)
        except ValueError as error:
            raise FileError(f"{str(path)!r}: {error}") from error
    return records


def _checked_lines(data: bytes, path: str | os.PathLike[str]) -> tuple[list[dict[str, Any]], str, bool]:
    """The records, what a next line would stand on, and whether any is sealed: an earlier version wrote the others."""
    *lines, rest = data.split(b"\n")
    records, link, unsealed, begun = [], "", 0, False
    for number, line in enumerate(lines, 1):
        body, seal = split_line(line)
        try:
            record = decode_record(body)
            if seal is None and (begun or looks_sealed(record)):
                raise ValueError("its seal is missing or altered")
            if seal is not None:
                link = link if begun else first_link(data[:unsealed])
                begun, link = True, next_link(link, body)
                if link != seal:
                    raise ValueError("it was altered, or a line is missing above it (SHA-256 differs)")
        except ValueError as error:
            raise FileError(f"{str(path)!r}, line {number}: {error}; {_RESTORE}") from error
        records.append(record)
        unsealed += 0 if begun else len(line) + 1
    if not is_torn(rest):
        raise FileError(f"{str(path)!r}, line {len(lines) + 1}: it was altered behind its seal; {_RESTORE}")
    return records, link if begun else first_link(data[:unsealed]), begun
