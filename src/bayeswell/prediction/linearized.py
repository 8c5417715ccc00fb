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
    """Yield stacks of f(m) + J (w - m) of drawn networks; arguments as in ``outputs``."""
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
    while some := list(islice(networks, group)):
        changes = {name: torch.stack([own[name] for own in some]) - mean for name, mean in jacobians.center.items()}
        found = torch.cat([one.outputs + one.times(changes) for one in jacobians], dim=1)
        yield found.reshape(len(some), -1, *jacobians.shape)


def _of_each_example(
    jacobians: Jacobians, covariance: Covariance, count: int, generator: torch.Generator | None
) -> Iterator[Tensor]:
    # All examples share K numbers of noise, so a prediction does not depend on its place.
    found = [(one.outputs, root(one.covariance(covariance))) for one in jacobians]
    mean, roots = (torch.cat(parts) for parts in zip(*found, strict=True))
    noise = standard_normal((count, mean.shape[1]), like=mean, generator=generator)
    for numbers in noise.split(max(1, GROUP // mean.numel())):
        moved = torch.stack([mean + roots @ own for own in numbers])
        yield moved.view(len(numbers), -1, *jacobians.shape)


def root(covariance: Tensor) -> Tensor:
    """(S, K, K): R with R R' = covariance.

    Cholesky's factor, or the symmetric root of a nearly singular matrix: rounding changes neither, as it would change
    eigenvectors.
    """
    exact = covariance.double()
    found, fault = torch.linalg.cholesky_ex(exact)
    pivots = found.diagonal(dim1=-2, dim2=-1).square().amin(-1)
    least = 100 * torch.finfo(covariance.dtype).eps * exact.diagonal(dim1=-2, dim2=-1).amax(-1)
    good = (fault == 0) & (pivots > least)
    if not bool(good.all()):
        finite = exact.isfinite().flatten(1).all(1)
        values, vectors = torch.linalg.eigh(torch.where((finite & ~good)[:, None, None], exact, 0.0))
        symmetric = (vectors * values.clamp_min(0).sqrt()[:, None]) @ vectors.mT
        found = torch.where(good[:, None, None], found, symmetric)
        found = torch.where(finite[:, None, None], found, torch.nan)
    result: Tensor = found.to(covariance.dtype)
    return result


def _by_forward_mode(
    model: BayesianModule, inputs: Inputs, count: int, generator: torch.Generator | None, batch_size: int | None
) -> Iterator[Tensor]:
    center = model.layout.unflatten(model.posterior.mean.detach())
    batches = list(batches_of(inputs, batch_size))
    for weights in draws(model, count, generator):
        yield torch.cat([_moved_outputs(model, center, weights, batch) for batch in batches])[None]


def _moved_outputs(model: BayesianModule, center: Network, weights: Network, inputs: Inputs) -> Tensor:
    # f(m) + J (w - m) by one pass in forward mode; dropout masks are used as they are.
    others = {name: tensor for name, tensor in weights.items() if name not in center}
    change = {name: weights[name] - mean for name, mean in center.items()}
    with _forward_mode, evaluation_mode(model), plain_attention(), _plain_recurrence(model.net):
        moved = jvp(lambda bayesian: model.call({**others, **bayesian}, inputs), (dict(center),), (change,))
    found: Tensor = moved[0] + moved[1]
    return found


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
