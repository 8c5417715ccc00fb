"""Comparisons made of planted scores, for the tests of plots and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bayeswell.lab.comparison import ComparedRun, Comparison
from bayeswell.lab.measure import RunRecord
from bayeswell.metrics import Estimate

Planted = Mapping[str, Mapping[str, list[float]]]
"""NLL of each seed, by problem and method."""


def made_record(
    problem: str, method: str, seed: int, nll: float, relative: float | None = 1.0, **fields: Any
) -> RunRecord:
    scores = {"nll": Estimate(nll, 0.01), "accuracy": Estimate(0.9, 0.01), "ece": Estimate(0.02 + seed / 1000, 0.004)}
    spent = {"relative": relative, "seconds": 2 * (relative or 1), "test": 100}
    history = ({"member": 0, "epoch": 0, "nll": 2 * nll}, {"member": 0, "epoch": 1, "nll": nll})
    settings = {"data": problem, "method": method, "seed": seed, "epochs": 2}
    values = {"settings": settings, "scores": scores, "cost": spent, "history": history, "versions": {"torch": "2"}}
    return RunRecord(problem=problem, task="classes", method=method, seed=seed, **{**values, "label": method, **fields})


def made_comparison(planted: Planted, costs: Mapping[str, float | None] | None = None, **fields: Any) -> Comparison:
    runs = [
        ComparedRun(
            problem,
            method,
            seed,
            None,
            made_record(problem, method, seed, nll, (costs or {}).get(method, 1.0), **fields),
        )
        for problem, by_method in planted.items()
        for method, values in by_method.items()
        for seed, nll in enumerate(values)
    ]
    return Comparison(tuple(runs))


def with_losses(comparison: Comparison, shift: Mapping[str, float], examples: int = 50) -> Comparison:
    """Give the runs per-example losses, the same noise for all methods plus a shift and a little noise of each."""
    generator = torch.Generator().manual_seed(5)
    common = torch.rand(examples, generator=generator)
    for run in comparison.runs:
        assert run.record is not None
        own = 0.01 * torch.randn(examples, generator=generator)
        object.__setattr__(run.record, "per_example", {"nll": common + shift[run.method] + own})
    return comparison
