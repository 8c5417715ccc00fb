"""Names with settings, as people write them: ``stepper.lr=0.01`` on a command line, tables in a file."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..datasets import is_data_name
from ..datasets.files import read_bytes
from ..elements import without_replaced
from ..errors import FileError, SettingError, nearest
from ..methods import AUTO, Method, find_method
from .schema import Choice

_NOT_SETTINGS = frozenset({"name", "summary", "paper"})
_NUMBERS = frozenset({"temperature", "std_multiplier", "std_lr", "members", "budget", "clip_norm", "alternate"})
_MAY_BE_AUTO = frozenset({"temperature", "budget"})
_MAY_BE_NONE = frozenset({"std_lr", "budget", "clip_norm", "alternate"})
_ENDINGS = {".csv": "csv", ".npz": "npz"}
_MOST_BYTES = 1 << 20


def parse_value(text: str) -> Any:
    """A number, true, false, null, a list or table (as in JSON); anything else is a word."""
    stripped = text.strip()
    words = {"true": True, "false": False, "none": None, "null": None}
    if not stripped:  # a blank or a tab may be meant, as a delimiter
        return text
    if stripped.lower() in words:
        return words[stripped.lower()]
    try:
        return json.loads(stripped, parse_constant=_refuse_constant)
    except ValueError:
        pass
    try:
        number = float(stripped)  # what JSON has no form for: .5, 1., 1_000
    except ValueError:
        return stripped
    return number if number == number and abs(number) != float("inf") else stripped


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number to set anything to")


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, Any]:
    """Nested settings from ``part.setting=value``; the last of two for one thing wins."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        path, sign, value = pair.partition("=")
        if not sign or not all(path.strip().split(".")):
            raise SettingError(f"{option} {pair!r}: write it as setting=value, or part.setting=value")
        settings = merged(settings, nested(path.strip(), parse_value(value)))
    return settings


def nested(path: str, value: Any) -> dict[str, Any]:
    """``a.b.c`` and a value as ``{"a": {"b": {"c": value}}}``."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes``: tables are merged, and a name (``stepper = "sgd"``) is the name of a table.

    A table with another name replaces what was there: settings of one part are not those of another. A list
    replaces what was said of its single numbers (``betas`` an earlier ``beta1``).
    """
    result = without_replaced(base, changes)
    for key, new in changes.items():
        old = result.get(key)
        if not isinstance(new, Mapping):
            nameless = isinstance(new, str) and isinstance(old, Mapping) and "name" not in old
            result[key] = {"name": new, **old} if nameless and isinstance(old, Mapping) else new
            continue
        before = {"name": old} if isinstance(old, str) else dict(old) if isinstance(old, Mapping) else {}
        renamed = "name" in new and "name" in before and _key(new["name"]) != _key(before["name"])
        result[key] = dict(new) if renamed else merged(before, new)
    return result


def lr_to_stepper(method: Any) -> Any:
    """The table of a method with ``lr`` where it belongs, in that of its stepper: so that of two the later one wins."""
    if not isinstance(method, Mapping) or "lr" not in method:
        return method
    others = {key: value for key, value in method.items() if key != "lr"}
    return merged(others, {"stepper": {"lr": method["lr"]}})


def as_choice(what: str, value: Any) -> dict[str, Any]:
    """A name or a table with a name, as a table."""
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise SettingError(f"{what} = {value!r}; give a name, or a table with a 'name' and its settings")
    return {"name": value["name"], **{str(key): part for key, part in value.items() if key != "name"}}


def as_data_choice(what: str, value: Any) -> dict[str, Any]:
    """As ``as_choice``; the path of a file or of a folder of pictures stands for one's own data.

    Paths are made absolute: a run must find its data again from wherever it is resumed.
    """
    choice = as_choice(what, value)
    name = choice["name"]
    kind = _ENDINGS.get(Path(name).suffix.lower())
    if kind is None and (os.sep in name or "/" in name or (not is_data_name(name) and os.path.isdir(name))):
        kind = "images"
    if kind is not None:
        choice = {**choice, "name": kind, "path": name}
    for key in ("path", "test_path"):
        if isinstance(choice.get(key), str) and choice[key]:
            choice[key] = os.path.abspath(os.path.expanduser(choice[key]))
    return choice


def read_config(path: str | os.PathLike[str], allowed: Iterable[str]) -> dict[str, Any]:
    """The tables of a file; a key that nobody knows is refused with the nearest one that is known."""
    try:
        data = read_bytes(Path(path))
        if len(data) > _MOST_BYTES:
            raise FileError(f"{os.fspath(path)}: {len(data):,} bytes are too many for settings")
        found = tomllib.loads(data.decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{os.fspath(path)}: not TOML ({error})") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{os.fspath(path)}: not a text in UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise FileError(f"{os.fspath(path)}: it is nested too deeply for settings") from error
    except FileError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{os.fspath(path)!r:.200} cannot be read: {reason}") from error
    known = list(allowed)
    for key in found:
        if key not in known:
            raise SettingError(f"{os.fspath(path)}: unknown key '{key}'; {nearest(key, known)}")
    return found


def build_method(choice: Choice) -> Method:
    """A method from its name and changes of its parts: ``{"name": "k-tied", "posterior": {"rank": 3}}``."""
    settings = as_choice("method", choice)
    base = find_method(settings.pop("name"))
    changes = {}
    for key, value in settings.items():
        if key in _NOT_SETTINGS:
            raise SettingError(f"method '{base.name}' has no setting '{key}': it says what the method is")
        changes[key] = _changed(f"method '{base.name}'", key, getattr(base, key, None), value)
    try:
        return base.changed(**changes)
    except TypeError as error:
        raise SettingError(f"method '{base.name}': a setting has a value of the wrong kind ({error})") from error


def _changed(owner: str, key: str, current: Any, value: Any) -> Any:
    """One field of a method: a number, or a part with some settings changed."""
    if key in _NUMBERS:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        other = (value is None and key in _MAY_BE_NONE) or (value == AUTO and key in _MAY_BE_AUTO)
        if not number and not other:
            raise SettingError(f"{owner}: {key} = {value!r}; it must be a number")
        return value
    if not isinstance(value, Mapping):
        return value
    return merged({key: _plain(key, current)}, {key: value})[key]


def _plain(key: str, part: Any) -> Any:
    """A part as a name or a table."""
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        settings = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
        return settings if key == "sharpness" else {"name": getattr(part, "name", key), **settings}
    return part


def _key(name: Any) -> str:
    return str(name).replace("-", "_")
