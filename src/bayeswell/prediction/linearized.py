"""Prediction through the network linearized in its weights.

    f(x; w) ~ f(x; m) + J(x) (w - m),   J = df/dw at the posterior mean m,   w ~ q

(Immer et al. 2021, "Improving predictions of Bayesian neural nets via local linearization"). A Gaussian fitted to the
Gauss-Newton curvature at m is the posterior of this model. With q = N(m, S) the outputs are N(f(x; m), J S J').

Networks without a layer-wise Jacobian take one pass in forward mode for each draw.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import torch
from torch import Tensor, nn
from torch.func import jvp

from ..core.protocols import Covariance, Inputs
from ..core.random import standard_normal
from ..nn import BayesianModule, evaluation_mode, plain_attention
from .draws import Network, draws
from .inputs import batches_of
from .jacobian import Jacobians, Unsuitable

GROUP = 1 << 17
"""Numbers of a stack of outputs; more draws at once save calls for small data."""
MOST_DRAWN = 1 << 25
"""Weights of drawn networks that are held at a time."""

_forward_mode = threading.Lock()
"""torch counts passes in forward mode in one number for all threads."""


@torch.no_grad()
def linearized_stacks(
    model: BayesianModule,
    inputs: Inputs,
    count: int,
    generator: torch.Generator | None,
    batch_size: int | None,
    joint: bool,
) -> Iterator[Tensor]:
    """Yield stacks of f(m) + J (w - m) of drawn networks; arguments as in ``outputs``.

    In memory at once are the outputs of a group of draws for all examples, or the covariance roots of all examples.
    """
    try:
        jacobians = Jacobians(model, inputs, count, batch_size)
    except Unsuitable:
        yield from _by_forward_mode(model, inputs, count, generator, batch_size)
        return
    covariance = None if joint else model.posterior.covariance()
    if covariance is None:
        stacks = _of_networks(model, jacobians, count, generator)
    else:
        stacks = _of_each_example(jacobians, covariance, count, generator)
    for stack in stacks:
        yield from stack.split(max(1, GROUP // stack[0].numel()))


def _of_networks(
    model: BayesianModule, jacobians: Jacobians, count: int, generator: torch.Generator | None
) -> Iterator[Tensor]:
    networks = draws(model, count, generator)
    group = max(1, MOST_DRAWN // model.layout.size)
    while drawn := list(islice(networks, group)):
        changes = {name: torch.stack([net[name] for net in drawn]) - mean for name, mean in jacobians.center.items()}
        stack = torch.cat([jacobian.outputs + jacobian.times(changes) for jacobian in jacobians], dim=1)
        yield stack.reshape(len(drawn), -1, *jacobians.shape)


def _of_each_example(
    jacobians: Jacobians, covariance: Covariance, count: int, generator: torch.Generator | None
) -> Iterator[Tensor]:
    # All examples share K numbers of noise, so a prediction does not depend on its place.
    gaussians = [(jacobian.outputs, root(jacobian.covariance(covariance))) for jacobian in jacobians]
    mean, roots = (torch.cat(tensors) for tensors in zip(*gaussians, strict=True))
    noise = standard_normal((count, mean.shape[1]), like=mean, generator=generator)
    for numbers in noise.split(max(1, GROUP // mean.numel())):
        stack = torch.stack([mean + roots @ vector for vector in numbers])
        yield stack.view(len(numbers), -1, *jacobians.shape)


def root(covariance: Tensor) -> Tensor:
    """(S, K, K): R with R R' = covariance: Cholesky's factor, or the symmetric root of a nearly singular matrix.

    Both are continuous in the covariance, which V sqrt(D) of its eigenvectors V is not where eigenvalues are equal.
    """
    exact = covariance.double()
    factor, fault = torch.linalg.cholesky_ex(exact)
    pivots = factor.diagonal(dim1=-2, dim2=-1).square().amin(-1)
    least = 100 * torch.finfo(covariance.dtype).eps * exact.diagonal(dim1=-2, dim2=-1).amax(-1)
    good = (fault == 0) & (pivots > least)
    if not bool(good.all()):
        finite = exact.isfinite().flatten(1).all(1)
        values, vectors = torch.linalg.eigh(torch.where((finite & ~good)[:, None, None], exact, 0.0))
        symmetric = (vectors * values.clamp_min(0).sqrt()[:, None]) @ vectors.mT
        factor = torch.where(good[:, None, None], factor, symmetric)
        factor = torch.where(finite[:, None, None], factor, torch.nan)
    result: Tensor = factor.to(covariance.dtype)
    return result


def _by_forward_mode(
    model: BayesianModule, inputs: Inputs, count: int, generator: torch.Generator | None, batch_size: int | None
) -> Iterator[Tensor]:
    center = model.layout.unflatten(model.posterior.mean.detach())
    batches = list(batches_of(inputs, batch_size))
    for weights in draws(model, count, generator):
        yield torch.cat([_linearized_outputs(model, center, weights, batch) for batch in batches])[None]


def _linearized_outputs(model: BayesianModule, center: Network, weights: Network, inputs: Inputs) -> Tensor:
    # f(m) + J (w - m) by one pass in forward mode; dropout masks are used as they are.
    others = {name: tensor for name, tensor in weights.items() if name not in center}
    change = {name: weights[name] - mean for name, mean in center.items()}
    with _forward_mode, evaluation_mode(model), plain_attention(), _plain_recurrence(model.net):
        terms = jvp(lambda bayesian: model.call({**others, **bayesian}, inputs), (dict(center),), (change,))
    outputs: Tensor = terms[0] + terms[1]
    return outputs


@contextmanager
def _plain_recurrence(net: nn.Module) -> Iterator[None]:
    # oneDNN's LSTM has no derivative in forward mode.
    before = torch.backends.mkldnn.enabled
    try:
        if any(isinstance(module, nn.LSTM) for module in net.modules()):
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        yield
    finally:
        torch.backends.mkldnn.enabled = before
