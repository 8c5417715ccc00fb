"""The structures of a Laplace approximation: how curvature is gathered, and the posterior that comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import CompositionError, DataError, NetworkError
from ..finite import all_finite
from ..layers import plain_kernels
from ..posteriors import Full, MatrixNormal, MeanField, cholesky_parameters
from ..tree import Layout, Site
from ..types import BayesianModel, Inputs, LinearLayer, Posterior, PosteriorPart
from .evidence import ALL, Spectrum, eigen
from .examples import weight_gradients
from .kronecker import LayerCurvature, add_gradients, damped, watched

Batches = Iterable[tuple[Inputs, Tensor]]
Columns = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> columns of the output curvature."""


@dataclass(frozen=True)
class Gathered:
    """What one pass over the data leaves.

    ``spectra()`` is what the evidence needs of the parameters; ``posterior(factors)`` the posterior under a prior whose
    precision is multiplied by a factor of each parameter's own.
    """

    spectra: Callable[[], Sequence[Spectrum]]
    posterior: Callable[[Mapping[str, float]], tuple[PosteriorPart, Posterior]]


def diagonal(model: BayesianModel, batches: Batches, columns: Columns, scale: float) -> Gathered:
    """std_i = 1 / sqrt(precision_ii)."""
    sites = model.layout.sites
    total, examples = model.posterior.mean_vector().new_zeros(model.layout.size, dtype=torch.float64), 0
    for inputs, targets in batches:
        with plain_kernels(model.net):
            total += _squares(model, sites, inputs, _columns_of_batch(model, inputs, targets, columns))
        examples += len(targets)
    _require_examples(examples)
    curvature = _curvature(sites, total, examples, scale)

    def posterior(factors: Mapping[str, float]) -> tuple[PosteriorPart, Posterior]:
        return _posterior(MeanField(), model, {"log_std": _log_stds(model, sites, curvature, factors)})

    return Gathered(lambda: _spectra(model, curvature), posterior)


def full(model: BayesianModel, batches: Batches, columns: Columns, scale: float, part: Full) -> Gathered:
    """The inverse of the whole precision."""
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
    curvature, prior = total.mul_(scale / examples), _prior_precision(model)

    def posterior(factors: Mapping[str, float]) -> tuple[PosteriorPart, Posterior]:
        precision = curvature.clone()
        precision.diagonal().add_(factors[ALL] * prior)
        log_diagonal, lower = cholesky_parameters(_inverse_factor(precision, "the network"))
        return _posterior(part, model, {"log_diagonal": log_diagonal, "lower": lower})

    return Gathered(lambda: [_spectrum_of_all(model, curvature)], posterior)


def kronecker(model: BayesianModel, batches: Batches, columns: Columns, scale: float, balanced: bool) -> Gathered:
    """Rows and columns of each weight matrix, stds elsewhere."""
    mean = model.posterior.mean_vector().detach()
    curvatures = [LayerCurvature(layer, site, mean) for layer, site in linear_sites(model)]
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
    of_others = _curvature(others, total, examples, scale)
    matrices = {curvature.site.name: curvature.factors(examples) for curvature in curvatures}

    def posterior(factors: Mapping[str, float]) -> tuple[PosteriorPart, Posterior]:
        state = {"log_std": _log_stds(model, others, of_others, factors)} if others else {}
        for index, (name, sides) in enumerate(matrices.items()):
            prior_precision = factors[name] * float(_prior_precision(model)[model.layout.slices[name]].mean())
            both = damped(*sides, scale, prior_precision, balanced)
            for side, precision in zip(("row", "column"), both, strict=True):
                log_diagonal, lower = cholesky_parameters(_inverse_factor(precision, f"'{name}'"))
                state[f"scales.{index}.{side}_log_diagonal"] = log_diagonal
                state[f"scales.{index}.{side}_lower"] = lower
        return _posterior(MatrixNormal(), model, state)

    return Gathered(
        lambda: [*_spectra(model, of_others, others), *_spectra_of_matrices(model, matrices, scale)], posterior
    )


def _spectra(model: BayesianModel, curvature: Tensor, sites: Sequence[Site] | None = None) -> list[Spectrum]:
    """Of sites whose curvature is taken as diagonal, (N/T) F_ii in their own order."""
    chosen = model.layout.sites if sites is None else sites
    places, prior, away, found = Layout(tuple(chosen)).slices, _prior_precision(model), _away(model), []
    for site in chosen:
        own = model.layout.slices[site.name]
        squares = prior[own] * away[own].square()
        found.append(Spectrum(site.name, (curvature[places[site.name]] / prior[own]).clamp_min(0), squares))
    return found


def _spectra_of_matrices(
    model: BayesianModel, matrices: Mapping[str, tuple[Tensor, Tensor]], scale: float
) -> list[Spectrum]:
    """Of weight matrices, in the directions of the eigenvectors of both sides."""
    prior, away, found = _prior_precision(model), _away(model), []
    sites = {site.name: site for site in model.layout.sites}
    for name, sides in matrices.items():
        own, site = model.layout.slices[name], sites[name]
        (rows, row_vectors), (columns, column_vectors) = (eigen(side) for side in sides)
        # One precision for a matrix, as in its posterior.
        precision = prior[own].mean()
        turned = row_vectors.T @ site.to_matrix(away[own].view(site.shape)) @ column_vectors
        products = scale * torch.outer(rows, columns) / precision
        found.append(Spectrum(name, products.flatten(), (precision * turned.square()).flatten()))
    return found


def _spectrum_of_all(model: BayesianModel, curvature: Tensor) -> Spectrum:
    """Of a whole matrix (N/T) F."""
    root = _prior_precision(model).sqrt()
    values, vectors = eigen(curvature / root[:, None] / root)
    return Spectrum(ALL, values, (vectors.T @ (root * _away(model))).square())


def _away(model: BayesianModel) -> Tensor:
    """(P,): the weights' distance from the prior's centre, in float64."""
    mean = model.posterior.mean_vector().detach().double()
    return mean if model.prior.centre is None else mean - model.prior.centre


def linear_sites(model: BayesianModel) -> list[tuple[LinearLayer, Site]]:
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


def _curvature(sites: Sequence[Site], total: Tensor, examples: int, scale: float) -> Tensor:
    """scale * mean curvature, for the weights of these sites."""
    _require_finite(sites, total)
    return scale / examples * total


def _log_stds(model: BayesianModel, sites: Sequence[Site], curvature: Tensor, factors: Mapping[str, float]) -> Tensor:
    """log std = -1/2 log(curvature + factor * prior precision), for the weights of these sites."""
    prior = model.layout.unflatten(_prior_precision(model))
    scaled = {site.name: factors[site.name] * prior[site.name] for site in sites}
    return -0.5 * (curvature + Layout(tuple(sites)).flatten(scaled)).log()


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
