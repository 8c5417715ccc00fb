"""Changes of the settings of a run by dotted names, as on the command line and in sweeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import SettingError, nearest
from ..methods import Method
from .settings import RunSettings

_TABLES = {"model": "model_settings", "data": "data_settings", "augment": "augment"}


def with_settings(settings: RunSettings, changes: Mapping[str, Any]) -> RunSettings:
    """Return changed settings of a run; names may be dotted or belong to the method.

    ``lr`` and ``epochs`` are those of the run, ``temperature`` that of its method, ``posterior.rank`` or, if only one
    part of the method has it, ``rank`` a setting of a part, ``model.hidden`` and ``data.split`` of network and data.
    """
    for key, value in changes.items():
        owner, _, name = key.partition(".")
        if key in RunSettings.names():
            settings = settings.changed(**{key: value})
        elif owner in _TABLES and name:
            table = _TABLES[owner]
            settings = settings.changed(**{table: {**(getattr(settings, table) or {}), name: value}})
        else:
            path = key.split(".") if owner in Method.settings() else [_part_with(settings.method_part, key), key]
            settings = settings.changed(settings=_merged(settings.settings, path, value))
    return settings


def _part_with(method: Method, key: str) -> str:
    parts = {name: getattr(method, name) for name in Method.settings() if name != "lr"}
    fields = {name: part for name, part in parts.items() if dataclasses.is_dataclass(part)}
    owners = [name for name, part in fields.items() if key in {one.name for one in dataclasses.fields(part)}]
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise SettingError(f"setting '{key}' belongs to {' and '.join(owners)}; write {owners[0]}.{key}")
    allowed = [*RunSettings.names(), *Method.settings()]
    raise SettingError(f"neither a run nor method '{method.name}' has a setting '{key}'; {nearest(key, allowed)}")


def _merged(table: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    name, *rest = path
    if not rest:
        return {**table, name: value}
    inner = table.get(name, {})
    inner = {"name": inner} if isinstance(inner, str) else inner
    if not isinstance(inner, Mapping):
        raise SettingError(f"setting '{name}' = {inner!r} has no settings of its own")
    return {**table, name: _merged(inner, rest, value)}
