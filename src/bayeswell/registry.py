"""Names for parts: one registry for each axis.

A part is a frozen dataclass whose fields are its settings. From a registry come the part's name in
messages, files and tests, its summary (first line of the docstring) and its paper (the class attribute).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from .errors import SettingError, nearest


@runtime_checkable
class Part(Protocol):
    """What every registered part declares besides its settings."""

    name: ClassVar[str]
    paper: ClassVar[str]


PartT = TypeVar("PartT", bound=Part)


class Registry(Generic[PartT]):
    """The members of one axis, by name."""

    def __init__(self, axis: str, *parts: type[PartT]) -> None:
        self.axis = axis
        self._parts = {part.name: part for part in parts}

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, name: str) -> type[PartT]:
        key = name.replace("-", "_") if isinstance(name, str) else repr(name)
        if key not in self._parts:
            raise SettingError(f"unknown {self.axis} '{name}'; {nearest(key, self._parts)}")
        return self._parts[key]

    def resolve(self, choice: str | Mapping[str, Any] | PartT) -> PartT:
        """A part from its name, from ``{"name": ..., setting: value}``, or as it is."""
        if isinstance(choice, str):
            return self._build(choice, {})
        if isinstance(choice, Mapping):
            settings = dict(choice)
            if "name" not in settings:
                raise SettingError(f"{self.axis}: a mapping needs the key 'name'; it has {sorted(settings)}")
            return self._build(settings.pop("name"), settings)
        if isinstance(choice, tuple(self._parts.values())):
            return choice
        raise SettingError(
            f"{self.axis} = {choice!r} is neither a name, a mapping nor a {self.axis}; {nearest('', self)}"
        )

    def _build(self, name: str, settings: Mapping[str, Any]) -> PartT:
        part = self[name]
        allowed = {field.name for field in dataclasses.fields(part)}  # type: ignore[arg-type]
        for key in settings:
            if key not in allowed:
                raise SettingError(f"{self.axis} '{name}' has no setting '{key}'; {nearest(key, allowed)}")
        return part(**settings)

    def summaries(self) -> dict[str, tuple[str, str]]:
        """For every name: the one-line summary and the paper."""
        return {name: ((part.__doc__ or "").splitlines()[0], part.paper) for name, part in self._parts.items()}


def settings_of(part: Any) -> dict[str, Any]:
    """A part as plain JSON-ready data: its name and settings; the inverse of ``Registry.resolve``."""
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {"name": part.name, **values}
