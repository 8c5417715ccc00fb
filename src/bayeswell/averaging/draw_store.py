"""Rows of bytes, in memory or in a file: where a bank keeps its draws.

A row holds one draw's tensors one behind the other, each starting at a multiple of 8 bytes. Rows are only ever
added, so a state that was handed out (a number of rows) stays true.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import FileError, SettingError


class RowFormat:
    """Where each named tensor lies in a row."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
        self.starts: dict[str, int] = {}
        self.size = 0
        for name, tensor in tensors.items():
            self.starts[name] = self.size
            self.size += -(-tensor.numel() * tensor.element_size() // 8) * 8

    def pack(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The tensors as one row of bytes on the CPU."""
        row = torch.zeros(self.size, dtype=torch.uint8)
        for name, start in self.starts.items():
            data = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            row[start : start + len(data)] = data
        return row

    def column(self, rows: Tensor, name: str) -> Tensor:
        """(n, ...): one tensor of every row, as a view."""
        shape, dtype, start = self.shapes[name], self.dtypes[name], self.starts[name]
        stop = start + math.prod(shape) * dtype.itemsize
        return rows[:, start:stop].view(dtype).view(len(rows), *shape)


class Rows(Protocol):
    """What a bank needs of its store."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        ...

    def append(self, row: Tensor) -> None:
        """Add one row."""
        ...

    def matrix(self) -> Tensor:
        """(n, bytes): all rows."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        ...


class MemoryRows:
    """Rows in memory; a saved state holds them all."""

    def __init__(self, size: int) -> None:
        self.size, self.count = size, 0
        self._rows: list[Tensor] = []

    def append(self, row: Tensor) -> None:
        self._rows.append(row)
        self.count += 1

    def matrix(self) -> Tensor:
        return torch.stack(self._rows) if self._rows else torch.zeros(0, self.size, dtype=torch.uint8)

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.matrix()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        rows = _rows_of(state, self.size)
        self._rows = list(rows.cpu())
        self.count = len(rows)


class FileRows:
    """Rows in a file of their own in ``folder``, mapped into memory when they are read.

    A saved state holds the file's name and the number of rows. If the file has grown since, the rows that belong
    to the state are copied to a new file: another state may count on the rest.
    """

    def __init__(self, folder: str | os.PathLike[str], size: int, planned: int) -> None:
        self.folder, self.size, self.count = Path(folder), size, 0
        self._name = ""
        self._digest = hashlib.sha256()
        self._make_room(planned)

    def append(self, row: Tensor) -> None:
        data = row.numpy().tobytes()
        try:
            path = self._path()
            with open(path, "r+b") as file:
                file.seek(self.count * self.size)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileError(
                f"bank: draw {self.count + 1} cannot be written to '{self.folder}' ({error.strerror or error}); the "
                f"{self.count} draws before it are kept; free some space or choose another folder"
            ) from error
        self._digest.update(data)
        self.count += 1

    def matrix(self) -> Tensor:
        if not self.count:
            return torch.zeros(0, self.size, dtype=torch.uint8)
        # Not shared: a change to the tensor never reaches the file.
        path = str(self.folder / self._name)
        return torch.from_file(path, shared=False, size=self.count * self.size, dtype=torch.uint8).view(-1, self.size)

    def state_dict(self) -> dict[str, Any]:
        sha256 = self._digest.hexdigest()
        return {"file": self._name, "count": self.count, "row_bytes": self.size, "sha256": sha256}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "file" not in state:
            self.replace(_rows_of(state, self.size))
            return
        _require_size(state["row_bytes"], self.size)
        name, count = Path(str(state["file"])).name, int(state["count"])
        if count:
            self._adopt(name, count, str(state["sha256"]))
        else:
            self._name, self._digest = "", hashlib.sha256()
        self.count = count

    def replace(self, rows: Tensor) -> None:
        """Hold these rows, in a new file."""
        self._name, self.count, self._digest = "", 0, hashlib.sha256()
        for row in rows.cpu():
            self.append(row)

    def _adopt(self, name: str, count: int, sha256: str) -> None:
        source, needed = self.folder / name, count * self.size
        found = source.stat().st_size if source.is_file() else -1
        if found < needed:
            problem = "is missing" if found < 0 else f"has {found} bytes, {needed} were saved"
            raise FileError(f"bank: the file '{source}' {problem}; restore it, or train again")
        digest = hashlib.sha256()
        with open(source, "rb") as file:
            for _ in range(count):
                digest.update(file.read(self.size))
        if digest.hexdigest() != sha256:
            raise FileError(f"bank: the file '{source}' was altered (SHA-256 differs); restore it, or train again")
        self._name, self._digest = name, digest
        if found > needed:
            self._name = ""
            with open(source, "rb") as old, open(self._path(), "r+b") as new:
                for _ in range(count):
                    new.write(old.read(self.size))

    def _path(self) -> Path:
        """The file, made under a new name if there is none yet: two chains may share a folder."""
        if not self._name:
            handle, path = tempfile.mkstemp(prefix="draws-", suffix=".bin", dir=self.folder)
            os.close(handle)
            self._name = Path(path).name
        return self.folder / self._name

    def _make_room(self, planned: int) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"bank: folder = '{self.folder}' cannot be made ({error.strerror or error})") from error
        if not os.access(self.folder, os.W_OK):
            raise FileError(f"bank: folder = '{self.folder}' may not be written to; choose another")
        free, needed = shutil.disk_usage(self.folder).free, planned * self.size
        if needed > free:
            raise FileError(
                f"bank: {planned} draws of {self.size} bytes do not fit into folder = '{self.folder}' ({free} bytes "
                "are free); lower max_draws or choose another folder"
            )


class TemporaryRows:
    """Rows in a file of a folder of their own, which vanishes with them (or when the program ends).

    A tensor that was mapped from the file outlives it: the system keeps the bytes while they are mapped. Another
    process cannot count on the file, so a saved state holds all rows, mapped rather than read.
    """

    def __init__(self, size: int, planned: int) -> None:
        self.size = size
        folder = tempfile.mkdtemp(prefix="bayeswell-bank-")
        # When nothing refers to these rows any more, and at the latest when the program ends.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._rows = FileRows(folder, size, planned)

    @property
    def count(self) -> int:
        return self._rows.count

    def append(self, row: Tensor) -> None:
        self._rows.append(row)

    def matrix(self) -> Tensor:
        return self._rows.matrix()

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.matrix()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rows.replace(_rows_of(state, self.size))


def _rows_of(state: Mapping[str, Any], size: int) -> Tensor:
    """The rows that a state holds."""
    rows = state.get("rows")
    if not isinstance(rows, Tensor):
        raise SettingError("bank: the saved draws are in a folder that this bank was not told; give the same 'folder'")
    if rows.dtype != torch.uint8 or rows.dim() != 2:
        raise SettingError(
            f"bank: the saved draws are {rows.dtype} {tuple(rows.shape)}; they must be rows of {size} bytes (uint8)"
        )
    _require_size(rows.shape[1], size)
    return rows


def _require_size(found: int, expected: int) -> None:
    if found != expected:
        raise SettingError(
            f"bank: the saved draws have {found} bytes each, this network's have {expected}; they belong to another one"
        )
