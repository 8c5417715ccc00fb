"""Small problems with known answers that several axes share; all in float64, with generic numbers."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn

from ..lifting import BayesianModule, bayesian
from ..likelihoods import Gaussian
from ..priors import Normal
from ..random import make_generator
from ..types import Posterior
from .report import PartError, require, require_same

DOUBLE = torch.float64
PRIOR_STD = 0.7


def normal(*shape: int, seed: int) -> Tensor:
    """Generic numbers, always the same."""
    return torch.randn(shape, generator=make_generator(seed), dtype=DOUBLE)


def network(*sizes: int, norm: bool = False, seed: int = 5) -> nn.Sequential:
    """Dense layers with tanh between them (and a LayerNorm, which has no posterior), with generic weights."""
    layers: list[nn.Module] = []
    for place, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        if place:
            layers += [nn.Tanh(), *([nn.LayerNorm(rows)] if norm else [])]
        layers.append(nn.Linear(rows, columns))
    made = nn.Sequential(*layers).to(DOUBLE)
    with torch.no_grad():
        for place, parameter in enumerate(made.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=seed + place))
    return made


def lifted(
    net: nn.Module, posterior: Any = "mean_field", estimator: Any = "weight_sampling", prior: Any = None
) -> BayesianModule:
    """A lifted network; a mean-field posterior is put at generic stds."""
    model = bayesian(net, posterior, Normal(PRIOR_STD) if prior is None else prior, estimator)
    if model.posterior.can_set_stds:
        size = model.layout.size
        model.posterior.set_stds(0.3 * (0.5 + torch.rand(size, generator=make_generator(7), dtype=DOUBLE)))
    return model


class LinearRegression:
    """y = W x + b + noise of known std: E_q[NLL] and the posterior are known in closed form."""

    noise_std = 0.8

    def __init__(self, outputs: int = 16, examples: int = 5) -> None:
        self.net = network(3, outputs)
        self.inputs = normal(examples, 3, seed=1)
        with torch.no_grad():
            self.targets = self.net(self.inputs) + 0.3 * normal(examples, outputs, seed=2)
        self.likelihood = Gaussian("known", self.noise_std)

    def expected_nll(self, model: BayesianModule, weights: Tensor | None = None) -> Tensor:
        """The (weighted) batch mean of E_q[NLL] for independent weights, differentiable in q's parameters."""
        mean = model.layout.unflatten(model.posterior.mean_vector())
        variance = model.layout.unflatten(model.posterior.std_vector().square())
        residual = self.targets - self.inputs @ mean["0.weight"].T - mean["0.bias"]
        spread = self.inputs.square() @ variance["0.weight"].T + variance["0.bias"]
        squares = (residual.square() + spread) / (2 * self.noise_std**2)
        losses: Tensor = (squares + math.log(self.noise_std) + 0.5 * math.log(2 * math.pi)).sum(1)
        return losses.mean() if weights is None else (weights * losses).mean()

    def precision(self) -> Tensor:
        """(4, 4): that of the weights and the bias of one output, under the prior N(0, PRIOR_STD^2)."""
        design = torch.cat([self.inputs, torch.ones(len(self.inputs), 1, dtype=DOUBLE)], dim=1)
        return design.T @ design / self.noise_std**2 + torch.eye(4, dtype=DOUBLE) / PRIOR_STD**2


class Untouched:
    """``with Untouched(model)``: refuses what is not left as it was (numbers, modes, replaced methods)."""

    def __init__(self, model: BayesianModule) -> None:
        self.model = model

    def _record(self) -> dict[str, Any]:
        modules = dict(self.model.named_modules())
        return {
            "state": copy.deepcopy(self.model.state_dict()),
            "training mode": {name: module.training for name, module in modules.items()},
            "attributes": {name: sorted(vars(module)) for name, module in modules.items()},
            "hooks": {name: len(m._forward_hooks) + len(m._forward_pre_hooks) for name, m in modules.items()},
            "gradients": {name: p.grad is None for name, p in self.model.named_parameters()},
        }

    def __enter__(self) -> None:
        self.before = self._record()

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is None:
            require_same("the model is not left as it was", self._record(), self.before)


def require_draws(posterior: Posterior, shapes: dict[str, tuple[int, ...]]) -> None:
    """Draws name every Bayesian parameter, in its shape, and the generator decides them."""
    first, again, other = ([dict(drawn) for drawn in posterior.draws(2, make_generator(seed))] for seed in (3, 3, 4))
    for name, shape in shapes.items():
        require(name in first[0], f"a draw has no '{name}'; it has {sorted(first[0])}")
        found = tuple(first[0][name].shape)
        require(found == shape, f"a draw has '{name}' in shape {found}, expected {shape}")
    require(len(first) == 2, f"draws(2) gave {len(first)} draws")
    require(not any(value.requires_grad for value in first[0].values()), "a draw carries a gradient")
    require_same("two draws with the same generator", again, first)
    if posterior.noise_size:
        try:
            require_same("", other, first)
        except PartError:
            return
        raise PartError("draws with another generator are the same: the generator given is not used")


def shapes_of(model: BayesianModule) -> dict[str, tuple[int, ...]]:
    """The names and shapes of its Bayesian parameters."""
    return {name: site.shape for site in model.layout.sites for name in site.names}
