"""Where the files of a data set are, whether they are the right ones, and how they come here.

Looked for in the ``folder`` that a caller names, else in the folders of the environment variable ``BAYESWELL_DATA``
(several are separated as in PATH), else in the user's cache folder. A file is read whole and its SHA-256 compared on
every load: the bytes that were checked are the bytes that are parsed. What is missing is downloaded with pooch from the
original release, if that is known, unless ``BAYESWELL_OFFLINE`` is 1.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import stat
import sys
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import FileError

MOST_BYTES = 8 * 2**30
"""Nothing that is unpacked may become larger than this."""
FREE_BYTES, MOST_RATIO = 256 * 2**20, 200
"""What unpacks to more than the first may not grow by more than the second: honest data do not, bombs do."""


@dataclass(frozen=True)
class DataFile:
    """One file: its place under the data folder, its SHA-256, and where the original is to be had."""

    path: str
    sha256: str
    url: str = ""


@dataclass(frozen=True)
class Release:
    """One form in which a data set is published: all files are needed; ``archive`` is what they are packed in."""

    files: tuple[DataFile, ...]
    archive: DataFile | None = None


def data_folders(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders that are searched, in order; downloads go to the first."""
    if folder is not None:
        return [Path(folder)]
    named = [Path(entry).expanduser() for entry in os.environ.get("BAYESWELL_DATA", "").split(os.pathsep) if entry]
    return named or [cache_folder()]


def cache_folder() -> Path:
    """The user's cache folder for bayeswell: the one that ``pooch.os_cache("bayeswell")`` names, without pooch."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "bayeswell"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "bayeswell" / "bayeswell" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "bayeswell"


def release_present(releases: tuple[Release, ...], folders: list[Path]) -> Release | None:
    """The first release of which every file is there."""
    for release in releases:
        if all(_find(file, folders) is not None for file in release.files):
            return release
    return None


def obtain(owner: str, releases: tuple[Release, ...], folder: str | os.PathLike[str] | None) -> dict[str, bytes]:
    """The checked bytes of every file of one release, by file name; downloaded first if they are not there."""
    folders = data_folders(folder)
    release = release_present(releases, folders)
    if release is None:
        release = _download(owner, releases, folders)
    found = {}
    for file in release.files:
        place = _find(file, folders)
        if place is None:
            raise FileError(f"{owner}: {file.path} is still not in {folders[0]} after the download")
        found[PurePosixPath(file.path).name] = read_checked(place, file.sha256)
    return found


def read_checked(path: Path, sha256: str) -> bytes:
    """The bytes of a file whose SHA-256 is right."""
    data = read_bytes(path)
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        raise FileError(
            f"{path}: its SHA-256 is {actual}, that of the original {sha256}; "
            "the file was cut short or altered: remove it and get it anew"
        )
    return data


def read_bytes(path: Path) -> bytes:
    """A whole file; one line says why it cannot be read."""
    try:
        # Not waiting: a pipe in place of a file would keep the program for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileError(f"{str(path)!r} is not a regular file (a pipe, a device?); give a file")
            return file.read()
    except FileError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FileError(f"{str(path)!r} cannot be read: {reason}") from error


def gunzip(data: bytes, owner: str | Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """A gzip file unpacked, never to more than the limits allow."""
    limit = min(most_bytes, max(FREE_BYTES, MOST_RATIO * len(data)))
    unpacker = zlib.decompressobj(wbits=31)
    try:
        content = unpacker.decompress(data, limit)
        more = not unpacker.eof and len(content) >= limit and bool(unpacker.decompress(unpacker.unconsumed_tail, 1))
    except zlib.error as error:
        raise FileError(f"{owner}: not a whole gzip file ({error})") from error
    if more:
        raise FileError(f"{owner}: unpacks to more than {limit:,} bytes; refused")
    if not unpacker.eof:
        raise FileError(f"{owner}: the gzip file is cut short")
    if unpacker.unused_data:
        raise FileError(f"{owner}: {len(unpacker.unused_data):,} bytes follow the end of the gzip file")
    return content


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar archive inside ``target`` and nowhere else, plain files and folders only.

    All members are looked at before the first is written: an absolute path, one that leads out of the folder, a link, a
    device, or sizes beyond the limits refuse the whole archive.
    """
    try:
        with tarfile.open(archive) as tar:
            members = checked_members(tar, archive, target, packed_bytes=archive.stat().st_size)
            # By hand: only since Python 3.11.4 can tarfile itself leave out owners and modes of another machine.
            for member in members:
                _write_member(tar, member, target / member.name)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{archive}: cannot be unpacked into {target}: {error}") from error


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    """A plain file or folder that was looked at before."""
    (place if member.isdir() else place.parent).mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)  # None for a folder
    if content is not None:
        with content, open(place, "wb") as file:
            shutil.copyfileobj(content, file)


def checked_members(
    tar: tarfile.TarFile, archive: Path, target: Path | None, *, packed_bytes: int
) -> list[tarfile.TarInfo]:
    """The members of an archive, once each is found harmless; ``target`` is None if they are read in memory."""
    limit = min(MOST_BYTES, max(FREE_BYTES, MOST_RATIO * packed_bytes))
    root = None if target is None else target.resolve()
    members: list[tarfile.TarInfo] = []
    total = 0
    for member in tar:  # one by one: a bomb is refused at the member that goes too far
        total += member.size
        if total > limit:
            raise FileError(f"{archive}: unpacks to more than {limit:,} bytes (at '{member.name}'); refused")
        if not (member.isfile() or member.isdir()):
            raise FileError(f"{archive}: member '{member.name}' is a link or a device; refused")
        name = PurePosixPath(member.name)
        # Resolved on disk as well: a link that already lies in the folder could lead out of it.
        inside = root is None or (root / member.name).resolve().is_relative_to(root)
        if name.is_absolute() or "\\" in member.name or ".." in name.parts or not inside:
            raise FileError(f"{archive}: member '{member.name}' leads out of the folder; refused")
        members.append(member)
    return members


def _find(file: DataFile, folders: list[Path]) -> Path | None:
    return next((folder / file.path for folder in folders if (folder / file.path).is_file()), None)


def _download(owner: str, releases: tuple[Release, ...], folders: list[Path]) -> Release:
    """Bring the first release that has a known source into the first folder."""
    release = next((each for each in releases if each.archive or all(file.url for file in each.files)), None)
    advice = _advice(releases, folders)
    if release is None:
        raise FileError(f"{owner}: the files are not there, and no source is known to download them from; {advice}")
    if os.environ.get("BAYESWELL_OFFLINE", "") not in {"", "0"}:
        raise FileError(f"{owner}: the files are not there, and BAYESWELL_OFFLINE forbids the download; {advice}")
    try:
        # Imported here, by name: pooch is optional, and is needed for a download alone.
        pooch: Any = importlib.import_module("pooch")
    except ImportError as error:
        raise FileError(
            f"{owner}: the files are not there, and pooch, which downloads, is not installed "
            f"(pip install 'bayeswell[lab]'); {advice}"
        ) from error
    wanted = [release.archive] if release.archive else [file for file in release.files if _find(file, folders) is None]
    for file in wanted:
        place = folders[0] / file.path
        try:
            pooch.retrieve(
                file.url, known_hash=f"sha256:{file.sha256}", fname=place.name, path=place.parent, progressbar=False
            )
        except Exception as error:  # whatever the network, the disk or pooch comes up with
            reason = " ".join(str(error).split())[:200]
            raise FileError(f"{owner}: the download of {file.url} failed ({reason}); {advice}") from error
    if release.archive:
        _unpack_release(release, folders[0] / release.archive.path, folders[0])
    return release


def _unpack_release(release: Release, archive: Path, folder: Path) -> None:
    """The files of a release from its archive, each put in place at once: none is ever seen half-written."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as aside:
        unpack(archive, Path(aside))
        for file in release.files:
            if not (Path(aside) / file.path).is_file():
                raise FileError(f"{archive}: it does not hold {file.path}")
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            (Path(aside) / file.path).replace(folder / file.path)


def _advice(releases: tuple[Release, ...], folders: list[Path]) -> str:
    choices = []
    for release in releases:
        files = [file.path for file in release.files]
        urls = [release.archive.url] if release.archive else [file.url for file in release.files if file.url]
        origin = f" (from {', '.join(urls)})" if urls else ""
        choices.append(", ".join(files) + origin)
    where = f"put into {folders[0]}: {'; or '.join(choices)}"
    return f"{where}; another folder is named by BAYESWELL_DATA or 'folder'"
