"""Checkpoints: the whole state of a run, each a bundle of its own, the last good ones kept."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import BayeswellWarning, FileError
from ..persistence import JSON, pack_state, read_bundle, unpack_state, write_bundle
from ..persistence.folders import aside, refuse_link_out
from .identity import Identity

_KIND = "bayeswell checkpoint"
_FORMAT, _WITHOUT_OWNER = 2, 1
_PAUSES = (0.5, 2.0)
_DAMAGED = "damaged-"
_NAME = re.compile(r"member-(\d{4})-step-(\d{9})")


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in one folder. A new one is complete, and on disk, before the oldest goes."""

    folder: Path
    keep: int = 2

    def save(
        self, member: int, step: int, state: dict[str, Any], owner: Mapping[str, JSON] | None = None
    ) -> str:  # fmt: skip
        """Write the state of a step of a run, then drop all but the newest ``keep``; the name of the new one."""
        refuse_link_out(self.folder)
        tensors, packed = pack_state(state)
        path = self.folder / f"member-{member:04d}-step-{step:09d}"
        whose: dict[str, JSON] = {"run": None if owner is None else dict(owner), "name": path.name}
        self._write(path, tensors, {"kind": _KIND, "format": _FORMAT, **whose, "state": packed})
        for old in self.paths()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        return path.name

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

    def newest(self, identity: Identity | None = None) -> dict[str, Any] | None:
        """The newest state that is as it was saved; each that is not is told of, and the one before it taken.

        None if there was never a checkpoint; FileError if there are some and none is good. A link, one that was renamed
        and, where it is said which run this is, one of another run are refused, whatever else there is.
        """
        refuse_link_out(self.folder)
        found, damaged = self.paths(), []
        for path in reversed(found):
            _refuse_link(path)
            try:
                record, state = self._read(path)
            except FileError as error:
                warnings.warn(f"{error}: an older checkpoint is used, if there is one", BayeswellWarning, stacklevel=2)
                damaged.append(path)
                continue
            _require_place(record, path, identity)
            for bad in damaged:
                _set_aside(bad)
            return state
        if found:
            raise FileError(
                f"no checkpoint in {str(self.folder)!r} can be used; restore one from a copy, or begin anew"
            )
        return None

    def require(self, path: Path, identity: Identity | None) -> None:
        """Refuse a checkpoint that is damaged, a link, renamed, or of another run."""
        _refuse_link(path)
        _require_place(self._read(path)[0], path, identity)

    def is_being_replaced(self, name: str) -> bool:
        """Whether a kill came while a checkpoint of this name took the place of another: both are the run's own."""
        return aside(self.folder / name).is_dir()

    def was_damaged(self, name: str) -> bool:
        """Whether a checkpoint of this name was found damaged, and set aside."""
        return (self.folder / f"{_DAMAGED}{name}").exists()

    def read(self, path: Path) -> dict[str, Any]:
        """The state in one checkpoint, whosever it is."""
        return self._read(path)[1]

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """The record of a checkpoint, and its state."""
        bundle = read_bundle(path)
        kind, version = bundle.record.get("kind"), bundle.record.get("format")
        if kind != _KIND or version not in (_FORMAT, _WITHOUT_OWNER):
            raise FileError(f"{str(path)!r}: kind {kind!r}, format {version!r}; this version reads format {_FORMAT}")
        state = unpack_state(bundle.tensors, bundle.record.get("state"))
        if not isinstance(state, dict):
            raise FileError(f"{str(path)!r}: the record holds no state")
        return bundle.record, state


def _explained(error: OSError, folder: Path) -> FileError:
    note = f"cannot save a checkpoint in {str(folder)!r}: {error if isinstance(error, FileError) else error.strerror}"
    return FileError(f"{note}; the last good one is as it was")


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise FileError(
            f"the checkpoint {str(path)!r} is a link, to {os.readlink(path)!r}: it is not followed; put the run's own "
            "checkpoint back, or remove the link"
        )


def _require_place(record: Mapping[str, Any], path: Path, identity: Identity | None) -> None:
    """Whether a checkpoint has the name it was saved under, and is of this run."""
    named = record.get("name", path.name)
    if named != path.name:
        raise FileError(
            f"the checkpoint {str(path)!r} was saved as {named!r:.60} and renamed: it is older than it looks; put the "
            "run's own checkpoint back"
        )
    if identity is not None:
        identity.require(record.get("run"), path)


def _set_aside(path: Path) -> None:
    """Move a damaged checkpoint out of the way: kept for a look, but never again taken for a checkpoint."""
    with contextlib.suppress(OSError):
        path.rename(path.with_name(f"{_DAMAGED}{path.name}"))
