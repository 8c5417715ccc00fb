"""Flipout: one weight draw for the batch, decorrelated between examples by random signs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import require_count
from ..random import random_signs, standard_normal
from ..tree import Site
from ..types import FACTORISED, WEIGHT_SAMPLE, BayesianModel, Estimator, ExpectedNLL, LinearLayer, Step
from .by_layer import example_signs_shape, first_axis, replaced_forwards, unused_site
from .sampling import average_nll


@dataclass(frozen=True)
class Flipout(Estimator):
    """y = op(x, mean) + op(x * R, std * E) * Q with one E for the batch and signs R, Q for each example.

    Signs are constant over positions, and over repeated calls of a layer in one pass, so each example sees
    one exact weight draw (also in convolutions, and in sequences with time first), and the perturbations of
    different examples are uncorrelated. Biases and parameters that are not linear get weight sampling (shared by the
    batch). Valid for independent weights that are symmetric about their mean.
    """

    draws: int = 1

    name: ClassVar[str] = "flipout"
    paper: ClassVar[str] = "Wen et al. 2018"
    needs: ClassVar[frozenset[str]] = frozenset({FACTORISED, WEIGHT_SAMPLE})
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE})

    def __post_init__(self) -> None:
        require_count("flipout", "draws", self.draws)

    def noise(self, model: BayesianModel, step: Step) -> Tensor | None:
        """(draws, P): the shared perturbation E."""
        like = model.posterior.like()
        return standard_normal((self.draws, model.posterior.noise_size), like=like, generator=step.generator)

    def forward(self, model: BayesianModel, weights: Tensor | None, step: Step) -> Any:
        """One pass with fresh signs around one weight draw."""
        assert weights is not None
        mean = model.posterior.mean_vector()
        means, offsets = model.layout.unflatten(mean), model.layout.unflatten(weights - mean)
        layers = list(model.linear_layers.values())
        # Views of the draw for whoever reads a weight elsewhere; sums for the few that are read for certain, since the
        # derivative of a view among many is as long as all of them.
        drawn, replaced = model.layout.unflatten(weights), {layer.weight for layer in layers}
        drawn |= {name: means[name] + offsets[name] for name in means if name not in replaced}
        count = first_axis(step.inputs) if step.examples is None else step.examples
        signs: dict[tuple[str, tuple[int, ...]], Tensor] = {}

        def signs_for(layer: LinearLayer, side: str, x: Tensor, channels: int) -> Tensor:
            shape = example_signs_shape(layer, x, channels, count)
            key = (f"{layer.name}/{side}", (math.prod(shape), channels))
            if key not in signs:
                signs[key] = random_signs(shape, like=x, generator=step.generator)
            return signs[key].view(shape)

        def flipped(layer: LinearLayer, x: Tensor, *extra: Any, **named: Any) -> Tensor:
            # Inside the call the module's own bias is this step's draw, or a deterministic parameter.
            mean_part = layer.op(x, means[layer.weight], layer.module.bias, *extra, **named)
            axis = -layer.spatial_dims - 1
            flipped_inputs = x * signs_for(layer, "in", x, x.shape[axis])
            offset_part = layer.op(flipped_inputs, offsets[layer.weight], None, *extra, **named)
            return torch.addcmul(mean_part, offset_part, signs_for(layer, "out", mean_part, mean_part.shape[axis]))

        with replaced_forwards(model.net, layers, flipped):
            return model.call(drawn, step.inputs)

    def expected_nll(self, model: BayesianModel, weights: Tensor | None, step: Step) -> ExpectedNLL:
        """The mean over the draws."""
        return average_nll(self, model, weights, step, self.draws)

    def explain(self, model: BayesianModel, site: Site) -> str:
        """For ``describe()``."""
        for layer in model.linear_layers.values():
            if site.name == layer.weight:
                return self.name
            if site.name == layer.bias:
                return "weight_sampling (bias, shared by the batch)"
        return unused_site(site)

    @property
    def passes(self) -> int:
        """One for each draw."""
        return self.draws

    @property
    def cost(self) -> float:
        """In forward passes."""
        return 6.0 * self.draws
