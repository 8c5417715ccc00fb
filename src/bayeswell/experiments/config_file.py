"""Settings from a TOML file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import FileError, SettingError, nearest

_MOST_BYTES = 1 << 20


def read_config(path: str | os.PathLike[str], allowed: Iterable[str]) -> dict[str, Any]:
    """The tables of a file; a key that nobody knows is refused with the nearest one that is known."""
    try:
        data = Path(path).read_bytes()
        if len(data) > _MOST_BYTES:
            raise FileError(f"{os.fspath(path)}: {len(data):,} bytes are too many for settings")
        found = tomllib.loads(data.decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{os.fspath(path)}: not TOML ({error})") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{os.fspath(path)}: not a text in UTF-8 (byte {error.start})") from error
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
