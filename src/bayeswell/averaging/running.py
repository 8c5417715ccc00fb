"""Running statistics of snapshots, in float64 and without cancellation.

Each is told the number n of the snapshot (1, 2, ...) and its gain g_n, the weight of the snapshot relative to that of
all so far: g_1 = 1, and g_n = 1/n makes a uniform mean. Counter and gain are decided in one place, the collector, so
whatever is averaged is averaged alike. Snapshot j ends with weight g_j (1 - g_(j+1)) ... (1 - g_n), and these sum to
one. Tensors are replaced and never changed in place, so a state that was handed out stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import DivergenceError, SettingError
from ..finite import all_finite
from ..types import BayesianModel, Progress

MIN_VARIANCE = 1e-30
"""Maddox's floor: a weight that never moved has std 1e-15, so its logarithm and the entropy stay finite."""


def widened(values: Tensor) -> Tensor:
    """In float64 (float32 where the device has no better), without gradient."""
    values = values.detach()
    return values.float() if values.device.type == "mps" else values.double()


def require_finite(owner: str, what: str, values: Tensor, at: Progress) -> None:
    """Refuse a snapshot that would spoil all that were taken before."""
    if not all_finite([values]):
        raise DivergenceError(
            f"{owner}: {what} after step {at.step} hold NaN or inf; that snapshot is refused, those before it are kept"
        )


class Snapshot:
    """The model after one step: ``mean`` is (P,), the posterior's means in float64; ``gain`` is what it counts for."""

    def __init__(self, owner: str, model: BayesianModel, at: Progress, number: int, gain: float) -> None:
        if not 0 <= gain <= 1 or (number == 1 and gain != 1):
            raise SettingError(
                f"{owner}: the gain of snapshot {number} is {gain!r}; it must be from 0 to 1, and 1 for the first"
            )
        self.owner, self.model, self.at, self.number, self.gain = owner, model, at, number, gain
        self.mean = widened(model.posterior.mean_vector())
        require_finite(owner, "the weights", self.mean, at)
        for name, parameter in trained_parameters(model).items():
            require_finite(owner, f"the values of '{name}'", parameter, at)

    @cached_property
    def variance(self) -> Tensor:
        """(P,): the posterior's variances, in float64."""
        variance = widened(self.model.posterior.std_vector()).square()
        require_finite(self.owner, "the stds of the weights", variance, self.at)
        return variance


class Statistic(Protocol):
    """Something that is updated by every snapshot."""

    def add(self, snapshot: Snapshot) -> None:
        """Take in snapshot number ``snapshot.number`` with the weight ``snapshot.gain``."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data by name."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        ...


class Mean:
    """m_n = m_(n-1) + g_n (w_n - m_(n-1))."""

    def __init__(self, model: BayesianModel) -> None:
        self.mean = torch.zeros_like(widened(model.posterior.mean_vector()))

    def add(self, snapshot: Snapshot) -> None:
        self.mean = self.mean + snapshot.gain * (snapshot.mean - self.mean)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mean = restored(state, "mean", self.mean)


class Moments:
    """Mean and variance (of the weighted snapshots; for a uniform mean it divides by n) by Welford's update.

    With d = w_n - m_(n-1):  m_n = m_(n-1) + g_n d  and  v_n = v_(n-1) + g_n (d (w_n - m_n) - v_(n-1))  (West 1979).
    SWAG's mean(w^2) - mean(w)^2 is the same number, but loses all digits where |mean| >> std.
    """

    def __init__(self, model: BayesianModel) -> None:
        self.mean = torch.zeros_like(widened(model.posterior.mean_vector()))
        self.variance = torch.zeros_like(self.mean)

    def add(self, snapshot: Snapshot) -> None:
        away = snapshot.mean - self.mean
        self.mean = self.mean + snapshot.gain * away
        self.variance = self.variance + snapshot.gain * (away * (snapshot.mean - self.mean) - self.variance)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "variance": self.variance}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mean, self.variance = restored(state, "mean", self.mean), restored(state, "variance", self.variance)


class Deterministic:
    """Means of the trained parameters that have no posterior (normalisation layers, say), by name."""

    def __init__(self, model: BayesianModel) -> None:
        self.means = {name: torch.zeros_like(widened(p)) for name, p in trained_parameters(model).items()}
        self.dtypes = {name: parameter.dtype for name, parameter in trained_parameters(model).items()}

    def add(self, snapshot: Snapshot) -> None:
        for name, parameter in trained_parameters(snapshot.model).items():
            mean = self.means[name]
            self.means[name] = mean + snapshot.gain * (widened(parameter) - mean)

    def result(self) -> dict[str, Tensor]:
        """In the parameters' own dtypes."""
        return {name: mean.to(self.dtypes[name]) for name, mean in self.means.items()}

    def state_dict(self) -> dict[str, Any]:
        return dict(self.means)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.means = {name: restored(state, name, mean) for name, mean in self.means.items()}


def trained_parameters(model: BayesianModel) -> dict[str, Tensor]:
    """The network's own parameters that an optimizer moves; its Bayesian ones are in the posterior."""
    return {name: parameter for name, parameter in model.net.named_parameters() if parameter.requires_grad}


def restored(state: Mapping[str, Any], name: str, like: Tensor, rows: int | None = None) -> Tensor:
    """A tensor of a saved state on the device of ``like``; it must have its dtype and shape.

    With ``rows``, the first axis may have any length up to that.
    """
    found = state.get(name)
    if not isinstance(found, Tensor):
        raise SettingError(f"the collector's state has no tensor '{name}'; it has {sorted(state)}")
    fits = found.shape == like.shape if rows is None else found.shape[1:] == like.shape[1:] and len(found) <= rows
    if found.dtype != like.dtype or not fits:
        raise SettingError(
            f"the collector's state has '{name}' as {found.dtype} {tuple(found.shape)}, this run has {like.dtype} "
            f"{tuple(like.shape)}; it belongs to another network or to other settings"
        )
    return found.detach().to(like.device)
