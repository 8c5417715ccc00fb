"""Does a method draw from the posterior it speaks of? Every method against long runs of NUTS, on two small networks.

The references in tests/references hold the posterior of a regression network and of a classifier, at temperature 1.
Each method trains the same networks under the same prior, likelihood and temperature. All have one budget of
forward passes: an ensemble of five trains each member for a fifth of the steps, and a method whose step costs twice as
much takes half as many.

Samplers come nearest. Mean-field posteriors make the function about twice as uncertain as it is; an ensemble makes it
four times too sure. laplace and vl fit a bell to the curvature at one point, which is that of the linearised network,
and predict through that: draws through the network itself (prediction="sampled") leave the neighbourhood in which it is
as curved as there, and are four times and twice as far off. (With the full covariance laplace has std ratio 1.04.) vl
remains the farthest: its penalty draws the mean to where curvature is small. SWAG's std ratio is a matter of its
learning rate: 0.2 to 1.0 over a decade.

    python examples/fidelity.py [method ...]
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
from make_references import Reference, read_reference

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
BUDGET = 150 if SMOKE else 15_000
"""Forward passes over a batch while training; an ordinary step takes three."""

DRAWS = 20 if SMOKE else 500

ADAM = {"stepper": {"name": "adam", "lr": 0.01}}
BANK = {"collector": {"name": "bank", "max_draws": DRAWS}}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "map": ADAM,
    "bbb": ADAM,
    "sgvb-lrt": ADAM,
    "flipout": ADAM,
    # The first layer of 1-50-1 has one column: no higher rank fits, and there rank 1 is mean-field.
    "k-tied": {**ADAM, "posterior": {"name": "k_tied", "rank": 1}},
    "low-rank": ADAM,
    "vl": ADAM,
    "f-bbb": ADAM,
    "hwa": ADAM,
    "ivon": {"clip_norm": None},
    "laplace": ADAM,
    "mc-dropout": ADAM,
    "deep-ensemble": ADAM,
    # Its spread is that of SGD, which there is none of without small batches.
    "swag": {"batch_size": 10},
    "sgld": BANK,
    "psgld": BANK,
    "sghmc": BANK,
}
"""What differs from the named method. All data are in each step unless ``batch_size`` says otherwise."""

RATES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "regression": {
        "swag": {"name": "sgd", "lr": 0.003, "momentum": 0.9},
        "ivon": {"name": "ivon", "lr": 0.005, "hess_init": 100.0},
        "sgld": {"name": "sgld", "lr": 0.002},
        "psgld": {"name": "psgld", "lr": 0.001, "adapt_steps": BUDGET // 6},
        "sghmc": {"name": "sghmc", "lr": 0.002, "momentum": 0.97},
    },
    "classification": {
        "swag": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
        "ivon": {"name": "ivon", "lr": 0.1, "hess_init": 10.0},
        "sgld": {"name": "sgld", "lr": 1.0},
        "psgld": {"name": "psgld", "lr": 0.01, "adapt_steps": BUDGET // 6},
        "sghmc": {"name": "sghmc", "lr": 0.1, "momentum": 0.97},
    },
}
"""Steppers whose rate depends on the curvature of the loss, 100 times larger with this little noise in the targets.

The best of three to six for each; Adam's one rate for all other methods is the best of three on the whole.
"""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    mean_error: float
    std_ratio: float
    agreement: float
    total_variation: float
    seconds: float = math.nan


def network(reference: Reference) -> nn.Module:
    """The reference's network: linear layers with tanh between them."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inside, outside in itertools.pairwise(reference.problem.widths):
        layers += [nn.Linear(inside, outside), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def predictions(reference: Reference, method: str) -> Any:
    """What the method says at the reference's test inputs after training on its data."""
    problem = reference.problem
    options: dict[str, Any] = {"batch_size": len(problem.train_targets), "prior": problem.prior, "temperature": 1.0}
    options |= SETTINGS.get(method, {})
    if method in RATES[problem.name]:
        options["stepper"] = RATES[problem.name][method]
    batches = math.ceil(len(problem.train_targets) / options["batch_size"])
    epochs = max(10, round(BUDGET / find_method(method).cost / batches))
    data = (problem.train_inputs, problem.train_targets)
    result = fit(network(reference), data, method, problem.likelihood, epochs=epochs, **options)
    return result.predict(torch.from_numpy(problem.test_inputs).float(), draws=DRAWS)


def compare(regression: Reference, classification: Reference, method: str) -> Row:
    """A method on both problems."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        # That chains are short and stds slow is what the table is there to show.
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        real, classes = predictions(regression, method), predictions(classification, method)
    mean, std, probabilities = (torch.from_numpy(v) for v in (regression.mean, regression.std, classification.mean))
    return Row(
        method,
        mean_error(real.mean[:, 0], mean, std),
        std_ratio(real.epistemic_variance[:, 0].sqrt(), std),
        agreement(classes.probabilities, probabilities),
        total_variation(classes.probabilities, probabilities),
        time.perf_counter() - start,
    )


def floor(regression: Reference, classification: Reference) -> Row:
    """Half of the chains of NUTS against the other half: what no method can beat."""
    first, second = (torch.from_numpy(regression.chain_mean[half::2].mean(0)) for half in (0, 1))
    one, other = (torch.from_numpy(classification.chain_mean[half::2].mean(0)) for half in (0, 1))
    spreads = [torch.from_numpy(regression.chain_variance[half::2].mean(0)).sqrt() for half in (0, 1)]
    return Row(
        "NUTS (one half)", mean_error(first, second, spreads[1]), std_ratio(*spreads),
        agreement(one, other), total_variation(one, other),
    )  # fmt: skip


def main() -> None:
    """Train, compare, print the table."""
    regression, classification = read_reference("regression"), read_reference("classification")
    names = sys.argv[1:] or list(SETTINGS)
    for name in names:
        find_method(name)
    rows = [floor(regression, classification)]
    rows += [compare(regression, classification, name) for name in names]
    print(f"{BUDGET:,} forward passes for each method on each problem, temperature 1, {DRAWS} draws\n")
    print(f"{'':18} {'regression 1-50-1':>22}   {'classification 2-16-3':>22}")
    print(f"{'':18} {'mean error':>11} {'std ratio':>10}   {'agreement':>10} {'total var.':>11} {'seconds':>9}")
    for row in sorted(rows, key=lambda row: row.total_variation):
        seconds = "" if math.isnan(row.seconds) else f"{row.seconds:.1f}"
        print(
            f"{row.name:18} {row.mean_error:11.2f} {row.std_ratio:10.2f}   "
            f"{100 * row.agreement:9.1f}% {row.total_variation:11.3f} {seconds:>9}"
        )
    print(
        "\nAgainst long runs of NUTS at test inputs on and off the data; sorted by total variation, best first."
        "\nmean error: how many posterior stds the mean function is off (root mean square); 0 is exact."
        "\nstd ratio:  std of the function / that of the posterior, on average; 1 is exact, 0 is no uncertainty."
        "\nagreement:  share of inputs with the same most probable class."
        "\ntotal var.: half the summed difference of class probabilities, on average; 0 is exact, 1 the worst."
    )


if __name__ == "__main__":
    main()
