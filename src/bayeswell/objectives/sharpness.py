"""Sharpness-aware training: the gradient where the loss is worst nearby."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import CompositionError, check_choice, check_number
from ..core.protocols import FACTORIZED, BatchContext, BayesianModel, Inputs, Posterior, Terms
from ..core.random import replayable
from ..nn import kept_statistics
from .elbo import ELBO

IDENTITY, MEAN_OVER_STD = "identity", "mean_over_std"
PAPER, EXACT = "paper", "exact"


@dataclass(frozen=True)
class Sharpness:
    """Minimize E_q[max over |e| <= rho of NLL(w + e)] + KL(q, p) (eq. 6): flat-seeking Bayesian networks.

    One ascent step finds the worst neighbor. With g = d NLL / dw and a geometry T,

        e = rho T g / |T g|          norm = "paper": the step has Euclidean length rho
        e = rho T g / sqrt(g' T g)   norm = "exact": the maximizer in the ball sqrt(e' T^-1 e) <= rho

    Then the gradient of NLL(w + e) (same batch, noise and dropout masks) moves means and stds; the KL is not perturbed
    (eq. 7 drops it by mistake). T = 1 (``identity``) or |mean| / std (``mean_over_std``; std at least 1e-8, T held
    constant). BatchNorm's running statistics do not see the perturbed pass. rho = 0 is the base method bit for bit.
    Costs two forward and backward passes.

    Each draw of a step has a neighbor of its own, from the gradient at that draw: E_q of the maximum, not the maximum
    of E_q. All examples of a batch share it, also with flipout and local reparameterization, where each example sees a
    draw of its own. An estimator that works at the mean (variational Laplace) has one neighbor for the step.
    """

    rho: float = 0.05
    geometry: str = IDENTITY
    norm: str = PAPER

    name: ClassVar[str] = "sharpness"
    paper: ClassVar[str] = "Nguyen et al. 2023; Foret et al. 2021"

    def __post_init__(self) -> None:
        check_number("sharpness", "rho", self.rho, 0)
        check_choice("sharpness", "geometry", self.geometry, (IDENTITY, MEAN_OVER_STD))
        check_choice("sharpness", "norm", self.norm, (PAPER, EXACT))

    def wrap(self, elbo: ELBO) -> SharpELBO:
        """Return the objective at the worst neighbor; it has the ``step`` of ``elbo``."""
        if self.rho > 0 and not elbo.estimator.uses_weight_gradient:
            raise CompositionError(
                f"sharpness needs the gradient of the NLL in the weights, which estimator '{elbo.estimator.name}' does "
                "not take; use estimator 'weight_sampling'"
            )
        return SharpELBO(elbo, self)

    def ascent(self, gradient: Tensor, posterior: Posterior) -> Tensor:
        """Return e for a (P,) gradient of the NLL in the weights, or each row of a (D, P) one."""
        direction = gradient
        if self.geometry == MEAN_OVER_STD:
            if FACTORIZED not in posterior.provides:
                raise CompositionError(
                    "sharpness geometry 'mean_over_std' needs independent Gaussian weights, which posterior "
                    f"'{posterior.part.name}' does not have; use geometry 'identity'"
                )
            direction = gradient * (posterior.mean.detach().abs() / posterior.std().detach().clamp_min(1e-8))
        squares = direction.square() if self.norm == PAPER else gradient * direction
        length = squares.sum(-1, keepdim=True).sqrt()
        # Where the gradient vanishes there is no direction, and no step is taken.
        return direction * torch.where(length > 0, self.rho / length, 0)


class SharpELBO:
    """An ELBO evaluated at the worst neighbor of the weights. Settings are those of ``elbo``."""

    def __init__(self, elbo: ELBO, sharpness: Sharpness) -> None:
        self.elbo, self.sharpness = elbo, sharpness

    def __call__(self, model: BayesianModel, inputs: Inputs, targets: Tensor, **settings: Any) -> Terms:
        """Return the terms of one batch as ``ELBO`` does."""
        return self.step(model, self.elbo.batch(inputs, targets, **settings))

    def step(self, model: BayesianModel, batch: BatchContext) -> Terms:
        """Return the terms at w + e; ``nll`` and ``outputs`` too are those of the perturbed pass."""
        weights, kl = self.elbo.draw(model, batch)
        if self.sharpness.rho == 0:
            return self.elbo.terms(model, weights, kl, batch)
        offset = self.sharpness.ascent(self._gradient(model, weights, batch), model.posterior)
        with kept_statistics(model.net):
            return self.elbo.terms(model, weights + offset, kl, dataclasses.replace(batch, offset=offset))

    def _gradient(self, model: BayesianModel, weights: Tensor, batch: BatchContext) -> Tensor:
        """Return d NLL / dw in the shape of the weights (of D draws, times 1/D, which the length cancels)."""
        with replayable(batch.generator, weights.device), torch.enable_grad():
            offset = torch.zeros_like(weights).requires_grad_()
            probe = dataclasses.replace(batch, offset=offset)
            nll, _ = self.elbo.estimator.nll(model, weights.detach() + offset, probe)
            (gradient,) = torch.autograd.grad(nll, offset)
        return gradient
