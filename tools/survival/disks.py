"""Disks and folders that fail, fill up, cannot be written or vanish under a run."""

from __future__ import annotations

import errno
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from . import faults
from .bench import METHOD, Bench
from .table import ALIKE, LOST, Clock, Verdict
from .trial import Whole, cleared, differs, judged, start


def disk_errors(bench: Bench, clock: Clock, codes: tuple[int, ...], kind: str) -> Iterator[Verdict]:
    """Operations on files fail: some in a row, and then no more, or all from a moment on."""

    def fault(rng: random.Random, folder: Path, whole: Whole) -> tuple[str, faults.Fault]:
        first, code = rng.randint(1, whole.changes), rng.choice(codes)
        count = rng.choice((1, 2, 5, 20, 10**9))
        return f"{errno.errorcode[code]} at operations {first} to {first + count}", faults.failing(
            folder, first, count, code
        )

    return bench.with_fault(kind, clock, fault)


def disk_full(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """No space at random writes: operations that fail, a limit of size, and a real small disk where one may be made."""
    third = [Clock(time.monotonic() + part * clock.left, -(-clock.count // 3)) for part in (1 / 3, 2 / 3, 1)]
    yield from disk_errors(bench, third[0], (errno.ENOSPC, errno.EDQUOT), "full")
    yield from bench.with_fault("long", third[1], _short_files)
    yield from small_disk(bench, third[2])


def _short_files(rng: random.Random, folder: Path, whole: Whole) -> tuple[str, faults.Fault]:
    largest = max(path.stat().st_size for path in whole.folder.rglob("*") if path.is_file())
    size = rng.randrange(2 * largest)
    return f"no file above {size} bytes", faults.small_files(size)


class Disk:
    """A small disk of its own in memory; only root may make one."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        self.made = self._mount("size=32k", "-t", "tmpfs", "none")
        if not self.made:
            print("no disk of its own can be made here: not tried", file=sys.stderr)

    def _mount(self, options: str, *more: str) -> bool:
        command = ["mount", "-o", options, *more, str(self.place)]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False

    def change(self, options: str) -> None:
        """Make it larger or smaller, read-only or not."""
        if not self._mount(f"remount,{options}"):
            raise RuntimeError(f"the disk at {self.place} cannot be changed: {options}")

    def remove(self) -> None:
        if self.made:
            subprocess.run(["umount", "--lazy", str(self.place)], capture_output=True, check=False)


def small_disk(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """A disk that is too small for the run, and grows afterwards."""
    for number in clock.tries():
        whole, disk = bench.undisturbed(), Disk(bench.scratch / f"disk-{number}")
        try:
            if not disk.made:
                return
            kilobytes = bench.rng("disk", number).randrange(4, 120, 4)
            disk.change(f"size={kilobytes}k")
            folder, said = disk.place / "run", bench.scratch / f"disk-{number}.said"
            ended = start(folder, METHOD, faults.short_pauses, said_in=said).finish()
            disk.change("size=64m")
            yield judged(folder, METHOD, ended, whole.outcome, f"try {number}, a disk of {kilobytes} kB")
        finally:
            disk.remove()


def read_only(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """A disk that is read-only or forbidden: from an operation on, and from the beginning after a kill."""
    half = [Clock(time.monotonic() + part * clock.left, -(-clock.count // 2)) for part in (0.6, 1)]
    yield from disk_errors(bench, half[0], (errno.EROFS, errno.EACCES, errno.EIO), "read-only")
    for number in half[1].tries():
        whole, disk = bench.undisturbed(), Disk(bench.scratch / f"locked-{number}")
        try:
            if not disk.made:
                return
            disk.change("size=64m")
            folder, said = disk.place / "run", bench.scratch / f"locked-{number}.said"
            operation = bench.rng("locked", number).randint(1, whole.changes)
            start(folder, METHOD, faults.killed_at(folder, operation), said_in=said).finish()
            disk.change("ro")
            ended = start(folder, METHOD, faults.short_pauses, said_in=said.with_suffix(".again")).finish()
            disk.change("rw")
            yield judged(folder, METHOD, ended, whole.outcome, f"try {number}, read-only after operation {operation}")
        finally:
            disk.remove()


def vanished(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """The folder is moved away while the run goes on, with nothing, a file or a link to nowhere in its place."""
    for number in clock.tries():
        rng, whole, folder = bench.rng("vanished", number), bench.undisturbed(), bench.scratch / f"vanished-{number}"
        moved = folder.with_name(f"away-{number}")
        operation, instead = rng.randint(2, whole.changes), rng.choice(("nothing", "a file", "a link"))
        ended = start(folder, METHOD, faults.moved_at(folder, operation, moved, instead)).finish()
        what = f"try {number}, moved away at operation {operation} with {instead} in its place"
        claimed = ended.code == 0 and bool(differs(folder, whole.outcome) and differs(moved, whole.outcome))
        if moved.exists():
            _remove(folder)
            moved.rename(folder)
        if claimed:
            yield Verdict(LOST, f"{what}: ended with code 0, but no whole run is left")
        elif ended.code == 0:  # the end of it may be in another folder; the one that was moved is good to go on with
            again = start(folder, METHOD).finish()
            why = f"cannot go on: {again.said[-300:]!r}" if again.code else differs(folder, whole.outcome)
            yield Verdict(LOST, f"{what}: {why}") if why else Verdict(ALIKE)
        else:
            yield judged(folder, METHOD, ended, whole.outcome, what)
        cleared(folder)


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
