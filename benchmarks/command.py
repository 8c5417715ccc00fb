"""The command: measure, write the record, the tables and the plot, and compare with the goals."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import goals, plot, record, table
from .parts import MARK, PARTS
from .timing import one_line

QUICK_ROUNDS = 3
ROUNDS = 31


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 where a goal falls short or a part failed."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # leave in order, with all processes
    chosen = choose(options.only, options.quick)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    # A quick look is no result: it never lands in the record or the page.
    out = options.out or (Path("build/benchmark/record.json") if options.quick else record.DEFAULT)
    found = record.read(out)
    failures = []
    for name in [] if options.no_run else chosen:
        began = time.perf_counter()
        print(f"{name} ...", flush=True)
        try:
            found["parts"][name] = {**record.circumstances(), **measured(name, rounds, options.threads)}
        except PartFailed as error:
            failures.append(name)
            print(f"  failed: {error}")
            continue
        record.write(out, found)
        print(f"  {time.perf_counter() - began:.0f} s", flush=True)
    if out.resolve() == record.DEFAULT.resolve():
        table.rewrite(record.FOLDER / "README.md", found, record.elsewhere())
    try:
        plot.draw(found, out.with_name("plot.svg") if out.name == record.DEFAULT.name else out.with_suffix(".svg"))
    except ImportError as error:
        print(f"no plot: {one_line(error)}")
    short = [] if not options.check else check(found, None if not options.only else set(chosen))
    print(f"the record: {out}")
    return 1 if short or failures else 0


class PartFailed(Exception):
    """A part that ended without a result."""


def choose(only: Sequence[str], quick: bool) -> list[str]:
    """The parts to measure: all, the quick ones, or those that are named (GROUP, NET or GROUP/NET)."""
    if not only:
        return [name for name, part in PARTS.items() if not part.on_request and (part.quick or not quick)]
    groups = {piece for name in PARTS for piece in (name, *name.split("/"))}
    for name in only:
        if name not in groups:
            raise SystemExit(f"benchmarks: there is no part '{name}'; allowed: {', '.join(sorted(groups))}")
    return [name for name in PARTS if any(one == name or one in name.split("/") for one in only)]


def measured(name: str, rounds: int, threads: int) -> dict[str, Any]:
    """One part, in a process of its own that ends with this one; its notes are passed on as they come."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.parts", name]
    command += ["--rounds", str(rounds), "--threads", str(threads)]
    settings = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    result: dict[str, Any] | None = None
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=settings, start_new_session=True
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(MARK):
                    result = json.loads(line.removeprefix(MARK))
                else:
                    print(line, end="", flush=True)
            process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it has started in turn
                process.wait()
        if result is None:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no message"])[-1]
            raise PartFailed(f"exit code {process.returncode}: {last}")
    return result


def check(found: dict[str, Any], parts: set[str] | None) -> list[goals.Verdict]:
    """Print a line for each goal, of some parts or of all; those that fall short, or were not measured."""
    judged = [one for one in goals.verdicts(found) if parts is None or one.goal.part in parts]
    for one in judged:
        print(goals.line(one))
    short = [one for one in judged if not one.met]
    print(f"{len(judged) - len(short)} of {len(judged)} goals met")
    return short


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare with the goals; exit code 1 where one falls short"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test: few rounds, LeNet-5 and MLP only")
    parser.add_argument("--only", action="append", default=[], metavar="GROUP/NET", help="only these parts; may repeat")
    parser.add_argument("--rounds", type=int, help=f"rounds of the quickest parts, others in proportion ({ROUNDS})")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="the record (benchmarks/results/record.json); parts not run are kept")
    parser.add_argument("--no-run", action="store_true", help="measure nothing: tables, plot and check from the record")
    return parser
