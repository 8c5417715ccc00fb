"""What makes a sweep the sweep it is: kept in its folder, so that it can be gone on with, and never mixed up."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import FileError, SettingError, nearest, require_count
from ..persistence import JSON, read_document, write_document
from ..persistence.locks import locked
from ..training.run_folder import differences
from .grid import GRID, trials_of
from .space import Near, Spread, Value, check_space

TrialFunction: TypeAlias = Callable[[Mapping[str, Value], Path], float]
"""A function of a trial's settings and folder. Called again in the same folder, it goes on where it was cut off.

The number that it gives may be an ``Estimate``: its standard error is recorded too.
"""

DEFINITION, DATABASE, LOCK, TRIALS, LEASES = "sweep.json", "study.sqlite3", ".sweep.lock", "trials", ".leases"
_FORMAT = "bayeswell sweep"
_NAMES = re.compile(r"\$\{([^}]+)\}")
"""What of an address is taken from the environment."""
SAMPLERS = ("random", "tpe", GRID)
DIRECTIONS = ("maximize", "minimize")


@dataclass(frozen=True)
class Definition:
    """A sweep: its space, how many trials, how they are chosen and where they are recorded.

    ``settings`` is what all trials share, as plain data. ``attempts`` is how often a trial may be begun before it is
    given up: a worker that dies, or an error that may pass, costs one. ``storage`` is the address of a database that
    Optuna knows, with ``${NAME}`` for what only the environment should know; None is a file in the folder.
    """

    name: str
    function: str
    space: Mapping[str, Spread]
    trials: int
    sampler: str = "tpe"
    seed: int = 0
    direction: str = "minimize"
    attempts: int = 5
    storage: str | None = None
    settings: Mapping[str, JSON] = field(default_factory=dict)
    identity: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "space", check_space(self.space))
        require_count("sweep", "trials", self.trials)
        require_count("sweep", "attempts", self.attempts)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise SettingError(f"sweep: seed = {self.seed!r}; it must be a whole number")
        for setting, value, allowed in (
            ("sampler", self.sampler, SAMPLERS),
            ("direction", self.direction, DIRECTIONS),
        ):
            if value not in allowed:
                raise SettingError(f"sweep: {setting} = {value!r}; {nearest(str(value), allowed)}")
        trials_of(self.sampler, self.space, self.trials)
        for name, spread in self.space.items():
            if isinstance(spread, Near) and self.sampler == "tpe":
                raise SettingError(
                    f"space: {name} = {spread.text!r} is drawn at random, which tpe does not do; take --sampler random"
                )

    def record(self) -> dict[str, Any]:
        """As plain data."""
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        space = {name: spread.text for name, spread in self.space.items()}
        return {"format": _FORMAT, **fields, "space": space, "settings": dict(self.settings)}


def name_of(function: TrialFunction) -> str:
    """Where a function comes from, for the record."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def read_definition(folder: Path) -> Definition:
    """The sweep of a folder."""
    path = folder / DEFINITION
    if not path.is_file():
        raise FileError(f"{str(folder)!r} holds no sweep: it has no {DEFINITION}")
    return definition_of(read_document(path), repr(str(path)))


def definition_of(record: Mapping[str, Any], source: str = "the database") -> Definition:
    """The inverse of ``record``."""
    fields = dict(record)
    if fields.pop("format", None) != _FORMAT:
        raise FileError(f"{source} is not the record of a sweep")
    try:
        return Definition(**fields)
    except (TypeError, ValueError) as error:
        raise FileError(f"{source} cannot be used: {error}") from error


def establish(definition: Definition, folder: Path) -> Definition:
    """Begin this sweep in a folder, or find that the one there is the same; another one is refused by name."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / LOCK):
            if (folder / DEFINITION).exists():
                return _same(read_definition(folder), definition, folder)
            if any(not entry.name.startswith(".") for entry in folder.iterdir()):
                raise FileError(f"{str(folder)!r} is not empty and holds no sweep; choose another folder")
            begun = replace(definition, identity=secrets.token_hex(8))
            write_document(folder / DEFINITION, begun.record())
            return read_definition(folder)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot make the folder {str(folder)!r}: {error.strerror or error}") from error


def _same(found: Definition, wanted: Definition, folder: Path) -> Definition:
    changes = differences(found.record(), replace(wanted, identity=found.identity).record())
    if changes:
        raise SettingError(
            f"{str(folder)!r} holds another sweep: {'; '.join(changes)}; choose another folder, or go on with that one "
            "by its own settings (sweep --join)"
        )
    return found


def storage_url(definition: Definition, folder: Path) -> str:
    """The database's address, with names of the environment filled in."""
    if definition.storage is None:
        path = str((folder / DATABASE).resolve())
        if "?" in path:
            raise SettingError(f"{path!r}: an address of a database cannot hold '?'; choose another folder")
        return f"sqlite:///{path}"
    return fill_in(definition.storage)


def fill_in(storage: str) -> str:
    """An address with names of the environment filled in."""
    _require_environment(storage)
    return os.path.expandvars(storage)


def check_storage(storage: str | None) -> str | None:
    """An address that means the same to every worker, wherever it was started."""
    if storage is None:
        return None
    kind, separator, rest = storage.partition("://")
    if not separator or not kind:
        raise SettingError(
            f"storage = {storage!r} is no address of a database; write sqlite:///PATH or postgresql://..."
        )
    _require_environment(storage)
    if kind.split("+")[0] == "sqlite":
        path = rest.removeprefix("/")
        if path in ("", ":memory:"):
            raise SettingError(f"storage = {storage!r}: workers cannot share a database in memory; name a file")
        return f"{kind}:///{Path(path).resolve()}"
    return storage


def _require_environment(storage: str) -> None:
    """Refuse names that the environment does not have; the address itself, with a password perhaps, is not shown."""
    missing = sorted({name for name in _NAMES.findall(storage) if name not in os.environ})
    if missing:
        raise SettingError(f"storage: {', '.join(missing)} is not in the environment; export it and run this again")
