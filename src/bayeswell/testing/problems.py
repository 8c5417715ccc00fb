"""Small problems in float64 with known answers, and integrals over the real line."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..core.protocols import Posterior
from ..core.random import make_generator
from ..likelihoods import Gaussian
from ..nn import BayesianModule, bayesian
from ..posteriors import can_set_std, set_std
from ..priors import Normal
from .report import require, require_same

DOUBLE = torch.float64
PRIOR_STD = 0.7


def normal(*shape: int, seed: int) -> Tensor:
    """Return fixed standard normal numbers."""
    return torch.randn(shape, generator=make_generator(seed), dtype=DOUBLE)


def network(*sizes: int, norm: bool = False, seed: int = 5) -> nn.Sequential:
    """Return dense layers with tanh between them (and a LayerNorm), with fixed weights."""
    layers: list[nn.Module] = []
    for place, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        if place:
            layers += [nn.Tanh(), *([nn.LayerNorm(rows)] if norm else [])]
        layers.append(nn.Linear(rows, columns))
    net = nn.Sequential(*layers).to(DOUBLE)
    with torch.no_grad():
        for place, parameter in enumerate(net.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=seed + place))
    return net


def make_model(net: nn.Module, posterior: Any = "mean_field", prior: Any = None) -> BayesianModule:
    """Return a Bayesian network; a mean-field posterior has generic stds."""
    model = bayesian(net, posterior, Normal(PRIOR_STD) if prior is None else prior, generator=make_generator(3))
    if can_set_std(model.posterior):
        std = 0.3 * (0.5 + torch.rand(model.layout.size, generator=make_generator(7), dtype=DOUBLE))
        set_std(model.posterior, std)
    return model


class LinearRegression:
    """y = W x + b + noise of known std: E_q[NLL] and the posterior have closed forms."""

    noise_std = 0.8

    def __init__(self, outputs: int = 16, examples: int = 5) -> None:
        self.net = network(3, outputs)
        self.inputs = normal(examples, 3, seed=1)
        with torch.no_grad():
            self.targets = self.net(self.inputs) + 0.3 * normal(examples, outputs, seed=2)
        self.likelihood = Gaussian("known", self.noise_std)

    def expected_nll(self, model: BayesianModule) -> Tensor:
        """Return the batch mean of E_q[NLL] for independent weights."""
        mean = model.layout.unflatten(model.posterior.mean)
        variance = model.layout.unflatten(model.posterior.std().square())
        residual = self.targets - self.inputs @ mean["0.weight"].T - mean["0.bias"]
        spread = self.inputs.square() @ variance["0.weight"].T + variance["0.bias"]
        squares = (residual.square() + spread) / (2 * self.noise_std**2)
        losses: Tensor = (squares + math.log(self.noise_std) + 0.5 * math.log(2 * math.pi)).sum(1)
        return losses.mean()

    def precision(self) -> Tensor:
        """(4, 4): of the weights and the bias of one output, under the prior N(0, PRIOR_STD^2)."""
        design = torch.cat([self.inputs, torch.ones(len(self.inputs), 1, dtype=DOUBLE)], dim=1)
        return design.T @ design / self.noise_std**2 + torch.eye(4, dtype=DOUBLE) / PRIOR_STD**2


@contextmanager
def untouched(model: BayesianModule) -> Iterator[None]:
    """Refuse a block after which parameters, buffers, modes or hooks of the model are different."""
    before = _record(model)
    yield
    require_same("the model after the call", _record(model), before)


def _record(model: BayesianModule) -> dict[str, Any]:
    modules = dict(model.named_modules())
    return {
        "state": copy.deepcopy(dict(model.state_dict())),
        "mode": {name: module.training for name, module in modules.items()},
        "hooks": {name: len(m._forward_hooks) + len(m._forward_pre_hooks) for name, m in modules.items()},
    }


def require_draws_and_rebuilt(posterior: Posterior, model: BayesianModule) -> None:
    """Draws are networks that the generator alone decides; ``part.build`` and the state make the same posterior."""
    require(isinstance(posterior, Posterior), f"a {type(posterior).__name__} is no Posterior")
    first, again, other = (_draws(posterior, seed) for seed in (3, 3, 4))
    require(len(first) == 2, f"draws(2) gave {len(first)} draws")
    for name, expected in model.layout.unflatten(torch.zeros(model.layout.size)).items():
        require(name in first[0], f"a draw has no '{name}'; it has {sorted(first[0])}")
        shape = tuple(first[0][name].shape)
        require(shape == expected.shape, f"a draw has '{name}' in shape {shape}, expected {tuple(expected.shape)}")
        require(not first[0][name].requires_grad, "a draw has a gradient")
    require_same("draws with the same generator", dict(enumerate(again)), dict(enumerate(first)))
    differ = any(not torch.equal(tensor, other[0][name]) for name, tensor in first[0].items())
    require(differ or posterior.noise_size == 0, "draws with another generator are the same")
    rebuilt = posterior.part.build(model.layout, model.prior, model.prior.center().detach(), None)
    rebuilt.load_state_dict(copy.deepcopy(posterior.state_dict()))
    require_same("a draw of the rebuilt posterior", _draws(rebuilt, 3)[0], first[0])


def _draws(posterior: Posterior, seed: int) -> list[dict[str, Tensor]]:
    return [dict(one) for one in posterior.draws(2, make_generator(seed))]


POINTS = 200_001


def tangent_grid(scale: float, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """Points and weights of the midpoint rule in t, with w = scale tan(t): for heavy tails and kinks."""
    width = math.pi / points
    angles = (torch.arange(points, dtype=DOUBLE) + 0.5) * width - math.pi / 2
    return scale * angles.tan(), width * scale / angles.cos().square()
