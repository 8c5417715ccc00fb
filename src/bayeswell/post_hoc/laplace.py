"""The Laplace approximation: a Gaussian at the optimum, with the curvature there as its precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import CompositionError, DataError, NetworkError, SettingError, nearest, require_count, require_positive
from ..finite import all_finite
from ..layers import plain_kernels
from ..likelihoods import check_targets
from ..modes import evaluation_mode
from ..posteriors import Full, MatrixNormal, MeanField, cholesky_parameters
from ..tree import Layout, Site
from ..types import POINT, BayesianModel, Inputs, Likelihood, LinearLayer, Posterior, PosteriorPart, PostHocPart
from .examples import weight_gradients
from .kronecker import LayerCurvature, add_gradients, damped, watched
from .outputs import curvature_columns

_STRUCTURES = ("diagonal", "kronecker", "full")
_DAMPING = ("balanced", "plain")

Batches = Iterable[tuple[Inputs, Tensor]]
Columns = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> columns of the output curvature."""


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
            _linear_sites(model)

    def finish(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        batches: Batches,
        dataset_size: int,
        generator: torch.Generator | None = None,
    ) -> tuple[PosteriorPart, Posterior]:
        """The posterior at the model's weights. ``batches`` are gone through once; F is a mean over their examples."""
        self.check(model)
        require_count("laplace", "dataset_size", dataset_size)
        scale = dataset_size / self.temperature

        def columns(outputs: Tensor, targets: Tensor) -> Tensor:
            check_targets(likelihood, targets, outputs)
            if not all_finite([outputs]):
                raise NetworkError(
                    "laplace: the network's outputs hold NaN or inf; train it anew, or look at its inputs"
                )
            return curvature_columns(likelihood, outputs.detach(), targets, self.draws, generator)

        with evaluation_mode(model.net):
            if self.structure == "diagonal":
                return _diagonal(model, batches, columns, scale)
            if self.structure == "full":
                return _full(model, batches, columns, scale, Full(max_weights=self.max_weights))
            return _kronecker(model, batches, columns, scale, self.damping == "balanced")


def _diagonal(
    model: BayesianModel, batches: Batches, columns: Columns, scale: float
) -> tuple[PosteriorPart, Posterior]:
    sites = model.layout.sites
    total, examples = model.posterior.mean_vector().new_zeros(model.layout.size, dtype=torch.float64), 0
    for inputs, targets in batches:
        with plain_kernels(model.net):
            total += _squares(model, sites, inputs, _columns_of_batch(model, inputs, targets, columns))
        examples += len(targets)
    _require_examples(examples)
    log_std = _log_stds(model, sites, total, examples, scale)
    return _posterior(MeanField(), model, {"log_std": log_std})


def _full(
    model: BayesianModel, batches: Batches, columns: Columns, scale: float, part: Full
) -> tuple[PosteriorPart, Posterior]:
    size, examples = model.layout.size, 0
    total = model.posterior.mean_vector().new_zeros(size, size, dtype=torch.float64)
    for inputs, targets in batches:
        with plain_kernels(model.net):
            roots = _columns_of_batch(model, inputs, targets, columns)
            for rows in _gradients(model, model.layout.sites, inputs, roots):
                exact = rows.double()
                total.addmm_(exact.T, exact)
        examples += len(targets)
    _require_examples(examples)
    _require_finite(model.layout.sites, total.diagonal())
    precision = total.mul_(scale / examples)
    precision.diagonal().add_(_prior_precision(model))
    factor = _inverse_factor(precision, "the network")
    log_diagonal, lower = cholesky_parameters(factor)
    return _posterior(part, model, {"log_diagonal": log_diagonal, "lower": lower})


def _kronecker(
    model: BayesianModel, batches: Batches, columns: Columns, scale: float, balanced: bool
) -> tuple[PosteriorPart, Posterior]:
    mean = model.posterior.mean_vector().detach()
    curvatures = [LayerCurvature(layer, site, mean) for layer, site in _linear_sites(model)]
    others = [site for site in model.layout.sites if site.matrix_shape is None]
    total, examples = mean.new_zeros(sum(site.size for site in others), dtype=torch.float64), 0
    for inputs, targets in batches:
        with plain_kernels(model.net):
            with torch.enable_grad(), watched(curvatures) as calls:
                outputs = model.call(model.layout.unflatten(mean.clone().requires_grad_()), inputs)
            roots = columns(outputs, targets)
            add_gradients(calls, outputs, roots)
            if others:
                total += _squares(model, others, inputs, roots)
        examples += len(targets)
    _require_examples(examples)
    state = {"log_std": _log_stds(model, others, total, examples, scale)} if others else {}
    for index, curvature in enumerate(curvatures):
        name = curvature.site.name
        prior_precision = float(_prior_precision(model)[model.layout.slices[name]].mean())
        factors = curvature.factors(examples)
        for side, precision in zip(("row", "column"), damped(*factors, scale, prior_precision, balanced), strict=True):
            factor = _inverse_factor(precision, f"'{name}'")
            log_diagonal, lower = cholesky_parameters(factor)
            state[f"scales.{index}.{side}_log_diagonal"] = log_diagonal
            state[f"scales.{index}.{side}_lower"] = lower
    return _posterior(MatrixNormal(), model, state)


def _linear_sites(model: BayesianModel) -> list[tuple[LinearLayer, Site]]:
    """Every weight matrix with its layer, in the order of the layout."""
    layers = {layer.weight: layer for layer in model.linear_layers.values()}
    found = []
    for site in model.layout.sites:
        if site.matrix_shape is None:
            continue
        layer = layers.get(site.name)
        if layer is None:
            fault = "is shared by several layers" if len(site.names) > 1 else f"is not linear in its layer {site.layer}"
        elif getattr(layer.module, "groups", 1) > 1:
            fault = "belongs to a grouped convolution"
        elif max(site.matrix_shape) > MatrixNormal().max_side:
            fault = f"is {site.matrix_shape[0]}x{site.matrix_shape[1]}, above {MatrixNormal().max_side} a side"
        else:
            found.append((layer, site))
            continue
        raise CompositionError(
            f"post_hoc 'laplace' with structure 'kronecker' has no factors for '{site.name}', which {fault}; use "
            "structure 'diagonal', or leave it out with where="
        )
    if not found:
        raise CompositionError(
            "post_hoc 'laplace' with structure 'kronecker': the model has no Bayesian weight matrix; use structure "
            "'diagonal' or 'full'"
        )
    return found


def _columns_of_batch(model: BayesianModel, inputs: Inputs, targets: Tensor, columns: Columns) -> Tensor:
    with torch.no_grad():
        outputs = model.call(model.layout.unflatten(model.posterior.mean_vector()), inputs)
    return columns(outputs, targets)


def _gradients(model: BayesianModel, sites: Sequence[Site], inputs: Inputs, columns: Tensor) -> Iterator[Tensor]:
    """Rows J_n' u over the weights of these sites, the others held at their place."""
    held, part = model.layout.unflatten(model.posterior.mean_vector().detach()), Layout(tuple(sites))

    def network(weights: Tensor, some: Inputs) -> Tensor:
        outputs: Tensor = model.call({**held, **part.unflatten(weights)}, some)
        return outputs

    return weight_gradients(network, part.flatten(held), inputs, columns)


def _squares(model: BayesianModel, sites: Sequence[Site], inputs: Inputs, columns: Tensor) -> Tensor:
    """The diagonal of sum_n J_n' H_n J_n over the weights of these sites."""
    total = columns.new_zeros(sum(site.size for site in sites), dtype=torch.float64)
    for rows in _gradients(model, sites, inputs, columns):
        total += rows.square().sum(0)
    return total


def _log_stds(model: BayesianModel, sites: Sequence[Site], total: Tensor, examples: int, scale: float) -> Tensor:
    """log std = -1/2 log(scale * mean curvature + prior precision), for the weights of these sites."""
    prior = model.layout.unflatten(_prior_precision(model))
    _require_finite(sites, total)
    return -0.5 * (scale / examples * total + Layout(tuple(sites)).flatten(prior)).log()


def _prior_precision(model: BayesianModel) -> Tensor:
    """(P,): 1/s^2 in float64."""
    precision = model.prior.inverse_variance
    assert precision is not None
    return precision.double().expand(model.layout.size).contiguous()


def _require_examples(examples: int) -> None:
    if examples == 0:
        raise DataError("laplace: the batches are empty; the curvature needs at least one example")


def _require_finite(sites: Sequence[Site], curvature: Tensor) -> None:
    layout = Layout(tuple(sites))
    if not all_finite([curvature]):
        name = next(site.name for site in sites if not bool(curvature[layout.slices[site.name]].isfinite().all()))
        raise NetworkError(f"laplace: the curvature of '{name}' is NaN or inf; the network's outputs or gradients are")


def _inverse_factor(precision: Tensor, owner: str) -> Tensor:
    """L, lower triangular, with L L' = precision^-1; through the factor of the reversed matrix, without the inverse."""
    factor, fault = torch.linalg.cholesky_ex(precision.flip(-2, -1))
    if int(fault) or not bool(factor.isfinite().all()):
        raise NetworkError(
            f"laplace: the precision of {owner} is not positive definite (to the accuracy of float64); give the prior "
            "a smaller std, or use float64 networks"
        )
    upper = factor.flip(-2, -1)
    identity = torch.eye(len(upper), dtype=upper.dtype, device=upper.device)
    inverse: Tensor = torch.linalg.solve_triangular(upper, identity, upper=True)
    return inverse.mT


def _posterior(part: PosteriorPart, model: BayesianModel, state: dict[str, Tensor]) -> tuple[PosteriorPart, Posterior]:
    """The posterior of these settings at the model's weights, its shape filled in from float64 numbers."""
    mean = model.posterior.mean_vector().detach()
    posterior = part.build(model.layout, model.prior, mean)
    posterior.load_state_dict({"mean": mean, **{name: value.to(mean.dtype) for name, value in state.items()}})
    return part, posterior
