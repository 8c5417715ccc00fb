"""A method is a choice of parts; it holds no maths of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import CompositionError, SettingError, nearest, require_count
from ..estimators import ESTIMATORS
from ..gradients import Sharpness
from ..types import LINEARISED, PREDICTIONS, SAMPLED

Choice = Any
"""A part by name, as ``{"name": ..., setting: value}``, or as an object."""


@dataclass(frozen=True)
class Method:
    """Everything that decides how a network is trained, except the data and how long.

    Every field may be given in ``fit``: any legal combination, not only the named ones. ``temperature`` scales the
    divergence: 1 is Bayes' rule, below 1 a cold posterior; a sampler's or post-hoc part's own temperature is a further
    factor. ``std_multiplier`` is the learning rate of stds relative to that of means; ``rate`` multiplies all learning
    rates along training. ``plateau`` maps a group ("means", "stds", "noise") to a ``Plateau`` on a metric of its own
    (nll, kl, total); ``alternate`` trains means and stds in turn, so many epochs each. ``dropout`` makes dropout
    drawable: with the network's own p ("own"), or another. ``prediction`` is what a prediction averages over draws:
    networks ("sampled"), or the network to first order around the posterior's mean ("linearised").
    """

    name: str
    summary: str
    paper: str
    posterior: Choice = "mean_field"
    prior: Choice = "kaiming"
    estimator: Choice = "weight_sampling"
    divergence: Choice | None = None
    kl_weight: Choice = "uniform"
    temperature: float = 1.0
    stepper: Choice = field(default_factory=lambda: {"name": "adam", "lr": 3e-3})
    std_multiplier: float = 10.0
    rate: Choice = "cosine"
    plateau: Mapping[str, Any] | None = None
    alternate: int | None = None
    clip_norm: float | None = None
    sharpness: Sharpness | Mapping[str, Any] | None = None
    collector: Choice | None = None
    post_hoc: Choice | None = None
    dropout: float | str | None = None
    members: int = 1
    means: str = "network"
    prediction: str = SAMPLED

    def __post_init__(self) -> None:
        require_count(self.name, "members", self.members)
        if not self.std_multiplier > 0:
            raise SettingError(f"{self.name}: std_multiplier = {self.std_multiplier!r}; it must be above 0")
        if isinstance(self.dropout, str) and self.dropout != "own":
            raise SettingError(f"{self.name}: dropout = {self.dropout!r}; give a number in [0, 1), or 'own'")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise SettingError(f"{self.name}: clip_norm = {self.clip_norm!r}; it must be above 0")
        if self.prediction not in PREDICTIONS:
            raise SettingError(
                f"{self.name}: prediction = {self.prediction!r}; {nearest(str(self.prediction), PREDICTIONS)}"
            )
        if self.prediction == LINEARISED and (self.members > 1 or _name_of(self.collector) == "bank"):
            bank = f"members = {self.members} make" if self.members > 1 else "collector 'bank' makes"
            raise CompositionError(
                f"{self.name}: prediction = '{LINEARISED}' needs one centre, but {bank} a bank of networks; use "
                f"prediction = '{SAMPLED}'"
            )

    def changed(self, **settings: Any) -> Method:
        """The same method with other parts or settings."""
        allowed = {f.name for f in dataclasses.fields(self)}
        for key in settings:
            if key not in allowed:
                raise SettingError(f"method '{self.name}' has no setting '{key}'; {nearest(key, allowed)}")
        return dataclasses.replace(self, **settings)

    @property
    def dropout_chance(self) -> float | None:
        """The p of drawn dropout; None for the network's own ("own")."""
        return None if isinstance(self.dropout, str) else self.dropout

    @property
    def sharpness_part(self) -> Sharpness | None:
        """The sharpness wrapper as an object, from settings where it was given as such."""
        if self.sharpness is None or isinstance(self.sharpness, Sharpness):
            return self.sharpness
        allowed = {f.name for f in dataclasses.fields(Sharpness)}
        for key in self.sharpness:
            if key not in allowed:
                raise SettingError(f"sharpness has no setting '{key}'; {nearest(key, allowed)}")
        return Sharpness(**self.sharpness)

    @property
    def cost(self) -> float:
        """Of one training step of all members, in forward passes (ordinary training: 3)."""
        sharp = self.sharpness_part
        passes = 2 if sharp is not None and sharp.rho > 0 else 1
        return self.members * passes * ESTIMATORS.resolve(self.estimator).cost


def _name_of(choice: Choice | None) -> str | None:
    """The name of a part, however it was given."""
    if choice is None or isinstance(choice, str):
        return choice
    return choice.get("name") if isinstance(choice, Mapping) else getattr(choice, "name", None)
