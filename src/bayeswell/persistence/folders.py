"""Replacing a bundle's folder so that the old one or the new one can be read, whatever happens between.

Steps of a write, all next to the target (same file system, so a rename is one step):

1. everything is written into ``.NAME.bayeswell-tmp-TOKEN``; each file, then that folder, is forced to disk
2. the old bundle, if any, is renamed to ``.NAME.bayeswell-old``
3. the new one is renamed to ``NAME``, and the parent folder is forced to disk
4. the old one is renamed to a ``-tmp-`` name and removed

After a crash within 1, 3 or 4 the target holds the old or the new bundle, and what is left over is ignored.
Between 2 and 3 the target is missing and the old bundle is at its ``-old`` name: readers look there when the
target is missing (and change nothing, so that a read-only disk will do); the next write puts it back first.
Step 4 renames before it removes, so that nothing half removed, or long since replaced, has the ``-old`` name.

An error in any step is undone at once. Writers of one parent folder wait for each other (``flock``, which the
system releases when a process dies); where a file system cannot lock a folder, two writers of the same bundle
may make one of them fail, and it says so. Only files with the names of a bundle are ever removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ..errors import FileError
from .manifest import FILES, FORMAT, MANIFEST, MAX_BYTES

if sys.platform != "win32":
    import fcntl

WAIT_SECONDS = 120.0
"""How long a writer waits for others in the same parent folder."""


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path with links followed: a link to a bundle stands for the bundle."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        raise FileError(f"the path {os.fspath(path)!r:.200} cannot be used ({error})") from error


def aside(target: Path) -> Path:
    """Where the old bundle is while the new one takes its place."""
    return target.with_name(f".{target.name}.bayeswell-old")


def replace_folder(target: Path, files: Mapping[str, bytes]) -> None:
    """Make ``target`` a folder of these files, forced to disk, in place of the bundle that may be there.

    Raises OSError as it comes, with everything undone, or FileError if something else is in the place.
    """
    new = temporary(target)
    with _only_writer(target.parent):
        refuse_foreign(target)
        _tidy(target)
        try:
            os.mkdir(new)
            for name, data in files.items():
                write_file(new / name, data)
            sync_folder(new)
            _swap(new, target)
        except BaseException:
            _remove(new)
            raise
        with contextlib.suppress(OSError):  # saved already; the next write tries again
            _retire(target)


def refuse_foreign(target: Path) -> None:
    """Refuse anything in the place but a bundle, whole or damaged."""
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise FileError(f"cannot save a bundle at {str(target)!r}: it is a file; move it or choose another path")
    foreign = sorted(set(os.listdir(target)) - set(FILES))
    if foreign or not _has_our_manifest(target):
        why = f"it holds {foreign[0]!r}" if foreign else f"no {MANIFEST} of bayeswell is in it"
        raise FileError(
            f"cannot save a bundle at {str(target)!r}: the folder there is not a bundle ({why}); "
            "move it or choose another path"
        )


def glimpse(target: Path) -> tuple[object, object]:
    """Which folders are now in the two places; equal only if nobody moved or changed them meanwhile."""

    def identity(folder: Path) -> tuple[int, int, int] | None:
        try:
            status = os.stat(folder)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_ctime_ns

    return identity(target), identity(aside(target))


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; a link, pipe or device in its place raises OSError and is not followed or waited for."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))

    try:
        file = open(path, "rb", opener=opener)  # noqa: SIM115 -- the caller closes it
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, f"it is a link; put the file itself there, for {_linked(path)!r}") from error
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file")
    return file


def _linked(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return "another place"


def refuse_link_out(path: str | os.PathLike[str]) -> None:
    """Refuse a link that leads out of the folder it lies in: what is saved or loaded here stays here."""
    place = os.path.abspath(path)
    if os.path.islink(place):
        real = os.path.realpath(place)
        if os.path.dirname(real) != os.path.realpath(os.path.dirname(place)):
            raise FileError(
                f"{os.fspath(path)!r} is a link out of its folder, to {real!r}: it is not followed; name that place "
                "itself, or remove the link"
            )


def temporary(target: Path) -> Path:
    """A name next to the target that nobody else uses."""
    return target.with_name(f".{target.name}.bayeswell-tmp-{secrets.token_hex(8)}")


def leftovers_of(folder: Path, name: str | None = None) -> Iterator[Path]:
    """What killed writers of this name, or of any, have left in a folder: under names of ``temporary``."""
    own = r".+" if name is None else re.escape(name)
    leftover = re.compile(rf"\.{own}\.bayeswell-tmp-[0-9a-f]{{16}}", re.DOTALL)
    for entry in os.listdir(folder):
        if leftover.fullmatch(entry):
            yield folder / entry


def remove_leftovers(folder: Path) -> None:
    """Clear a folder in which nobody else writes; whatever cannot be removed does no harm and stays."""
    if folder.is_symlink():
        return
    with contextlib.suppress(OSError):
        for path in leftovers_of(folder):
            if path.is_dir() and not path.is_symlink():
                _remove(path)
            else:
                path.unlink()


def _has_our_manifest(folder: Path) -> bool:
    try:
        with open_regular(folder / MANIFEST) as file:
            return FORMAT.encode("ascii") in file.read(MAX_BYTES)
    except FileNotFoundError:
        return False


def _tidy(target: Path) -> None:
    """Undo or finish what a crash left; leftovers that cannot be removed do no harm and stay."""
    old = aside(target)
    if os.path.lexists(old):
        if os.path.lexists(target):
            _retire(target)
        else:
            os.rename(old, target)
    for path in leftovers_of(target.parent, target.name):
        _remove(path)


def _swap(new: Path, target: Path) -> None:
    old = aside(target)
    replaces = os.path.lexists(target)
    try:
        if replaces:
            os.rename(target, old)
        os.rename(new, target)
        sync_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            if not os.path.lexists(new):
                os.rename(target, new)
            if os.path.lexists(old):
                os.rename(old, target)
            sync_folder(target.parent)
        raise


def _retire(target: Path) -> None:
    """Remove the bundle that was replaced."""
    old = aside(target)
    if os.path.lexists(old):
        doomed = temporary(target)
        os.rename(old, doomed)
        _remove(doomed)


def _remove(folder: Path) -> None:
    for name in FILES:
        with contextlib.suppress(OSError):
            os.unlink(folder / name)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def write_file(path: Path, data: bytes) -> None:
    """A new file, forced to disk."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk."""
    if sys.platform == "win32":  # a folder cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems know no such call
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _only_writer(parent: Path) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(parent, os.O_RDONLY)
    try:
        locked = _lock(descriptor, parent)
        try:
            yield
        finally:
            if locked:  # closing would not do: a process forked meanwhile holds the descriptor too
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, parent: Path) -> bool:
    if sys.platform == "win32":
        return False
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise FileError(
                    f"another process has been writing into {str(parent)!r} for {WAIT_SECONDS:.0f} s; "
                    "try again when it is done"
                ) from error
            time.sleep(0.01)
        except OSError:
            return False
