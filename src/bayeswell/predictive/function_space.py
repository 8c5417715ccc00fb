"""Linearised predictions from the Jacobian of each example, in place of a pass in forward mode for each draw.

    f(x; m) + J(x) (w - m),  w ~ N(m, S)     has the law     N(f(x; m), J(x) S J(x)')

Where only the law of every example by itself is asked for (probabilities, entropies, NLLs), its draws come from this
Gaussian: a K x K root R(x) for each example, f(x; m) + R(x) z_d, and K numbers z_d for each draw, which all examples
share: what is said of one depends neither on the others nor on their order or batches. Where it matters that one
network speaks of all examples (kept samples, joint targets), networks are drawn as ever and multiplied by the Jacobian
(``jacobian``), which gives what forward mode gives, to rounding.

Whether a network can be taken apart like this is tried on a few examples of every prediction, against an ordinary
gradient: one that mixes examples, or reads a weight elsewhere, or has more outputs than there are draws, is linearised
draw by draw.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..nested import taken, tensors_in
from ..outputs import require_tensor
from ..random import derive_seed, derived_generator, make_generator, standard_normal
from ..types import Covariance, Inputs, LinearLayer
from .jacobian import MOST_NUMBERS, GradientsOf, Jacobian, Unsuitable, all_at_once, jacobian, one_by_one
from .linearised import LinearisedNetwork
from .precision import widened

MOST_OUTPUTS = 64
"""Of an example. With more, covariances take the time that draws would."""
_FEW = 8
"""Examples on which it is tried."""
_SAME = 1e-3
"""Rounding of float32 through a deep network; other mistakes are of the size of the gradients."""
_DRAWS = 32
"""The noise of so many comes from one seed; they are made together."""
_FLAT = 100
"""A pivot of a covariance below so many roundings of its dtype is taken for zero."""
_DRAWN = 1 << 25
"""Weights of drawn networks that are held at a time, at most (but one network)."""


@dataclass(frozen=True)
class JacobianOfModel:
    """How to get at the Jacobian of a model's network, which was found to be right on a few examples."""

    network: LinearisedNetwork
    layers: Sequence[LinearLayer]
    most_outputs: int
    gradients_of: GradientsOf
    first: Jacobian

    def of(self, inputs: Inputs) -> Iterator[Jacobian]:
        """Of all examples, some at a time."""
        examples = len(next(tensors_in(inputs)))
        block = max(1, MOST_NUMBERS // (2 * max(1, self.first.numbers)))
        for start in range(0, examples, block):
            yield self.at(taken(inputs, slice(start, min(start + block, examples))))

    def at(self, inputs: Inputs) -> Jacobian:
        """Of these examples together."""
        network = self.network
        return jacobian(self.model, self.layers, network.centre, inputs, self.most_outputs, self.gradients_of)

    @property
    def model(self) -> Any:
        """What is linearised: a lifted network."""
        return self.network.model

    @property
    def outputs(self) -> Tensor:
        """f(x; m) of the few examples."""
        return self.first.outputs.unflatten(1, self.first.shape) if self.first.shape else self.first.outputs[:, 0]


def find_jacobian(network: LinearisedNetwork, inputs: Inputs, draws: int) -> JacobianOfModel | None:
    """How to get at the Jacobian of the model's network; None where draws have to be linearised one by one."""
    model: Any = network.model
    centre = network.centre
    layers: Sequence[LinearLayer] | None = getattr(model, "layers_of_all_weights", _none)()
    like = next(iter(centre.values()))
    if layers is None or like.dtype not in (torch.float32, torch.float64) or like.device.type == "meta":
        return None
    if torch.is_autocast_enabled(like.device.type):
        return None
    few, most = taken(inputs, slice(0, _FEW)), min(draws, MOST_OUTPUTS)
    try:
        first = jacobian(model, layers, centre, few, most, one_by_one)
        if not _is_right(model, centre, few, first):
            return None
    except (Unsuitable, RuntimeError, NotImplementedError):
        # What is wrong with these inputs the network says again when it is called with a draw.
        return None
    together = _vectorises(model, layers, centre, few, first)
    return JacobianOfModel(network, layers, most, all_at_once if together else one_by_one, first)


def _none() -> None:
    return None


def _is_right(model: Any, centre: Mapping[str, Tensor], inputs: Inputs, found: Jacobian) -> bool:
    """Whether the gradient of some combination of all outputs is what torch says it is."""
    numbers = torch.arange(found.outputs.numel(), dtype=found.outputs.dtype, device=found.outputs.device)
    combined = (1.7 * numbers + 0.3).cos().view_as(found.outputs)
    weights = model.layout.flatten(centre).requires_grad_()
    with torch.enable_grad():
        outputs = require_tensor(model.call(model.layout.unflatten(weights), inputs))
        (exact,) = torch.autograd.grad((outputs.reshape(combined.shape) * combined).sum(), weights)
    return bool((found.summed(combined) - exact).abs().max() <= _SAME * exact.abs().max())


def _vectorises(
    model: Any, layers: Sequence[LinearLayer], centre: Mapping[str, Tensor], inputs: Inputs, first: Jacobian
) -> bool:
    """Whether torch goes backwards for all outputs at once: without an error or a warning, and with the same result."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            second = jacobian(model, layers, centre, inputs, first.outputs.shape[1], all_at_once)
    except (Unsuitable, RuntimeError, NotImplementedError, Warning):
        return False
    same = torch.ones_like(first.outputs)
    one, other = first.summed(same), second.summed(same)
    return bool((one - other).abs().max() <= _SAME * one.abs().max())


class OutputDraws:
    """Draws of the outputs of every example by itself, with the same noise for all; it depends on the generator alone.

    Each example has its own law exactly. Between examples there is no law: f + R z is not one network's.
    """

    def __init__(self, found: JacobianOfModel, covariance: Covariance, generator: torch.Generator | None) -> None:
        self._found, self._covariance = found, covariance
        self._seed = derived_generator(generator).initial_seed()

    @torch.no_grad()
    def outputs(self, inputs: Inputs, draws: int) -> Iterator[Tensor]:
        """(S, ...) for each draw."""
        found = self._found
        try:
            pieces = [(one.outputs, root(one.covariance(self._covariance))) for one in found.of(inputs)]
        except Unsuitable:  # this batch is unlike the first
            like = next(iter(found.network.centre.values()))
            for weights in found.model.draws(draws, make_generator(self._seed, like.device)):
                yield found.network.call(weights, inputs)
            return
        mean, roots = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        for first in range(0, draws, _DRAWS):
            noise = self._noise(mean, first // _DRAWS)[: draws - first]
            for outputs in torch.addmm(mean.flatten(), noise, roots.flatten(0, 1).T):
                yield outputs.view(-1, *found.first.shape)

    def _noise(self, like: Tensor, group: int) -> Tensor:
        """(draws, K) standard normal numbers."""
        generator = make_generator(derive_seed(self._seed, group), like.device)
        return standard_normal((_DRAWS, like.shape[1]), like=like, generator=generator)


def root(covariance: Tensor) -> Tensor:
    """(S, K, K): R with R R' = covariance; NaN where that is not finite.

    Cholesky's, or the symmetric one of what is as good as singular: unlike eigenvectors, neither is left to rounding.
    """
    exact = widened(covariance)
    found, fault = torch.linalg.cholesky_ex(exact)
    pivots = found.diagonal(dim1=-2, dim2=-1).square()
    least = _FLAT * torch.finfo(covariance.dtype).eps * exact.diagonal(dim1=-2, dim2=-1).amax(-1)
    good = (fault == 0) & (pivots.amin(-1) > least)
    if not bool(good.all()):
        finite = exact.isfinite().all(-1).all(-1)
        values, vectors = torch.linalg.eigh(torch.where((finite & ~good)[:, None, None], exact, 0.0))
        symmetric = (vectors * values.clamp_min(0).sqrt()[:, None]) @ vectors.mT
        found = torch.where(good[:, None, None], found, symmetric)
        found = torch.where(finite[:, None, None], found, torch.nan)
    result: Tensor = found.to(covariance.dtype)
    return result


class NetworkDraws:
    """Several drawn networks at once, each for all examples: a way to run them as ``ManyAtOnce`` is one."""

    def __init__(self, found: JacobianOfModel, examples: int) -> None:
        self._found = found
        size = max(1, found.model.layout.size)
        self.most_draws = max(1, min(_DRAWN // size, 4 * MOST_NUMBERS // (examples * found.first.outputs.shape[1])))

    def takes(self, inputs: Inputs) -> bool:
        """It was tried."""
        return True

    @torch.no_grad()
    def outputs(self, networks: Sequence[Mapping[str, Tensor]], inputs: Inputs) -> Iterator[Tensor]:
        """f(x; m) + J(x) (w - m) of each network, in turn."""
        found = self._found
        centre = found.network.centre
        away = {name: torch.stack([own[name] for own in networks]).sub_(at) for name, at in centre.items()}
        try:
            pieces = [one.outputs + one.times(away) for one in found.of(inputs)]
        except Unsuitable:  # this batch is unlike the first
            yield from (found.network.call(weights, inputs) for weights in networks)
            return
        for outputs in torch.cat(pieces, dim=1):
            yield outputs.view(-1, *found.first.shape)
