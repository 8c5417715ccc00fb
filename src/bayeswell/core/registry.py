"""Parts by name: one registry for each kind, open to parts from outside the package.

A part is usually a frozen dataclass whose fields are its settings, with ``name`` and ``paper`` as class attributes.
Names come from the package, from ``register(kind, Part)``, and from the entry-point group ``bayeswell.parts`` of other
installed packages (entries are called ``kind.name``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from .errors import SettingError, nearest

PartT = TypeVar("PartT")
REGISTRIES: dict[str, Registry[Any]] = {}
"""All registries by their kind."""


class Registry(Generic[PartT]):
    """The parts of one kind by name.

    Args:
        kind: such as "posterior".
        parts: classes with a class attribute ``name``.
        requires: members that an object must have to be accepted as it is.
        adapt: makes a part of an ordinary object (a function, a torch class), or returns None.
    """

    def __init__(
        self,
        kind: str,
        *parts: type[PartT],
        requires: tuple[str, ...] = (),
        adapt: Callable[[Any], PartT | None] | None = None,
    ) -> None:
        self.kind, self.requires, self._adapt = kind, requires, adapt
        self._parts: dict[str, type[PartT]] = {}
        for part in parts:
            self.register(part)
        REGISTRIES[kind] = self

    def register(self, part: type[PartT]) -> type[PartT]:
        """Add a class under its ``name``; usable as a decorator."""
        name = getattr(part, "name", None)
        if not isinstance(part, type) or not isinstance(name, str) or not name:
            raise SettingError(
                f"{self.kind}: {part!r} cannot be registered; give a class with a class attribute `name`"
            )
        self._check_members(part)
        known = self._parts.get(_key(name))
        if known is not None and known.__qualname__ != part.__qualname__:
            raise SettingError(f"{self.kind} '{name}' is already registered by {known.__module__}.{known.__qualname__}")
        self._parts[_key(name)] = part
        return part

    def unregister(self, part: type[PartT]) -> None:
        self._parts.pop(_key(getattr(part, "name", "")), None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (_key(name) in self._parts or self._load_entry_point(_key(name)))

    def __getitem__(self, name: str) -> type[PartT]:
        if name not in self:
            raise SettingError(f"unknown {self.kind} {name!r}; {nearest(str(name), self._parts)}")
        return self._parts[_key(name)]

    def resolve(self, choice: Any) -> PartT:
        """Return a part from its name, from ``{"name": ..., setting: value}``, or from an object."""
        if isinstance(choice, str):
            return self._make(choice, {})
        if isinstance(choice, Mapping):
            settings = dict(choice)
            if "name" not in settings:
                raise SettingError(f"{self.kind}: a mapping needs the key 'name', got {sorted(settings)}")
            return self._make(settings.pop("name"), settings)
        adapted = None if self._adapt is None else self._adapt(choice)
        if adapted is not None:
            return adapted
        if choice is None or isinstance(choice, int | float | list | tuple | type):
            shown = f"of type {type(choice).__name__}" if isinstance(choice, list | tuple) else f"= {choice!r}"
            raise SettingError(f"{self.kind} {shown}; give a name, a mapping or an object; {nearest('', self)}")
        self._check_members(choice)
        part: PartT = choice
        return part

    def _make(self, name: str, settings: Mapping[str, Any]) -> PartT:
        part = self[name]
        if dataclasses.is_dataclass(part):
            fields = [field.name for field in dataclasses.fields(part) if field.init]
            for key in settings:
                if key not in fields:
                    raise SettingError(f"{self.kind} '{name}' has no setting '{key}'; {nearest(key, fields)}")
        try:
            return part(**settings)
        except TypeError as error:
            raise SettingError(f"{self.kind} '{name}' cannot be made: {error}") from error

    def _check_members(self, part: Any) -> None:
        missing = [member for member in self.requires if not hasattr(part, member)]
        if missing:
            raise SettingError(
                f"{self.kind} {type(part).__name__ if not isinstance(part, type) else part.__name__} lacks "
                f"`{'`, `'.join(missing)}`; the protocol is in bayeswell.core.protocols"
            )

    def _load_entry_point(self, key: str) -> bool:
        for entry in entry_points(group="bayeswell.parts"):
            kind, _, name = entry.name.partition(".")
            if kind == self.kind and _key(name) == key:
                self.register(entry.load())
                return True
        return False


def register(kind: str, part: type) -> type:
    """Give a custom part a name, for settings files, saved models and the command line."""
    if kind not in REGISTRIES:
        raise SettingError(f"unknown kind of part {kind!r}; {nearest(kind, REGISTRIES)}")
    return REGISTRIES[kind].register(part)


def describe(part: Any) -> dict[str, Any]:
    """Return a part as JSON-ready data: its name and settings. ``Registry.resolve`` inverts it."""
    name = getattr(part, "name", None)
    if not isinstance(name, str) or not dataclasses.is_dataclass(part) or isinstance(part, type):
        raise SettingError(
            f"{part!r} cannot be written to a file; make it a dataclass with a class attribute `name` and register it"
        )
    return {"name": name, **{f.name: getattr(part, f.name) for f in dataclasses.fields(part) if f.init}}


def _key(name: str) -> str:
    return name.replace("-", "_")
