"""Learning-rate schedules: factors on the initial rate that depend on progress alone.

``factor(at)`` is for step ``at.step``, counted from 0, of ``at.total_steps``. A schedule that listens to a metric
is in ``plateau.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import SettingError, nearest, require_count, require_positive
from ..registry import Registry
from ..types import Progress, Rate
from .rate_functions import rate_part


def _total(name: str, at: Progress) -> int:
    if at.total_steps is None:
        raise SettingError(f"the rate '{name}' needs the planned number of steps: Progress(total_steps=...)")
    return at.total_steps


def _require_share(owner: str, setting: str, value: float) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise SettingError(f"{owner}: {setting} = {value!r}; it must lie in [0, 1]")


@dataclass(frozen=True)
class Constant:
    """The same rate throughout."""

    name: ClassVar[str] = "constant"
    paper: ClassVar[str] = "Robbins & Monro 1951"

    def factor(self, at: Progress) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class StepDecay:
    """Multiplied by ``drop`` at each of these fractions of training: drop^(number of fractions passed).

    The defaults are variational Laplace's: a tenth after 100 and after 150 of 200 epochs.
    """

    fractions: tuple[float, ...] = (0.5, 0.75)
    drop: float = 0.1

    name: ClassVar[str] = "step"
    paper: ClassVar[str] = "Unlu & Aitchison 2021, section 5"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fractions", tuple(self.fractions))  # JSON turns it into a list
        for fraction in self.fractions:
            _require_share(self.name, "fractions", fraction)
        require_positive(self.name, "drop", self.drop)

    def factor(self, at: Progress) -> float:
        """drop^k after k fractions."""
        total = _total(self.name, at)
        # Rounded, as 0.55 x 100 is 55.00000000000001.
        return float(self.drop ** sum(at.step >= round(fraction * total, 6) for fraction in self.fractions))


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 to ``final``: final + (1 - final) (1 + cos(pi t / T)) / 2."""

    final: float = 0.0

    name: ClassVar[str] = "cosine"
    paper: ClassVar[str] = "Loshchilov & Hutter 2017"

    def __post_init__(self) -> None:
        _require_share(self.name, "final", self.final)

    def factor(self, at: Progress) -> float:
        """Falls all the way; stays at ``final`` past the planned end."""
        return _half_cosine(min(1.0, at.step / _total(self.name, at)), self.final)


@dataclass(frozen=True)
class Linear:
    """1 until the fraction ``begin`` of training, then a straight line, ``final`` from the fraction ``end`` on.

    SWAG's schedule: with snapshots from S of training on, constant to S / 2, then a line to the rate of the snapshots,
    which is reached at 0.9 S and kept. The defaults are those of S = 0.75, where our collectors start. We differ: the
    rate moves with every step, not with every epoch.
    """

    begin: float = 0.375
    end: float = 0.675
    final: float = 0.2

    name: ClassVar[str] = "linear"
    paper: ClassVar[str] = "Izmailov et al. 2018; Maddox et al. 2019, appendix"

    def __post_init__(self) -> None:
        for setting in ("begin", "end", "final"):
            _require_share(self.name, setting, getattr(self, setting))
        if self.begin > self.end:
            raise SettingError(f"linear: begin = {self.begin!r} lies behind end = {self.end!r}")

    def factor(self, at: Progress) -> float:
        """Constant, linear, constant."""
        done = at.step / _total(self.name, at)
        if done < self.begin:
            return 1.0
        if done >= self.end:
            return float(self.final)
        return 1.0 - (1 - self.final) * (done - self.begin) / (self.end - self.begin)


@dataclass(frozen=True)
class Power:
    """A power of the number of epochs: min(1, (shift + e)^-power) in epoch e, counted from 0.

    Flat-seeking SGLD has lr = min(0.2, 0.2 / (0.1 + e)^0.55).
    """

    power: float = 0.55
    shift: float = 0.1

    name: ClassVar[str] = "power"
    paper: ClassVar[str] = "Nguyen et al. 2023 (F-SGLD)"

    def __post_init__(self) -> None:
        require_positive(self.name, "power", self.power)
        require_positive(self.name, "shift", self.shift)

    def factor(self, at: Progress) -> float:
        """The same throughout an epoch."""
        if at.batches is None:
            raise SettingError("the rate 'power' needs the number of batches of an epoch: Progress(batches=...)")
        return min(1.0, float((self.shift + at.step // at.batches) ** -self.power))


@dataclass(frozen=True)
class Cyclic:
    """Cycles of equal length between 1 and ``low``; shape "cosine" (restarts) or "triangular".

    There are ``cycles`` of them, or as many as there are of ``cycle_steps`` steps, if that is given (HWA counts c in
    steps). "cosine": each cycle of ceil(T / cycles) steps begins at 1 and falls by half a cosine towards ``low``
    (Loshchilov & Hutter 2017; cyclical SGLD, Zhang et al. 2020, eq. (1)). "triangular": it climbs from ``low`` in
    a straight line to 1 in the middle and back (Smith 2017).
    """

    cycles: int = 4
    low: float = 0.0
    shape: str = "cosine"
    cycle_steps: int | None = None

    name: ClassVar[str] = "cyclic"
    paper: ClassVar[str] = "Smith 2017; Loshchilov & Hutter 2017; Zhang et al. 2020"

    def __post_init__(self) -> None:
        require_count(self.name, "cycles", self.cycles)
        if self.cycle_steps is not None:
            require_count(self.name, "cycle_steps", self.cycle_steps)
        _require_share(self.name, "low", self.low)
        if self.shape not in ("cosine", "triangular"):
            raise SettingError(f"cyclic: shape = {self.shape!r}; {nearest(str(self.shape), ('cosine', 'triangular'))}")

    def length(self, total_steps: int) -> int:
        """Steps of one cycle."""
        return math.ceil(total_steps / self.cycles) if self.cycle_steps is None else self.cycle_steps

    def factor(self, at: Progress) -> float:
        """By the position in the present cycle."""
        length = self.cycle_steps or self.length(_total(self.name, at))
        position = (at.step % length) / length
        if self.shape == "cosine":
            return _half_cosine(position, self.low)
        return self.low + (1 - self.low) * (1 - abs(2 * position - 1))


@dataclass(frozen=True)
class WarmUp:
    """A straight climb over the first ``fraction`` of training, times the rate ``after``: min(1, (t + 1) / n).

    n = ceil(fraction T). ``after`` is another rate by name or ``{"name": ..., setting: value}``; it sees the whole
    run, so its steps and cycles do not shift.
    """

    fraction: float = 0.05
    after: str | Mapping[str, Any] = "constant"

    name: ClassVar[str] = "warm_up"
    paper: ClassVar[str] = "Goyal et al. 2017; Book 2020, section 3.3"

    def __post_init__(self) -> None:
        if not isinstance(self.fraction, int | float) or not 0 < self.fraction <= 1:
            raise SettingError(f"warm_up: fraction = {self.fraction!r}; it must lie in (0, 1]")
        RATES.resolve(self.after)

    def factor(self, at: Progress) -> float:
        """The climb times what comes after."""
        climb = math.ceil(self.fraction * _total(self.name, at))
        return min(1.0, (at.step + 1) / climb) * RATES.resolve(self.after).factor(at)


def _half_cosine(position: float, low: float) -> float:
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * position))


RATES: Registry[Rate] = Registry(
    "rate",
    *(Constant, StepDecay, Linear, Cosine, Power, Cyclic, WarmUp),
    requires=("factor",),
    protocol=Rate,
    adapt=rate_part,
)
"""Rates by name: a factor on the learning rate of a step."""
