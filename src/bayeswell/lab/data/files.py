"""Files of published data sets: where they are, and how they are downloaded.

Folders are searched in this order: the one of the caller, those of the environment variable ``BAYESWELL_DATA``
(separated as in PATH), and the cache folder of the user. A missing file with a known origin is downloaded into the
first of them, and its SHA-256 is compared.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import FileError


@dataclass(frozen=True)
class DataFile:
    """One published file.

    Args:
        path: below the data folder.
        url: of the original; empty if none is known.
        sha256: of the original.
    """

    path: str
    url: str = ""
    sha256: str = ""


def data_folders(folder: str | None = None) -> list[Path]:
    """Return the folders that are searched, in order."""
    named = [folder] if folder else []
    named += [entry for entry in os.environ.get("BAYESWELL_DATA", "").split(os.pathsep) if entry]
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return [Path(entry).expanduser() for entry in (*named, f"{cache}/bayeswell")]


def find_file(path: str, folder: str | None = None) -> Path | None:
    """Return the first file of this name in the folders."""
    return next((place / path for place in data_folders(folder) if (place / path).is_file()), None)


def obtain(owner: str, file: DataFile, folder: str | None = None) -> bytes:
    """Return the bytes of a file, downloaded if it is missing."""
    place = find_file(file.path, folder) or _download(owner, file, data_folders(folder)[0])
    try:
        return place.read_bytes()
    except OSError as error:
        raise FileError(f"{place} cannot be read: {error.strerror}") from error


def _download(owner: str, file: DataFile, folder: Path) -> Path:
    place = folder / file.path
    advice = f"put {file.path} into {folder}, or name its folder by BAYESWELL_DATA"
    if not file.url or os.environ.get("BAYESWELL_OFFLINE", "0") not in ("", "0"):
        why = "no origin is known to download it from" if not file.url else "BAYESWELL_OFFLINE forbids the download"
        raise FileError(f"data '{owner}': {file.path} is missing, and {why}; {advice}")
    try:
        # Imported here: needed for downloads alone.
        import pooch  # type: ignore[import-untyped]

        pooch.retrieve(file.url, f"sha256:{file.sha256}", fname=place.name, path=place.parent)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise FileError(f"data '{owner}': the download of {file.url} failed ({reason}); {advice}") from error
    return place


def unpack_gzip(data: bytes, owner: str) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{owner} is not a whole gzip file: {error}") from error


def read_members(archive: bytes, owner: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Return files of a tar archive by name, read in memory: nothing is written to disk."""
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if member.isfile() and wanted(member.name):
                    content = tar.extractfile(member)
                    found[member.name] = b"" if content is None else content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise FileError(f"{owner} is not a whole tar archive: {error}") from error
    return found
