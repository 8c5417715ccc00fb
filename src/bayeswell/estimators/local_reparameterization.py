"""Local reparameterization: sample the pre-activations of linear layers instead of their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import NetworkError, require_count
from ..finite import any_nan, looks_at_once
from ..native import transformed
from ..random import standard_normal
from ..tree import Site
from ..types import FACTORISED, BayesianModel, Estimator, ExpectedNLL, Inputs, LinearLayer, Step
from .by_layer import LayerForward, linear_names, replaced_forwards, unused_site
from .sampling import average_nll


@dataclass(frozen=True)
class LocalReparameterization(Estimator):
    """a = op(x, mean) + sqrt(op(x^2, std^2)) * zeta, with zeta drawn for each example, unit and position.

    Exact for dense layers: each example sees the law of its own weight draw. An approximation where a weight
    is used at several positions (convolutions, sequences, a layer called twice): each position has the right
    mean and variance, but positions are independent, whereas one weight draw would correlate them (k-tied
    Normal section 3 calls it "not valid for convolutional layers"; Flat-seeking BNNs use it there).
    Parameters that are not linear in this sense get weight sampling.
    """

    draws: int = 1

    name: ClassVar[str] = "local_reparameterization"
    paper: ClassVar[str] = "Kingma et al. 2015"
    needs: ClassVar[frozenset[str]] = frozenset({FACTORISED})
    provides: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        require_count("local_reparameterization", "draws", self.draws)

    def noise(self, model: BayesianModel, step: Step) -> Tensor | None:
        """Noise for the sites that fall back to weight sampling, zero elsewhere; None if there are none."""
        taken = linear_names(model)
        rest = [site.name for site in model.layout.sites if site.name not in taken]
        if not rest:
            return None
        like = model.posterior.like()
        noise = like.new_zeros(self.draws, model.layout.size)
        for name in rest:
            piece = noise[:, model.layout.slices[name]]
            piece.copy_(standard_normal(piece.shape, like=like, generator=step.generator))
        return noise

    def forward(self, model: BayesianModel, weights: Tensor | None, step: Step) -> Any:
        """One pass with fresh pre-activation noise."""
        layout = model.layout
        means = layout.unflatten(model.posterior.mean_vector() if weights is None else weights)
        variances = layout.unflatten(model.posterior.variance_vector())
        layers = list(model.linear_layers.values())
        silent = {layer.name for layer in layers}

        def pre_activation(layer: LinearLayer, x: Tensor, *extra: Any, **named: Any) -> Tensor:
            silent.discard(layer.name)
            bias = means[layer.bias] if layer.bias else layer.module.bias
            bias_variance = variances[layer.bias] if layer.bias else None
            mean = layer.op(x, means[layer.weight], bias, *extra, **named)
            variance = layer.op(x.square(), variances[layer.weight], bias_variance, *extra, **named)
            noise = standard_normal(mean.shape, like=mean, generator=step.generator)
            return _local_draw(mean, variance, noise)

        # A weight that someone reads past its layer's forward would be used without noise: NaN tells.
        nothing = model.posterior.like().new_full((), float("nan"))
        unreadable = {name: nothing.expand(means[name].shape) for name in linear_names(model)}
        with replaced_forwards(model.net, layers, pre_activation):
            outputs = model.call({**means, **unreadable}, step.inputs)
        if (
            _looks(model, step)
            and any_nan(outputs)
            and not any_nan(_at_readable_weights(model, means, layers, pre_activation, step.inputs))
        ):
            suspects = sorted(silent) or sorted(layer.name for layer in layers)
            raise NetworkError(
                f"local_reparameterization: weights of {suspects} are read outside their layer's forward; "
                "use estimator 'flipout' or 'weight_sampling'"
            )
        return outputs

    def expected_nll(self, model: BayesianModel, weights: Tensor | None, step: Step) -> ExpectedNLL:
        """The mean over the draws."""
        return average_nll(self, model, weights, step, self.draws)

    def explain(self, model: BayesianModel, site: Site) -> str:
        """For ``describe()``."""
        for layer in model.linear_layers.values():
            if site.name in (layer.weight, layer.bias):
                return self.name if layer.spatial_dims == 0 else f"{self.name} (approximate: positions independent)"
        return unused_site(site)

    @property
    def passes(self) -> int:
        """One for each draw."""
        return self.draws

    @property
    def cost(self) -> float:
        """In forward passes."""
        return 6.0 * self.draws


def _looks(model: BayesianModel, step: Step) -> bool:
    """On a CPU always; an accelerator is waited for in the first step only: networks hardly change what they read."""
    return step.at is None or step.at.step == 0 or looks_at_once(model.posterior.like().device)


def _local_draw(mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """mean + sqrt(variance) noise; a variance of zero (an input that is all zero) passes no gradient."""
    if transformed():
        return torch.addcmul(mean, _root(variance), noise)
    drawn: Tensor = _LocalDraw.apply(mean, variance, noise)
    return drawn


class _LocalDraw(torch.autograd.Function):
    """The same with one operation in its backward pass instead of six."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        std = _root(variance)
        ctx.save_for_backward(variance, noise, _slope(variance, std, noise))
        return torch.addcmul(mean, std, noise)

    @staticmethod
    def backward(ctx: Any, of_drawn: Tensor) -> tuple[Tensor, Tensor, None]:
        variance, noise, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient that is itself differentiated: the slope depends on the variance
            slope = _slope(variance, _root(variance), noise)
        return of_drawn, of_drawn * slope, None


def _root(variance: Tensor) -> Tensor:
    """The floor gives the square root a finite slope."""
    return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()


def _slope(variance: Tensor, std: Tensor, noise: Tensor) -> Tensor:
    return (0.5 * noise / std).masked_fill(variance <= torch.finfo(variance.dtype).tiny, 0)


def _at_readable_weights(
    model: BayesianModel,
    means: dict[str, Tensor],
    layers: list[LinearLayer],
    forward: LayerForward,
    inputs: Inputs,
) -> Any:
    """The pass again with weights that can be read: are the NaN outputs the network's own?"""
    with torch.no_grad(), replaced_forwards(model.net, layers, forward):
        return model.call(means, inputs)
