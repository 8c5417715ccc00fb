"""A bundle: a folder that holds tensors, a record, and a manifest which proves that both are as saved.

``tensors.safetensors`` holds the tensors, ``record.json`` everything else as a JSON object, ``manifest.json``
the format version with the size and SHA-256 of both, and its own SHA-256. Nothing that is read can run code.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from torch import Tensor

from ..errors import FileError, SettingError
from .contents import JSON, decode_record, decode_tensors, encode_record, encode_tensors
from .folders import aside, glimpse, open_regular, refuse_link_out, replace_folder, resolve_path
from .manifest import FILES, MANIFEST, MAX_BYTES, RECORD, TENSORS, matches, open_seal, seal

ParsedT = TypeVar("ParsedT")

_READ_ATTEMPTS = 50
_REMEDIES = {
    errno.ENOSPC: "free some space or choose another disk",
    errno.EDQUOT: "free some space or choose another disk",
    errno.EFBIG: "choose another disk",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that you may write to",
    errno.ENOENT: "make the folder that is to hold it first",
    errno.ENOTDIR: "the path leads through a file; choose another",
    errno.ENAMETOOLONG: "choose a shorter name",
}


@dataclass(frozen=True)
class Bundle:
    """What was saved: tensors by name (sorted by name), and the record."""

    tensors: dict[str, Tensor]
    record: dict[str, Any]


def write_bundle(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], record: Mapping[str, JSON]) -> None:
    """Save as the folder ``path``, whole or not at all, in place of the bundle that may be there.

    When this returns, the bundle is forced to disk. At every moment, also after a crash or a power cut, the
    old or the new bundle can be read. Anything else at ``path`` is refused and left alone. The parent folder
    must exist. The same contents always give the same bytes.

    Raises SettingError for a tensor or value that cannot be saved, before anything is written, and FileError
    if the disk refuses; then an old bundle is as it was.
    """
    refuse_link_out(path)
    target = resolve_path(path)
    files = {TENSORS: encode_tensors(tensors), RECORD: encode_record(record)}
    files[MANIFEST] = seal(files)
    try:
        replace_folder(target, files)
    except FileError:
        raise
    except (OSError, ValueError) as error:
        kept = any(place is not None for place in glimpse(target))
        state = "the bundle already there can still be read" if kept else "nothing was saved"
        remedy = _REMEDIES.get(getattr(error, "errno", None) or 0, "try again")
        raise FileError(f"cannot save the bundle {_shown(target)}: {_reason(error)}; {state}; {remedy}") from error


def read_bundle(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> Bundle:
    """What was saved at ``path``, with new tensors on ``device``; nothing on disk is changed.

    Sizes and SHA-256 are checked before anything is parsed, and what was checked is what is parsed. Every
    fault raises FileError, which names the file and the remedy. A bundle that is being replaced, or whose
    replacement was cut off by a crash, is read as the old or the new one. Takes 3 x the memory of the tensors.
    """
    place = _device(device)
    target = resolve_path(path)
    data = _read_settled(target)
    record = _parsed(decode_record, data, RECORD, target)
    tensors = _parsed(decode_tensors, data, TENSORS, target)
    return Bundle({name: tensor.to(place) for name, tensor in tensors.items()}, record)


def _read_settled(target: Path) -> dict[str, bytes]:
    """The checked bytes of a bundle that writers may be replacing meanwhile."""
    for _ in range(_READ_ATTEMPTS):
        before = glimpse(target)
        folder = aside(target) if before[0] is None and before[1] is not None else target
        try:
            return _read_checked(folder, target)
        except FileError:
            # A fault is believed if it was seen at rest: if a writer swapped folders meanwhile, look again.
            if glimpse(target) == before:
                raise
    raise FileError(f"bundle {_shown(target)} is replaced faster than it can be read; try again")


def _read_checked(folder: Path, target: Path) -> dict[str, bytes]:
    """The bytes of both files, after size and SHA-256 are found to be as the manifest says."""
    _require_folder(folder, target)
    with contextlib.ExitStack() as stack:
        # All are opened before any is read: from then on it does not matter if a writer removes them.
        opened = {name: stack.enter_context(_open(folder / name, target)) for name in reversed(FILES)}
        expected = _parsed(
            open_seal, {MANIFEST: _read(opened[MANIFEST], MAX_BYTES, MANIFEST, target)}, MANIFEST, target
        )
        for name, fingerprint in expected.items():
            size = os.fstat(opened[name].fileno()).st_size
            if size != fingerprint.size:
                change = "cut short" if size < fingerprint.size else "longer than saved"
                raise _fault(target, name, f"it is {change} ({size} bytes, not {fingerprint.size})")
        data = {name: _read(opened[name], expected[name].size, name, target) for name in expected}
    for name, fingerprint in expected.items():
        if not matches(data[name], fingerprint):
            raise _fault(target, name, "it was altered (SHA-256 differs)")
    return data


def _require_folder(folder: Path, target: Path) -> None:
    try:
        is_folder = stat.S_ISDIR(os.stat(folder).st_mode)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileError(f"there is no bundle {_shown(target)}; check the path") from error
    except OSError as error:
        raise FileError(f"bundle {_shown(target)} cannot be read ({_reason(error)}); check the path") from error
    if not is_folder:
        raise FileError(f"{_shown(target)} is a file; a bundle is a folder that holds {', '.join(FILES)}")


def _open(path: Path, target: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError as error:
        raise _fault(target, path.name, "it is missing") from error
    except OSError as error:
        raise _fault(target, path.name, f"it cannot be opened ({_reason(error)})") from error


def _read(file: BinaryIO, limit: int, name: str, target: Path) -> bytes:
    try:
        return file.read(limit)
    except MemoryError as error:
        raise _fault(target, name, f"its {limit} bytes do not fit into memory") from error
    except OSError as error:
        raise _fault(target, name, f"it cannot be read ({_reason(error)})") from error


def _parsed(parse: Callable[[bytes], ParsedT], data: Mapping[str, bytes], name: str, target: Path) -> ParsedT:
    try:
        return parse(data[name])
    except ValueError as error:
        raise _fault(target, name, str(error)) from error


def _fault(target: Path, name: str, problem: str) -> FileError:
    return FileError(f"bundle {_shown(target)}: {name}: {problem}; restore the bundle from a copy or save it again")


def _shown(target: Path) -> str:
    return f"{str(target)!r:.300}"


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)


def _device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except Exception as error:  # torch raises RuntimeError, AssertionError and others, by backend
        raise SettingError(f"device = {str(device)!r} cannot be used here; 'cpu' always can") from error
    return place
