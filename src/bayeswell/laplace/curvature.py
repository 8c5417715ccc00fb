"""Curvature of the likelihood in the outputs, and gradients of single examples in the weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..core.errors import BayeswellWarning, NetworkError
from ..core.protocols import Inputs, Likelihood
from ..core.pytree import tree_index, tree_map

MAX_EXACT_OUTPUTS = 100
SAMPLED_COLUMNS = 10
MAX_CHUNK = 1 << 24
"""Numbers that the gradients of one chunk may hold: 64 MB in float32."""

Network = Callable[[Tensor, Inputs], Tensor]
"""(weights, inputs of a batch) -> outputs of the batch."""


def curvature_columns(
    likelihood: Likelihood, outputs: Tensor, targets: Tensor, draws: int | None, generator: torch.Generator | None
) -> Tensor:
    """Return (columns, *outputs.shape) vectors u_1, u_2, ... with sum_c u_c u_c' = H_n for each example n.

    H is the Hessian of the NLL in the outputs. Likelihoods without class probabilities take its expectation over
    targets from the model, since the Hessian itself may be indefinite (noise that depends on the input, heavy tails).
    With ``draws`` None and up to 100 outputs an example the columns are exact: eigenvectors times roots of eigenvalues,
    or roots alone where ``curvature_diagonal`` is known. Else they are ``draws`` random ones (10 if None) with that
    expectation, from ``curvature_root``.
    """
    outputs = outputs.detach()
    diagonal = likelihood.supports("curvature_diagonal")
    if draws is None and not diagonal and not likelihood.supports("probabilities"):
        draws = SAMPLED_COLUMNS
    size = outputs[0].numel()
    if draws is None and size > MAX_EXACT_OUTPUTS:
        draws = SAMPLED_COLUMNS
        warnings.warn(
            f"laplace: the curvature in {size} outputs an example is sampled with {draws} random directions (exact up "
            f"to {MAX_EXACT_OUTPUTS} outputs); `draws` sets another number",
            BayeswellWarning,
            stacklevel=2,
        )
    if draws is not None:
        root = likelihood.for_sampled_targets(targets)
        columns = [root.curvature_root(outputs, generator) for _ in range(draws)]
        sampled: Tensor = torch.stack(columns).detach() / draws**0.5
        return sampled.to(outputs.dtype)
    if diagonal:
        roots = likelihood.curvature_diagonal(outputs).detach().reshape(len(outputs), -1).sqrt()
        return torch.diag_embed(roots).movedim(-1, 0).reshape(-1, *outputs.shape)
    return _exact_columns(likelihood, outputs, targets)


def _exact_columns(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(_output_hessian(likelihood, outputs, targets))
    least, most = float(values.min()), float(values.max())
    if least < -1e-4 * max(most, 1e-30):
        raise NetworkError(
            f"laplace: the likelihood {type(likelihood).__name__} has negative curvature in the outputs ({least:.2g}); "
            "draws=10 takes the Fisher information instead"
        )
    roots: Tensor = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    return roots.permute(2, 0, 1).reshape(-1, *outputs.shape).to(outputs.dtype)


def _output_hessian(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    # There are no eigenvalues in 16-bit precision.
    leaf = outputs.to(torch.promote_types(outputs.dtype, torch.float32), copy=True).requires_grad_()
    count = len(leaf)
    with torch.enable_grad():
        nll = likelihood.nll(leaf, targets).sum()
        (gradient,) = torch.autograd.grad(nll, leaf, create_graph=True)
        rows = [
            torch.autograd.grad(component.sum(), leaf, retain_graph=True)[0].reshape(count, -1)
            for component in gradient.reshape(count, -1).unbind(1)
        ]
    hessian = torch.stack(rows, dim=1)
    return 0.5 * (hessian + hessian.mT)


def weight_gradients(network: Network, weights: Tensor, inputs: Inputs, columns: Tensor) -> Iterator[Tensor]:
    """Yield J_n' u for each example n and each of its columns u, as matrices of rows (..., P), chunk by chunk.

    J_n is the Jacobian of example n's outputs in the weights (P,). Networks that ``torch.vmap`` cannot take are called
    with one example at a time.

    Args:
        network: a pure function.
        weights: (P,).
        inputs: of S examples.
        columns: (C, S, ...), vectors in the space of the outputs.
    """
    size = max(weights.numel(), 1)
    together = min(len(columns), max(1, MAX_CHUNK // size))
    examples = max(1, MAX_CHUNK // (size * together))
    vectorize = True
    for start in range(0, columns.shape[1], examples):
        part = slice(start, start + examples)
        some = tree_index(inputs, part)
        for chosen in columns[:, part].split(together):
            if vectorize:
                try:
                    yield _vectorized(network, weights, some, chosen)
                    continue
                except (RuntimeError, ValueError, NotImplementedError):
                    vectorize = False  # An error that is not vmap's is raised again below.
            yield _one_by_one(network, weights, some, chosen)


def _vectorized(network: Network, weights: Tensor, inputs: Inputs, columns: Tensor) -> Tensor:
    def rows_of_example(own: Inputs, vectors: Tensor) -> Tensor:
        batch_of_one = tree_map(lambda tensor: tensor.unsqueeze(0), own)
        pull = torch.func.vjp(lambda flat: network(flat, batch_of_one)[0], weights)[1]
        rows: Tensor = torch.vmap(lambda vector: pull(vector)[0])(vectors)
        return rows

    with torch.no_grad():  # Of the outer graph; torch.func differentiates all the same.
        rows: Tensor = torch.vmap(rows_of_example, in_dims=(0, 1), randomness="different")(inputs, columns)
    return rows.reshape(-1, weights.numel())


def _one_by_one(network: Network, weights: Tensor, inputs: Inputs, columns: Tensor) -> Tensor:
    leaf = weights.detach().clone().requires_grad_()
    rows = []
    with torch.enable_grad():
        for index in range(columns.shape[1]):
            outputs = network(leaf, tree_index(inputs, slice(index, index + 1)))[0]
            rows += [
                torch.autograd.grad(outputs, leaf, vector, retain_graph=True, materialize_grads=True)[0]
                for vector in columns[:, index]
            ]
    return torch.stack(rows)
