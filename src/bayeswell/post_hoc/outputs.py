"""The curvature of the likelihood in the network's outputs, as columns whose squares sum to it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from ..errors import BayeswellWarning, NetworkError
from ..likelihoods import RealLikelihood
from ..types import Likelihood

MAX_EXACT_OUTPUTS = 100
SAMPLED_COLUMNS = 10


def curvature_columns(
    likelihood: Likelihood, outputs: Tensor, targets: Tensor, draws: int | None, generator: torch.Generator | None
) -> Tensor:
    """(columns, *outputs.shape): u_1, u_2, ... with sum_c u_c u_c' = H_n for every example n.

    H is the Hessian of the NLL in the outputs; for real targets its expectation over targets from the model, since
    with a noise std that depends on the input the Hessian itself may be indefinite. Exact if ``draws`` is None and
    an example has at most 100 outputs: the columns are eigenvectors times roots of eigenvalues. Else they are
    ``draws`` random ones (10 if None) with that expectation.
    """
    size = outputs[0].numel()
    if draws is None and size > MAX_EXACT_OUTPUTS:
        draws = SAMPLED_COLUMNS
        warnings.warn(
            f"laplace: {size} outputs for each example: their curvature is sampled with {draws} random directions an "
            f"example (exact up to {MAX_EXACT_OUTPUTS}); draws= sets another number",
            BayeswellWarning,
            stacklevel=4,
        )
    if draws is None:
        return _exact(likelihood, outputs, targets)
    root: Any = likelihood  # which assembly has asked for it
    columns = [root.curvature_root(outputs.detach(), generator) for _ in range(draws)]
    sampled: Tensor = torch.stack(columns).detach() / draws**0.5
    return sampled.to(outputs.dtype)


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
        if isinstance(likelihood, RealLikelihood):
            # Second moments are all that the expectation over a Gaussian y needs: y = mean +- std gives it exactly.
            mean, variance = (value.detach() for value in likelihood.mean_and_variance(leaf))
            choices = [mean + variance.sqrt(), mean - variance.sqrt()]
        else:
            choices = [targets]
        nll = torch.stack([likelihood.nll(leaf, chosen).sum() for chosen in choices]).mean()
        (gradient,) = torch.autograd.grad(nll, leaf, create_graph=True)
        rows = [
            torch.autograd.grad(component.sum(), leaf, retain_graph=True)[0].reshape(count, -1)
            for component in gradient.reshape(count, -1).unbind(1)
        ]
    hessian = torch.stack(rows, dim=1)
    return 0.5 * (hessian + hessian.mT)
