"""Signal-to-noise ratio of gradients: their mean over batches against their variance, weight by weight.

With m and v the mean and the (population) variance of one gradient g over a window of batches,

    mean square:    m^2 / v                       the usual ratio
    second moment:  E[g^2] / v = 1 + m^2 / v      the literal reading of Swiatkowski et al. 2020, section 4.3

``ratio`` is the mean square; the second moment is 1 more. A few parameters with next to no noise may dominate the mean,
so the median is there too. Without any signal, independent Gaussian gradients over n batches have the mean 1 / (n - 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.errors import DataError, SettingError, check_integer, nearest
from ...core.protocols import Inputs
from ...nn import BayesianModule, kept_statistics
from ...training import Callback, Run

MEANS, STDS, OTHER = "means", "stds", "other"
ALL = "all"
"""The layer of a row that covers all layers of its group."""


@dataclass(frozen=True)
class SNRRow:
    """One group ("means", "stds" or "other") of one layer, or of all.

    Args:
        layer: the parameter of the network; where a std parameter covers several, its own name.
        ratio: mean over the parameters; None if no gradient changed.
        median: of the same.
        constant: parameters whose gradient did not change within the window, which are left out.
    """

    group: str
    layer: str
    parameters: int
    constant: int
    ratio: float | None
    median: float | None


@dataclass(frozen=True)
class SNRWindow:
    """The rows of ``batches`` batches up to ``step`` (counted from 1) of one member."""

    step: int
    member: int
    batches: int
    rows: tuple[SNRRow, ...]

    def row(self, group: str, layer: str = ALL) -> SNRRow:
        for row in self.rows:
            if (row.group, row.layer) == (group, layer):
                return row
        known = [f"{row.group}/{row.layer}" for row in self.rows]
        raise SettingError(f"no signal-to-noise ratio of {group}/{layer}; {nearest(f'{group}/{layer}', known)}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> SNRWindow:
        return cls(**{**record, "rows": tuple(SNRRow(**row) for row in record["rows"])})


class Moments:
    """Running mean and sum of squared deviations of each gradient (Welford)."""

    def __init__(self) -> None:
        self.count = 0
        self.counts: dict[str, int] = {}
        self.means: dict[str, Tensor] = {}
        self.squares: dict[str, Tensor] = {}

    def add(self, gradients: Mapping[str, Tensor]) -> None:
        """Take in the gradients of one batch; a parameter that rests may be missing."""
        self.count += 1
        for name, gradient in gradients.items():
            value = gradient.detach()
            if name not in self.means:
                self.counts[name] = 0
                self.means[name], self.squares[name] = torch.zeros_like(value), torch.zeros_like(value)
            self.counts[name] += 1
            away = value - self.means[name]
            self.means[name] = self.means[name] + away / self.counts[name]
            self.squares[name] = self.squares[name] + away * (value - self.means[name])

    def rows(self, model: BayesianModule) -> tuple[SNRRow, ...]:
        """Return a row for each layer of each group, after one for the group."""
        by_group: dict[str, dict[str, tuple[Tensor, Tensor]]] = {}
        for name in self.means:
            if self.counts[name] > 1:
                for group, layer, place in _layers(model, name):
                    mean = self.means[name].reshape(-1)[place]
                    variance = self.squares[name].reshape(-1)[place] / self.counts[name]
                    by_group.setdefault(group, {})[layer] = (mean, variance)
        rows = []
        for group, layers in by_group.items():
            rows.append(_row(group, ALL, list(layers.values())))
            rows += [_row(group, layer, [pair]) for layer, pair in layers.items()]
        return tuple(rows)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "counts": self.counts, "means": self.means, "squares": self.squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]
        self.counts, self.means, self.squares = (dict(state[name]) for name in ("counts", "means", "squares"))


def gradient_snr(
    model: BayesianModule,
    objective: Any,
    batches: Iterable[tuple[Inputs, Tensor]],
    *,
    generator: torch.Generator | None = None,
) -> SNRWindow:
    """Return the ratios over at least two batches with the weights as they are. Nothing is trained.

    Args:
        model: in the mode in which the gradients are wanted.
        objective: an ``ELBO``, with or without sharpness.
        batches: inputs and targets; Swiatkowski et al. took ten.
        generator: of the weight draws, a new one for each batch.
    """
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    moments = Moments()
    for inputs, targets in batches:
        with kept_statistics(model.net), torch.enable_grad():
            total = objective(model, inputs, targets, generator=generator).total
            found = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        moments.add({name: g for name, g in zip(named, found, strict=True) if g is not None})
    if moments.count < 2:
        raise DataError(f"gradient_snr needs at least 2 batches, got {moments.count}")
    return SNRWindow(0, 0, moments.count, moments.rows(model))


class GradientSNR(Callback):
    """Signal-to-noise ratios during training, in ``windows``.

    The gradients are those of the optimizer's step: clipped, if the method clips. The weights move within a window.

    Args:
        window: batches of one window.
        every: a window ends after each ``every`` steps; None: one window follows the other.
    """

    def __init__(self, window: int = 10, every: int | None = None) -> None:
        self.window = check_integer("GradientSNR", "window", window, 2)
        self.every = self.window if every is None else check_integer("GradientSNR", "every", every, window)
        self.windows: list[SNRWindow] = []
        self._moments = Moments()

    def start(self, run: Run) -> None:
        if run.state.progress.step == 0:
            self._moments = Moments()

    def after_step(self, run: Run) -> None:
        step, model = run.state.progress.step, run.state.model
        place = (step - 1) % self.every
        if place < self.every - self.window:
            return
        self._moments.add({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        if place == self.every - 1:
            self.windows.append(SNRWindow(step, run.member, self._moments.count, self._moments.rows(model)))
            self._moments = Moments()

    def state_dict(self) -> dict[str, Any]:
        return {"windows": [window.to_json() for window in self.windows], "moments": self._moments.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.windows = [SNRWindow.from_json(window) for window in state["windows"]]
        self._moments.load_state_dict(state["moments"])


def _layers(model: BayesianModule, name: str) -> Iterator[tuple[str, str, slice]]:
    owner, _, rest = name.partition(".")
    if owner != "posterior":
        yield OTHER, rest, slice(None)
        return
    group = MEANS if rest == "mean" else STDS
    if model.posterior.get_parameter(rest).shape == (model.layout.size,):
        for layer, place in model.layout.slices.items():
            yield group, layer, place
    else:
        yield group, rest, slice(None)


def _row(group: str, layer: str, pairs: Sequence[tuple[Tensor, Tensor]]) -> SNRRow:
    mean, variance = (torch.cat(parts).double() for parts in zip(*pairs, strict=True))
    moving = variance > 0
    constant = int((~moving).sum())
    if constant == len(mean):
        return SNRRow(group, layer, len(mean), constant, None, None)
    ratio = mean[moving].square() / variance[moving]
    return SNRRow(group, layer, len(mean), constant, float(ratio.mean()), float(ratio.quantile(0.5)))
