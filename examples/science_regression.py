"""Intervals for measurements: noise that changes with the input, two outputs, and counts.

A central 90 % interval should hold 90 % of new measurements; for counts, whose ends are whole, it may hold more. Where
nothing was measured (x = 2) the epistemic std should grow.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

import bayeswell as bw

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, TRAIN, TEST = (3, 200, 200) if SMOKE else (80, 300, 2000)


def network(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 50), nn.SiLU(), nn.Linear(50, 50), nn.SiLU(), nn.Linear(50, outputs))


def noisy(x: Tensor) -> Tensor:
    """A detector whose noise grows from 0.05 to 0.6."""
    return torch.sin(3 * x) + (0.05 + 0.275 * (x + 1)) * torch.randn_like(x)


def two(x: Tensor) -> Tensor:
    """Two quantities, one measured ten times as precisely as the other."""
    return torch.cat([torch.cos(2 * x) + 0.05 * torch.randn_like(x), x**2 + 0.5 * torch.randn_like(x)], dim=1)


def counts(x: Tensor) -> Tensor:
    """Events per second, at a rate between 0.6 and 20."""
    return torch.poisson(torch.exp(1.25 + 1.75 * torch.sin(2.5 * x)))


PROBLEMS = (
    ("noise that changes", noisy, 2, {"name": "gaussian", "noise": "per_input"}),
    ("two outputs", two, 2, {"name": "gaussian", "noise": "per_output", "outputs": 2}),
    ("counts", counts, 1, "poisson"),
)


def main() -> None:
    torch.set_num_threads(1)
    for name, measure, outputs, likelihood in PROBLEMS:
        torch.manual_seed(1)
        x, new = (2 * torch.rand(count, 1) - 1 for count in (TRAIN, TEST))
        y, truth = measure(x), measure(new)
        result = bw.fit(network(outputs), (x, y), "deep-ensemble", likelihood, epochs=EPOCHS, members=3, progress=False)
        print(f"\n{name}: at x = 0, and at x = 2, where nothing was measured")
        print(result.predict(torch.tensor([[0.0], [2.0]])).frame().round(2).to_string(index=False))
        inside = result.predict(new).interval(0.9).contains(truth).double()
        scores = result.evaluate(new, truth)
        print(f"90 % intervals hold {inside.mean():.1%} of {TEST} new measurements")
        print(f"NLL {scores['nll'].value:.3f} ± {scores['nll'].se:.3f} nats", flush=True)


if __name__ == "__main__":
    main()
