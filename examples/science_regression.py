"""Three kinds of measurements, and intervals that hold: noise that changes, several outputs, and counts.

Each network is trained on simulated measurements; the intervals are then held against new ones. A central 90 % interval
should hold 90 % of them, give or take the standard error; counts have whole ends, so theirs may hold more. Where
nothing was measured no interval can promise anything: what warns there is an epistemic std that grows.
"""

from __future__ import annotations

import os
import warnings

import torch
from torch import Tensor, nn

import bayeswell as bw

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, TRAIN, TEST = (3, 200, 200) if SMOKE else (80, 300, 2000)


def network(outputs: int) -> nn.Module:
    """A plain PyTorch network that knows nothing of Bayes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 50), nn.SiLU(), nn.Linear(50, 50), nn.SiLU(), nn.Linear(50, outputs))


def noisy(x: Tensor) -> Tensor:
    """A detector whose noise grows from 0.05 to 0.6."""
    return torch.sin(3 * x) + (0.05 + 0.275 * (x + 1)) * torch.randn_like(x)


def several(x: Tensor) -> Tensor:
    """Two quantities at once, one measured ten times as well as the other."""
    return torch.cat([torch.cos(2 * x) + 0.05 * torch.randn_like(x), x**2 + 0.5 * torch.randn_like(x)], dim=1)


def counts(x: Tensor) -> Tensor:
    """Events per second: a rate between 0.6 and 20."""
    return torch.poisson(torch.exp(1.25 + 1.75 * torch.sin(2.5 * x)))


PROBLEMS = (
    ("noise that changes", noisy, 2, {"name": "gaussian", "noise": "per_input"}),
    ("two outputs", several, 2, {"name": "gaussian", "noise": "per_output", "outputs": 2}),
    ("counts", counts, 1, "poisson"),
)


def main() -> None:
    """Train each, show a few intervals, and count how often they hold."""
    # In smoke mode runs are too short, and say so.
    warnings.simplefilter("ignore" if SMOKE else "default", bw.BayeswellWarning)
    torch.set_num_threads(1)
    for name, measure, outputs, likelihood in PROBLEMS:
        torch.manual_seed(1)
        x, new = (2 * torch.rand(count, 1) - 1 for count in (TRAIN, TEST))
        y, truth = measure(x), measure(new)
        result = bw.fit(network(outputs), (x, y), "deep-ensemble", likelihood, epochs=EPOCHS, members=3)
        places = torch.tensor([[-0.8], [0.0], [0.8], [2.0]])
        found = result.predict(places)
        assert isinstance(found, bw.RealPrediction)
        print(f"\n{name}: at x = -0.8, 0, 0.8, and at 2, where nothing was measured")
        columns = {"mean": found.mean, "aleatoric std": found.aleatoric_std, "epistemic std": found.epistemic_std}
        columns["from"], columns["to"] = found.interval(0.9)
        for heading, values in columns.items():
            print(f"  {heading:14}", "  ".join(" ".join(f"{one:7.2f}" for one in row) for row in values.tolist()))
        scores = result.evaluate(new, truth)
        for level in (50, 90):
            share = scores[f"coverage_{level}"]
            print(f"  {level} % intervals hold {share:.1%} ± {share.error:.1%} of {TEST} new measurements")
        print(f"  NLL {scores['nll']:.3f} ± {scores['nll'].error:.3f} nats, R2 {scores['r2']:.3f}", flush=True)


if __name__ == "__main__":
    main()
