"""The evidence for temperature "auto": fixed temperatures beside it, on the development split.

    python -m benchmarks.quality.temperatures [--problems digits,yacht] [--methods bbb,hwa] [--seeds 3]

Every method at temperature 1 (Bayes' rule), 0.1, 0.01 and "auto", against ordinary training; a fifth of the training
examples is held out in place of the test set, which is not touched. What is finished is kept in
benchmarks/results/temperatures.jsonl. Prints mean differences of NLL to `map` at the same seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .kept import Kept, small
from .plan import CONTROL, Cell
from .pool import finished
from .problems import TEN
from .variants import AT, print_table

RECORD = Path(__file__).parents[1] / "results" / "temperatures.jsonl"
METHODS = ("bbb", "k-tied", "hwa", "sgvb-lrt", "sghmc")
TEMPERATURES = (1.0, 0.1, 0.01, "auto")


def measure(cell: Cell) -> dict[str, Any]:
    """One run; the method is ``name@temperature``."""
    from . import runs

    name, _, temperature = cell.method.partition(AT)
    given: dict[str, Any] = {}
    if temperature:
        given["temperature"] = temperature if temperature == "auto" else float(temperature)
    try:
        return runs.run(cell.problem, name, cell.seed, given, True)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default=",".join(TEN))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-run", action="store_true", help="print what is known")
    options = parser.parse_args(arguments)
    problems, kept = options.problems.split(","), Kept(RECORD)
    labels = [CONTROL, *(f"{m}{AT}{t}" for m in options.methods.split(",") for t in TEMPERATURES)]
    wanted = [Cell(p, label, seed, "") for p in problems for seed in range(options.seeds) for label in labels]
    known = kept.read()
    todo = [] if options.no_run else [cell for cell in wanted if cell.key not in known]
    for number, (cell, values) in enumerate(finished(todo, options.workers, measure), start=1):
        kept.add(cell.key, **small({key: values[key] for key in ("nll", "ece", "auroc", "error") if key in values}))
        print(f"[{number}/{len(todo)}] {cell.key}", flush=True)
    print_table(kept.read(), problems, labels, options.seeds)


if __name__ == "__main__":
    main()
