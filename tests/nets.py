"""Networks to lift, layers of every kind, and lifted networks with nothing special about them."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrizations

import bayeswell as bw
from bayeswell.errors import CompositionError
from bayeswell.random import seed_global_generator
from bayeswell.types import Step

# ---------------------------------------------------------------------------------------------------------
# Parts: every registered one, with more than its defaults where that matters. A new registry entry is
# tested without a line here.

POSTERIOR_SETTINGS: dict[str, list[dict[str, Any]]] = {
    "mean_field": [{"parameter": "log_std"}, {"parameter": "rho"}],
    "k_tied": [{"rank": 1}, {"rank": 2}],
    "low_rank": [{"rank": 1}, {"rank": 3}],
    "shared_std": [{"by": "tensor"}],  # as many stds as parameters: those of three layers could be alike by chance
}
ESTIMATOR_SETTINGS: dict[str, list[dict[str, Any]]] = {
    "weight_sampling": [{}, {"draws": 4, "antithetic": True}],
    "local_reparameterization": [{}, {"draws": 2}],
    "flipout": [{}, {"draws": 2}],
    "score_function": [{}, {"draws": 3, "baseline": "leave_one_out"}],
    "variational_laplace": [
        {"curvature": "fisher_labels"},
        {"curvature": "fisher_reparameterised"},
        {"curvature": "hessian"},
        {"curvature": "fisher_labels", "fraction": 0.5},
    ],
}

Choice = dict[str, Any]


def _choices(registry: Any, settings: dict[str, list[dict[str, Any]]]) -> list[Choice]:
    return [{"name": name, **chosen} for name in registry for chosen in settings.get(name, [{}])]


POSTERIOR_CHOICES = _choices(bw.POSTERIORS, POSTERIOR_SETTINGS)
ESTIMATOR_CHOICES = _choices(bw.ESTIMATORS, ESTIMATOR_SETTINGS)
ESTIMATOR_DEFAULTS = _choices(bw.ESTIMATORS, {})


def label(choice: Choice) -> str:
    """A test's name for a choice of part."""
    return "-".join([choice["name"], *(str(value) for key, value in choice.items() if key != "name")])


def is_legal(posterior: Choice, estimator: Choice) -> bool:
    """What the library itself says of a pair; whether it is right is tested apart."""
    try:
        lift(nn.Linear(3, 2), posterior, estimator=estimator)
    except CompositionError:
        return False
    return True


def pairs(posteriors: list[Choice], estimators: list[Choice]) -> Iterator[tuple[Choice, Choice]]:
    """All legal pairs."""
    for posterior in posteriors:
        for estimator in estimators:
            if is_legal(posterior, estimator):
                yield posterior, estimator


def lift(net: nn.Module, posterior: Any = "mean_field", **settings: Any) -> bw.BayesianModule:
    """``bayesian`` where cautions (piecewise linear layers, the Hessian) are known and not the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        return bw.bayesian(net, posterior, **settings)


def randomise(module: nn.Module, seed: int = 3, size: float = 0.4) -> None:
    """Move every parameter to a place with nothing special about it.

    Matrices move by less, the wider they are: else random triangular factors are as good as singular.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            step = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.dim() > 1:
                step /= math.sqrt(parameter.shape[-1])
            parameter.add_(size * step.to(parameter.dtype))


def generic(net: nn.Module, posterior: Any = "mean_field", **settings: Any) -> bw.BayesianModule:
    """A lifted network in float64 whose means, stds (around 0.2) and correlations are all generic."""
    chosen = {"name": posterior} if isinstance(posterior, str) else dict(posterior)
    if "initial_std" in {field.name for field in dataclasses.fields(bw.POSTERIORS[chosen["name"]])}:
        chosen["initial_std"] = 0.2
    settings.setdefault("prior", {"name": "normal", "std": 1.7})
    model = lift(net.double(), chosen, **settings)
    randomise(model.posterior)
    return model


def covariance_of(posterior: Any) -> Tensor:
    """The true covariance of the flat weights: draws are affine in the noise, w = m + noise A, so A'A.

    That they are affine is checked at a further point.
    """
    with torch.no_grad():
        size, like = posterior.noise_size, posterior.mean_vector()
        zero = posterior.sample(like.new_zeros(1, size))
        slope = posterior.sample(torch.eye(size, dtype=like.dtype)) - zero
        probe = torch.randn(3, size, dtype=like.dtype, generator=torch.Generator().manual_seed(5))
        accuracy = 1e-9 if like.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(posterior.sample(probe), zero + probe @ slope, rtol=accuracy, atol=accuracy)
        return slope.T @ slope


def passes(model: bw.BayesianModule, inputs: Any, count: int, seed: int) -> Tensor:
    """Outputs of ``count`` independent stochastic passes, each with its own weights, signs and noise."""

    def one_pass(_: Tensor) -> Tensor:
        noise = model.estimator.noise(model, Step(None))
        weights = None if noise is None else model.posterior.sample(noise)[0]
        outputs: Tensor = model.estimator.forward(model, weights, Step(inputs))
        return outputs

    seed_global_generator(seed)
    with torch.no_grad():
        # The library's own code, run for all passes at once: some hundred times faster than a loop.
        return torch.vmap(one_pass, randomness="different")(torch.zeros(count))


# ---------------------------------------------------------------------------------------------------------
# Layers that are linear in their weight, with small generic inputs.


@dataclass(frozen=True)
class Kind:
    """A layer and the shape of a batch for it; ``single_position``: each weight is used once an example."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    single_position: bool = False

    def inputs(self, seed: int = 7) -> Tensor:
        """Generic inputs in float64."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(self.shape, generator=generator, dtype=torch.float64) + 0.3


LAYERS: dict[str, Kind] = {
    "linear": Kind(lambda: nn.Linear(3, 2), (3, 3), True),
    "linear without bias": Kind(lambda: nn.Linear(3, 2, bias=False), (3, 3), True),
    "linear over positions": Kind(lambda: nn.Linear(3, 2), (2, 3, 3)),
    "conv1d": Kind(lambda: nn.Conv1d(2, 2, 3), (2, 2, 5)),
    "conv2d": Kind(lambda: nn.Conv2d(2, 2, 2, padding=1), (2, 2, 2, 3)),
    "conv3d": Kind(lambda: nn.Conv3d(2, 2, 2), (2, 2, 3, 2, 3)),
    "conv2d grouped": Kind(lambda: nn.Conv2d(4, 4, 2, groups=2), (2, 4, 3, 3)),
    "conv2d strided": Kind(lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 2, 4, 4)),
    "conv2d dilated": Kind(lambda: nn.Conv2d(2, 2, 2, dilation=2), (2, 2, 4, 4)),
    "conv2d circular": Kind(lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), (2, 2, 3, 3)),
    "conv2d over all its input": Kind(lambda: nn.Conv2d(2, 3, 3), (3, 2, 3, 3), True),
    "transposed conv1d": Kind(
        lambda: nn.ConvTranspose1d(2, 4, 2, stride=2, dilation=2, groups=2, output_padding=1), (2, 2, 3)
    ),
    "transposed conv2d": Kind(
        lambda: nn.ConvTranspose2d(2, 2, (2, 3), stride=2, padding=(0, 1), output_padding=1), (2, 2, 2, 2)
    ),
}


def layer_op(layer: nn.Module) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """out = op(x, weight, bias) by torch's own forward of the layer."""

    def op(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        tensors = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        outputs: Tensor = functional_call(layer, tensors, (x,))
        return outputs

    return op


def classifier_on(kind: Kind, classes: int = 3) -> nn.Module:
    """The layer, a smooth nonlinearity, and a dense layer to so many classes."""
    layer = kind.make()
    with torch.no_grad():
        width = layer(torch.zeros(kind.shape)).flatten(1).shape[1]
    return nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(width, classes))


# ---------------------------------------------------------------------------------------------------------
# Whole networks. Each takes a batch of 5 and returns (5, 3).


class Recurrent(nn.Module):
    """Embedding, a recurrent net of two layers in both directions, and a dense read-out."""

    def __init__(self, cell: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.cells = cell(4, 3, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.cells(self.embedding(tokens))
        return self.out(states[:, -1])


class Attention(nn.Module):
    """Self-attention, its weights packed or (with other key sizes) apart."""

    def __init__(self, kdim: int | None = None) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, kdim=kdim, vdim=kdim)
        self.kdim = kdim or 4
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        keys = x[..., :1].expand(-1, -1, self.kdim) + torch.arange(self.kdim).to(x) if self.kdim != 4 else x
        mixed, _ = self.attention(x, keys, keys, need_weights=False)
        return self.out(mixed.mean(1))


class Transformer(nn.Module):
    """One encoder layer and a read-out. In evaluation mode torch runs it as one fused kernel."""

    def __init__(self, batch_first: bool = True, activation: str = "gelu") -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            4, 2, dim_feedforward=6, dropout=0.0, activation=activation, batch_first=batch_first
        )
        self.batch_first = batch_first
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.batch_first:
            return self.out(self.layer(x).mean(1))
        return self.out(self.layer(x.transpose(0, 1)).mean(0))


class Normalised(nn.Module):
    """Convolutions with batch, group and layer normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, padding=1)
        self.batch_norm = nn.BatchNorm2d(4)
        self.group_norm = nn.GroupNorm(2, 4)
        self.layer_norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.group_norm(torch.tanh(self.batch_norm(self.convolution(x))))
        return self.out(self.layer_norm(x.mean((2, 3))))


class Tied(nn.Module):
    """A language model whose decoder is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 4)
        self.middle = nn.Linear(4, 4)
        self.decoder = nn.Linear(4, 3)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(torch.tanh(self.middle(self.embedding(tokens).mean(1))))


class Repeated(nn.Module):
    """One module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Custom(nn.Module):
    """Parameters of its own, in lists and dictionaries, a buffer, and a module inside a module."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.3))
        self.matrices = nn.ParameterList([torch.randn(4, 4) / 2, torch.randn(4, 4) / 2])
        self.offsets = nn.ParameterDict({"first": torch.randn(4), "second": torch.randn(4)})
        self.register_buffer("shift", torch.linspace(-0.5, 0.5, 4))
        self.block = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        for matrix, offset in zip(self.matrices, self.offsets.values(), strict=True):
            x = torch.tanh(x @ matrix + offset)
        return self.block(self.scale * x + self.shift)


class WeightNormed(nn.Module):
    """Weights that are computed from other parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = parametrizations.weight_norm(nn.Linear(4, 5))
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.normed(x)))


class TwoInputs(nn.Module):
    """Takes two tensors and an option."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(2, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, left: Tensor, right: Tensor, gain: float = 1.0) -> Tensor:
        return self.out(torch.tanh(self.left(left) + gain * self.right(right)))


def _tokens() -> Tensor:
    return torch.randint(0, 3, (5, 4), generator=torch.Generator().manual_seed(8))


def _numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(9))


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)),
        lambda: _numbers(5, 4),
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular", groups=2),
            nn.Tanh(),
            nn.ConvTranspose1d(4, 2, 3, stride=2, output_padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(24, 3),
        ),
        lambda: _numbers(5, 2, 5),
    ),
    "lstm": (lambda: Recurrent(nn.LSTM), _tokens),
    "gru": (lambda: Recurrent(nn.GRU), _tokens),
    "attention": (Attention, lambda: _numbers(5, 3, 4)),
    "attention, other key size": (lambda: Attention(kdim=2), lambda: _numbers(5, 3, 4)),
    "transformer": (Transformer, lambda: _numbers(5, 3, 4)),
    "transformer, batch second": (lambda: Transformer(batch_first=False), lambda: _numbers(5, 3, 4)),
    "normalised": (Normalised, lambda: _numbers(5, 2, 4, 4)),
    "tied": (Tied, _tokens),
    "repeated module": (Repeated, lambda: _numbers(5, 4)),
    "custom": (Custom, lambda: _numbers(5, 4)),
    "weight norm": (WeightNormed, lambda: _numbers(5, 4)),
    "two inputs by position": (TwoInputs, lambda: (_numbers(5, 4), _numbers(5, 2))),
    "two inputs by name": (TwoInputs, lambda: {"right": _numbers(5, 2), "left": _numbers(5, 4), "gain": 0.7}),
}


def call(module: nn.Module, inputs: Any) -> Tensor:
    """A module called with a tensor, a tuple or a mapping."""
    if isinstance(inputs, dict):
        outputs: Tensor = module(**inputs)
    elif isinstance(inputs, tuple):
        outputs = module(*inputs)
    else:
        outputs = module(inputs)
    return outputs


def doubled(inputs: Any) -> Any:
    """The inputs in float64; integers stay integers."""
    if isinstance(inputs, dict):
        return {key: doubled(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(doubled(value) for value in inputs)
    return inputs.double() if isinstance(inputs, Tensor) and inputs.is_floating_point() else inputs


def make(name: str, seed: int = 12) -> tuple[nn.Module, Any]:
    """A network of the list and a batch for it."""
    seed_global_generator(seed)
    build, inputs = NETS[name]
    return build(), inputs()
