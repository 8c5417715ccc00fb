"""JSON documents and other small files, whole or absent."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import FileError
from ..metrics import Estimate


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document, whole or not at all."""
    write_whole(path, json.dumps(to_jsonable(document), indent=1, allow_nan=False).encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is no JSON document: {error}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.chmod(file.name, 0o644)
                os.replace(file.name, path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from error


def to_jsonable(value: Any) -> Any:
    """Return plain data; numbers that are not finite become None."""
    if isinstance(value, Estimate):
        return {"value": to_jsonable(value.value), "se": to_jsonable(value.se)}
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with its own SHA-256 under ``sha256``."""
    plain = to_jsonable({key: value for key, value in document.items() if key != "sha256"})
    content = json.dumps(plain, sort_keys=True).encode()
    return {**plain, "sha256": hashlib.sha256(content).hexdigest()}


def check_seal(document: Mapping[str, Any], path: Path) -> None:
    """Refuse a document that has changed since ``sealed``."""
    if document.get("sha256") != sealed(document)["sha256"]:
        raise FileError(f"{path} has changed since it was written")
