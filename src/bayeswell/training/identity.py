"""Whose a checkpoint is, and on what it was computed: so that a run goes on from its own state alone.

``config.json`` has the settings, and beside them ``run``: an id made when the run began, what it computes with
(threads, compiled formulas, instruction set), and the fingerprints of settings it had earlier, if it was made longer or
forced to go on otherwise. Each checkpoint carries the id and the fingerprint of the settings it was saved under.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import FileError
from ..native import instruction_set
from ..persistence import JSON
from ..plain import plain

RUN = "run"
"""The entry of ``config.json`` that is not a setting."""

_UNITS = {"threads": "threads", "formulas": "compiled formulas", "processor": "torch's instruction set"}


@dataclass(frozen=True)
class Identity:
    """Which run this is. ``adopted``: an earlier version began it, and its first checkpoints carry no id."""

    id: str
    settings: str
    earlier: tuple[str, ...] = ()
    adopted: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any], path: Path) -> Identity | None:
        """What ``config.json`` says; None if an earlier version has written it."""
        if RUN not in config:
            return None
        said = config[RUN]
        try:
            earlier = tuple(map(str, said["earlier"]))
            return cls(str(said["id"]), settings_sha256(config), earlier, bool(said.get("adopted", False)))
        except (KeyError, TypeError, AttributeError) as error:
            raise FileError(f"{str(path)!r}: its entry {RUN!r} does not name a run ({error!r})") from error

    def owner(self) -> dict[str, JSON]:
        """What a checkpoint carries of it."""
        return {"id": self.id, "settings": self.settings}

    def require(self, owner: Any, path: Path) -> None:
        """Refuse a checkpoint of another run, or of settings that this run has never had."""
        remedy = f"put the run's own checkpoint back, or remove {path.name!r} and go on from the one before it (force)"
        if owner is None and self.adopted:
            return
        found = owner if isinstance(owner, Mapping) else {}
        if found.get("id") != self.id:
            whose = f"is of the run {found.get('id')!r:.40}" if found else "does not say of which run it is"
            raise FileError(f"the checkpoint {str(path)!r} {whose}, but the run here is {self.id!r}; {remedy}")
        if found.get("settings") not in (self.settings, *self.earlier):
            raise FileError(
                f"the checkpoint {str(path)!r} was saved under other settings (SHA-256 {found.get('settings')!r:.17}..)"
                f" than the run here has ({self.settings:.16}...); {remedy}"
            )


def new_entry(*, adopted: bool = False) -> dict[str, JSON]:
    """The entry ``run`` of a run that begins now."""
    entry: dict[str, JSON] = {"id": secrets.token_hex(8), "machine": dict(machine()), "earlier": []}
    return {**entry, "adopted": True} if adopted else entry


def settings_sha256(config: Mapping[str, Any]) -> str:
    """SHA-256 of all settings, in whatever order."""
    settings = {key: value for key, value in config.items() if key != RUN}
    return hashlib.sha256(json.dumps(plain(settings), sort_keys=True).encode("ascii")).hexdigest()


def machine() -> dict[str, int | str | None]:
    """What the numbers depend on to the last bit, besides the settings."""
    return {
        "threads": torch.get_num_threads(),
        "formulas": instruction_set(),
        "processor": torch.backends.cpu.get_cpu_capability(),
    }


def threads_of(config: Mapping[str, Any]) -> int | None:
    """With how many threads a run was begun; None if it does not say."""
    said = config.get(RUN)
    then = said.get("machine") if isinstance(said, Mapping) else None
    threads = then.get("threads") if isinstance(then, Mapping) else None
    return threads if isinstance(threads, int) and not isinstance(threads, bool) and threads > 0 else None


def changes_of_machine(config: Mapping[str, Any]) -> str:
    """What is otherwise than when the run began, in words; empty if nothing is, or if it does not say."""
    said = config.get(RUN)
    then = said.get("machine") if isinstance(said, Mapping) else None
    if not isinstance(then, Mapping):
        return ""
    now = machine()
    told = [
        f"{word} were {then.get(key) or 'none'}, are now {now[key] or 'none'}"
        if key != "processor"
        else f"{word} was {then.get(key)}, is now {now[key]}"
        for key, word in _UNITS.items()
        if then.get(key) != now[key]
    ]
    return "; ".join(told)
