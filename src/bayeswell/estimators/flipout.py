"""Flipout: one weight draw for the batch, decorrelated between examples by random signs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import check_integer
from ..core.protocols import (
    FACTORIZED,
    INDEPENDENT_DRAWS,
    WEIGHT_SAMPLE,
    BatchContext,
    BayesianModel,
    Estimator,
    LinearLayer,
)
from ..core.random import random_signs
from .by_layer import call_with, signs_shape
from .weight_sampling import average_nll, weight_noise


@dataclass(frozen=True)
class Flipout(Estimator):
    """y = op(x, mean) + op(x * R, std * E) * Q with one E for the batch and signs R, Q for each example.

    Signs are constant over positions, and over repeated calls of a layer in one pass, so each example sees one exact
    weight draw (also in convolutions, and in sequences with time first), and the perturbations of different examples
    are uncorrelated. Biases and parameters that are not linear get weight sampling (shared by the batch). Valid for
    independent weights that are symmetric about their mean.
    """

    draws: int = 1

    name: ClassVar[str] = "flipout"
    paper: ClassVar[str] = "Wen et al. 2018"
    needs: ClassVar[frozenset[str]] = frozenset({FACTORIZED, WEIGHT_SAMPLE})
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, INDEPENDENT_DRAWS})

    def __post_init__(self) -> None:
        check_integer("flipout", "draws", self.draws)

    @property
    def cost(self) -> float:  # type: ignore[override]
        return 6.0 * self.draws

    def noise(self, model: BayesianModel, batch: BatchContext) -> Tensor | None:
        """(draws, P): the shared perturbation E."""
        return weight_noise(self.draws, model, batch)

    def nll(self, model: BayesianModel, weights: Tensor, batch: BatchContext) -> tuple[Tensor, Any]:
        def forward(drawn: Tensor, offset: Tensor | None) -> Tensor:
            return _flipout_pass(model, drawn, offset, batch)

        return average_nll(forward, weights, batch)


def _flipout_pass(model: BayesianModel, drawn: Tensor, offset: Tensor | None, batch: BatchContext) -> Tensor:
    mean = model.posterior.mean if offset is None else model.posterior.mean + offset
    means, deviations = model.layout.unflatten(mean), model.layout.unflatten(drawn - mean)
    signs: dict[tuple[str, int, int], Tensor] = {}

    def signs_for(layer: LinearLayer, side: str, x: Tensor) -> Tensor:
        channels = x.shape[-layer.spatial_dims - 1]
        shape = signs_shape(layer, x, channels, len(batch.targets))
        key = (f"{layer.name}/{side}", math.prod(shape), channels)
        if key not in signs:
            signs[key] = random_signs(shape, like=x, generator=batch.generator)
        return signs[key].view(shape)

    def flipped(layer: LinearLayer, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # Within the call the module's own bias is the draw of this pass, or a deterministic parameter.
        mean_part = layer.op(x, means[layer.weight], layer.module.bias, *args, **kwargs)
        deviation = layer.op(x * signs_for(layer, "in", x), deviations[layer.weight], None, *args, **kwargs)
        return torch.addcmul(mean_part, deviation, signs_for(layer, "out", mean_part))

    return call_with(model, model.layout.unflatten(drawn), batch.inputs, flipped)
