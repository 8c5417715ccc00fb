"""Settings beside one another on the development split: the evidence for a default.

    python -m benchmarks.quality.variants ivon ivon@stepper.lr=0.1 ivon@stepper.lr=0.1@stepper.clip=1 --problems yacht

A variant is a method with settings behind ``@``, as `fit` takes them; `stepper.lr` is one setting of a part. A fifth of
the training examples is held out in place of the test set, which is not touched. What is finished is kept in
build/quality/variants.jsonl for as long as the record is of the same code: a part whose code has changed needs
``--again``. Prints the NLL of `map`, and mean differences to it at the same seeds with their standard errors.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .differences import mean_of
from .kept import Kept, small
from .plan import CONTROL, Cell
from .pool import finished
from .problems import TEN

RECORD = Path("build/quality/variants.jsonl")
AT = "@"
SCORES = ("nll", "ece", "auroc", "shifted_nll", "rmse")


def settings_of(variant: str) -> tuple[str, dict[str, Any]]:
    """The method's name, and what ``fit`` is given: "ivon@stepper.lr=0.1" is ivon with stepper={"lr": 0.1}."""
    name, *parts = variant.split(AT)
    found: dict[str, Any] = {}
    for part in parts:
        key, sign, text = part.partition("=")
        if not sign:
            raise SystemExit(f"variants: '{part}' in '{variant}' is no setting; write name=value")
        axis, dot, setting = key.partition(".")
        if dot:
            found.setdefault(axis, {})[setting] = _value(text)
        else:
            found[axis] = _value(text)
    return name, found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def measure(cell: Cell) -> dict[str, Any]:
    """One run of a variant, whatever happens to it."""
    from . import runs

    try:
        name, settings = settings_of(cell.method)
        return runs.run(cell.problem, name, cell.seed, settings, True)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="+", metavar="METHOD[@SETTING=VALUE...]")
    parser.add_argument("--problems", default=",".join(TEN))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scores", default="nll", help=f"tables of these: {', '.join(SCORES)}")
    parser.add_argument("--again", action="store_true", help="measure anew: for when code has changed")
    options = parser.parse_args(arguments)
    problems, kept = options.problems.split(","), Kept(RECORD)
    labels = list(dict.fromkeys([CONTROL, *options.variants]))
    for label in labels:
        settings_of(label)
    wanted = [Cell(p, label, seed, "") for p in problems for seed in range(options.seeds) for label in labels]
    known = kept.read()
    todo = wanted if options.again else [cell for cell in wanted if cell.key not in known]
    for number, (cell, values) in enumerate(finished(todo, options.workers, measure), start=1):
        kept.add(cell.key, **small(values))
        said = values.get("error") or f"nll {values['nll']:.4g}"
        print(f"[{number}/{len(todo)}] {cell.key}: {said}", flush=True)
    for score in options.scores.split(","):
        print_table(kept.read(), problems, labels, options.seeds, score)


def print_table(
    known: Mapping[str, Mapping[str, Any]], problems: Sequence[str], labels: Sequence[str], seeds: int,
    score: str = "nll",
) -> None:  # fmt: skip
    """The control's score, and how far the others are above it at the same seeds."""
    print(f"| {score}: {CONTROL}, and what is above it | " + " | ".join(problems) + " |")
    print("|---" * (len(problems) + 1) + "|")
    for label in labels:
        cells = []
        for problem in problems:
            found = []
            for seed in range(seeds):
                own, control = (known.get(f"{problem}/{one}/{seed}", {}).get(score) for one in (label, CONTROL))
                if own is not None and control is not None:
                    found.append(own if label == CONTROL else own - control)
            one = mean_of(found) if found else None
            sign = "" if label == CONTROL else "+"
            cells.append("" if one is None else f"{one.mean:{sign}.3f} ± {one.error:.3f}")
        print(f"| {label} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
