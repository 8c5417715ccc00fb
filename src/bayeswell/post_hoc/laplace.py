"""The Laplace approximation: a Gaussian at the optimum, with the curvature there as its precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import CompositionError, NetworkError, SettingError, nearest, require_count, require_positive
from ..finite import all_finite
from ..likelihoods import check_targets
from ..modes import evaluation_mode
from ..posteriors import Full
from ..types import POINT, BayesianModel, Likelihood, Posterior, PosteriorPart, PostHocPart
from .evidence import OF_THE_MODEL, factors_of, require_prior_precision
from .outputs import curvature_columns
from .structures import Batches, Gathered, diagonal, full, kronecker, linear_sites

_STRUCTURES = ("diagonal", "kronecker", "full")
_DAMPING = ("balanced", "plain")


@dataclass(frozen=True)
class LaplaceApproximation(PostHocPart):
    """A Gaussian at the optimum of a ``delta`` model: precision = (N/T) F + 1/s^2.

    F is the generalised Gauss-Newton matrix of the mean NLL, 1/N sum_n J_n' H_n J_n, with J_n the Jacobian of the
    network in its Bayesian weights and H_n the Hessian of the NLL in the outputs; for these likelihoods it is the
    Fisher information. 1/s^2 is the precision of the model's prior, T the temperature of the ELBO that was
    minimised (mean NLL + T KL / N). The mean stays where training left it.

    ``structure`` of the covariance, and the posterior that comes of it:

    - ``diagonal`` -> ``mean_field``: std_i = 1 / sqrt(precision_ii).
    - ``kronecker`` -> ``matrix_normal``: rows and columns of each weight matrix, see ``kronecker.damped`` for how
      the prior enters (``damping``: ``balanced`` or ``plain``). Ritter et al. append the bias to the inputs; here
      biases and other vectors have a diagonal of their own. A matrix that is not the weight of a linear layer
      (embedding, recurrent cell, fused attention, grouped convolution) has no such factors: the model is refused.
    - ``full`` -> ``full``: the inverse of the whole precision matrix, up to ``max_weights`` weights.

    ``prior_precision``: that of the model's ``prior``; or a factor of it, a number or one with the highest evidence
    (``evidence.py`` has the equation): one factor for all weights (``marginal_likelihood``), or one for each parameter
    (``by_layer``). A Kronecker structure takes the eigenvalues of (N/T) G (x) A + a/s^2, without cross terms.

    Which weights: those that are Bayesian in the model; ``bayesian(net, "delta", where="last_layer")`` makes it the
    last-layer Laplace approximation. F is exact up to 100 outputs an example, above that (or if ``draws`` is given)
    an unbiased estimate from so many random directions an example. Layers are in evaluation mode.

    Draws from this Gaussian through a deep nonlinear network are more uncertain than the posterior is: F may be
    large only in directions in which the network is far from linear. Last layers have no such trouble.
    """

    structure: str = "kronecker"
    temperature: float = 1.0
    draws: int | None = None
    damping: str = "balanced"
    max_weights: int = 5000
    prior_precision: str | float = OF_THE_MODEL

    name: ClassVar[str] = "laplace"
    paper: ClassVar[str] = "MacKay 1992; Ritter et al. 2018"
    needs: ClassVar[frozenset[str]] = frozenset({POINT})
    likelihood_needs: ClassVar[frozenset[str]] = frozenset({"curvature_root"})

    def __post_init__(self) -> None:
        if self.structure not in _STRUCTURES:
            raise SettingError(f"laplace: structure = {self.structure!r}; {nearest(str(self.structure), _STRUCTURES)}")
        if self.damping not in _DAMPING:
            raise SettingError(f"laplace: damping = {self.damping!r}; {nearest(str(self.damping), _DAMPING)}")
        require_positive("laplace", "temperature", self.temperature)
        require_count("laplace", "max_weights", self.max_weights)
        if self.draws is not None:
            require_count("laplace", "draws", self.draws)
        require_prior_precision(self.prior_precision, self.structure)

    def tempered(self, temperature: float) -> LaplaceApproximation:
        """Its temperature is that of the ELBO."""
        return dataclasses.replace(self, temperature=self.temperature * temperature)

    def check(self, model: BayesianModel) -> None:
        """Refuse a model without a point posterior or Gaussian prior, and one that the structure does not fit."""
        if POINT not in model.posterior_part.provides:
            raise CompositionError(
                "post_hoc 'laplace' needs one trained weight vector, which posterior "
                f"'{model.posterior_part.name}' is not; use posterior 'delta'"
            )
        if model.prior.inverse_variance is None:
            raise CompositionError(
                "post_hoc 'laplace' needs a Gaussian prior for every weight; use prior 'normal', 'kaiming' or 'xavier'"
            )
        size = model.layout.size
        if self.structure == "full" and size > self.max_weights:
            raise SettingError(
                f"laplace: a full precision of {size:,} weights takes {8 * size**2 / 1e9:,.1f} GB (and its inverse as "
                f"much), above max_weights = {self.max_weights:,}; use structure 'kronecker' or 'diagonal', or "
                "where='last_layer'"
            )
        if self.structure == "kronecker":
            linear_sites(model)

    def finish(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        batches: Batches,
        dataset_size: int,
        generator: torch.Generator | None = None,
    ) -> tuple[PosteriorPart, Posterior]:
        """The posterior at the model's weights. ``batches`` are gone through once; F is a mean over their examples."""
        found = self.curvature(model, likelihood, batches, dataset_size, generator)
        return found.posterior(found.factors(self.prior_precision))

    def log_evidence(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        batches: Batches,
        dataset_size: int,
        generator: torch.Generator | None = None,
    ) -> float:
        """log Z of ``evidence.py`` in nats, at this temperature and the prior precision chosen; called as ``finish``.

        To compare networks, priors and noise by; exact for linear regression at its optimum with structure ``full``.
        """
        found = self.curvature(model, likelihood, batches, dataset_size, generator)
        return found.log_evidence(found.factors(self.prior_precision))

    def curvature(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        batches: Batches,
        dataset_size: int,
        generator: torch.Generator | None = None,
    ) -> Curvature:
        """What ``finish`` makes the posterior of, whatever the prior's precision; called as ``finish``."""
        self.check(model)
        require_count("laplace", "dataset_size", dataset_size)
        scale = dataset_size / self.temperature
        losses: list[float] = []
        sizes: list[int] = []

        def columns(outputs: Tensor, targets: Tensor) -> Tensor:
            check_targets(likelihood, targets, outputs)
            if not all_finite([outputs]):
                raise NetworkError(
                    "laplace: the network's outputs hold NaN or inf; train it anew, or look at its inputs"
                )
            losses.append(float(likelihood.nll(outputs.detach(), targets).detach().double().sum()))
            sizes.append(len(targets))
            return curvature_columns(likelihood, outputs.detach(), targets, self.draws, generator)

        with evaluation_mode(model.net):
            if self.structure == "diagonal":
                gathered = diagonal(model, batches, columns, scale)
            elif self.structure == "full":
                gathered = full(model, batches, columns, scale, Full(max_weights=self.max_weights))
            else:
                gathered = kronecker(model, batches, columns, scale, self.damping == "balanced")
        return Curvature(gathered, scale * sum(losses) / max(sum(sizes), 1))


@dataclass(frozen=True)
class Curvature:
    """The curvature of all the data, from one pass: the posterior and the evidence of every prior precision.

    ``nll`` is 1/T sum_n nll_n at the weights.
    """

    gathered: Gathered
    nll: float

    def factors(self, choice: str | float) -> Mapping[str, float]:
        """By which the prior precision of each parameter is multiplied, as ``prior_precision`` says."""
        return factors_of(choice, self.gathered.spectra)

    def posterior(self, factors: Mapping[str, float]) -> tuple[PosteriorPart, Posterior]:
        """The posterior with the prior precisions multiplied by these."""
        return self.gathered.posterior(factors)

    def log_evidence(self, factors: Mapping[str, float]) -> float:
        """log Z of ``evidence.py`` in nats (eigenvalues, which cost more than the posterior itself)."""
        return sum(one.log_evidence(factors[one.name]) for one in self.gathered.spectra()) - self.nll
