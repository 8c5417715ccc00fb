"""Local reparameterization: draws of the pre-activations of linear layers instead of their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import check_integer
from ..core.protocols import FACTORIZED, BatchContext, BayesianModel, Estimator, LinearLayer
from ..core.random import standard_normal
from .by_layer import call_with
from .weight_sampling import average_nll, weight_noise


@dataclass(frozen=True)
class LocalReparameterization(Estimator):
    """a = op(x, mean) + sqrt(op(x^2, std^2)) * zeta, with zeta drawn for each example, unit and position.

    Exact for dense layers: each example sees the distribution of a weight draw of its own. An approximation where a
    weight is used at several positions (convolutions, sequences, a layer called twice): each position has the right
    mean and variance, but positions are independent, whereas one weight draw would correlate them (k-tied Normal,
    section 3, calls it "not valid for convolutional layers"; Flat-seeking BNNs use it there). Parameters that are not
    linear in this sense, and weights that the network reads past their layer, get weight sampling.
    """

    draws: int = 1

    name: ClassVar[str] = "local_reparameterization"
    paper: ClassVar[str] = "Kingma et al. 2015"
    needs: ClassVar[frozenset[str]] = frozenset({FACTORIZED})

    def __post_init__(self) -> None:
        check_integer("local_reparameterization", "draws", self.draws)

    @property
    def cost(self) -> float:  # type: ignore[override]
        return 6.0 * self.draws

    def noise(self, model: BayesianModel, batch: BatchContext) -> Tensor | None:
        """(draws, P): for the weights that no linear layer uses."""
        return weight_noise(self.draws, model, batch)

    def nll(self, model: BayesianModel, weights: Tensor, batch: BatchContext) -> tuple[Tensor, Any]:
        variances = model.layout.unflatten(model.posterior.std().square())

        def forward(drawn: Tensor, offset: Tensor | None) -> Tensor:
            mean = model.posterior.mean if offset is None else model.posterior.mean + offset
            means = model.layout.unflatten(mean)

            def pre_activation(layer: LinearLayer, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
                bias = means[layer.bias] if layer.bias is not None else layer.module.bias
                bias_variance = variances[layer.bias] if layer.bias is not None else None
                mean_output = layer.op(x, means[layer.weight], bias, *args, **kwargs)
                variance = layer.op(x.square(), variances[layer.weight], bias_variance, *args, **kwargs)
                noise = standard_normal(mean_output.shape, like=mean_output, generator=batch.generator)
                # A variance of zero (an input that is all zero) passes no gradient; the floor keeps its root finite.
                std = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
                return torch.addcmul(mean_output, std, noise)

            return call_with(model, model.layout.unflatten(drawn), batch.inputs, pre_activation)

        return average_nll(forward, weights, batch)
