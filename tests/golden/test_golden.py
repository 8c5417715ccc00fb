"""Short fits of eight methods give the numbers of ``golden.json``, which the code before the rewrite wrote.

Each number's mean over 3 seeds is compared with the golden mean over 24 seeds. The difference divided by
s sqrt(1/24 + 1/3) follows Student's t with 23 degrees of freedom, where s is the golden std over seeds. The bound makes
the probability that any number of the file fails by chance at most 1e-3 (Bonferroni).

s is increased by a floor: 1e-3 of the largest golden mean of the vector, rounding for accuracies, and the Monte Carlo
error of the 200 draws of a prediction, which all golden seeds share.

A prior std times 2 made 20 of 22 cases fail, times 1.1 made 10 of 12 fail, ``std_multiplier=5`` in place of 10 made
4 of 8 fail, and ``lr`` times 1.1 made 1 of 6 fail (tried with 10 golden seeds).
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from scipy.stats import t as student

from golden.cases import DRAWS, TEST, cases, run

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
SEEDS = range(3)
FAILURE_RATE, FLOOR, LEAST = 1e-3, 1e-3, 1e-6
ROUNDING = 1 / TEST / math.sqrt(12)
MONTE_CARLO = {"epistemic": math.sqrt(2 / DRAWS), "probabilities": 0.15 / math.sqrt(DRAWS)}
"""Relative error of a variance, and the error of a mean of probabilities with a std of 0.15."""
NUMBERS = sum(len(number["mean"]) for record in GOLDEN["cases"].values() for number in record.values())
BOUND = float(student.isf(FAILURE_RATE / NUMBERS / 2, GOLDEN["about"]["seeds"] - 1))


def deviations(record: dict[str, dict[str, list[float]]], runs: list[dict[str, list[float]]]) -> dict[str, float]:
    """Return the largest difference of means of each vector, in standard errors."""
    factor = math.sqrt(1 / GOLDEN["about"]["seeds"] + 1 / len(runs))
    found = {}
    for name, golden in record.items():
        mean, std = (torch.tensor(golden[key], dtype=torch.float64) for key in ("mean", "std"))
        now = torch.tensor([values[name] for values in runs], dtype=torch.float64).mean(0)
        assert now.shape == mean.shape, f"{name}: {len(now)} numbers, {len(mean)} in the record"
        floor = ROUNDING if name == "accuracy" else max(FLOOR * float(mean.abs().max()), LEAST)
        draws = MONTE_CARLO.get(name, 0.0) * (mean if name == "epistemic" else torch.ones_like(mean))
        error = (std.square() + floor**2 + draws.square()).sqrt() * factor
        found[name] = float(((now - mean).abs() / error).max())
    return found


def test_record_has_the_same_cases() -> None:
    assert list(GOLDEN["cases"]) == list(cases())


@pytest.mark.parametrize("name", GOLDEN["cases"])
def test_numbers_are_those_of_the_record(name: str) -> None:
    case = cases()[name]
    found = deviations(GOLDEN["cases"][name], [run(**case, seed=seed) for seed in SEEDS])
    wrong = {number: round(value, 1) for number, value in found.items() if not value <= BOUND}
    assert not wrong, f"{name}: standard errors from the record, at most {BOUND:.1f} are allowed: {wrong}"
