"""Are the stds of the size that the curvature of the loss says?"""

from __future__ import annotations

import torch
from torch import Tensor

from ...layers import plain_kernels
from ...lifting import BayesianModule
from ...modes import evaluation_mode
from ...random import make_generator
from ...types import BANK, ENTROPY, POINT, Inputs

_PROBES = 8
_DETERMINED = 3.0
"""Weights count whose data say so many times as much as their prior; on others the prior alone decides."""
_LEAST_WEIGHTS = 10


def can_be_checked(model: BayesianModule, likelihood: object) -> bool:
    """Whether q has stds, the prior a precision and the likelihood a curvature."""
    provides = model.posterior_part.provides
    gaussian = ENTROPY in provides and not provides & {POINT, BANK}
    return gaussian and model.prior.inverse_variance is not None and hasattr(likelihood, "curvature_root")


def std_factor(
    model: BayesianModule, likelihood: object, inputs: Inputs, examples: int, dataset_size: int, temperature: float
) -> float | None:
    """The median over weights of std / s, s = 1 / sqrt(N/T h + 1/prior std^2): the std of a factorised optimum.

    h is the diagonal of the mean Gauss-Newton matrix, from g = sum_n J_n' u_n with random u_n, E[u u'] = H_n: E[g^2] is
    the diagonal of sum_n J_n' H_n J_n (Hutchinson). Once at the mean (Laplace) and once at draws (what a variational
    optimum averages over); the one that is nearer to the stds counts. Where weights are correlated their marginal stds
    are wider than s, never narrower. None if too few weights are determined by the data.
    """
    posterior, prior = model.posterior, model.prior.inverse_variance
    assert prior is not None
    like = posterior.mean_vector().detach()
    generator = make_generator(0, like.device)
    std = posterior.std_vector().detach().double()
    drawn = (model.layout.flatten(own) for own in posterior.draws(_PROBES, generator))  # one at a time
    found = []
    for points, probes in ((iter([like]), _PROBES), (drawn, 1)):
        total = torch.zeros_like(std)
        with evaluation_mode(model), plain_kernels(model):
            for point in points:
                total += _squared_probes(model, likelihood, point, inputs, generator, probes)
        data = dataset_size / temperature / examples * total / _PROBES
        own = prior.double().expand_as(std)
        told = data > _DETERMINED * own
        if int(told.sum()) < max(_LEAST_WEIGHTS, len(std) // 100):
            return None
        found.append(float((std * (data + own).sqrt())[told].median()))
    at_mean, at_draws = found
    ordered = sorted(value for value in (at_mean, at_draws) if value > 0)
    return min(ordered, key=lambda value: max(value, 1 / value)) if ordered else 0.0


def _squared_probes(
    model: BayesianModule, likelihood: object, point: Tensor, inputs: Inputs, generator: torch.Generator, probes: int
) -> Tensor:
    """The sum of so many g^2, from one pass through the network at this point and a pass backwards for each."""
    leaf = point.detach().clone().requires_grad_()
    total = torch.zeros_like(leaf, dtype=torch.float64)
    with torch.enable_grad():
        outputs = model.call(model.layout.unflatten(leaf), inputs)
        for left in reversed(range(probes)):
            with torch.no_grad():
                root = likelihood.curvature_root(outputs.detach(), generator)  # type: ignore[attr-defined]
            # As a scalar: given a vector to start from, autograd imports sympy for its shapes, a second of a short run.
            value = (outputs * root.to(outputs)).sum()
            (gradient,) = torch.autograd.grad(value, leaf, retain_graph=left > 0, materialize_grads=True)
            total += gradient.double().square()
    return total
