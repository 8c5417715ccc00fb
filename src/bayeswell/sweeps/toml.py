"""Plain settings as TOML. Python reads it (``tomllib``) and does not write it."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FileError, SettingError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(settings: Mapping[str, Any], table: str = "") -> str:
    """Settings as text that reads back the same. None is left out: TOML has no word for it."""
    present = {key: value for key, value in settings.items() if value is not None}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in present.items() if not isinstance(value, Mapping)]
    parts = ["\n".join(lines)] if lines else []
    for key, value in present.items():
        if isinstance(value, Mapping):
            name = f"{table}.{_key(key)}" if table else _key(key)
            parts.append(f"[{name}]\n{to_toml(value, name)}".rstrip("\n"))
    return "\n\n".join(parts) + "\n"


def write_toml(path: Path, settings: Mapping[str, Any], heading: str) -> None:
    """Write a file whole or not at all; the heading is a comment above it."""
    temporary = path.with_name(f".{path.name}.bayeswell-tmp-{secrets.token_hex(8)}")
    try:
        temporary.write_text(f"# {heading}\n{to_toml(settings)}", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FileError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(value: str) -> str:
    """JSON's escapes are TOML's, but for DEL and for pairs of surrogates, which are avoided."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(part) for part in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(part)}" for key, part in value.items()) + "}"
    raise SettingError(f"{value!r} cannot be written as TOML: texts, finite numbers, true, false, lists and tables can")
