"""Does a method draw from the posterior it speaks of? Every method against long runs of NUTS, on small networks.

The references in tests/references hold posteriors of regression networks and of classifiers at temperature 1. Each
method trains the same networks under the same prior, likelihood and temperature, and untuned: with its own settings,
the same on all problems. All have one
budget of forward passes: an ensemble of five trains each member for a fifth of the steps, and a method whose step costs
twice as much takes half as many.

Samplers come nearest. Mean-field posteriors make the function more uncertain than it is; an ensemble makes it too sure.
laplace and vl fit a bell to the curvature at one point, which is that of the linearised network, and predict through
that: draws through the network itself (prediction="sampled") leave the neighbourhood in which it is as curved as there.
(With the full covariance laplace has std ratio 1.04 on the first curve.)

    python examples/fidelity.py [--problem NAME] [method ...]
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bayeswell as bw
from bayeswell.methods import find_method
from bayeswell.metrics import agreement, mean_error, std_ratio, total_variation
from bayeswell.training import fit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from make_references import PROBLEMS, Reference, read_reference

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
BUDGET = 150 if SMOKE else 15_000
"""Forward passes over a batch while training; an ordinary step takes three."""

DRAWS = 20 if SMOKE else 500

METHODS = (
    "map", "bbb", "sgvb-lrt", "flipout", "k-tied", "low-rank", "vl", "f-bbb", "hwa", "ivon", "laplace", "mc-dropout",
    "deep-ensemble", "swag", "sgld", "psgld", "sghmc", "csgld",
)  # fmt: skip

BANK = {"collector": {"name": "bank", "max_draws": DRAWS}}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # The first layer of 1-50-1 has one column: no higher rank fits, and there rank 1 is mean-field.
    "k-tied": {"posterior": {"name": "k_tied", "rank": 1}},
    # Its spread is that of SGD, which there is none of without small batches.
    "swag": {"batch_size": 10},
    "sgld": BANK,
    "psgld": BANK,
    "sghmc": BANK,
    "csgld": BANK,
}
"""What differs from the named method: no rates. All data are in each step unless ``batch_size`` says otherwise."""


@dataclass(frozen=True)
class Score:
    """Two numbers against the reference (for their meaning see ``main``), and whether training diverged."""

    first: float
    second: float
    diverged: bool = False

    def __str__(self) -> str:
        return f"{'diverged':>17}" if self.diverged else f"{self.first:8.3f} {self.second:8.3f}"


def network(reference: Reference) -> nn.Module:
    """The reference's network: linear layers with tanh between them."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inside, outside in itertools.pairwise(reference.problem.widths):
        layers += [nn.Linear(inside, outside), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def predictions(reference: Reference, method: str, budget: int = BUDGET, **settings: Any) -> Any:
    """What the method says at the reference's test inputs after training on its data."""
    problem = reference.problem
    options: dict[str, Any] = {"batch_size": len(problem.train_targets), "prior": problem.prior, "temperature": 1.0}
    options |= {**SETTINGS.get(method, {}), **settings}
    batches = math.ceil(len(problem.train_targets) / options["batch_size"])
    epochs = max(10, round(budget / find_method(method).cost / batches))
    data = (problem.train_inputs, problem.train_targets)
    result = fit(network(reference), data, method, problem.likelihood, epochs=epochs, progress=False, **options)
    return result.predict(torch.from_numpy(problem.test_inputs).float(), draws=DRAWS)


def compare(reference: Reference, method: str, **settings: Any) -> Score:
    """A method on one problem."""
    with warnings.catch_warnings():
        # That chains are short and stds slow is what the table is there to show.
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        try:
            found = predictions(reference, method, **settings)
        except bw.DivergenceError:
            return Score(math.nan, math.nan, diverged=True)
    mean, std = torch.from_numpy(reference.mean), torch.from_numpy(reference.std)
    if is_regression(reference):
        return Score(
            float(mean_error(found.mean[:, 0], mean, std)),
            float(std_ratio(found.epistemic_variance[:, 0].sqrt(), std)),
        )
    return Score(float(agreement(found.probabilities, mean)), float(total_variation(found.probabilities, mean)))


def is_regression(reference: Reference) -> bool:
    """Whether the reference is about f(x), not about class probabilities."""
    return bool(reference.problem.likelihood["name"] == "gaussian")


def floor(reference: Reference) -> Score:
    """Half of the chains of NUTS against the other half: what no method can beat."""
    one, other = (torch.from_numpy(reference.chain_mean[half::2].mean(0)) for half in (0, 1))
    if not is_regression(reference):
        return Score(float(agreement(one, other)), float(total_variation(one, other)))
    spreads = [torch.from_numpy(reference.chain_variance[half::2].mean(0)).sqrt() for half in (0, 1)]
    return Score(float(mean_error(one, other, spreads[1])), float(std_ratio(*spreads)))


def main(arguments: list[str]) -> None:
    """Train, compare, print the table."""
    problems = list(PROBLEMS)
    if arguments[:1] == ["--problem"]:
        problems, arguments = arguments[1:2], arguments[2:]
    references = [read_reference(name) for name in problems]
    names = arguments or list(METHODS)
    for name in names:
        find_method(name)
    print(f"{BUDGET:,} forward passes for each method on each problem, temperature 1, {DRAWS} draws, untuned\n")
    widths = ["-".join(map(str, reference.problem.widths)) for reference in references]
    print(f"{'':16}" + "".join(f" {f'{name} {width}':>19}" for name, width in zip(problems, widths, strict=True)))
    heads = ["  error std ratio" if is_regression(reference) else "  agree tot. var." for reference in references]
    print(f"{'':16}" + "".join(f" {head:>19}" for head in heads) + f"{'seconds':>9}")
    print(f"{'NUTS (one half)':16}" + "".join(f" {floor(reference)!s:>19}" for reference in references))
    for name in names:
        start = time.perf_counter()
        scores = [compare(reference, name) for reference in references]
        line = f"{name:16}" + "".join(f" {score!s:>19}" for score in scores)
        print(f"{line}{time.perf_counter() - start:9.1f}", flush=True)
    print(
        "\nAgainst long runs of NUTS at test inputs on and off the data."
        "\nerror:     how many posterior stds the mean function is off (root mean square); 0 is exact."
        "\nstd ratio: std of the function / that of the posterior, on average; 1 is exact, 0 is no uncertainty."
        "\nagree:     share of inputs with the same most probable class."
        "\ntot. var.: half the summed difference of class probabilities, on average; 0 is exact, 1 the worst."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
