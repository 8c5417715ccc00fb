"""Break runs in every way that a machine may, and see that nothing is lost.

    python tools/survive.py                    all kinds of faults, 30 minutes at the most, 500 kills of all methods
    python tools/survive.py --quick            the same in about a minute, without ranks
    python tools/survive.py kills workers      some kinds only; with --count so many tries of each at the most

Each try is a run by command with a fault. It either goes on and ends bit for bit as the undisturbed run (*alike*), or
ends with one clear line, and `resume` ends alike once the fault is gone (*refused clearly*); all else is *lost*: other
numbers, no way to go on, a traceback, a run that hangs. Kills and flipped bits that are found out count as alike or
refused. The exit code is 1 if anything is lost.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

from survival import disks, kinds, ranks
from survival.bench import Bench
from survival.table import Kind, lost, run_kinds, shown
from survival.trial import warm_up

# Share of the time, most tries; the same when quick.
TRIED = {
    "kills": (kinds.kills, 0.34, 500, 20),
    "flips": (kinds.flips, 0.20, 10**9, 1500),
    "damage": (kinds.damage, 0.03, 1000, 20),
    "disk full": (disks.disk_full, 0.08, 90, 6),
    "read-only": (disks.read_only, 0.06, 60, 4),
    "vanished": (disks.vanished, 0.04, 40, 2),
    "clock": (kinds.clock_jumps, 0.02, 30, 2),
    "two processes": (kinds.two_processes, 0.05, 40, 2),
    "workers": (kinds.workers_killed, 0.04, 30, 1),
    "memory": (kinds.little_memory, 0.04, 60, 3),
    "handles": (kinds.few_handles, 0.03, 40, 3),
    "no locks": (kinds.no_locks, 0.01, 10, 1),
    "ranks": (ranks.ranks, 0.06, 8, 0),
}


def main(arguments: list[str]) -> int:
    """Try, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of: {', '.join(TRIED)}")
    parser.add_argument("--minutes", type=float, help="at the most in all (30; quick: 1)")
    parser.add_argument("--count", type=int, help="tries of each kind at the most")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--quick", action="store_true", help="few tries of each kind")
    options = parser.parse_args(arguments)
    unknown = [kind for kind in options.kinds if kind not in TRIED]
    if unknown:
        parser.error(f"unknown kind {unknown[0]!r}; allowed: {', '.join(TRIED)}")
    minutes = options.minutes or (1.0 if options.quick else 30.0)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # a process with threads cannot be forked safely
    os.environ.pop("BAYESWELL_KEY", None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that small disks are taken away
    began = time.monotonic()
    print(f"seed {options.seed}, {minutes:g} minutes at the most", flush=True)
    with tempfile.TemporaryDirectory(prefix="survive-") as scratch:
        bench = Bench(Path(scratch).resolve(), options.seed)
        warm_up(bench.scratch)
        table = run_kinds(
            chosen(bench, options.kinds, options.count, options.quick), 60 * minutes - (time.monotonic() - began)
        )
    print(f"{shown(table)}\nseed {options.seed}, {time.monotonic() - began:.0f} s")
    return 1 if lost(table) else 0


def chosen(bench: Bench, names: list[str], count: int | None, quick: bool) -> dict[str, Kind]:
    """The kinds of these names, or all; runs of several ranks take too long for a quick look."""
    found = {}
    for name, (tries, share, many, few) in TRIED.items():
        wanted = count or (few if quick else many)
        if wanted and name in (names or TRIED):
            found[name] = Kind(functools.partial(tries, bench), share, wanted)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
