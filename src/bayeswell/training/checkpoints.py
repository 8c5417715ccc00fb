"""Checkpoints: the whole state of a run, each a bundle of its own, the last good ones kept."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import BayeswellWarning, FileError
from ..persistence import JSON, pack_state, read_bundle, unpack_state, write_bundle

_KIND = "bayeswell checkpoint"
_FORMAT = 1
_PAUSES = (0.5, 2.0)
_NAME = re.compile(r"member-(\d{4})-step-(\d{9})")


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in one folder. A new one is complete, and on disk, before the oldest goes."""

    folder: Path
    keep: int = 2

    def save(self, member: int, step: int, state: dict[str, Any]) -> None:
        """Write the state of a step, then drop all but the newest ``keep``."""
        tensors, packed = pack_state(state)
        path = self.folder / f"member-{member:04d}-step-{step:09d}"
        self._write(path, tensors, {"kind": _KIND, "format": _FORMAT, "state": packed})
        for old in self.paths()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)

    def _write(self, path: Path, tensors: dict[str, Tensor], record: dict[str, JSON]) -> None:
        """A disk that is full or busy gets a second and a third chance."""
        for pause in (*_PAUSES, None):
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                write_bundle(path, tensors, record)
                return
            except OSError as error:  # FileError among them
                if pause is None:
                    raise _explained(error, self.folder) from error
                time.sleep(pause)

    def paths(self) -> list[Path]:
        """All checkpoints that have a place, oldest first; leftovers of a crash have other names."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))

    def newest(self) -> dict[str, Any] | None:
        """The newest state that is as it was saved; each that is not is told of, and the one before it taken.

        None if there was never a checkpoint; FileError if there are some and none is good.
        """
        found, damaged = self.paths(), []
        for path in reversed(found):
            try:
                state = self.read(path)
            except FileError as error:
                warnings.warn(f"{error}: an older checkpoint is used, if there is one", BayeswellWarning, stacklevel=2)
                damaged.append(path)
                continue
            for bad in damaged:
                _set_aside(bad)
            return state
        if found:
            raise FileError(
                f"no checkpoint in {str(self.folder)!r} can be used; restore one from a copy, or begin anew"
            )
        return None

    def read(self, path: Path) -> dict[str, Any]:
        """The state in one checkpoint."""
        bundle = read_bundle(path)
        kind, version = bundle.record.get("kind"), bundle.record.get("format")
        if kind != _KIND or version != _FORMAT:
            raise FileError(f"{str(path)!r}: kind {kind!r}, format {version!r}; this version reads format {_FORMAT}")
        state = unpack_state(bundle.tensors, bundle.record.get("state"))
        if not isinstance(state, dict):
            raise FileError(f"{str(path)!r}: the record holds no state")
        return state


def _explained(error: OSError, folder: Path) -> FileError:
    note = f"cannot save a checkpoint in {str(folder)!r}: {error if isinstance(error, FileError) else error.strerror}"
    return FileError(f"{note}; the last good one is as it was")


def _set_aside(path: Path) -> None:
    """Move a damaged checkpoint out of the way: kept for a look, but never again taken for a checkpoint."""
    with contextlib.suppress(OSError):
        path.rename(path.with_name(f"damaged-{path.name}"))
