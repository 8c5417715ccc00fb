"""A network that is one long vector of weights, moved by hand along a known path.

Its snapshots are known exactly, and where the law of a moment is tested every weight is an independent chain.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.averaging import HWA, SWA, SWAG, Bank, SWAGDiagonal
from bayeswell.types import Collector, Progress
from nets import lift


class Vector(nn.Module):
    """A network that is nothing but its weights."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weights


def vector_model(size: int, posterior: Any = "delta", dtype: torch.dtype = torch.float64) -> bw.BayesianModule:
    return bw.bayesian(Vector(torch.zeros(size, dtype=dtype)), posterior, prior={"name": "normal", "std": 1.3})


def put(model: bw.BayesianModule, mean: Tensor, std: Tensor | None = None) -> None:
    """Move the model to a place, as an optimizer would."""
    with torch.no_grad():
        model.posterior.mean.copy_(mean)
        if std is not None:
            model.posterior.log_std.copy_(std.log())
            if "loading" in dict(model.posterior.named_parameters()):
                model.posterior.loading.copy_(
                    torch.linspace(-0.8, 0.5, model.posterior.loading.numel()).view(len(std), -1)
                )


def feed(collector: Collector, model: bw.BayesianModule, means: Tensor, stds: Tensor | None = None) -> None:
    """Steps 0, 1, ... at the given places."""
    for step, mean in enumerate(means):
        put(model, mean, None if stds is None else stds[step])
        collector.observe(model, Progress(step, len(means)))


def path(count: int, size: int, seed: int = 5) -> tuple[Tensor, Tensor]:
    """Generic means and stds of ``count`` snapshots."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(count, size, generator=generator, dtype=torch.float64).cumsum(0) * 0.4 + 1.1
    return means, torch.rand(count, size, generator=generator, dtype=torch.float64) * 0.5 + 0.2


def trained(net: nn.Module, inputs: Tensor, posterior: Any, part: Any, steps: int = 12) -> tuple[Any, Any, list[Any]]:
    """A short run of SGD with a collector; the states of the model after every step."""
    model = lift(net, posterior, prior={"name": "normal", "std": 1.3})
    elbo = bw.ELBO("categorical", 50)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    targets = torch.arange(len(inputs)) % 3
    collector = part.build(model, steps, 3)
    states = []
    for step in range(steps):
        optimizer.zero_grad()
        elbo(model, inputs, targets, generator=bw.make_generator(step)).total.backward()
        optimizer.step()
        collector.observe(model, Progress(step, steps, step % 3, 3))
        states.append(copy.deepcopy(model.state_dict()))
    return model, collector, states


RESUMABLE = {
    "swa": (SWA(start=0.2, cycle=2), "delta"),
    "swag_diag": (SWAGDiagonal(start=0.2, cycle=2), "delta"),
    "swag": (SWAG(start=0.2, cycle=2, rank=3), "delta"),
    "hwa": (HWA(start=0.2, cycle=2), "mean_field"),
    "hwa low rank": (HWA(start=0.2, cycle=1, covariance="low_rank", columns=4), "mean_field"),
    "hwa sample": (HWA(start=0.2, cycle=2, feedback="sample"), "mean_field"),
    "hwa sample low rank": (
        HWA(start=0.2, cycle=2, covariance="low_rank", feedback="sample"),
        {"name": "low_rank", "rank": 3},
    ),
    "bank": (Bank(burn_in=3, thinning=2), "delta"),
    "bank in a temporary file": (Bank(burn_in=3, thinning=2, memory_limit=0), "delta"),
}
