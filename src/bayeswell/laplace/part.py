"""The Laplace approximation: a Gaussian at the optimum, with the curvature there as its precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import (
    CompositionError,
    DataError,
    NetworkError,
    SettingError,
    check_choice,
    check_integer,
    check_number,
)
from ..core.protocols import POINT, BayesianModel, Inputs, Likelihood, Posterior
from ..nn import evaluation_mode
from .curvature import curvature_columns
from .evidence import BY_LAYER, MODEL_PRIOR, PRIOR_PRECISIONS, find_factors
from .structures import DiagonalCurvature, FullCurvature, KroneckerCurvature, Structure, matrix_sites

DIAGONAL, KRONECKER, FULL = "diagonal", "kronecker", "full"
Batches = Iterable[tuple[Inputs, Tensor]]


@dataclass(frozen=True)
class Laplace:
    """A Gaussian at the optimum of a ``delta`` model: precision = (N/T) F + 1/s^2.

    F is the generalized Gauss-Newton matrix of the mean NLL, 1/N sum_n J_n' H_n J_n, with J_n the Jacobian of the
    network in its Bayesian weights and H_n the Hessian of the NLL in the outputs; for these likelihoods it is the
    Fisher information. 1/s^2 is the precision of the model's prior, T the temperature of the ELBO that was minimized
    (mean NLL + T KL / N). The mean stays where training left it. Layers are in evaluation mode.

    Structures of the covariance, and the posteriors that follow:

    - ``diagonal`` -> mean-field: std_i = 1 / sqrt(precision_ii).
    - ``kronecker`` -> matrix normal: rows and columns of each weight matrix; ``kronecker.damped`` says how the prior
      enters. Ritter et al. append the bias to the inputs; here biases and other vectors have variances of their own.
      A matrix that is not the weight of a linear layer (embedding, recurrent cell, fused attention, grouped
      convolution) has no such factors: the model is refused.
    - ``full`` -> full: the inverse of the whole precision matrix.

    The weights are those that are Bayesian in the model; ``bayesian(net, "delta", where="last_layer")`` makes it the
    last-layer Laplace approximation.

    Draws from this Gaussian through a deep nonlinear network are more uncertain than the posterior is: F may be large
    only in directions in which the network is far from linear. Linearized predictions have no such trouble.

    Args:
        structure: "diagonal", "kronecker" or "full".
        draws: random directions an example for the curvature in the outputs; None: exact up to 100 outputs.
        damping: of Kronecker factors, "balanced" or "plain".
        max_weights: largest size of a full precision matrix.
        prior_precision: "prior": that of the model's prior; a number: so many times as much; or the factor with the
            highest evidence (``evidence.py``), one for all weights ("marginal_likelihood") or one for each parameter
            ("by_layer").
    """

    structure: str = KRONECKER
    draws: int | None = None
    damping: str = "balanced"
    max_weights: int = 5000
    prior_precision: str | float = MODEL_PRIOR

    name: ClassVar[str] = "laplace"
    paper: ClassVar[str] = "MacKay 1992; Ritter et al. 2018"
    needs: ClassVar[frozenset[str]] = frozenset({POINT})
    likelihood_needs: ClassVar[frozenset[str]] = frozenset({"curvature_root"})

    def __post_init__(self) -> None:
        check_choice("laplace", "structure", self.structure, (DIAGONAL, KRONECKER, FULL))
        check_choice("laplace", "damping", self.damping, ("balanced", "plain"))
        check_integer("laplace", "max_weights", self.max_weights)
        if self.draws is not None:
            check_integer("laplace", "draws", self.draws)
        if not isinstance(self.prior_precision, str):
            check_number("laplace", "prior_precision", self.prior_precision, 0, above=True)
            return
        check_choice("laplace", "prior_precision", self.prior_precision, PRIOR_PRECISIONS)
        if self.prior_precision == BY_LAYER and self.structure == FULL:
            raise SettingError("laplace: structure 'full' has no prior_precision 'by_layer'; use 'marginal_likelihood'")

    def fit(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        batches: Batches,
        *,
        dataset_size: int,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Posterior:
        """Return the posterior at the model's weights. F is a mean over the examples of one pass over ``batches``."""
        settings: dict[str, Any] = {"dataset_size": dataset_size, "temperature": temperature, "generator": generator}
        found = self.curvature(model, likelihood, batches, **settings)
        return found.posterior(found.factors(self.prior_precision))

    def curvature(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        batches: Batches,
        *,
        dataset_size: int,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Curvature:
        """Return the curvature of all data, from which the posterior and evidence of any prior precision follow."""
        self.check(model)
        structure: Structure
        if self.structure == DIAGONAL:
            structure = DiagonalCurvature(model)
        elif self.structure == FULL:
            structure = FullCurvature(model, self.max_weights)
        else:
            structure = KroneckerCurvature(model, self.damping == "balanced")
        examples, nll = 0, 0.0
        with model.lock, evaluation_mode(model.net):
            for inputs, targets in batches:

                def columns(outputs: Tensor, targets: Tensor = targets) -> Tensor:
                    nonlocal nll
                    if not bool(outputs.isfinite().all()):
                        raise NetworkError("laplace: the outputs of the network hold NaN or inf")
                    nll += float(likelihood.nll(outputs.detach(), targets).detach().double().sum())
                    return curvature_columns(likelihood, outputs, targets, self.draws, generator)

                structure.add_batch(inputs, columns)
                examples += len(targets)
        if examples == 0:
            raise DataError("laplace: there are no batches; the curvature needs at least one example")
        structure.finish(dataset_size / temperature, examples)
        return Curvature(structure, dataset_size / temperature * nll / examples)

    def check(self, model: BayesianModel) -> None:
        """Refuse a model without a point posterior or Gaussian prior, and one that the structure does not fit."""
        if POINT not in model.posterior.provides:
            raise CompositionError(f"laplace needs posterior 'delta', got '{model.posterior.part.name}'")
        if model.prior.gaussian is None:
            raise CompositionError("laplace needs a Gaussian prior: 'normal', 'kaiming' or 'xavier'")
        size = model.layout.size
        if self.structure == FULL and size > self.max_weights:
            raise SettingError(
                f"laplace: structure 'full' for {size:,} weights, above `max_weights` = {self.max_weights:,}; use "
                "structure 'kronecker' or 'diagonal', or where='last_layer'"
            )
        if self.structure == KRONECKER:
            matrix_sites(model)


@dataclass(frozen=True)
class Curvature:
    """The curvature of all data; ``nll`` is 1/T sum_n nll_n at the weights."""

    structure: Structure
    nll: float

    def factors(self, choice: str | float) -> Mapping[str, float]:
        """Return the factors of the prior precision that a ``prior_precision`` means, by parameter."""
        return find_factors(choice, self.structure.spectra)

    def posterior(self, factors: Mapping[str, float]) -> Posterior:
        return self.structure.posterior(factors)

    def log_evidence(self, factors: Mapping[str, float]) -> float:
        """Return log Z of ``evidence.py`` in nats, to compare networks, priors and noise by.

        Exact for linear regression at its optimum with structure ``full``.
        """
        return sum(one.log_evidence(factors[one.name]) for one in self.structure.spectra()) - self.nll
