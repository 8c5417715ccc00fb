"""Results in a file of JSON lines: nothing runs twice, and a kill loses at most what was under way."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

_DIGITS = 5
_LONGEST = 200


class Kept:
    """Results by key in a file of JSON lines, the last of a key counts; several processes may add to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def read(self) -> dict[str, dict[str, Any]]:
        """Every result so far; a line that a kill cut short is none."""
        if not self.path.exists():
            return {}
        found = {}
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                one = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[one["key"]] = one
        return found

    def add(self, key: str, **values: Any) -> None:
        """One line more, whole."""
        with self._locked() as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            torn = end > 0 and file.read(1) != b"\n"
            file.write((("\n" if torn else "") + json.dumps({"key": key, **values}) + "\n").encode())

    def tidy(self) -> None:
        """One line for each key, in order: small, and a change shows what changed."""
        with self._locked():
            found = self.read()
            new = self.path.with_suffix(".new")
            new.write_text("".join(json.dumps(found[key]) + "\n" for key in sorted(found)), encoding="utf-8")
            new.replace(self.path)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """The file at its end, for this process alone; if it was exchanged meanwhile, the new one."""
        while True:
            with self.path.open("ab+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if self.path.exists() and os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                    yield file
                    return


def small(values: dict[str, Any]) -> dict[str, Any]:
    """The same with numbers of five digits and texts of bounded length: a record that can be committed."""
    return {name: _small(value) for name, value in values.items()}


def _small(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "..."
    if isinstance(value, dict):
        return small(value)
    return [_small(one) for one in value] if isinstance(value, list) else value
