"""Folders of tensors and JSON documents, whole or absent, with a checksum of each file."""

from __future__ import annotations

import hashlib
import json
import numbers
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import filelock
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..core.errors import FileError

MANIFEST = "manifest.json"
TENSORS = "tensors.safetensors"
_FORMAT = "bayeswell 3"


def save_folder(path: str | Path, tensors: Mapping[str, Tensor], documents: Mapping[str, Any]) -> None:
    """Write tensors and JSON documents (``name`` becomes ``name.json``) as one folder, whole or not at all.

    It replaces an earlier one. A folder with other files is refused: they are never deleted.
    """
    target = Path(path).absolute()
    previous, temporary = _previous(target), target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_replaceable(target)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            _write(temporary, tensors, documents)
            if target.exists():
                shutil.rmtree(previous, ignore_errors=True)
                os.replace(target, previous)
            os.replace(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        _sync(target.parent)
        shutil.rmtree(previous, ignore_errors=True)
    except FileError:
        raise
    except (OSError, SafetensorError) as error:  # safetensors has its own error for a full disk
        raise FileError(f"{target} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def load_folder(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors (on the CPU) and documents of a folder; FileError if any byte of it has changed."""
    folder = Path(path).absolute()
    if not folder.exists() and _previous(folder).exists():
        folder = _previous(folder)  # Writing was interrupted between two renames.
    if not folder.exists():
        raise FileError(f"{str(path)!r}: there is no such folder")
    try:
        names = _checked_names(folder)
        documents = {name[:-5]: json.loads((folder / name).read_bytes()) for name in names if name.endswith(".json")}
        return load_file(folder / TENSORS), documents
    except FileError:
        raise
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise FileError(f"{folder} cannot be loaded: it is damaged, incomplete or no saved folder") from error


def folder_exists(path: str | Path) -> bool:
    """Return whether ``save_folder`` has finished a folder of this name."""
    folder = Path(path).absolute()
    return (folder / MANIFEST).is_file() or (_previous(folder) / MANIFEST).is_file()


def folder_lock(path: str | Path) -> filelock.BaseFileLock:
    """Return a lock of a run folder, to use in ``with``; FileError if another process holds it."""
    folder = Path(path).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise FileError(f"{folder} is in use by another process; choose another folder, or wait for its end") from error
    return lock


def _previous(target: Path) -> Path:
    return target.with_name(f".{target.name}.previous")


def _check_replaceable(target: Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise FileError(f"{target} is a file; choose the name of a new folder")
    found = {entry.name for entry in target.iterdir()}
    own = set(_names(target)) | {MANIFEST} if MANIFEST in found else set()
    if found - own:
        raise FileError(f"{target} has other files ('{min(found - own)}'), which would be deleted; choose a new folder")


def _write(folder: Path, tensors: Mapping[str, Tensor], documents: Mapping[str, Any]) -> None:
    save_file(_separate(tensors), folder / TENSORS)
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document, indent=1, default=_plain), encoding="utf-8")
    names = sorted(entry.name for entry in folder.iterdir())
    (folder / MANIFEST).write_bytes(_manifest(folder, names))
    for name in (*names, MANIFEST):
        _sync(folder / name)
    _sync(folder)


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # safetensors takes no tensors that share memory.
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        own = tensor.detach().to("cpu").contiguous()
        pointer = own.untyped_storage().data_ptr()
        separate[name] = own.clone() if pointer in seen or own.untyped_storage().nbytes() != own.nbytes else own
        seen.add(pointer)
    return separate


def _plain(value: Any) -> Any:
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, os.PathLike | torch.dtype | torch.device):
        return str(value)
    raise FileError(f"{type(value).__name__} {value!r} cannot be written as JSON")


def _manifest(folder: Path, names: list[str]) -> bytes:
    files = {}
    for name in names:
        with (folder / name).open("rb") as file:
            files[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return json.dumps({"format": _FORMAT, "files": files}, indent=1).encode()


def _names(folder: Path) -> list[str]:
    try:
        names = list(json.loads((folder / MANIFEST).read_bytes())["files"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(f"{folder} has no readable {MANIFEST}: it is no saved folder, or it is damaged") from error
    if any(Path(name).name != name for name in names):
        raise FileError(f"{folder / MANIFEST} names files outside the folder")
    return names


def _checked_names(folder: Path) -> list[str]:
    names = _names(folder)
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise FileError(f"{folder} is incomplete: '{missing[0]}' is missing")
    # Compared as bytes, so a change of the manifest itself is found too.
    if (folder / MANIFEST).read_bytes() != _manifest(folder, names):
        raise FileError(f"{folder} is damaged or of another version: its files do not have the checksums of {MANIFEST}")
    return names


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
