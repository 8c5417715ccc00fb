"""Variational Laplace: the expected log-likelihood without sampling weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from ..core.errors import SettingError, check_choice, check_integer
from ..core.protocols import FACTORIZED, BatchContext, BayesianModel, Estimator, LinearLayer
from ..core.random import random_signs
from ..nn import convolve, plain_attention, shape_of
from .by_layer import replaced_forwards

FISHER_LABELS, FISHER_REPARAMETERIZED, HESSIAN = "fisher_labels", "fisher_reparameterized", "hessian"
_LIKELIHOOD_NEEDS = {FISHER_LABELS: "sample", FISHER_REPARAMETERIZED: "curvature_root"}
_PIECEWISE_LINEAR = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.Hardtanh, nn.Hardsigmoid, nn.Threshold),
    *(nn.Softshrink, nn.Hardshrink, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
)


@dataclass(frozen=True)
class VariationalLaplace(Estimator):
    """E_q[NLL] ~ NLL at the mean + 1/2 sum_l std_l^2 F_l, with a curvature F of the mean NLL (eq. 30).

    For a batch of S examples and g = d/dmean sum_n -log p(y_n given x_n, mean) at targets y drawn from the model,
    E[g_l^2] is the Fisher diagonal of the batch, so the penalty is 1/(2S) sum_l std_l^2 g_l^2. Exact for linear
    regression. ``curvature``:

    - ``fisher_labels``: the paper; targets are sampled and held fixed. Its gradient in the means is that of the Fisher
      with the output covariance frozen, not of the Fisher itself; likewise learned noise feels the penalty twice as
      strongly as it should (slope -4 instead of -2 in its log std).
    - ``fisher_reparameterized``: g = J'u with u random, E[uu'] = Hessian of the NLL in the outputs, and differentiable
      in them: the same value in expectation and an unbiased gradient, at the same cost.
    - ``hessian``: the paper's first form, sum_l std_l^2 H_l by Hutchinson's estimate. Where H_l < -1/prior variance
      (eq. 24) stds grow without bound.

    ``every = k`` adds the penalty in each k-th step of ``Progress`` with weight k: more noise, the same expectation.
    The paper's eq. (30) has a typo: sigma^2 in place of the prior variance.
    """

    curvature: str = FISHER_LABELS
    every: int = 1

    name: ClassVar[str] = "variational_laplace"
    paper: ClassVar[str] = "Unlu & Aitchison 2021"
    needs: ClassVar[frozenset[str]] = frozenset({FACTORIZED})

    def __post_init__(self) -> None:
        check_choice(self.name, "curvature", self.curvature, [*_LIKELIHOOD_NEEDS, HESSIAN])
        check_integer(self.name, "every", self.every)

    @property
    def likelihood_needs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({_LIKELIHOOD_NEEDS[self.curvature]} if self.curvature in _LIKELIHOOD_NEEDS else ())

    @property
    def cost(self) -> float:  # type: ignore[override]
        return 3.0 + 6.0 / self.every

    def nll(self, model: BayesianModel, weights: Tensor, batch: BatchContext) -> tuple[Tensor, Any]:
        """Return NLL at the mean plus the curvature penalty where this step has one, and the outputs."""
        if self.every > 1 and batch.progress.total_steps is None:
            raise SettingError(f"{self.name}: `every` = {self.every} needs the step: Progress(step, total_steps)")
        if batch.progress.step % self.every:
            outputs = model.call(model.layout.unflatten(weights), batch.inputs)
            return batch.mean_nll(outputs), outputs
        wanted = torch.is_grad_enabled()
        # The penalty is made of gradients, also where the caller wants no gradient of it.
        with torch.enable_grad():
            mean = weights if weights.requires_grad else weights.detach().requires_grad_()
            outputs = _twice_differentiable_call(model, mean, batch)
            nll = batch.mean_nll(outputs)
            penalized = nll + self.every * self._penalty(model, mean, nll, outputs, batch)
        return (penalized, outputs) if wanted else (penalized.detach(), outputs.detach())

    def _penalty(self, model: BayesianModel, mean: Tensor, nll: Tensor, outputs: Tensor, batch: BatchContext) -> Tensor:
        std = model.posterior.std()
        if self.curvature == HESSIAN:
            direction = std * random_signs(std.shape, like=std, generator=batch.generator)
            (gradient,) = torch.autograd.grad(nll, mean, create_graph=True)
            (product,) = torch.autograd.grad(torch.dot(gradient, direction), mean, create_graph=True)
            return 0.5 * torch.dot(product, direction)
        likelihood = batch.likelihood.for_sampled_targets(batch.targets)
        # Scores of different examples are independent: each counts by the root of its weight, squared below.
        roots = None if batch.sample_weight is None else batch.sample_weight.sqrt()
        if self.curvature == FISHER_LABELS:
            losses = likelihood.nll(outputs, likelihood.sample(outputs.detach(), batch.generator))
            total = losses.sum() if roots is None else torch.dot(roots, losses)
            (gradient,) = torch.autograd.grad(total, mean, create_graph=True)
        else:
            columns = likelihood.curvature_root(outputs, batch.generator)
            if roots is not None:
                columns = columns * roots.view(-1, *[1] * (columns.dim() - 1))
            (gradient,) = torch.autograd.grad(outputs, mean, grad_outputs=columns, create_graph=True)
        return 0.5 / len(batch.targets) * (std * gradient).square().sum()

    def warnings_for(self, net: nn.Module) -> list[str]:
        found = [
            f"'{name}' ({type(module).__name__})"
            for name, module in net.named_modules()
            if isinstance(module, _PIECEWISE_LINEAR)
        ]
        notes = []
        if found:
            notes.append(
                "variational_laplace needs a twice differentiable network, but these layers are piecewise linear: "
                f"{', '.join(found)}; use softplus, GELU or tanh, and average pooling"
            )
        if self.curvature == HESSIAN:
            notes.append(
                "variational_laplace with curvature 'hessian': where the loss is concave in a weight its std can grow "
                "without bound; prefer 'fisher_labels' or 'fisher_reparameterized'"
            )
        return notes


def _twice_differentiable_call(model: BayesianModel, mean: Tensor, batch: BatchContext) -> Tensor:
    found = {name: shape_of(layer.module) for name, layer in model.linear_layers.items() if layer.spatial_dims}
    shapes = {name: shape for name, shape in found.items() if shape is not None}
    convolutions = [model.linear_layers[name] for name in shapes]

    def forward(layer: LinearLayer, x: Tensor) -> Tensor:
        module: Any = layer.module
        if x.dim() != layer.spatial_dims + 2:
            return cast(Tensor, layer.op(x, module.weight, module.bias))
        return convolve(x, module.weight, module.bias, shapes[layer.name])

    with replaced_forwards(model, convolutions, forward), plain_attention():
        return model.call(model.layout.unflatten(mean), batch.inputs)
