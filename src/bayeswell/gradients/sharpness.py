"""Sharpness-aware training: the gradient where the loss is worst nearby."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import CompositionError, SettingError, nearest, require_between
from ..layers import kept_statistics
from ..random import replayable
from ..types import FACTORISED, BayesianModel, Estimator, Objective, Posterior, Step, Terms
from .by_pass import ShiftedPasses
from .shifted import ShiftedModel

_GEOMETRIES = ("identity", "mean_over_std")
_NORMS = ("paper", "exact")


@dataclass(frozen=True)
class Sharpness:
    """Minimise E_q[max over |e| <= rho of NLL(w + e)] + KL(q, p) (eq. 6): flat-seeking Bayesian networks.

    One ascent step finds the worst neighbour: with g = d NLL / d mean and a geometry T,

        e = rho T g / |T g|          norm = "paper": the step has Euclidean length rho
        e = rho T g / sqrt(g' T g)   norm = "exact": the maximiser in the ball sqrt(e' T^-1 e) <= rho

    then the gradient of NLL at w + e (same batch, noise and dropout masks) moves means and stds; the KL is not
    perturbed (eq. 7 drops it by mistake). T = 1 (``identity``) or |mean| / std (``mean_over_std``; std at least 1e-8, T
    held constant). Running statistics of BatchNorm do not see the perturbed pass. rho = 0 is the base method bit for
    bit. Costs two passes.

    Of several draws in a step each has a neighbour of its own, from the gradient at that draw alone: E_q of the
    maximum, not the maximum of E_q. Examples of a batch share the one of their pass, also with flipout and local
    reparameterization, where each example sees a draw of its own. An estimator that is no mean over passes
    (variational Laplace; one from outside without ``passes``) has one neighbour for the step.
    """

    rho: float = 0.05
    geometry: str = "identity"
    norm: str = "paper"

    name: ClassVar[str] = "sharpness"
    paper: ClassVar[str] = "Nguyen et al. 2023; Foret et al. 2021"

    def __post_init__(self) -> None:
        require_between("sharpness", "rho", self.rho, 0, math.inf, open_high=True)
        if self.geometry not in _GEOMETRIES:
            raise SettingError(f"sharpness: geometry = '{self.geometry}'; {nearest(str(self.geometry), _GEOMETRIES)}")
        if self.norm not in _NORMS:
            raise SettingError(f"sharpness: norm = '{self.norm}'; {nearest(str(self.norm), _NORMS)}")

    def check(self, model: BayesianModel) -> None:
        """Refuse a posterior that the geometry cannot work with, and an estimator without a gradient in the weights."""
        self.check_estimator(model.estimator)
        if self.geometry == "mean_over_std" and FACTORISED not in model.posterior_part.provides:
            raise CompositionError(
                f"sharpness with geometry 'mean_over_std' needs independent Gaussian weights, which posterior "
                f"'{model.posterior_part.name}' does not have; use geometry 'identity'"
            )

    def check_estimator(self, estimator: Estimator) -> None:
        """The worst neighbour is found along the gradient in the weights."""
        # An object from outside need not say so.
        if self.rho > 0 and not getattr(estimator, "differentiates_weights", True):
            raise CompositionError(
                f"sharpness follows the gradient of the NLL in the weights, which estimator '{estimator.name}' never "
                "takes; use estimator 'weight_sampling', or no sharpness"
            )

    def wrap(self, objective: Objective) -> SharpObjective:
        """The objective at the worst neighbour, to be used in place of ``objective``."""
        return SharpObjective(objective, self)

    def ascent(self, gradient: Tensor, posterior: Posterior) -> Tensor:
        """e for a gradient of the NLL with respect to the weights: (P,), or (D, P) with one for each draw."""
        scale = None
        if self.geometry == "mean_over_std":
            mean, std = posterior.mean_vector().detach(), posterior.std_vector().detach()
            scale = mean.abs() / std.clamp_min(1e-8)
        if gradient.dim() == 1:
            return self._ascent(gradient, scale)
        return torch.stack([self._ascent(of_draw, scale) for of_draw in gradient])

    def _ascent(self, gradient: Tensor, scale: Tensor | None) -> Tensor:
        direction = gradient if scale is None else gradient * scale
        length = direction.norm() if self.norm == "paper" else torch.dot(gradient, direction).sqrt()
        # Where the gradient vanishes every direction is as good as none.
        return direction * torch.where(length > 0, self.rho / length, torch.zeros_like(length))


class SharpObjective(Objective):
    """An objective evaluated at the worst neighbour of the weights."""

    def __init__(self, objective: Objective, sharpness: Sharpness) -> None:
        super().__init__()
        self.objective = objective
        self.sharpness = sharpness

    def terms(self, model: BayesianModel, step: Step) -> Terms:
        """The terms at w + e; ``nll`` and ``outputs`` too are those of the perturbed pass."""
        self.sharpness.check(model)
        if self.sharpness.rho == 0:
            return self.objective.terms(model, step)
        offset = self._worst_neighbour(model, step)
        moved = ShiftedModel(model, offset) if offset.dim() == 1 else ShiftedPasses(model, offset)
        with kept_statistics(model.net):
            return self.objective.terms(moved, step)

    def nll(self, model: BayesianModel, step: Step) -> Tensor:
        """The NLL without perturbation."""
        return self.objective.nll(model, step)

    def _worst_neighbour(self, model: BayesianModel, step: Step) -> Tensor:
        """e (P,), or (D, P) for an estimator of D passes; from a probe whose gradient touches that of no parameter."""
        # An object from outside need not have ``passes``.
        several = getattr(model.estimator, "passes", 1) > 1
        with replayable(step.generator, model.posterior.like().device), torch.enable_grad():
            if several:
                by_pass = ShiftedPasses(model, None)
                # Of the mean over D draws: a factor 1/D, which the length takes out again.
                gradient = by_pass.slopes(self.objective.nll(by_pass, step))
            else:
                probe = ShiftedModel(model, None)
                gradient = probe.posterior.slope(self.objective.nll(probe, step))
        return self.sharpness.ascent(gradient, model.posterior)
