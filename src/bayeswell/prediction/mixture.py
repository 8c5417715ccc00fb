"""The predictive distribution of real targets and counts: p(y | x) = 1/D sum_d p(y | f_d), noise included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core.errors import NetworkError, check_integer, check_number
from ..core.protocols import Likelihood
from ..core.random import make_generator

AT_ONCE = 1 << 20
"""Numbers of all draws that are worked on together."""
SAMPLES = 10_000
"""Targets drawn for a quantile of a likelihood without ``cdf``; at 0.05 the level is off by 0.002."""
DOUBLINGS, HALVINGS = 200, 90


@dataclass(frozen=True, eq=False)
class PredictiveMixture:
    """Outputs (D, S, ...) of all draws and the likelihood: the marginal distribution of each target.

    Targets t of the likelihood are y = shift + scale t in the units of the user.
    """

    outputs: Tensor
    likelihood: Likelihood
    scale: Tensor | float = 1.0
    shift: Tensor | float = 0.0

    def rescaled(self, scale: Tensor, shift: Tensor) -> PredictiveMixture:
        """Return the distribution of shift + scale y."""
        return replace(self, scale=scale * self.scale, shift=shift + scale * self.shift)

    def examples(self, start: int, stop: int) -> PredictiveMixture:
        return replace(self, outputs=self.outputs[:, start:stop])

    @torch.no_grad()
    def cdf(self, values: Tensor) -> Tensor:
        """P(y <= values), with the shape of the targets (S, ...)."""
        return torch.cat([piece._cdf((y - self.shift) / self.scale) for piece, y in self._pieces(values)])

    def cdf_below(self, values: Tensor) -> Tensor:
        """P(y < values), which differs from the cdf for counts only."""
        return self.cdf(values.double() - 0.5 if self.likelihood.is_discrete else values)

    @torch.no_grad()
    def quantile(self, level: float, seed: int = 0) -> Tensor:
        """Return the smallest value with P(y <= value) >= level, in float64.

        By bisection of the mixture's cdf; without ``likelihood.cdf`` from ``SAMPLES`` drawn targets.
        """
        check_number("quantile", "q", level, 1e-12, 1 - 1e-12)
        has_cdf = self.likelihood.supports("cdf")
        pieces = [piece for piece, _ in self._pieces(None)]
        quantiles = [piece._bisected(level) if has_cdf else piece._drawn_quantile(level, seed) for piece in pieces]
        return torch.cat(quantiles) * self.scale + self.shift

    @torch.no_grad()
    def sample(self, count: int, seed: int = 0) -> Tensor:
        """(count, S, ...): each row has targets of all examples from one draw; all draws are used equally often."""
        check_integer("sample", "count", count)
        generator = make_generator(seed, self.outputs.device)
        rounds = -(-count // len(self.outputs))
        order = torch.cat([torch.randperm(len(self.outputs), generator=generator, device=generator.device)] * rounds)
        return self._targets(order[:count], generator) * self.scale + self.shift

    def _flat(self) -> Tensor:
        # The first axis of a likelihood counts examples, whichever draw they belong to.
        return self.outputs.flatten(0, 1).double()

    def _cdf(self, values: Tensor) -> Tensor:
        draws = len(self.outputs)
        if not self.likelihood.supports("cdf"):
            return (self._all_targets(0) <= values).double().mean(0)
        found = self.likelihood.cdf(self._flat(), values.expand(draws, *values.shape).flatten(0, 1))
        mixed: Tensor = found.unflatten(0, (draws, -1)).mean(0)
        return mixed

    def _bisected(self, level: float) -> Tensor:
        means, variances = self.likelihood.mean_and_variance(self._flat())
        by_draw = means.unflatten(0, (len(self.outputs), -1))
        # Heavy tails have no std: the bracket is doubled until it holds the quantile.
        stds = torch.where(variances.isfinite(), variances.sqrt(), 1.0).unflatten(0, (len(self.outputs), -1))
        low, high = (by_draw - stds).amin(0), (by_draw + stds).amax(0)
        width = (high - low).clamp_min(1e-300)
        for _ in range(DOUBLINGS):
            above, below = self._cdf(low) >= level, self._cdf(high) < level
            if not bool((above | below).any()):
                break
            low, high, width = torch.where(above, low - width, low), torch.where(below, high + width, high), 2 * width
        else:
            raise NetworkError(f"the quantile at {level:g} is not finite; the outputs of the network are too large")
        return _bisect(self._cdf, level, low, high, self.likelihood.is_discrete)

    def _drawn_quantile(self, level: float, seed: int) -> Tensor:
        drawn = self._all_targets(seed).sort(0).values
        return drawn[max(0, math.ceil(level * len(drawn)) - 1)]

    def _all_targets(self, seed: int) -> Tensor:
        rounds = -(-SAMPLES // len(self.outputs))
        chosen = torch.arange(len(self.outputs), device=self.outputs.device).repeat(rounds)
        return self._targets(chosen, make_generator(seed, self.outputs.device))

    def _targets(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        found = []
        for some in chosen.split(max(1, AT_ONCE // max(1, self.outputs[0].numel()))):
            drawn = self.likelihood.sample(self.outputs[some].flatten(0, 1).double(), generator)
            found.append(drawn.unflatten(0, (len(some), -1)))
        return torch.cat(found)

    def _pieces(self, values: Tensor | None) -> Iterator[tuple[PredictiveMixture, Tensor]]:
        draws, examples = self.outputs.shape[:2]
        draws = draws if self.likelihood.supports("cdf") else max(draws, SAMPLES)
        size = max(1, AT_ONCE // (draws * max(1, self.outputs[0, 0].numel())))
        for start in range(0, examples, size):
            some = torch.empty(0) if values is None else values[start : start + size]
            yield self.examples(start, start + size), some.to(self.outputs.device).double()


def _bisect(function: Callable[[Tensor], Tensor], level: float, low: Tensor, high: Tensor, integers: bool) -> Tensor:
    # The smallest x in (low, high] with function(x) >= level.
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = function(middle) >= level
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        width = float((high - low).amax())
        if width < 0.5 if integers else bool(((high - low) <= 1e-14 * high.abs() + 1e-300).all()):
            break
    return high.floor() if integers else high
