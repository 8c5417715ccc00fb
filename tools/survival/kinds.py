"""Kills, flips, and what a machine may run short of: each kind makes tries while it has time."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bayeswell as bw

from . import faults
from .bench import METHOD, Bench
from .table import ALIKE, LOST, REFUSED, Clock, Verdict
from .trial import Ended, Whole, cleared, judged, start

KILLS_PER_RUN = 5


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
                last = child.wait(seconds) or child.killed()
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
        more = int(2 ** rng.uniform(14, 28))
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
            one = first.wait(0) or first.killed()
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
    """One of the two processes that read the data is killed: at an operation on files, or at a moment."""
    more = ("--workers", "2")
    for number in clock.tries():
        rng, whole = bench.rng("workers", number), bench.undisturbed(METHOD, more)
        folder, operation = bench.scratch / f"workers-{number}", rng.randint(1, whole.changes // 2)
        if number % 2 == 0:
            what = f"try {number}, a worker killed at operation {operation}"
            ended = start(folder, METHOD, faults.worker_killed_at(folder, operation), more).finish()
        else:
            seconds = rng.uniform(0.1, 0.9) * whole.seconds
            what = f"try {number}, a worker killed after {seconds:.2f} s"
            child = start(folder, METHOD, None, more)
            early = child.wait(seconds)
            while early is None and not (found := faults.children(child.pid)):
                early = child.wait(0.005)
            if early is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(found), signal.SIGKILL)
            ended = early or child.finish()
        yield judged(folder, METHOD, ended, whole.outcome, what)
        cleared(folder)


def flips(bench: Bench, clock: Clock) -> Iterator[Verdict]:
    """Every bit of every file of a finished run, of one cut off and of a saved model; fewer if time is short."""
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
            few = flip_all(copy, 499, rng)
            tried = sum(row.flips for row in few.values())
            seconds = 499 * (time.monotonic() - began)  # all bits would take
            every = max(1, -int(-seconds * (len(folders) - index) // max(1.0, clock.left)))
            every = max(every, -(-499 * tried // clock.count))
            for kind, row in [*few.items(), *flip_all(copy, every, rng).items()]:
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
