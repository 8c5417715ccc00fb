"""Variational Laplace: the expected log-likelihood without sampling weights."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..errors import BayeswellWarning, SettingError, nearest, require_between, require_count
from ..layers import (
    batch_norm,
    convolve,
    convolve_channels_last,
    gains_channels_last,
    is_plain_batch_norm,
    is_plain_lstm,
    kept_statistics,
    lstm_layers,
    normalises_by_batch,
    plain_attention,
    shape_of,
    with_channels_last,
)
from ..likelihoods import weighted_as
from ..native import transformed
from ..nested import taken
from ..random import random_signs
from ..tree import Site
from ..types import FACTORISED, BayesianModel, Estimator, ExpectedNLL, LinearLayer, Step
from .by_layer import replaced_forwards

_LEAST_EXAMPLES = 2
"""In a fraction of a batch: BatchNorm cannot normalise a single one."""
_CURVATURES = ("fisher_labels", "fisher_reparameterised", "hessian")
_PIECEWISE_LINEAR = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.Hardtanh, nn.Hardsigmoid, nn.Threshold, nn.Softshrink,
    nn.Hardshrink, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
    nn.AdaptiveMaxPool3d,
)  # fmt: skip


class _Recurrent(NamedTuple):
    """An LSTM of the network."""

    name: str
    module: nn.LSTM


def _recurrent_layers(net: nn.Module) -> list[_Recurrent]:
    return [_Recurrent(name, module) for name, module in net.named_modules() if is_plain_lstm(module)]


def _recurrence(layer: _Recurrent, inputs: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None) -> Any:
    """The LSTM, such that it can be differentiated twice in little time."""
    if isinstance(inputs, PackedSequence):
        warnings.warn(
            f"variational_laplace: '{layer.name}' was given a packed sequence, which is differentiated twice slowly, "
            "step by step; padded sequences are several times faster",
            BayeswellWarning,
            stacklevel=2,
        )
    elif inputs.dim() in (2, 3) and not _is_mixed(inputs) and not transformed():
        return lstm_layers(layer.module, inputs, hx)
    return type(layer.module).forward(layer.module, inputs, hx)


class _Normalisation(NamedTuple):
    """A BatchNorm of the network."""

    module: Any


def _normalisations(net: nn.Module) -> list[_Normalisation]:
    return [_Normalisation(module) for module in net.modules() if is_plain_batch_norm(module)]


def _normalised(layer: _Normalisation, x: Tensor) -> Any:
    """BatchNorm, such that it can be differentiated twice in little time."""
    module = layer.module
    if x.device.type == "cpu" and normalises_by_batch(module) and not _is_mixed(x) and not transformed():
        return batch_norm(module, x)
    return type(module).forward(module, x)


def _is_mixed(x: Tensor) -> bool:
    """Whether torch converts the operands of its own layers."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


@dataclass(frozen=True)
class VariationalLaplace(Estimator):
    """E_q[NLL] ~ NLL at the mean + 1/2 sum_l std_l^2 F_l, with a curvature F of the mean NLL (eq. 30).

    For a batch of S examples and g = d/dmean sum_n -log p(y_n given x_n, mean) at targets y drawn from the
    model, E[g_l^2] is the Fisher diagonal of the batch, so the penalty is 1/(2S) sum_l std_l^2 g_l^2. Exact for
    linear regression. ``curvature``:

    - ``fisher_labels``: the paper; targets are sampled and held fixed. Its gradient with respect to the means
      is that of the Fisher with the output covariance frozen, not of the Fisher itself; likewise learned noise feels
      the penalty twice as strongly as it should (slope -4 instead of -2 in its log std).
    - ``fisher_reparameterised``: g = J'u with u random, E[uu'] = Hessian of the NLL in the outputs, and
      differentiable in them: the same value in expectation and an unbiased gradient, at the same cost.
    - ``hessian``: the paper's first form, sum_l std_l^2 H_l by Hutchinson's estimate. Where H_l < -1/prior
      variance (eq. 24) stds grow without bound.

    Cheaper ways (they change the noise, not the expectation): ``every = k`` adds the penalty in each k-th step
    with weight k; ``fraction = r`` evaluates it on the first r S examples of the batch (2 at least), in a pass of
    their own, which running statistics of BatchNorm do not see. The caution about piecewise linear layers sees modules,
    not calls of functions such as ``F.relu``. Typos of the paper's eq. (30): sigma^2 for the prior variance.
    """

    curvature: str = "fisher_labels"
    every: int = 1
    fraction: float = 1.0

    name: ClassVar[str] = "variational_laplace"
    paper: ClassVar[str] = "Unlu & Aitchison 2021"
    needs: ClassVar[frozenset[str]] = frozenset({FACTORISED})
    provides: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if self.curvature not in _CURVATURES:
            allowed = nearest(str(self.curvature), _CURVATURES)
            raise SettingError(f"variational_laplace: curvature = '{self.curvature}'; {allowed}")
        require_count("variational_laplace", "every", self.every)
        require_between("variational_laplace", "fraction", self.fraction, 0, 1, open_low=True)

    @property
    def likelihood_needs(self) -> frozenset[str]:
        """What the curvature is made of."""
        needs = {"fisher_labels": {"sample_targets"}, "fisher_reparameterised": {"curvature_root"}}
        return frozenset(needs.get(self.curvature, ()))

    def forward(self, model: BayesianModel, weights: Tensor | None, step: Step) -> Any:
        """The network at the posterior mean, such that it can be differentiated twice."""
        shapes = {name: shape_of(layer.module) for name, layer in model.linear_layers.items()}
        convolutions = [layer for name, layer in model.linear_layers.items() if shapes[name] is not None]
        # The Hessian's penalty needs third derivatives, which layers with two written out do not have.
        thrice = self.curvature == "hessian"

        def twice_differentiable(layer: LinearLayer, x: Tensor) -> Tensor:
            shape = shapes[layer.name]
            module: Any = layer.module
            weight, bias = module.weight, module.bias
            if shape is None or x.dim() != layer.spatial_dims + 2 or _is_mixed(x) or transformed():
                return layer.op(x, weight, bias)
            if not thrice and gains_channels_last(x, weight, shape):
                return convolve_channels_last(x, weight, bias, shape)
            return convolve(x, weight, bias, shape)

        inputs = step.inputs if thrice else with_channels_last(model.net, step.inputs)
        # The fused attention kernels have no second derivative.
        recurrent = [] if thrice else _recurrent_layers(model.net)
        normalising = [] if thrice else _normalisations(model.net)
        with (
            replaced_forwards(model.net, convolutions, twice_differentiable),
            replaced_forwards(model.net, recurrent, _recurrence),
            replaced_forwards(model.net, normalising, _normalised),
            plain_attention(),
        ):
            outputs = model.call(model.layout.unflatten(model.posterior.mean_vector()), inputs)
        # Likelihoods may look at the layout.
        return outputs.contiguous() if inputs is not step.inputs and isinstance(outputs, Tensor) else outputs

    def expected_nll(self, model: BayesianModel, weights: Tensor | None, step: Step) -> ExpectedNLL:
        """NLL at the mean plus the curvature penalty where this step has one."""
        at = step.at
        if self.every > 1 and at is None:
            raise SettingError("variational_laplace: every > 1 needs the step number: pass at=Progress(step=...)")
        wanted = torch.is_grad_enabled()
        # The penalty is made of gradients, also where the caller wants none of the result.
        with torch.enable_grad():
            penalised = at is None or at.step % self.every == 0
            if penalised:
                outputs = self.forward(model, None, step)
            else:
                # One derivative is enough, by torch's own and faster layers.
                outputs = model.call(model.layout.unflatten(model.posterior.mean_vector()), step.inputs)
            nll = step.nll(outputs)
            if penalised:
                nll = nll + self.every * self._penalty(model, outputs, step)
        return ExpectedNLL(nll, outputs) if wanted else ExpectedNLL(nll.detach(), outputs.detach())

    def _penalty(self, model: BayesianModel, outputs: Tensor, step: Step) -> Tensor:
        targets = step.targets
        assert targets is not None
        likelihood: Any = step.likelihood
        size = len(targets)
        count = max(math.ceil(self.fraction * size), min(size, _LEAST_EXAMPLES))
        if count < size:
            weights = None if step.weights is None else step.weights[:count]
            targets = targets[:count]
            step = Step(taken(step.inputs, slice(count)), targets, likelihood, step.generator, step.at, weights)
            with kept_statistics(model.net):
                outputs = self.forward(model, None, step)
        mean = model.posterior.mean_vector()
        if self.curvature == "hessian":
            std = model.posterior.std_vector()
            direction = std * random_signs(std.shape, like=std, generator=step.generator)
            (gradient,) = torch.autograd.grad(step.nll(outputs), mean, create_graph=True)
            (product,) = torch.autograd.grad((gradient * direction).sum(), mean, create_graph=True)
            return 0.5 * (product * direction).sum()
        likelihood = weighted_as(likelihood, targets)
        if self.curvature == "fisher_labels":
            sampled = likelihood.sample_targets(outputs.detach(), step.generator)
            losses = likelihood.nll(outputs, sampled)
            # Scores of different examples are independent: each counts by the root of its weight, squared below.
            total = losses.sum() if step.weights is None else (step.weights.sqrt() * losses).sum()
            (gradient,) = torch.autograd.grad(total, mean, create_graph=True)
        else:
            root = likelihood.curvature_root(outputs, step.generator)
            if step.weights is not None:
                root = root * step.weights.sqrt().view(-1, *[1] * (root.dim() - 1))
            (gradient,) = torch.autograd.grad(outputs, mean, grad_outputs=root, create_graph=True)
        return 0.5 / count * model.posterior.scaled_square_sum(gradient)

    def explain(self, model: BayesianModel, site: Site) -> str:
        """For ``describe()``."""
        return f"variational_laplace ({self.curvature})"

    def cautions(self, net: nn.Module) -> list[str]:
        """Layers without second derivatives, and the Hessian's pathology."""
        found = [
            f"'{name}' ({type(module).__name__})"
            for name, module in net.named_modules()
            if isinstance(module, _PIECEWISE_LINEAR)
        ]
        notes = []
        if found:
            notes.append(
                "variational_laplace expects a twice differentiable network, but these layers are piecewise linear: "
                f"{', '.join(found)}; use softplus (or GELU, tanh) and average pooling"
            )
        if self.curvature == "hessian":
            notes.append(
                "variational_laplace with curvature 'hessian': where the loss is concave in a weight its std can grow "
                "without bound; prefer 'fisher_labels' or 'fisher_reparameterised'"
            )
        return notes

    @property
    def cost(self) -> float:
        """In forward passes: 3, and in penalised steps 6 more, or 9 on the fraction with a pass of its own."""
        extra = 6.0 if self.fraction == 1 else 9.0 * self.fraction
        return 3.0 + extra / self.every
