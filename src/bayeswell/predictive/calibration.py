"""Two numbers from held-out data: how far draws lie from the mean, and how sure the likelihood is.

    w = mean + s (w' - mean),  w' from the posterior;     logits / t,  or noise std x t

are chosen by the held-out NLL of the averaged prediction, -log 1/D sum_d p(y given x, w_d), which is what the model is
used by. The search is over grids (s from 0 to 3, t from 1/8 to 8 in steps of sqrt 2) that are made finer three times
around the best point, with the same noise for all points. What is minimised is the sum of the NLL over the examples and

    (s - 1)^2 / (2 0.5^2) + (log t)^2 / (2 0.5^2),

a weak prior at 1: a dozen examples without a mistake would make the best t zero. It is 2 nats for s = 0 and 1 nat for
t = 2, to be earned by all examples together, so that it matters for a few dozen only.

Whether a number leaves 1 is decided by the one-standard-error rule: by s alone or t alone (the better one), then by
both, each step only if the NLL falls by more than the standard error of its fall over the examples. At the best point
a gain of one such error is a slope at 1 that is two standard errors from zero (gain = z^2 / 2n, error = |z| / n for a
z-score z in units where the curvature is the slope's variance). So on data that call for no change one in ten sets of
held-out examples changes something, at a price of about 2 / n nats. Banks of networks (samplers, ensembles) have no
spread around one mean: for them, and for a point, there is t alone. Guo et al. 2017 scale the logits; Wenzel et al.
2020 tell why stds, trained as the ELBO asks, need not be those that predict best.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import BayeswellWarning, CompositionError, DataError, require_count
from ..lifting import BayesianModule, with_scaled_stds
from ..likelihoods import LIKELIHOODS, can_be_widened
from ..random import make_generator
from ..registry import kind_of
from ..types import LINEARISED, LOGITS, NOISE, Calibration, ClassLikelihood, Inputs
from ..types.calibration import LARGEST_SCALE
from .accumulate_nll import MixtureNLLs
from .evaluate import nlls_under, outputs_of_draws
from .inputs import as_targets, home_of

SCALES = (0.0, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, LARGEST_SCALE)
WIDENINGS = tuple(2.0 ** (step / 2) for step in range(-6, 7))
_ROUNDS = 3
LEAST_EXAMPLES = 10
PRIOR_STD = 0.5
MOST_KEPT = 1 << 25
"""Outputs of all draws that are kept in memory, where that saves running the networks again."""

Point = tuple[float, float]
"""A scale of stds and a widening."""


@dataclass(frozen=True)
class HeldOut:
    """A model with data that it has not seen; ``weights`` (S,): how often each example counts."""

    model: BayesianModule
    likelihood: Any
    inputs: Inputs
    targets: Any
    weights: Any = None


def find_calibration(
    held_out: Sequence[HeldOut], *, draws: int = 100, batch_size: int = 1000, seed: int = 0
) -> Calibration:
    """The two numbers for one model, or in common for several (cross-fitting: each with its own held-out part)."""
    require_count("calibrate", "draws", draws)
    require_count("calibrate", "batch_size", batch_size)
    held_out = [dataclasses.replace(one, likelihood=LIKELIHOODS.resolve(one.likelihood)) for one in held_out]
    scales = SCALES if all(one.model.posterior.can_scale_stds for one in held_out) else (1.0,)
    widenings = WIDENINGS if all(can_be_widened(one.likelihood) for one in held_out) else (1.0,)
    if len(scales) == len(widenings) == 1:
        raise CompositionError(
            f"calibrate: posterior '{held_out[0].model.posterior_part.name}' has no stds to scale, and likelihood "
            f"{kind_of(held_out[0].likelihood)} no `widened`: there is nothing to choose"
        )
    losses = _Losses(held_out, draws, batch_size, seed)
    if losses.examples < LEAST_EXAMPLES:
        raise DataError(f"calibrate: {losses.examples} held-out examples; at least {LEAST_EXAMPLES} are needed")
    chosen = best = (1.0, 1.0)
    for s, t in ((scales, (1.0,)), ((1.0,), widenings)):
        found = _search(losses, s, t, widenings)
        if losses.is_gain(chosen, found) and losses.penalised(found) < losses.penalised(best):
            best = found
    chosen = best
    if len(scales) > 1 and len(widenings) > 1:
        found = _search(losses, scales, widenings, widenings)
        chosen = found if losses.is_gain(chosen, found) else chosen
    before, after = losses.estimate((1.0, 1.0)), losses.estimate(chosen)
    classes = isinstance(held_out[0].likelihood, ClassLikelihood)
    calibration = Calibration(
        std_scale=chosen[0], widening=chosen[1], widens="" if len(widenings) == 1 else LOGITS if classes else NOISE,
        examples=losses.examples, folds=len(held_out), nll_before=before[0], nll_before_error=before[1],
        nll_after=after[0], nll_after_error=after[1], gain_error=losses.gain((1.0, 1.0), chosen)[1],
    )  # fmt: skip
    if calibration.at_the_end:
        line = f"calibrate: {calibration.at_the_end} is as far as the search goes, and the held-out data may ask for"
        line += " more: the fit is far from them; train longer, or at another rate"
        warnings.warn(line, BayeswellWarning, stacklevel=3)
    return calibration


def applied(calibration: Calibration, model: BayesianModule, likelihood: Any) -> tuple[BayesianModule, Any]:
    """A model and its likelihood with the two numbers put into them."""
    part = LIKELIHOODS.resolve(likelihood)
    part = part if calibration.widening == 1 else part.widened(calibration.widening)  # type: ignore[attr-defined]
    return with_scaled_stds(model, calibration.std_scale), part


def together(before: Calibration | None, after: Calibration) -> Calibration:
    """Both in one, where a model was calibrated twice: the numbers multiply, the NLLs are those of the second time."""
    if before is None:
        return after
    scale, widening = before.std_scale * after.std_scale, before.widening * after.widening
    return dataclasses.replace(after, std_scale=scale, widening=widening)


class _Losses:
    """The NLL of every held-out example at points that were asked for, all from the same noise."""

    def __init__(self, held_out: Sequence[HeldOut], draws: int, batch_size: int, seed: int) -> None:
        self.held_out, self.seed = held_out, seed
        self._settings: dict[str, Any] = {"draws": draws, "batch_size": batch_size}
        self._kept: dict[int, tuple[Tensor, Tensor] | None] = {}
        self._found: dict[Point, Tensor] = {}
        self.add(1.0, [1.0])
        self.examples = len(self._found[1.0, 1.0])
        self._weights = torch.cat([_weights(one) for one in held_out])
        if len(self._weights) != self.examples or not float(self._weights.sum()) > 0:
            raise DataError(f"calibrate: {len(self._weights)} weights for {self.examples} held-out examples, or all 0")

    def add(self, scale: float, widenings: Iterable[float]) -> None:
        """Find those at one scale of stds that are not known yet: the networks are run once for all of them."""
        new = [widening for widening in widenings if (scale, widening) not in self._found]
        if not new:
            return
        parts = []
        for one in self.held_out:
            likelihoods = [one.likelihood if t == 1 else one.likelihood.widened(t) for t in new]
            kept = self._kept_outputs(one)
            if kept is None:
                settings: dict[str, Any] = {**self._settings, "generator": self._noise(one.model)}
                model = with_scaled_stds(one.model, scale)
                parts.append(nlls_under(model, one.inputs, one.targets, likelihoods, **settings))
                continue
            mixtures = MixtureNLLs(likelihoods, as_targets(one.targets, kept[0].shape[1]))
            for outputs in kept[1]:
                mixtures.add(torch.lerp(kept[0][0], outputs, scale))
            mixtures.finish()
            parts.append(mixtures.losses.cpu())
        # Far out a network may overflow: such a point is simply not the best.
        joined = torch.cat(parts, dim=1).double().nan_to_num(nan=math.inf)
        self._found.update({(scale, widening): joined[row] for row, widening in enumerate(new)})

    def _kept_outputs(self, one: HeldOut) -> tuple[Tensor, Tensor] | None:
        """Outputs at the mean and of every draw, of a linearised network: at any other scale they lie on a line."""
        if one.model.prediction != LINEARISED:
            return None
        if id(one) not in self._kept:
            centre = outputs_of_draws(with_scaled_stds(one.model, 0.0), one.inputs, **self._settings, generator=None)
            small = centre.numel() * self._settings["draws"] <= MOST_KEPT
            settings: dict[str, Any] = {**self._settings, "generator": self._noise(one.model)}
            self._kept[id(one)] = (centre, outputs_of_draws(one.model, one.inputs, **settings)) if small else None
        return self._kept[id(one)]

    def _noise(self, model: BayesianModule) -> torch.Generator:
        """The same for every point."""
        return make_generator(self.seed, home_of(model).device)

    def penalised(self, point: Point) -> float:
        """The mean NLL and the prior's share of an example."""
        scale, widening = point
        prior = 0.5 * ((scale - 1) ** 2 + math.log(widening) ** 2) / PRIOR_STD**2
        return self.estimate(point)[0] + prior / float(self._weights.sum())

    def estimate(self, point: Point) -> tuple[float, float]:
        """The mean NLL, and its standard error over examples."""
        return self._estimate(self._found[point])

    def gain(self, before: Point, after: Point) -> tuple[float, float]:
        """By how much the NLL falls, and the standard error of that: the examples are the same."""
        return self._estimate(self._found[before] - self._found[after])

    def is_gain(self, before: Point, after: Point) -> bool:
        """Whether the NLL falls by more than one standard error."""
        gain, error = self.gain(before, after)
        return after != before and gain > error

    def _estimate(self, values: Tensor) -> tuple[float, float]:
        total = self._weights.sum()
        mean = (self._weights * values).sum() / total
        spread = (self._weights * (values - mean)).square().sum().sqrt() / total
        return float(mean), float(spread * math.sqrt(self.examples / (self.examples - 1)))


def _search(losses: _Losses, scales: Sequence[float], widenings: Sequence[float], grid: Sequence[float]) -> Point:
    """The best point: on the grid first, then thrice halfway between it and its neighbours."""
    for scale in scales:
        losses.add(scale, grid)  # all of the grid at once: the networks are what costs
    points = [(s, t) for s in scales for t in widenings]
    best = min(points, key=losses.penalised)
    steps = [_around(scales, best[0], geometric=False), _around(widenings, best[1], geometric=True)]
    for _ in range(_ROUNDS):
        near = [sorted({low, middle, high}) for low, middle, high in steps]
        for scale in near[0]:
            losses.add(scale, near[1])
        best = min([best, *((s, t) for s in near[0] for t in near[1])], key=losses.penalised)
        steps = [_around(near[0], best[0], geometric=False), _around(near[1], best[1], geometric=True)]
    return best


def _around(grid: Sequence[float], centre: float, *, geometric: bool) -> tuple[float, float, float]:
    """The points halfway to the neighbours of one on a grid, and itself."""
    place = list(grid).index(centre)
    below, above = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    if geometric:
        return math.sqrt(below * centre), centre, math.sqrt(centre * above)
    return (below + centre) / 2, centre, (centre + above) / 2


def _weights(held_out: HeldOut) -> Tensor:
    if held_out.weights is None:
        return torch.ones(len(held_out.targets), dtype=torch.float64)
    return torch.as_tensor(held_out.weights, dtype=torch.float64).cpu()
