"""KL(q, p) of a mixture has no closed form: its estimate by draws, against the integral on a grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

import bayeswell as bw
from bayeswell.posteriors.mean_field import MeanFieldPosterior
from bayeswell.posteriors.mixture import Mixture, MixturePosterior
from bayeswell.training.verdicts import elbo

MEANS, STDS, PRIOR = ((0.7, -0.4), (-0.9, 1.1)), ((0.3, 0.5), (0.6, 0.2)), 1.3


def mixture() -> bw.BayesianModule:
    model = bw.bayesian(nn.Linear(2, 1, bias=False).double(), "mean_field", {"name": "normal", "std": PRIOR})
    parts = [
        MeanFieldPosterior(model.layout, torch.tensor(mean).double(), torch.tensor(std).double())
        for mean, std in zip(MEANS, STDS, strict=True)
    ]
    return model.with_posterior(Mixture(2), MixturePosterior(model.layout, parts))


def on_a_grid() -> float:
    line = np.linspace(-7, 7, 1401)
    first, second = np.meshgrid(line, line, indexing="ij")

    def density(mean: tuple[float, float], std: tuple[float, float]) -> np.ndarray:
        return norm.pdf(first, mean[0], std[0]) * norm.pdf(second, mean[1], std[1])

    q = sum(density(mean, std) for mean, std in zip(MEANS, STDS, strict=True)) / 2
    p = density((0.0, 0.0), (PRIOR, PRIOR))
    return float((q * (np.log(q + 1e-300) - np.log(p))).sum() * (line[1] - line[0]) ** 2)


@pytest.mark.parametrize("at_once", [elbo._AT_ONCE, 14])
def test_it_is_the_integral_and_its_error_is_stated(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one block of 200 draws, or in blocks of 7 of which the last has 4. Fails once in 1.7 million, for 5 errors."""
    monkeypatch.setattr(elbo, "_AT_ONCE", at_once)
    found, variance = elbo.divergence_of(mixture())
    assert abs(found - on_a_grid()) < 5 * math.sqrt(variance)
    assert 0.03 < math.sqrt(variance) < 0.1  # so that 0.5 of some 1.5 nats would be seen
