"""The law of targets: p(y given x) = 1/D sum_d p(y given f_d), the mixture over draws, noise included.

Of each output of an example by itself (its marginal law): distribution function, quantiles; and targets drawn from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import AbsentError, SettingError, require_between, require_count
from ..random import make_generator
from ..registry import kind_of
from .precision import widened
from .roots import find_bracket, find_counts, find_roots

_AT_ONCE = 1 << 20
"""Numbers of all draws that are worked on together: bounds memory."""

SAMPLES = 10_000
"""Targets drawn for a quantile, in all, where the likelihood has no ``cdf``: at 0.05 an error of 0.002 in level."""

_DIGITS = 1e-9
"""Of the std: how near a quantile is found."""


@dataclass(frozen=True, eq=False)
class TargetLaw:
    """What each draw says of every target: outputs (D, S, ...) and the likelihood, as they were when it was predicted.

    ``scale`` and ``shift`` bring targets t of the likelihood to the units that are spoken: y = shift + scale t.
    """

    outputs: Tensor
    likelihood: Any
    scale: Tensor | None = None
    shift: Tensor | None = None

    @property
    def is_discrete(self) -> bool:
        """Whether targets are counts."""
        return bool(getattr(self.likelihood, "is_discrete", False))

    def rescaled(self, scale: Tensor, shift: Tensor) -> TargetLaw:
        """The law of shift + scale y."""
        if self.scale is None or self.shift is None:
            return replace(self, scale=scale, shift=shift)
        return replace(self, scale=scale * self.scale, shift=shift + scale * self.shift)

    def cdf(self, values: Tensor) -> Tensor:
        """P(y <= value), with the shape of the targets (S, ...)."""
        return self._by_examples(lambda part, at: part._cdf(part._to_own(at)), values)

    def cdf_below(self, values: Tensor) -> Tensor:
        """P(y < value): of counts not the same."""
        if not self.is_discrete:
            return self.cdf(values)
        return self._by_examples(lambda part, at: part._cdf(part._to_own(at).round() - 1), values)

    def quantile(self, level: float, seed: int = 0) -> Tensor:
        """The smallest value with P(y <= value) >= level; in float64.

        By root finding on the mixture of the likelihood's ``cdf``; where it has none, from ``SAMPLES`` targets drawn by
        ``seed``.
        """
        require_between("quantile", "q", level, 0, 1, open_low=True, open_high=True)
        if hasattr(self.likelihood, "cdf"):
            return self._by_examples(lambda part, _: part._to_units(part._found_quantile(level)))
        return self._by_examples(lambda part, _: part._drawn_quantile(level, seed))

    def sample(self, count: int, seed: int) -> Tensor:
        """(count, S, ...): each a target of every example from one draw, and all draws equally often."""
        require_count("sample_targets", "n", count)
        self._require_drawable("drawn targets need")
        generator = make_generator(seed, self.outputs.device)
        rounds = -(-count // len(self.outputs))
        order = torch.cat([torch.randperm(len(self.outputs), generator=generator, device=generator.device)] * rounds)
        return self._to_units(self._targets(order[:count], generator))

    def entropies(self, samples: int, seed: int) -> tuple[Tensor, Tensor]:
        """(S,) each, in nats: H[mean_d p_d] and mean_d H[p_d], of all outputs of an example together.

        -log p(y), under the mixture and under the draw that y came from, is averaged over ``samples`` targets y from
        each draw: D^2 samples evaluations of the likelihood. Densities are in the units that are spoken.
        """
        require_count("in_nats", "samples", samples)
        self._require_drawable("entropies need")
        generator = make_generator(seed, self.outputs.device)
        parts = [part._entropies(samples, generator) for part in self._pieces()]
        shift = self._log_scale()
        return torch.cat([total for total, _ in parts]) + shift, torch.cat([own for _, own in parts]) + shift

    # In the units of the likelihood, for a few examples ------------------------------------------------------------

    def _flat(self) -> Tensor:
        """(D S, ...): a likelihood's first axis counts examples, whichever draw they belong to."""
        return widened(self.outputs.flatten(0, 1))

    def _repeated(self, values: Tensor) -> Tensor:
        """(S, ...) -> (D S, ...)."""
        return values.expand(len(self.outputs), *values.shape).flatten(0, 1)

    def _cdf(self, values: Tensor) -> Tensor:
        if not hasattr(self.likelihood, "cdf"):
            drawn = self._all_targets(0)
            return (drawn <= values).double().mean(0)
        found: Tensor = self.likelihood.cdf(self._flat(), self._repeated(values))
        return found.unflatten(0, (len(self.outputs), -1)).mean(0)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Means and stds of each draw, (D, S, ...)."""
        means, variances = self.likelihood.mean_and_variance(self._flat())
        draws = (len(self.outputs), -1)
        return means.unflatten(0, draws), variances.sqrt().unflatten(0, draws)

    def _found_quantile(self, level: float) -> Tensor:
        means, stds = self._moments()
        if self.is_discrete:
            return find_counts(self._cdf, level, means[0])
        # Heavy tails have no std: any width will do, it is doubled as often as need be.
        stds = torch.where(stds.isfinite(), stds, 1.0)
        low, high = (means - stds).amin(0), (means + stds).amax(0)
        width = (high - low).clamp_min(1e-300) / 2
        bracket = find_bracket(self._cdf, level, (low + high) / 2, width)
        return find_roots(self._cdf, level, *bracket, _DIGITS * stds.amin(0) + 1e-15 * (low + high).abs())

    def _drawn_quantile(self, level: float, seed: int) -> Tensor:
        drawn = self._all_targets(seed).sort(0).values
        return self._to_units(drawn[max(0, math.ceil(level * len(drawn)) - 1)])

    def _all_targets(self, seed: int) -> Tensor:
        """Of every draw equally many, ``SAMPLES`` together or a little more: (M, S, ...)."""
        self._require_drawable("quantiles need")
        generator = make_generator(seed, self.outputs.device)
        rounds = -(-SAMPLES // len(self.outputs))
        return self._targets(torch.arange(len(self.outputs), device=self.outputs.device).repeat(rounds), generator)

    def _targets(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        """(n, S, ...): of each of the n chosen draws one target of every example."""
        found = []
        for some in chosen.split(max(1, _AT_ONCE // max(1, self.outputs[0].numel()))):
            drawn: Tensor = self.likelihood.sample_targets(widened(self.outputs[some].flatten(0, 1)), generator)
            found.append(drawn.unflatten(0, (len(some), -1)))
        return torch.cat(found)

    def _entropies(self, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        flat, (draws, examples) = self._flat(), self.outputs.shape[:2]
        total = own = torch.zeros((), dtype=flat.dtype, device=flat.device)
        together = max(1, _AT_ONCE // max(1, flat.numel()))
        for draw in range(draws):
            for chosen in torch.full((samples,), draw, device=flat.device).split(together):
                count = len(chosen)
                targets = self._targets(chosen, generator).repeat_interleave(draws, 0).flatten(0, 1)
                losses = self.likelihood.nll(flat.repeat(count, *[1] * (flat.dim() - 1)), targets)
                losses = losses.reshape(count, draws, examples)
                total = total + (math.log(draws) - (-losses).logsumexp(1)).sum(0)
                own = own + losses[:, draw].sum(0)
        return total / (samples * draws), own / (samples * draws)

    # Units, pieces, and what is missing ---------------------------------------------------------------------------

    def _to_units(self, values: Tensor) -> Tensor:
        if self.scale is None or self.shift is None:
            return values
        return values * self.scale.to(values) + self.shift.to(values)

    def _to_own(self, values: Tensor) -> Tensor:
        if self.scale is None or self.shift is None:
            return values
        return (values - self.shift.to(values)) / self.scale.to(values)

    def _log_scale(self) -> float:
        """What a density of all outputs loses, and its NLL gains, in the units that are spoken; counts have none."""
        if self.scale is None or self.is_discrete:
            return 0.0
        outputs = self.likelihood.mean_and_variance(widened(self.outputs[0, :1]))[0]
        return float(self.scale.to(outputs).abs().log().expand_as(outputs[0]).sum())

    def _pieces(self) -> list[TargetLaw]:
        draws, examples = self.outputs.shape[:2]
        each = draws * max(1, self.outputs[0, 0].numel())
        if not hasattr(self.likelihood, "cdf"):
            each = max(each, SAMPLES * max(1, self.outputs[0, 0].numel()))
        size = max(1, _AT_ONCE // each)
        return [replace(self, outputs=self.outputs[:, at : at + size]) for at in range(0, examples, size)]

    def _by_examples(self, work: Callable[[TargetLaw, Tensor], Tensor], values: Tensor | None = None) -> Tensor:
        """A piece of the examples at a time."""
        found, at = [], 0
        for piece in self._pieces():
            size = piece.outputs.shape[1]
            given = torch.zeros(()) if values is None else values[at : at + size]
            found.append(work(piece, widened(given.to(self.outputs.device))))
            at += size
        return torch.cat(found)

    def _require_drawable(self, what: str) -> None:
        if not hasattr(self.likelihood, "sample_targets"):
            raise AbsentError(
                f"{what} `sample_targets` of the likelihood, or `cdf` for quantiles; {kind_of(self.likelihood)} has "
                "neither"
            )


def as_levels(levels: Any) -> Sequence[float]:
    """Levels of quantiles, each in (0, 1)."""
    values = levels.tolist() if isinstance(levels, Tensor) or hasattr(levels, "tolist") else list(levels)
    if not values:
        raise SettingError("quantile: no levels; give at least one number in (0, 1)")
    return [float(value) for value in values]
