"""The curvature of the likelihood in the network's outputs, as columns whose squares sum to it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from ..errors import BayeswellWarning, CompositionError, NetworkError
from ..likelihoods import RealLikelihood, weighted_as
from ..registry import kind_of
from ..types import Likelihood

MAX_EXACT_OUTPUTS = 100
SAMPLED_COLUMNS = 10


def curvature_columns(
    likelihood: Likelihood, outputs: Tensor, targets: Tensor, draws: int | None, generator: torch.Generator | None
) -> Tensor:
    """(columns, *outputs.shape): u_1, u_2, ... with sum_c u_c u_c' = H_n for every example n.

    H is the Hessian of the NLL in the outputs; for real targets and counts its expectation over targets from the model,
    since the Hessian itself may be indefinite (a noise std that depends on the input, heavy tails). Exact if ``draws``
    is None and an example has at most 100 outputs: the columns are eigenvectors times roots of eigenvalues, or, where
    the likelihood knows that H is diagonal (``curvature_diagonal``), those roots alone. Else they are ``draws`` random
    ones (10 if None) with that expectation, from the likelihood's ``curvature_root``.
    """
    size = outputs[0].numel()
    diagonal = getattr(likelihood, "curvature_diagonal", None)
    if draws is None and diagonal is None and isinstance(likelihood, RealLikelihood):
        draws = SAMPLED_COLUMNS  # its expected Hessian is known by random roots only
    if draws is None and size > MAX_EXACT_OUTPUTS:
        draws = SAMPLED_COLUMNS
        warnings.warn(
            f"laplace: {size} outputs for each example: their curvature is sampled with {draws} random directions an "
            f"example (exact up to {MAX_EXACT_OUTPUTS}); draws= sets another number",
            BayeswellWarning,
            stacklevel=4,
        )
    if draws is None:
        return _exact(likelihood, outputs, targets) if diagonal is None else _diagonal(diagonal(outputs.detach()))
    root: Any = weighted_as(likelihood, targets)
    if not hasattr(root, "curvature_root"):
        raise CompositionError(f"likelihood {kind_of(likelihood)} lacks `curvature_root`, needed by post_hoc 'laplace'")
    columns = [root.curvature_root(outputs.detach(), generator) for _ in range(draws)]
    sampled: Tensor = torch.stack(columns).detach() / draws**0.5
    return sampled.to(outputs.dtype)


def _diagonal(curvature: Tensor) -> Tensor:
    """(C, *shape): one column for each output of an example."""
    roots = curvature.detach().reshape(len(curvature), -1).sqrt()
    return torch.diag_embed(roots).movedim(-1, 0).reshape(-1, *curvature.shape)


def _exact(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(_hessian(likelihood, outputs, targets))
    least, most = float(values.min()), float(values.max())
    if least < -1e-4 * max(most, 1e-30):
        raise NetworkError(
            f"laplace: the likelihood {type(likelihood).__name__} has negative curvature in the outputs ({least:.2g}); "
            "draws=10 takes the Fisher information instead"
        )
    roots: Tensor = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    return roots.permute(2, 0, 1).reshape(-1, *outputs.shape).to(outputs.dtype)


def _hessian(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    """(S, C, C)."""
    # 16-bit numbers have no eigenvalues.
    leaf = outputs.detach().to(torch.promote_types(outputs.dtype, torch.float32), copy=True).requires_grad_()
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
