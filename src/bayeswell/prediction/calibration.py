"""Two numbers from held-out data: a scale of the posterior stds, and a temperature of the likelihood.

    w = mean + s (w' - mean),  w' ~ q;     logits / t,  or noise std x t

minimize the NLL of the averaged prediction, -log 1/D sum_d p(y | x, w_d), summed over the held-out examples, plus the
weak prior (s - 1)^2 / (2 0.5^2) + (log t)^2 / (2 0.5^2): a dozen examples without a mistake would make t zero. The
search is a grid that is refined around the best point, with the same noise for all points. The better of the best s
alone and the best t alone is taken, then the best pair in its place; each only if the NLL falls by more than the
standard error of its fall over the examples. Sets of networks and point estimates have t alone. Guo et al. 2017 scale
logits; Wenzel et al. 2020 show that stds trained by the ELBO need not predict best.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.errors import CompositionError, DataError
from ..core.protocols import POINT, Likelihood, Posterior
from ..core.pytree import num_examples
from ..likelihoods import LIKELIHOODS
from ..nn import BayesianModule
from ..posteriors import Delta, Empirical, Mixture, scale_std
from .inputs import as_inputs, as_targets
from .outputs import stacked_outputs
from .predict import make_source, nll_by_draw

SCALES = (0.0, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
TEMPERATURES = tuple(2.0 ** (step / 2) for step in range(-6, 7))
REFINEMENTS = 3
LEAST_EXAMPLES = 10
PRIOR_STD = 0.5

Point = tuple[float, float]
"""A scale of stds and a temperature."""


@dataclass(frozen=True)
class Calibration:
    """Chosen numbers, and the held-out NLL before and after, in nats per datum with standard errors over examples.

    Args:
        std_scale: multiplies deviations from the posterior mean; 0 leaves the mean network.
        temperature: divides logits, or multiplies the noise std.
        nll_after: slightly optimistic, as the numbers were chosen on these examples.
        gain_se: of nll_before - nll_after; the examples are the same.
        folds: number of models, each with held-out examples of its own; above 1 for cross-fitting.
    """

    std_scale: float
    temperature: float
    examples: int
    nll_before: float
    nll_after: float
    nll_before_se: float
    nll_after_se: float
    gain_se: float
    folds: int = 1

    @property
    def changes(self) -> bool:
        return self.std_scale != 1 or self.temperature != 1

    def shifted(self, nats: float) -> Calibration:
        """Return the same with NLLs in other units of the targets."""
        return dataclasses.replace(self, nll_before=self.nll_before + nats, nll_after=self.nll_after + nats)

    def __str__(self) -> str:
        source = f"{self.examples:,} held-out examples" + (f" of {self.folds} folds" if self.folds > 1 else "")
        before = f"NLL {self.nll_before:.4f} ± {self.nll_before_se:.4f}"
        if not self.changes:
            return f"nothing changed by {source} ({before}; no gain above its standard error)"
        gain = f"gain {self.nll_before - self.nll_after:.4f} ± {self.gain_se:.4f}"
        return f"stds x {self.std_scale:.3g}, temperature {self.temperature:.3g} by {source}: {before}, {gain}"


@dataclass(frozen=True)
class HeldOut:
    """A model with prepared data that it has not seen; ``sample_weight`` (S,) counts each example."""

    model: BayesianModule
    likelihood: Any
    inputs: Any
    targets: Any
    sample_weight: Any = None


def find_calibration(
    held_out: Sequence[HeldOut], *, draws: int = 100, batch_size: int = 1000, seed: int = 0
) -> Calibration:
    """Return the two numbers for one model, or common ones for several models with a held-out part each."""
    held_out = [dataclasses.replace(one, likelihood=LIKELIHOODS.resolve(one.likelihood)) for one in held_out]
    scales = SCALES if all(can_scale_std(one.model.posterior) for one in held_out) else (1.0,)
    temperatures = TEMPERATURES if all(one.likelihood.supports("tempered") for one in held_out) else (1.0,)
    if len(scales) == len(temperatures) == 1:
        name = held_out[0].likelihood.name or type(held_out[0].likelihood).__name__
        raise CompositionError(
            f"calibrate: the posterior '{held_out[0].model.posterior.part.name}' has no stds to scale, and likelihood "
            f"{name} no `tempered`"
        )
    losses = _Losses(held_out, draws, batch_size, seed)
    chosen = _choose(losses, scales, temperatures)
    (before, before_se), (after, after_se) = losses.estimate((1.0, 1.0)), losses.estimate(chosen)
    gain_se = losses.gain((1.0, 1.0), chosen)[1]
    return Calibration(*chosen, losses.examples, before, after, before_se, after_se, gain_se, folds=len(held_out))


def apply_calibration(
    calibration: Calibration, model: BayesianModule, likelihood: Likelihood
) -> tuple[BayesianModule, Likelihood]:
    """Return the model and the likelihood with the two numbers in them."""
    tempered = likelihood if calibration.temperature == 1 else likelihood.tempered(calibration.temperature)
    return with_scaled_std(model, calibration.std_scale), tempered


def with_scaled_std(model: BayesianModule, scale: float) -> BayesianModule:
    """Return the model under w = mean + scale (w' - mean); 0 leaves the mean network of each component."""
    if scale == 1:
        return model
    if scale == 0 and isinstance(model.posterior, Mixture):
        centers = list(model.posterior.centers())
        return model.with_posterior(Empirical.from_networks(model.layout, centers, model.posterior.extra_names))
    if scale == 0:
        return model.with_posterior(Delta().build(model.layout, model.prior, model.posterior.mean.detach(), None))
    posterior = copy.deepcopy(model.posterior)
    scale_std(posterior, scale)
    return model.with_posterior(posterior)


def can_scale_std(posterior: Posterior) -> bool:
    return POINT not in posterior.provides and scale_std.dispatch(type(posterior)) is not scale_std.dispatch(Posterior)


class _Losses:
    """The NLL of every held-out example at all points that were asked for, from the same noise."""

    def __init__(self, held_out: Sequence[HeldOut], draws: int, batch_size: int, seed: int) -> None:
        self.draws, self.batch_size, self.seed = draws, batch_size, seed
        self.parts = [
            dataclasses.replace(one, inputs=ready, targets=as_targets(one.targets, num_examples(ready)))
            for one, ready in ((one, as_inputs(one.model, one.inputs)) for one in held_out)
        ]
        self.examples = sum(len(one.targets) for one in self.parts)
        if self.examples < LEAST_EXAMPLES:
            raise DataError(f"calibrate: {self.examples} held-out examples; at least {LEAST_EXAMPLES} are needed")
        self.weights = torch.cat([_weights(one) for one in self.parts])
        if len(self.weights) != self.examples or not float(self.weights.sum()) > 0:
            raise DataError(f"calibrate: {len(self.weights)} weights for {self.examples} examples, or all are 0")
        self._found: dict[Point, Tensor] = {}
        self.add(1.0, [1.0])

    def add(self, scale: float, temperatures: Iterable[float]) -> None:
        """Measure at one scale; the networks are run once for all temperatures."""
        new = [t for t in temperatures if (scale, t) not in self._found]
        if new:
            # A network far from the mean may overflow: such a point is not the best.
            joined = torch.cat([self._measure(one, scale, new) for one in self.parts], dim=1).nan_to_num(nan=math.inf)
            self._found.update({(scale, t): joined[row] for row, t in enumerate(new)})

    def _measure(self, one: HeldOut, scale: float, temperatures: Sequence[float]) -> Tensor:
        model = with_scaled_std(one.model, scale)
        likelihoods = [one.likelihood if t == 1 else one.likelihood.tempered(t) for t in temperatures]
        joint = not one.likelihood.supports("probabilities")
        source = make_source(model, None, self.seed, self.draws, self.batch_size)
        total, count = torch.tensor(-math.inf, dtype=torch.float64), 0
        for stack in stacked_outputs(model, one.inputs, self.draws, source, self.batch_size, joint=joint):
            if count == 0:
                one.likelihood.check(one.targets.to(stack.device), stack[0])
            count += len(stack)
            losses = torch.stack([nll_by_draw(part, stack, one.targets) for part in likelihoods])
            total = torch.logaddexp(total, (-losses).logsumexp(1))
        return math.log(count) - total

    def penalized(self, point: Point) -> float:
        """Mean NLL plus the share of one example in the prior."""
        prior = 0.5 * ((point[0] - 1) ** 2 + math.log(point[1]) ** 2) / PRIOR_STD**2
        return self.estimate(point)[0] + prior / float(self.weights.sum())

    def estimate(self, point: Point) -> tuple[float, float]:
        """Mean NLL and its standard error."""
        return self._mean(self._found[point])

    def gain(self, before: Point, after: Point) -> tuple[float, float]:
        """Fall of the NLL and its standard error."""
        return self._mean(self._found[before] - self._found[after])

    def is_gain(self, before: Point, after: Point) -> bool:
        gain, error = self.gain(before, after)
        return after != before and gain > error

    def _mean(self, values: Tensor) -> tuple[float, float]:
        total = self.weights.sum()
        mean = (self.weights * values).sum() / total
        se = (self.weights * (values - mean)).square().sum().sqrt() / total
        return float(mean), float(se) * math.sqrt(self.examples / (self.examples - 1))


def _choose(losses: _Losses, scales: Sequence[float], temperatures: Sequence[float]) -> Point:
    start = best = (1.0, 1.0)
    for s, t in ((scales, (1.0,)), ((1.0,), temperatures)):
        found = _search_grid(losses, s, t)
        if losses.is_gain(start, found) and losses.penalized(found) < losses.penalized(best):
            best = found
    if len(scales) > 1 and len(temperatures) > 1:
        found = _search_grid(losses, scales, temperatures)
        best = found if losses.is_gain(best, found) else best
    return best


def _search_grid(losses: _Losses, scales: Sequence[float], temperatures: Sequence[float]) -> Point:
    best = (1.0, 1.0)
    for _ in range(REFINEMENTS + 1):
        for scale in scales:
            losses.add(scale, temperatures)
        points = [best, *((s, t) for s in scales for t in temperatures)]
        best = min(points, key=losses.penalized)
        scales = _halfway(scales, best[0], lambda a, b: (a + b) / 2)
        temperatures = _halfway(temperatures, best[1], lambda a, b: math.sqrt(a * b))
    return best


def _halfway(grid: Sequence[float], center: float, middle: Any) -> list[float]:
    ordered = sorted({*grid, center})
    place = ordered.index(center)
    low, high = ordered[max(place - 1, 0)], ordered[min(place + 1, len(ordered) - 1)]
    return sorted({middle(low, center), center, middle(center, high)})


def _weights(one: HeldOut) -> Tensor:
    if one.sample_weight is None:
        return torch.ones(len(one.targets), dtype=torch.float64)
    return torch.as_tensor(one.sample_weight, dtype=torch.float64).cpu()
