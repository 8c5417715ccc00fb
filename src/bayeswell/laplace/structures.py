"""Structures of the Laplace approximation: how curvature is accumulated, and the posterior that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ..core.errors import CompositionError, NetworkError
from ..core.layout import Layout, Site
from ..core.protocols import BayesianModel, Inputs, LinearLayer, Posterior, PosteriorPart
from ..nn import plain_attention
from ..posteriors import Full, MatrixNormal, gaussian_posterior
from ..posteriors.full import cholesky_params
from .curvature import weight_gradients
from .evidence import ALL, Spectrum
from .kronecker import LayerCurvature, add_gradients, damped, recorded_calls

Columns = Callable[[Tensor], Tensor]
"""Outputs of a batch -> columns of the output curvature."""


class Structure:
    """The curvature of all data in one structure, and the posterior under a prior with scaled precisions.

    ``add_batch`` for every batch, ``finish(scale, examples)`` once, then ``spectra`` and ``posterior`` as often as
    wanted. All sums are in float64.
    """

    def __init__(self, model: BayesianModel) -> None:
        self.model, self.layout = model, model.layout
        self.mean = model.posterior.mean.detach()
        self.prior_precision = model.prior.std().detach().double() ** -2
        self.distance = self.mean.double() - model.prior.center().detach().double()

    def add_batch(self, inputs: Inputs, columns: Columns) -> None:
        raise NotImplementedError

    def finish(self, scale: float, examples: int) -> None:
        """Turn sums over the examples into (N/T) F, with scale = N/T."""
        raise NotImplementedError

    def spectra(self) -> list[Spectrum]:
        """Return what the evidence needs, by parameter or for all together."""
        raise NotImplementedError

    def posterior(self, factors: Mapping[str, float]) -> Posterior:
        """Return the posterior under prior precisions multiplied by the factor of each parameter."""
        raise NotImplementedError

    def build(self, part: PosteriorPart, state: Mapping[str, Tensor]) -> Posterior:
        """Return the posterior of a part at the model's weights, with this state."""
        posterior = part.build(self.layout, self.model.prior, self.mean, None)
        posterior.load_state_dict({"mean": self.mean, **{name: value.to(self.mean) for name, value in state.items()}})
        return posterior

    def columns_at_mean(self, inputs: Inputs, columns: Columns) -> Tensor:
        with torch.no_grad():
            return columns(self.model.call(self.layout.unflatten(self.mean), inputs))

    def gradients(self, sites: Sequence[Site], inputs: Inputs, columns: Tensor) -> Iterator[Tensor]:
        """Yield rows J_n' u over the weights of these sites, the others fixed."""
        fixed, part = self.layout.unflatten(self.mean), Layout(tuple(sites))

        def network(weights: Tensor, some: Inputs) -> Tensor:
            return self.model.call({**fixed, **part.unflatten(weights)}, some)

        with plain_attention():
            yield from weight_gradients(network, part.flatten(fixed), inputs, columns)


class DiagonalCurvature(Structure):
    """std_i = 1 / sqrt((N/T) F_ii + 1/s_i^2), for all sites or some of them."""

    def __init__(self, model: BayesianModel, sites: Sequence[Site] | None = None) -> None:
        super().__init__(model)
        self.sites = self.layout.sites if sites is None else tuple(sites)
        self.slices = Layout(self.sites).slices
        self.curvature = self.mean.new_zeros(sum(site.size for site in self.sites), dtype=torch.float64)

    def add_batch(self, inputs: Inputs, columns: Columns) -> None:
        self.add_squares(inputs, self.columns_at_mean(inputs, columns))

    def add_squares(self, inputs: Inputs, columns: Tensor) -> None:
        """Add the diagonal of sum_n J_n' H_n J_n."""
        for rows in self.gradients(self.sites, inputs, columns):
            self.curvature += rows.square().sum(0)

    def finish(self, scale: float, examples: int) -> None:
        self.curvature *= scale / examples
        for site in self.sites:
            _check_finite(self.curvature[self.slices[site.name]], f"'{site.name}'")

    def spectra(self) -> list[Spectrum]:
        found = []
        for site in self.sites:
            own = self.layout.slices[site.name]
            prior = self.prior_precision[own]
            curvature = (self.curvature[self.slices[site.name]] / prior).clamp_min(0)
            found.append(Spectrum(site.name, curvature, prior * self.distance[own].square()))
        return found

    def variances(self, factors: Mapping[str, float]) -> Tensor:
        """1 / ((N/T) F_ii + a/s_i^2), for the weights of these sites."""
        prior = [factors[site.name] * self.prior_precision[self.layout.slices[site.name]] for site in self.sites]
        return (self.curvature + torch.cat(prior)).reciprocal()

    def posterior(self, factors: Mapping[str, float]) -> Posterior:
        return gaussian_posterior(self.layout, self.mean, self.variances(factors).to(self.mean.dtype))


class FullCurvature(Structure):
    """Covariance ((N/T) F + 1/s^2)^-1 of all weights together."""

    def __init__(self, model: BayesianModel, max_weights: int) -> None:
        super().__init__(model)
        size = self.layout.size
        self.part = Full(max_weights=max_weights)
        self.curvature = self.mean.new_zeros(size, size, dtype=torch.float64)

    def add_batch(self, inputs: Inputs, columns: Columns) -> None:
        for rows in self.gradients(self.layout.sites, inputs, self.columns_at_mean(inputs, columns)):
            exact = rows.double()
            self.curvature.addmm_(exact.T, exact)

    def finish(self, scale: float, examples: int) -> None:
        self.curvature *= scale / examples
        for name, own in self.layout.slices.items():
            _check_finite(self.curvature[own], f"'{name}'")

    def spectra(self) -> list[Spectrum]:
        root = self.prior_precision.sqrt()
        values, vectors = _eigen(self.curvature / root[:, None] / root)
        return [Spectrum(ALL, values, (vectors.T @ (root * self.distance)).square())]

    def posterior(self, factors: Mapping[str, float]) -> Posterior:
        precision = self.curvature.clone()
        precision.diagonal().add_(factors[ALL] * self.prior_precision)
        log_diagonal, lower = cholesky_params(_inverse_factor(precision, "the network"))
        return self.build(self.part, {"log_diagonal": log_diagonal, "lower": lower})


class KroneckerCurvature(Structure):
    """Rows and columns of each weight matrix; variances of all other parameters."""

    def __init__(self, model: BayesianModel, balanced: bool) -> None:
        super().__init__(model)
        self.balanced = balanced
        self.layers = [LayerCurvature(layer, site, self.mean) for layer, site in matrix_sites(model)]
        self.others = DiagonalCurvature(model, [site for site in self.layout.sites if site.matrix_shape is None])
        self.matrices: dict[str, tuple[Tensor, Tensor]] = {}
        self.scale = 1.0

    def add_batch(self, inputs: Inputs, columns: Columns) -> None:
        with torch.enable_grad(), plain_attention(), recorded_calls(self.layers) as calls:
            outputs = self.model.call(self.layout.unflatten(self.mean.clone().requires_grad_()), inputs)
        roots = columns(outputs)
        add_gradients(calls, outputs, roots)
        if self.others.sites:
            self.others.add_squares(inputs, roots)

    def finish(self, scale: float, examples: int) -> None:
        self.scale = scale
        self.others.finish(scale, examples)
        for layer in self.layers:
            self.matrices[layer.site.name] = layer.factors(examples)
            for side in self.matrices[layer.site.name]:
                _check_finite(side, f"'{layer.site.name}'")

    def _prior_of(self, name: str) -> float:
        return float(self.prior_precision[self.layout.slices[name]].mean())

    def spectra(self) -> list[Spectrum]:
        """In the directions of the eigenvectors of both sides; (N/T) G (x) A + a/s^2 has no cross terms here."""
        found = self.others.spectra() if self.others.sites else []
        for layer in self.layers:
            site = layer.site
            (rows, row_vectors), (columns, column_vectors) = (_eigen(side) for side in self.matrices[site.name])
            distance = site.to_matrix(self.distance[self.layout.slices[site.name]].view(site.shape))
            prior = self._prior_of(site.name)
            curvatures = self.scale * torch.outer(rows, columns) / prior
            squares = prior * (row_vectors.T @ distance @ column_vectors).square()
            found.append(Spectrum(site.name, curvatures.flatten(), squares.flatten()))
        return found

    def posterior(self, factors: Mapping[str, float]) -> Posterior:
        state = {"log_std": 0.5 * self.others.variances(factors).log()} if self.others.sites else {}
        for index, (name, sides) in enumerate(self.matrices.items()):
            precisions = damped(*sides, self.scale, factors[name] * self._prior_of(name), self.balanced)
            for side, precision in zip(("row", "column"), precisions, strict=True):
                log_diagonal, lower = cholesky_params(_inverse_factor(precision, f"'{name}'"))
                state[f"scales.{index}.{side}_log_diagonal"] = log_diagonal
                state[f"scales.{index}.{side}_lower"] = lower
        return self.build(MatrixNormal(), state)


def matrix_sites(model: BayesianModel) -> list[tuple[LinearLayer, Site]]:
    """Return each weight matrix with its layer, in the order of the layout; refuse matrices without factors."""
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
        elif max(site.matrix_shape) > MatrixNormal.max_side:
            fault = f"is {site.matrix_shape[0]}x{site.matrix_shape[1]}, above {MatrixNormal.max_side} a side"
        else:
            found.append((layer, site))
            continue
        raise CompositionError(
            f"laplace: structure 'kronecker' has no factors for '{site.name}', which {fault}; use structure "
            "'diagonal', or exclude it with where="
        )
    if not found:
        raise CompositionError("laplace: structure 'kronecker' needs a weight matrix; use 'diagonal' or 'full'")
    return found


def _check_finite(curvature: Tensor, owner: str) -> None:
    if not bool(curvature.isfinite().all()):
        raise NetworkError(
            f"laplace: the curvature of {owner} is NaN or inf; so are outputs or gradients of the network"
        )


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(matrix)
    return values.clamp_min(0), vectors


def _inverse_factor(precision: Tensor, owner: str) -> Tensor:
    # Lower triangular L with L L' = precision^-1, through the Cholesky factor of the reversed matrix.
    factor, fault = torch.linalg.cholesky_ex(precision.flip(-2, -1))
    if int(fault) or not bool(factor.isfinite().all()):
        raise NetworkError(
            f"laplace: the precision of {owner} is not positive definite in float64; give the prior a smaller std"
        )
    upper = factor.flip(-2, -1)
    identity = torch.eye(len(upper), dtype=upper.dtype, device=upper.device)
    inverse: Tensor = torch.linalg.solve_triangular(upper, identity, upper=True)
    return inverse.mT
