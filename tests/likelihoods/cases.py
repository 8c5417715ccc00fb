"""One configuration of every likelihood, with outputs at generic values."""

from __future__ import annotations

import torch
from torch import Tensor

from bayeswell.core.protocols import Likelihood
from bayeswell.core.random import make_generator
from bayeswell.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    NextToken,
    Poisson,
)

CASES: dict[str, tuple[Likelihood, tuple[int, ...]]] = {
    "categorical": (Categorical(), (5, 3)),
    "categorical, tempered": (Categorical(temperature=1.7), (5, 3)),
    "categorical, images": (Categorical(class_axis=1), (2, 3, 2, 2)),
    "bernoulli": (Bernoulli(temperature=0.6), (5, 2)),
    "gaussian, known": (Gaussian("known", std=(0.4, 1.3), noise_factor=1.2), (5, 2)),
    "gaussian, learned": (Gaussian(std=0.7), (5, 2)),
    "gaussian, per output": (Gaussian("per_output", std=(0.4, 1.3)), (5, 2)),
    "gaussian, per input": (Gaussian("per_input"), (5, 4)),
    "poisson": (Poisson(), (5, 2)),
    "next_token": (NextToken(), (2, 4, 3)),
}
"""Name: likelihood and shape of the outputs."""


def outputs_of(name: str, seed: int = 1) -> Tensor:
    return torch.randn(CASES[name][1], dtype=torch.float64, generator=make_generator(seed))
