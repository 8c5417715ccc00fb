"""Quality of all methods, untuned, on the same problems: ``python -m benchmarks.quality [--check] [--sample N]``.

The record ``results/quality.jsonl`` has one line for each problem, method and seed; it was measured before the package
was rewritten. ``--sample N`` measures N cells of the bundled problems again (three seeds each) and compares their mean
test NLL with the record. ``--check`` exits with code 1 if a goal or a cell is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import warnings
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.metrics import paired_difference
from sklearn import datasets

RECORD = Path(__file__).parent / "results" / "quality.jsonl"
PROBLEMS = (
    "digits", "breast_cancer", "wine", "diabetes", "boston", "concrete", "energy", "yacht", "mnist-2k", "fashion-10k",
    "imdb-5k",
)  # fmt: skip
SAMPLE_METHODS = ("map", "bbb", "k-tied", "hwa", "laplace", "swag", "vl", "mc-dropout")
HIDDEN = {"digits": (100, 100)}
EPOCHS = {"digits": 20}
SEEDS = (0, 1, 2)
DRAWS = 100

Cells = dict[tuple[str, str], dict[int, dict[str, Any]]]


def read_record() -> Cells:
    """Return the runs by problem and method, and in these by seed."""
    cells: Cells = defaultdict(dict)
    for line in RECORD.read_text().splitlines():
        run = json.loads(line)
        if "nll" in run and "problem" in run:
            cells[run["problem"], run["method"]][run["seed"]] = run
    return cells


def scores(cells: Cells, problem: str, method: str, key: str = "nll") -> dict[int, float]:
    return {seed: run[key] for seed, run in cells.get((problem, method), {}).items() if key in run}


def differences(cells: Cells, problem: str, method: str) -> tuple[float, float, float] | None:
    """Return the mean NLL difference to map, its standard error and the p-value of a paired t-test."""
    own, reference = scores(cells, problem, method), scores(cells, problem, "map")
    seeds = sorted(own.keys() & reference.keys())
    if len(seeds) < 2:
        return None
    values = [own[seed] - reference[seed] for seed in seeds]
    p_value = paired_difference([own[s] for s in seeds], [reference[s] for s in seeds]).p_value
    return statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values)), p_value


def goals(cells: Cells) -> list[tuple[str, bool, str]]:
    """Return title, result and numbers of each goal."""
    methods = sorted({method for _, method in cells if method in bw.METHODS and method != "map"})
    level = {
        method: sum(
            found is not None and found[0] <= 2 * found[1]
            for found in (differences(cells, problem, method) for problem in PROBLEMS)
        )
        for method in methods
    }
    short = [method for method in methods if level[method] < 8]
    fashion = {
        method: {
            key: statistics.mean(scores(cells, "fashion", method, key).values()) for key in ("nll", "ece", "passes")
        }
        for method in methods
        if scores(cells, "fashion", method, "ece")
    }
    good = [m for m, s in fashion.items() if s["nll"] <= 0.233 and s["ece"] <= 0.01 and s["passes"] <= 2]
    best = min(good, key=lambda method: fashion[method]["nll"]) if good else "none"
    return [
        (
            "NLL not above map's by two standard errors on 8 of 11 problems",
            not short,
            f"{len(methods) - len(short)} of {len(methods)} methods; short: {', '.join(short) or 'none'}",
        ),
        ("Fashion-MNIST: NLL <= 0.233, ECE <= 0.01 at 2 trainings", bool(good), f"best: {best}"),
    ]


def load(problem: str, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], float]:
    """Return training and test data of a bundled problem, scaled, and the scale of the targets."""
    raw = getattr(datasets, f"load_{problem}")()
    inputs, targets = torch.tensor(raw.data, dtype=torch.float32), torch.tensor(raw.target)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    test, train = order[: round(0.2 * len(order))], order[round(0.2 * len(order)) :]
    axis = None if problem == "digits" else 0
    mean = inputs[train].mean() if axis is None else inputs[train].mean(axis)
    std = inputs[train].std() if axis is None else inputs[train].std(axis).clamp_min(1e-6)
    inputs = (inputs - mean) / std
    if not targets.is_floating_point():
        return (inputs[train], targets[train]), (inputs[test], targets[test]), 1.0
    scale = float(targets[train].std())
    targets = ((targets - targets[train].mean()) / scale).float()[:, None]
    return (inputs[train], targets[train]), (inputs[test], targets[test]), scale


def network(problem: str, inputs: int, outputs: int, seed: int) -> nn.Module:
    widths = (inputs, *HIDDEN.get(problem, (50,)))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def measure(problem: str, method: str, seed: int) -> float:
    """Return the test NLL of one run, in the units of the targets."""
    train, test, scale = load(problem, seed)
    classes = not train[1].is_floating_point()
    outputs = int(train[1].max()) + 1 if classes else 1
    net = network(problem, train[0].shape[1], outputs, seed)
    likelihood = "categorical" if classes else "gaussian"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        epochs = EPOCHS.get(problem, 40)
        result = bw.fit(net, train, method, likelihood, epochs=epochs, seed=seed, progress=False)
        return float(result.evaluate(*test, draws=DRAWS)["nll"]) + math.log(scale)


def compare_cell(old: Sequence[float], new: Sequence[float]) -> float:
    """Return the difference of means over its standard error (Welch)."""
    error = math.sqrt(statistics.variance(old) / len(old) + statistics.variance(new) / len(new))
    return (statistics.mean(new) - statistics.mean(old)) / max(error, 1e-3)


def sample(cells: Cells, count: int) -> bool:
    """Measure some cells again; return True if all agree with the record."""
    chosen = [(problem, method) for method in SAMPLE_METHODS for problem in PROBLEMS[:4]][:count]
    # Splits differ between old and new runs, so seeds are independent: Student's t with about 4 degrees of freedom.
    limit = 8.6
    agrees = True
    for problem, method in chosen:
        old = list(scores(cells, problem, method).values())
        new = [measure(problem, method, seed) for seed in SEEDS]
        z = compare_cell(old, new)
        agrees &= abs(z) <= limit
        print(
            f"{problem:14} {method:12} record {statistics.mean(old):8.4f}  now {statistics.mean(new):8.4f}  "
            f"{z:+5.1f} standard errors{'' if abs(z) <= limit else '  DIFFERS'}",
            flush=True,
        )
    return agrees


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit code 1 if something is missed")
    parser.add_argument("--no-run", action="store_true", help="the record alone")
    parser.add_argument("--sample", type=int, default=0, help="number of cells to measure again")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    cells = read_record()
    found: list[bool] = []
    for title, met, numbers in goals(cells):
        print(f"{'met' if met else 'missed':7} {title}: {numbers}")
        found.append(met)
    if options.sample and not options.no_run:
        found.append(sample(cells, options.sample))
    return 0 if all(found) or not options.check else 1


if __name__ == "__main__":
    raise SystemExit(main())
