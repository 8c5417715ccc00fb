"""What is tried: each kind makes tries for as long as it has time, and gives a verdict on each."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import bayeswell as bw

from . import faults
from .table import ALIKE, LOST, REFUSED, Clock, Verdict
from .trial import Ended, Whole, cleared, differs, judged, start, whole_run

KILLS_PER_RUN = 5
METHOD = "bbb"


@dataclass
class Bench:
    """Where runs are made, and the undisturbed ones they are compared with."""

    scratch: Path
    seed: int
    whole: dict[tuple[str, ...], Whole] = field(default_factory=dict)

    def rng(self, kind: str, number: int) -> random.Random:
        """Each try draws from a stream of its own."""
        return random.Random(f"{self.seed} {kind} {number}")

    def undisturbed(self, method: str = METHOD, more: tuple[str, ...] = ()) -> Whole:
        key = (method, *more)
        if key not in self.whole:
            self.whole[key] = whole_run(self.scratch / f"whole-{len(self.whole)}", method, more)
        return self.whole[key]

    def with_fault(self, kind: str, clock: Clock, fault: Callable[[random.Random, Path, Whole], tuple[str, faults.Fault]]
                   ) -> Iterator[Verdict]:  # fmt: skip
        """Runs in whose process something is broken from the beginning."""
        for number in clock.tries():
            whole, folder = self.undisturbed(), self.scratch / f"{kind}-{number}"
            what, broken = fault(self.rng(kind, number), folder, whole)
            ended = start(folder, METHOD, broken).finish()
            yield judged(folder, METHOD, ended, whole.outcome, f"try {number}, {what}")
            cleared(folder)


def kills(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """Killed at random moments and at random operations on files, five times a run, all methods in turn."""
    hits, methods = 0, sorted(bw.METHODS)
    bench.rng("order", 0).shuffle(methods)
    for number in clock.tries():
        method, rng = methods[number % len(methods)], bench.rng("kills", number)
        whole, folder = bench.undisturbed(method), bench.scratch / f"kills-{number}"
        moments, last = [], Ended(-signal.SIGKILL, "", 0.0)
        for _ in range(min(KILLS_PER_RUN, clock.count - hits)):
            if rng.random() < 0.5:
                operation = 1 + int(rng.random() ** 2 * whole.changes)  # early ones more: later starts do less
                last = start(folder, method, faults.killed_at(folder, operation)).finish()
                moment = f"operation {operation}"
            else:
                seconds = rng.uniform(0, 0.8 * whole.seconds)
                child = start(folder, method)
                last = child.wait(seconds) or _killed(child)
                moment = f"{seconds:.2f} s"
            if last.code != -signal.SIGKILL:
                break
            moments.append(moment)
        what = f"run {number}, {method}, killed at {' and '.join(moments) or 'no moment'}"
        verdict = judged(folder, method, last, whole.outcome, what, killed=True)
        cleared(folder)
        hits += len(moments)
        if moments or verdict.kind == LOST:
            yield Verdict(verdict.kind, verdict.why, max(1, len(moments)))
        if hits >= clock.count:
            return


def _killed(child: object) -> Ended:
    child.kill()  # type: ignore[attr-defined]
    return child.finish()  # type: ignore[attr-defined, no-any-return]


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
    """No space at random writes: told by the operations, by a limit of size, and by a real disk where one may be made."""
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
        seconds, instead = rng.uniform(0.1, 0.9) * whole.seconds, rng.choice(("nothing", "a file", "a link"))
        child = start(folder, METHOD, faults.short_pauses)
        early = child.wait(seconds)
        moved = folder.with_name(f"{folder.name}-moved")
        if folder.exists():
            folder.rename(moved)
            _put(instead, folder)
        ended = early or child.finish()
        what = f"try {number}, moved away after {seconds:.2f} s with {instead} in its place"
        if moved.exists():
            whole_there = ended.code == 0 and not (differs(folder, whole.outcome) and differs(moved, whole.outcome))
            _remove(folder)
            moved.rename(folder)
            if ended.code == 0 and not whole_there:
                yield Verdict(LOST, f"{what}: ended with code 0, but no whole run is left")
                cleared(folder)
                continue
            if whole_there:  # all of it was written into a new folder: the old one must be good to go on with too
                again = start(folder, METHOD).finish()
                why = again.said[-300:] if again.code else differs(folder, whole.outcome)
                yield Verdict(LOST, f"{what}: {why}") if why else Verdict(ALIKE)
                cleared(folder)
                continue
        yield judged(folder, METHOD, ended, whole.outcome, what)
        cleared(folder)


def _put(instead: str, place: Path) -> None:
    # The run may have made a new folder there already.
    try:
        if instead == "a file":
            place.write_text("something else")
        elif instead == "a link":
            place.symlink_to("nowhere")
    except OSError:
        pass


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def clock_jumps(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """The time of day jumps by years, the other clock leaps ahead by hours."""
    return bench.with_fault("clock", clock, lambda rng, *_: ("the clock jumps", faults.clock_jumps(rng)))


def no_locks(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """A network file system without locks."""

    def fault(rng: random.Random, folder: Path, whole: Whole) -> tuple[str, faults.Fault]:
        code = rng.choice(faults.NO_LOCKS)
        return f"flock: {errno.errorcode[code]}", faults.no_locks(code)

    return bench.with_fault("locks", clock, fault)


def little_memory(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """So little memory more than at the beginning that something cannot be had."""

    def fault(rng: random.Random, folder: Path, whole: Whole) -> tuple[str, faults.Fault]:
        more = int(2 ** rng.uniform(12, 25))
        return f"{more} bytes more", faults.little_memory(more)

    return bench.with_fault("memory", clock, fault)


def few_handles(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """So few file handles that some file cannot be opened."""

    def fault(rng: random.Random, folder: Path, whole: Whole) -> tuple[str, faults.Fault]:
        more = rng.randrange(8)
        return f"{more} file handles", faults.few_handles(more)

    return bench.with_fault("handles", clock, fault)


def two_processes(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """Two processes on one folder: one waits or is refused; sometimes the other is killed meanwhile."""
    for number in clock.tries():
        rng, whole, folder = bench.rng("two", number), bench.undisturbed(), bench.scratch / f"two-{number}"
        apart, patient, kill = rng.uniform(0, 0.5) * whole.seconds, rng.random() < 0.5, rng.random() < 0.5
        first = start(folder, METHOD)
        time.sleep(apart)
        second = start(folder, METHOD, None if patient else faults.short_patience)
        if kill:
            time.sleep(rng.uniform(0, 0.5) * whole.seconds)
            one = first.wait(0) or _killed(first)
        else:
            one = first.finish()
        other = second.finish()
        what = f"try {number}, {apart:.2f} s apart{', the first one killed' if kill else ''}"
        verdicts = [
            judged(folder, METHOD, ended, whole.outcome, what, killed=kill and ended is one) for ended in (one, other)
        ]
        worst = {verdict.kind: verdict for verdict in verdicts}
        yield worst.get(LOST) or worst.get(REFUSED) or verdicts[0]
        cleared(folder)


def workers_killed(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """One of the two processes that read the data is killed."""
    more = ("--workers", "2")
    for number in clock.tries():
        rng, whole, folder = (
            bench.rng("workers", number),
            bench.undisturbed(METHOD, more),
            bench.scratch / f"workers-{number}",
        )
        child = start(folder, METHOD, None, more)
        early, victim = child.wait(rng.uniform(0.1, 0.9) * whole.seconds), 0
        for _ in range(200):
            found = children(child.pid)
            if early or found:
                break
            early = child.wait(0.01)
        if not early and found:
            victim = rng.choice(found)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                victim = 0
        yield judged(folder, METHOD, early or child.finish(), whole.outcome, f"try {number}, worker {victim} killed")
        cleared(folder)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def flips(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """Every bit of every file of a finished run, of one that was cut off and of a saved model; fewer if time is short."""
    from bit_flips import flip_all, saved_model

    whole, rng = bench.undisturbed(), bench.rng("flips", 0)
    cut = bench.scratch / "flips-cut"
    start(cut, METHOD, faults.killed_at(cut, whole.changes // 2)).finish()
    folders = {
        "a finished run": whole.folder,
        "a run that was cut off": cut,
        "a model": saved_model(bench.scratch / "flips-model"),
    }
    with tempfile.TemporaryDirectory(dir=bench.scratch) as copies:
        for index, (name, folder) in enumerate(folders.items()):
            copy = Path(shutil.copytree(folder, Path(copies, str(index))))
            began = time.monotonic()
            tried = sum(row.flips for row in flip_all(copy, 499, rng).values())
            seconds = 499 * (time.monotonic() - began)  # all bits would take
            every = max(1, -int(-seconds * (len(folders) - index) // max(1.0, clock.left)))
            every = max(every, -(-499 * tried // clock.count))
            for kind, row in flip_all(copy, every, rng).items():
                yield Verdict(REFUSED, "", row.refused)
                yield Verdict(ALIKE, "", row.remade)
                if row.silent:
                    yield Verdict(LOST, f"{row.silent} flips of {kind} of {name} pass", row.silent)


def damage(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """Random flips and cuts of the newest checkpoint: told, and the one before it taken."""
    from .killing import silent_damages, train

    folder = bench.scratch / "damage"
    train(folder, METHOD)
    for number in clock.tries():
        rng = bench.rng("damage", number)
        kind = rng.choice(("flip", "cut"))
        silent = silent_damages(folder, 1, kind, rng)
        yield Verdict(LOST, f"try {number}, {kind} of a checkpoint passes") if silent else Verdict(ALIKE)
