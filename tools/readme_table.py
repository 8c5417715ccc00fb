"""Write the table of README.md from the record of ``make quality``, or check that it is up to date (``--check``).

    python tools/readme_table.py             write it
    python tools/readme_table.py --check     exit code 1 where it is not what the record says

Means over seeds with their standard errors. A number is bold where it is better than that of ordinary training by more
than chance gives to one of twenty equal pairs (the paired differences of the same seeds, by Student's distribution: 4.3
standard errors for three seeds), and in italics where it is worse by as much. Results of other settings than today's do
not count, as in ``make quality``.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # the benchmarks are a package in the project's folder, not an installed one

from benchmarks.quality import command
from benchmarks.quality.differences import Mean, Results
from benchmarks.quality.kept import Kept
from benchmarks.quality.plan import CONTROL
from benchmarks.quality.problems import PROBLEMS, TEN
from benchmarks.table import between_marks, markdown

from bayeswell.report.differences import CHANCE, student_quantile

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "<!-- measured: written by tools/readme_table.py from here -->"
PROBLEM = "fashion-10k"
ROWS = {
    "map": "ordinary training (`map`)",
    "deep-ensemble": "five of those (`deep-ensemble`)",
    "auto": "the default (`auto`)",
    "hwa": "`hwa`",
    "bbb": "`bbb`",
}
LEAST_SEEDS = 3


@dataclass(frozen=True)
class Column:
    """A score: its key in the record, its heading, and whether more of it is better."""

    key: str
    heading: str
    digits: int
    more_is_better: bool = False


COLUMNS = (
    Column("accuracy", "accuracy", 3, more_is_better=True),
    Column("nll", "NLL", 3),
    Column("ece", "ECE", 3),
    Column("auroc", "AUROC, foreign images", 3, more_is_better=True),
)


class NotMeasured(Exception):
    """The record lacks something that the table needs."""


def table(found: Results, problem: str = PROBLEM) -> str:
    """The table, with a line before it that says what was measured and how to measure it again."""
    missing = [method for method in ROWS if len(found.at(problem, method)) < LEAST_SEEDS]
    if missing:
        remedy = f'make quality ARGS="--only {problem},{",".join(missing)}"'
        raise NotMeasured(f"{problem}: fewer than {LEAST_SEEDS} seeds of {', '.join(missing)}; run {remedy}")
    rows = [
        [
            title,
            *(_cell(found, problem, method, column) for column in COLUMNS),
            _cost(found, problem, method),
            _everywhere(found, method),
        ]
        for method, title in ROWS.items()
    ]
    header = [
        "",
        *(column.heading for column in COLUMNS),
        "cost",
        f"NLL on {len(_known(found))} problems: better, level, worse",
    ]
    return f"{_about(found, problem)}\n\n{markdown(header, rows)}"


def _about(found: Results, problem: str) -> str:
    seeds = {len(found.at(problem, method)) for method in ROWS}
    one, typed = PROBLEMS[problem], f'make quality ARGS="--only {problem},{",".join(ROWS)}"'
    count = " or ".join(map(str, sorted(seeds)))
    about = f"problem {problem}, {one.epochs} epochs, {count} seeds, ± the standard error over them"
    return f"`{typed}`: {about}; foreign images: {one.ood}."


def _cell(found: Results, problem: str, method: str, column: Column) -> str:
    own, apart = (ask(problem, method, column.key) for ask in (found.score, found.difference))
    if own is None or apart is None:
        raise NotMeasured(f"{problem}: no {column.key} of {method} in the record")
    text = f"{own.mean:.{column.digits}f} ± {own.error:.{column.digits}f}"
    if method == CONTROL:
        return text
    gain = sign(apart) if column.more_is_better else -sign(apart)
    return f"**{text}**" if gain > 0 else f"_{text}_" if gain < 0 else text


def sign(apart: Mean) -> int:
    """1 or -1 where a mean difference is further from zero than in one of twenty equal pairs; else 0."""
    limit = student_quantile(CHANCE, apart.count - 1) * apart.error if apart.count > 1 else math.inf
    return 0 if abs(apart.mean) <= limit else int(math.copysign(1, apart.mean))


def _cost(found: Results, problem: str, method: str) -> str:
    passes = found.score(problem, method, "passes")
    if passes is None:
        raise NotMeasured(f"{problem}: no passes of {method} in the record")
    return f"{passes.mean:g}x"


def _everywhere(found: Results, method: str) -> str:
    """On how many of the benchmark's problems its NLL is better than, level with and worse than ordinary training's."""
    if method == CONTROL:
        return ""
    apart = [found.difference(problem, method) for problem in _known(found)]
    signs = [sign(one) for one in apart if one is not None]
    return f"{signs.count(-1)}, {signs.count(0)}, {signs.count(1)}"


def _known(found: Results) -> list[str]:
    """The problems of the benchmark on which every row was measured."""
    return [problem for problem in found.problems(TEN) if all(found.at(problem, method) for method in ROWS)]


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 where the page is out of date or the record lacks something."""
    parser = argparse.ArgumentParser(description="The table of README.md from the record of make quality.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if it is out of date")
    parser.add_argument("--record", type=Path, default=command.RECORD, help="benchmarks/results/quality.jsonl")
    parser.add_argument("--page", type=Path, default=ROOT / "README.md", help="README.md")
    given = parser.parse_args(arguments)
    lines, _, _ = command.read(Kept(given.record))
    old = given.page.read_text(encoding="utf-8")
    try:
        new = between_marks(old, table(Results.of(lines)), BEGIN)
    except (NotMeasured, ValueError) as error:
        print(error)
        return 1
    if given.check:
        if new != old:
            print(f"the table of {given.page.name} is out of date; run: python tools/readme_table.py")
        return int(new != old)
    given.page.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
