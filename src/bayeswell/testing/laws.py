"""The distribution of one example's target, found from the NLL alone: a table of counts or classes, or a density."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .quadrature import tangent_grid
from .report import Omitted

_MOST_COUNT = 4000
_CLASSES_SHOWN = 8
_LEAST_MASS = 0.01

NLL = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Law:
    """p(y) on a grid: ``masses`` at ``values``, which add up to one."""

    values: Tensor
    masses: Tensor
    real: bool

    @property
    def total(self) -> float:
        """One, if exp(-nll) is a density."""
        return float(self.masses.sum())

    def moments(self) -> tuple[float, float]:
        """Mean and variance; the variance is inf where its integral does not settle."""
        mean = float((self.values * self.masses).sum())
        squares = (self.values - mean).square() * self.masses
        ends = float(squares[: len(squares) // 1000].sum() + squares[-len(squares) // 1000 :].sum())
        variance = float(squares.sum())
        return mean, math.inf if self.real and ends > 0.02 * variance else variance

    @property
    def statistic(self) -> str:
        """What ``scores`` are."""
        return "rank (a power of the cumulative probability)" if self.real else "frequency"

    def scores(self, drawn: Tensor) -> Tensor:
        """(D, K) of D drawn targets, with the means ``expected`` if they are drawn from this law."""
        if self.real:
            cumulative = self.masses.cumsum(0) - 0.5 * self.masses
            place = torch.searchsorted(self.values, drawn.double()).clamp(1, len(self.values) - 1)
            low, high = self.values[place - 1], self.values[place]
            share = ((drawn.double() - low) / (high - low)).clamp(0, 1)
            rank = cumulative[place - 1] + share * (cumulative[place] - cumulative[place - 1])
            return torch.stack([rank, rank.square(), (rank - 0.5).square().square()], dim=1)
        shown = self.values[self._shown]
        return (drawn.double()[:, None] == shown).double()

    @property
    def expected(self) -> Tensor:
        """The means of ``scores``."""
        if self.real:
            return torch.tensor([1 / 2, 1 / 3, 1 / 80], dtype=torch.float64)
        return self.masses[self._shown]

    @property
    def _shown(self) -> Tensor:
        """The likely ones: of rare ones a z-test knows too little."""
        likely = self.masses.topk(min(_CLASSES_SHOWN, len(self.masses)))
        return likely.indices[likely.values > _LEAST_MASS]


def law_of(nll: NLL, outputs: Tensor, target: Tensor) -> Law:
    """The law of a target like the given one; refused where a target is more than one number."""
    if target.numel() != 1:
        raise Omitted(f"a target is {target.numel()} numbers: give outputs= and targets= with one each")
    classes = not target.is_floating_point()
    if classes:
        values = torch.arange(max(2, outputs.numel()))
        return Law(values.double(), _density(nll, outputs, values, target), real=False)
    counts = torch.arange(_MOST_COUNT, dtype=torch.float64)
    if float(target) == int(target) and float(target) >= 0:
        for candidates in (counts[:2], counts):
            masses = _attempt(nll, outputs, candidates, target)
            if masses is not None and abs(float(masses.sum()) - 1) < 1e-4:
                return Law(candidates, masses, real=False)
    points, weights = tangent_grid(1.0, float(outputs.flatten()[0]))
    masses = _attempt(nll, outputs, points, target)
    if masses is None:
        masses = _density(nll, outputs, counts, target)
        return Law(counts, masses, real=False)
    return Law(points, masses * weights, real=True)


def _density(nll: NLL, outputs: Tensor, values: Tensor, like: Tensor) -> Tensor:
    with torch.no_grad():
        many = outputs.expand(len(values), *outputs.shape)
        return torch.exp(-nll(many, values.to(like.dtype).reshape(-1, *like.shape))).double()


def _attempt(nll: NLL, outputs: Tensor, values: Tensor, like: Tensor) -> Tensor | None:
    """None where the likelihood does not take such targets."""
    try:
        masses = _density(nll, outputs, values, like)
    except Exception:
        return None
    return masses if bool(masses.isfinite().all()) else None
