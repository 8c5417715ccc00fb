"""Where runs are kept: a path a user gives, or a name inside a root, which it cannot leave."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ..errors import FileError, SettingError
from ..persistence import read_document
from ..training.run_folder import CONFIG, RunFolder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=@-]{0,119}")


def place_in(root: str | os.PathLike[str], name: str) -> Path:
    """The folder of a run in its root; refuses a name that is a path, or leads out of the root by a link."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith("."):
        raise SettingError(
            f"run name {name!r:.60}: letters, digits and . _ - + = @, at most 120, beginning with a letter or digit"
        )
    base = path_of(root)
    place = base / name
    if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(base)):
        raise SettingError(f"run name '{name}': the link of that name leads out of {str(base)!r}")
    return place


def path_of(path: str | os.PathLike[str]) -> Path:
    """A path as the user gave it, if the system can hold such a path at all."""
    text = os.fspath(path)
    if not text or "\0" in text:
        raise SettingError(f"the path {text!r:.60} cannot be used: it is empty or holds a NUL")
    try:
        Path(text).exists()
    except (OSError, ValueError) as error:
        raise FileError(f"the path {text!r:.60} cannot be used: {getattr(error, 'strerror', None) or error}") from error
    return Path(text)


def run_config(path: str | os.PathLike[str]) -> dict[str, object]:
    """The settings of the run in a folder."""
    folder = path_of(path)
    if not folder.is_dir():
        raise FileError(f"{str(folder)!r}: there is no such folder")
    if not (folder / CONFIG).exists():
        raise FileError(f"{str(folder)!r} holds no run: there is no {CONFIG} in it")
    return read_document(folder / CONFIG)


def epochs_of(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The epochs of the run in a folder, as its log has them."""
    return RunFolder(path_of(path)).epochs()
