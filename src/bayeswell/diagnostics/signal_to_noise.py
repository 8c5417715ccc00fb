"""How much of a gradient is signal: its mean over batches against its variance, parameter by parameter.

With m and v the mean and the (population) variance of one parameter's gradient g over a window of batches,

    second moment:  E[g^2] / v = 1 + m^2 / v      the literal reading of k-tied (footnote of section 4.3), never below 1
    mean square:    m^2 / v                       the usual one

averaged over the parameters of a layer, by mean and by median: few parameters with next to no noise may rule the mean.
Without any signal, independent Gaussian gradients over n batches have the mean 1/(n - 3) of m^2 / v, not 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, SettingError, require_count
from ..layers import kept_statistics
from ..lifting import BayesianModule
from ..training import Callback, Run
from ..types import Inputs, Objective
from .parameters import Share, shares_of
from .records import Record

ALL = "all"
"""The layer of a row that takes in all layers of its group."""


@dataclass(frozen=True)
class SNRRow(Record):
    """One group of parameters (means, stds, deterministic) of one layer, or of all.

    ``constant`` counts the parameters whose gradient did not change within the window (never used, or no noise); they
    are left out of the rest, which is None if none is left.
    """

    group: str
    layer: str
    parameters: int
    constant: int
    second_moment_mean: float | None
    second_moment_median: float | None
    mean_square_mean: float | None
    mean_square_median: float | None


@dataclass(frozen=True)
class SNRWindow(Record):
    """What ``batches`` batches up to ``step`` (counted from 1) of a member's training showed."""

    step: int
    member: int
    batches: int
    rows: tuple[SNRRow, ...]

    def row(self, group: str, layer: str = ALL) -> SNRRow:
        """The row of a group and layer."""
        for row in self.rows:
            if (row.group, row.layer) == (group, layer):
                return row
        known = ", ".join(f"{row.group}/{row.layer}" for row in self.rows)
        raise SettingError(f"there is no signal-to-noise ratio of {group}/{layer}; there are: {known}")


class GradientMoments:
    """Running mean and sum of squared deviations of each parameter's gradient (Welford): two numbers a parameter."""

    def __init__(self) -> None:
        self.count = 0
        self.means: dict[str, Tensor] = {}
        self.squares: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, gradients: Mapping[str, Tensor]) -> None:
        """Take in one batch's gradients; a parameter may be missing (held in this step)."""
        self.count += 1
        for name, gradient in gradients.items():
            value = gradient.detach()
            if name not in self.means:
                self.means[name], self.squares[name] = torch.zeros_like(value), torch.zeros_like(value)
                self.counts[name] = 0
            self.counts[name] += 1
            away = value - self.means[name]
            self.means[name] = self.means[name] + away / self.counts[name]
            self.squares[name] = self.squares[name] + away * (value - self.means[name])

    def rows(self, shares: Sequence[Share]) -> tuple[SNRRow, ...]:
        """The ratios of each share, and of each group as a whole."""
        pieces: dict[tuple[str, str], list[tuple[Tensor, Tensor]]] = {}
        for share in shares:
            if self.counts.get(share.parameter, 0) < 2:
                continue
            mean = share.of(self.means[share.parameter]).double()
            variance = share.of(self.squares[share.parameter]).double() / self.counts[share.parameter]
            for layer in (share.layer, ALL):
                pieces.setdefault((share.group, layer), []).append((mean, variance))
        ordered = sorted(pieces, key=lambda key: (key[1] == ALL, [s.group for s in shares].index(key[0])))
        return tuple(_row(group, layer, pieces[group, layer]) for group, layer in ordered)

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on."""
        return {"count": self.count, "means": self.means, "squares": self.squares, "counts": self.counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.count, self.counts = state["count"], dict(state["counts"])
        self.means, self.squares = dict(state["means"]), dict(state["squares"])


def _row(group: str, layer: str, pieces: list[tuple[Tensor, Tensor]]) -> SNRRow:
    mean, variance = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    moving = variance > 0
    ratio = mean[moving].square() / variance[moving]
    constant = int((~moving).sum())
    if len(ratio) == 0:
        return SNRRow(group, layer, len(mean), constant, None, None, None, None)
    average, middle = float(ratio.mean()), float(np.median(ratio.cpu()))
    return SNRRow(group, layer, len(mean), constant, 1 + average, 1 + middle, average, middle)


def gradient_snr(
    model: BayesianModule,
    objective: Objective,
    batches: Iterable[tuple[Inputs, Tensor]],
    *,
    generator: torch.Generator | None = None,
) -> SNRWindow:
    """The ratios over these batches with the weights as they are: nothing is trained, no ``.grad`` is touched.

    Each batch has noise of its own, as in training; layers are in the mode they are in, and running statistics of
    BatchNorm do not see the passes. Give at least two batches, k-tied took ten.
    """
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    moments = GradientMoments()
    for inputs, targets in batches:
        with kept_statistics(model.net), torch.enable_grad():
            total = objective(model, inputs, targets, generator=generator).total
            found = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        moments.add({name: g for name, g in zip(named, found, strict=True) if g is not None})
    if moments.count < 2:
        raise DataError(f"gradient_snr: {moments.count} batches; a variance needs at least 2")
    return SNRWindow(0, 0, moments.count, moments.rows(shares_of(model)))


class GradientSNR(Callback):
    """Signal-to-noise ratios during training, over windows of ``window`` batches; a window ends every ``every`` steps.

    ``every`` None puts window after window. The gradients are those that the optimizer was given: clipped, if the
    method clips, and none of a group that was held. The weights move within a window, as they did in k-tied.
    """

    def __init__(self, window: int = 10, every: int | None = None) -> None:
        require_count("gradient snr", "window", window)
        if window < 2:
            raise SettingError(f"gradient snr: window = {window}; a variance needs at least 2 batches")
        chosen = window if every is None else every
        require_count("gradient snr", "every", chosen)
        if chosen < window:
            raise SettingError(f"gradient snr: every = {chosen} is below window = {window}; windows cannot overlap")
        self.window, self.every = window, chosen
        self.windows: list[SNRWindow] = []
        self._moments = GradientMoments()

    def start(self, run: Run) -> None:
        if run.step == 0:
            self._moments = GradientMoments()

    def after_step(self, run: Run) -> None:
        place = (run.step - 1) % self.every
        if place < self.every - self.window:
            return
        model = run.assembly.model
        self._moments.add({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        if place == self.every - 1:
            rows = self._moments.rows(shares_of(model))
            self.windows.append(SNRWindow(run.step, run.member, self._moments.count, rows))
            self._moments = GradientMoments()

    def state_dict(self) -> dict[str, Any]:
        return {"windows": [window.as_json() for window in self.windows], "moments": self._moments.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.windows = [window_from_json(window) for window in state["windows"]]
        self._moments = GradientMoments()
        self._moments.load_state_dict(state["moments"])


def window_from_json(record: Mapping[str, Any]) -> SNRWindow:
    """The inverse of ``as_json``."""
    return SNRWindow(**{**record, "rows": tuple(SNRRow(**row) for row in record["rows"])})
