"""The command: run what is missing, write the record, the page and the plot, and say what is shown."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayeswell import BayeswellError

from .. import record as speed_record
from ..timing import one_line
from . import page, peers, plan, plot, verdicts
from .differences import Results
from .kept import Kept, small
from .pool import finished
from .verdict import text

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "quality.jsonl"
PAGE = ROOT / "docs" / "quality.md"
BUILD = Path("build/quality")
SESSION = "session/"
"""Before the keys of lines that say where and when was measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 where something that must be shown is not, or a run of a smoke test has failed."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    choice = chosen(options)
    kept = Kept(options.out or _place(options))
    if not options.no_run:
        try:
            run(choice, kept, options.workers, again=options.again)
        except KeyboardInterrupt:
            print("stopped; what is finished is kept, and the same command goes on from there")
            return 130
        kept.tidy()
    lines, sessions, old = read(kept, choice.epochs, choice.development)
    found = Results.of(lines)
    if kept.path.resolve() == RECORD.resolve():
        page.rewrite(PAGE, found, sessions, old)
    try:
        plot.draw(found, kept.path.with_suffix(".svg"))
    except ImportError as error:
        print(f"no plot: {one_line(error)}")
    if old:
        print(f"{old} results were measured with other settings than today's and are left out; run without --no-run")
    judged = verdicts.verdicts(found) if options.check else []
    for one in judged:
        print(text(one))
    if judged:
        print(f"{sum(one.met for one in judged)} of {len(judged)} shown")
    print(f"the record: {kept.path}")
    broken = [line for line in lines if "error" in line] if options.quick else []
    for line in broken:
        print(f"failed: {line['problem']}, {line['method']}, seed {line['seed']}: {line['error']}")
    return 0 if all(one.met for one in judged) and not broken else 1


def chosen(options: argparse.Namespace) -> plan.Choice:
    """What the options ask for."""
    only = [name.strip() for text in options.only for name in text.split(",") if name.strip()]
    groups, methods, problems = plan.sort_out(only)
    if not groups:
        groups = ("ten", *(name for name in ("slow", "uci", "peers") if getattr(options, name)))
    if options.quick:
        return plan.Choice(groups, methods or plan.QUICK_METHODS, problems or plan.QUICK, 2, 2, plan.QUICK_EPOCHS)
    return plan.Choice(groups, methods, problems, options.seeds, options.splits, None, options.development)


def run(choice: plan.Choice, kept: Kept, workers: int, again: bool = False) -> None:
    """Measure what the record does not hold yet."""
    wanted = plan.cells(choice)
    absent = plan.missing_data(one.problem for one in wanted)
    for problem, reason in absent.items():
        print(f"{problem} is left out: {reason}")
    gone = {one.method for one in wanted if one.method.startswith(peers.PREFIX) and peers.version(one.method) is None}
    for name in sorted(gone):
        print(f"{name} is left out: it is not installed (make quality installs it into .venv-bench)")
    here = [one for one in wanted if one.problem not in absent and one.method not in gone]
    known = kept.read()
    todo = here if again else [one for one in here if known.get(one.key, {}).get("decided") != one.decided]
    guess = Guess(list(known.values()))
    guessed = guess.left(todo) / workers
    time = f", {_time(guessed)} by what is known" if guessed else ""
    print(f"{len(here)} runs, {len(here) - len(todo)} of them known, {len(todo)} to do with {workers} processes{time}")
    if not todo:
        return
    where = speed_record.circumstances()
    session = where["when"]
    kept.add(SESSION + session, **where)
    for number, (cell, values) in enumerate(finished(todo, workers), start=1):
        line = small({"problem": cell.problem, "method": cell.method, "seed": cell.seed, **values})
        if line.get("picked") == cell.method:
            del line["picked"]
        kept.add(cell.key, decided=cell.decided, session=session, cpu=where["cpu"], **line)
        guess.learn(line)
        todo.remove(cell)
        said = f"error: {line['error']}" if "error" in line else f"nll {line['nll']:.4g}"
        left = guess.left(todo) / workers
        place = f"[{number}/{number + len(todo)}]"
        print(f"{place} {cell.key}: {said}, {line.get('wall', 0):.0f} s; {_time(left)} left", flush=True)


class Guess:
    """How long runs will take: as that method on that problem did, or from the problem's and the method's means."""

    def __init__(self, lines: Sequence[dict[str, Any]]) -> None:
        self._walls: dict[tuple[str, str], list[float]] = {}
        for line in lines:
            self.learn(line)

    def learn(self, line: dict[str, Any]) -> None:
        """One more run that has ended."""
        if "wall" in line:
            self._walls.setdefault((line["problem"], line["method"]), []).append(line["wall"])

    def seconds(self, cell: plan.Cell) -> float:
        """Of one run."""
        if own := self._walls.get((cell.problem, cell.method)):
            return _mean(own)
        overall = _mean([one for walls in self._walls.values() for one in walls])
        problem = [one for (name, _), walls in self._walls.items() if name == cell.problem for one in walls]
        return _mean(problem) if problem else overall

    def left(self, cells: Sequence[plan.Cell]) -> float:
        """Of all of them, one after the other."""
        return sum(map(self.seconds, cells))


def read(
    kept: Kept, epochs: int | None = None, development: bool = False
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """The results that today's settings would give, the sessions they are from, and how many others there are."""
    known = kept.read()
    results = {key: line for key, line in known.items() if not key.startswith(SESSION)}
    lines = [line for key, line in results.items() if key.endswith(plan.DEVELOPMENT) == development]
    current = [line for line in lines if line["decided"] == _decided(line, epochs)]
    used = {line["session"] for line in current}
    return current, [known[SESSION + one] for one in sorted(used) if SESSION + one in known], len(lines) - len(current)


def _decided(line: dict[str, Any], epochs: int | None) -> str | None:
    """The checksum that this result would have today; None for what is not there any more."""
    method, problem = line["method"], line["problem"]
    if method.startswith(peers.PREFIX):
        # A library need not be installed where the page is written: what it was is in the line.
        return str(line["decided"]) if method in peers.names() else None
    try:
        return plan.cell(problem, method, line["seed"], epochs).decided
    except (KeyError, BayeswellError):
        return None


def _place(options: argparse.Namespace) -> Path:
    if options.development:
        return BUILD / "development.jsonl"
    return BUILD / "quick.jsonl" if options.quick else RECORD


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _time(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 60 else f"about {seconds:.0f} s"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--check", action="store_true", help="say what is shown; exit code 1 where something is not")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME,...",
        help=f"only these methods, problems and groups ({', '.join(plan.GROUPS)}); may repeat",
    )  # fmt: skip
    parser.add_argument("--slow", action="store_true", help="also Fashion-MNIST whole and CIFAR-10 (hours)")
    parser.add_argument("--uci", action="store_true", help="also nine UCI tables over their standard splits")
    parser.add_argument("--splits", type=int, default=5, help="so many of the 20 standard splits (5; protein has 5)")
    parser.add_argument("--peers", action="store_true", help="also other libraries, on digits and two tables")
    parser.add_argument("--seeds", type=int, default=plan.SEEDS, help=f"so many seeds ({plan.SEEDS})")
    parser.add_argument("--again", action="store_true", help="measure anew, known or not: for when code has changed")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--no-run", action="store_true", help="measure nothing: page, plot and check from the record")
    parser.add_argument("--quick", action="store_true", help="a smoke test: two epochs; its numbers go to build/")
    parser.add_argument(
        "--development", action="store_true", help="hold out training data in place of the test set: to choose defaults"
    )
    parser.add_argument("--out", type=Path, help="the record (benchmarks/results/quality.jsonl)")
    return parser
