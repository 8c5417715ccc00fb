"""A method is a choice of parts; it holds no maths of its own. ``resolved.resolve`` makes the parts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import SettingError, nearest, require_count
from ..estimators import ESTIMATORS
from ..gradients import Sharpness
from ..registry import label_of
from ..types import PREDICTIONS, SAMPLED
from .tempering import AUTO

Choice = Any
"""A part by name, as ``{"name": ..., setting: value}``, or as any object that its axis takes."""


@dataclass(frozen=True)
class Method:
    """Everything that decides how a network is trained, except the data and how long.

    Every field may be given in ``fit``: any legal combination, not only the named ones. ``temperature`` scales the
    divergence: 1 is Bayes' rule, below 1 a cold posterior; "auto" lets the fit decide (``Tempering``). A sampler's or
    post-hoc part's own temperature is a further factor. ``std_multiplier`` is the learning rate of stds relative to
    that of means; ``rate`` multiplies all learning rates along training. ``plateau`` maps a group ("means", "stds",
    "noise") to a ``Plateau`` on a metric of its own (nll, kl, total); ``alternate`` trains means and stds in turn, so
    many epochs each. ``dropout`` makes dropout drawable: with the network's own p ("own"), or another. ``prediction``
    is what a prediction averages over draws: networks ("sampled"), or the network to first order around the
    posterior's mean ("linearised").
    """

    name: str
    summary: str
    paper: str
    posterior: Choice = "mean_field"
    prior: Choice = "kaiming"
    estimator: Choice = "weight_sampling"
    divergence: Choice | None = None
    kl_weight: Choice = "uniform"
    temperature: float | str = AUTO
    stepper: Choice = "adam"
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
        if isinstance(self.temperature, str) and self.temperature != AUTO:
            raise SettingError(f"{self.name}: temperature = {self.temperature!r}; give a number, or '{AUTO}'")
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

    @classmethod
    def settings(cls) -> list[str]:
        """What ``changed``, and so ``fit``, may be given by name."""
        described = ("name", "summary", "paper")
        return ["lr", *(f.name for f in dataclasses.fields(cls) if f.name not in described)]

    def changed(self, **settings: Any) -> Method:
        """The same method with other parts or settings.

        ``lr=1e-3`` changes the learning rate of the method's own stepper, and a mapping without a name
        (``stepper={"lr": 1e-3}``, ``posterior={"rank": 3}``) the settings of the part that is there.
        """
        settings = dict(settings)
        if "lr" in settings:
            rate = {"lr": settings.pop("lr")}
            stepper = settings.get("stepper", rate)
            settings["stepper"] = _with_settings("stepper", stepper, rate) if stepper is not rate else rate
        allowed = {"name", "summary", "paper", *self.settings()}
        for key, value in settings.items():
            if key not in allowed:
                raise SettingError(f"method '{self.name}' has no setting '{key}'; {nearest(key, self.settings())}")
            if key in _PARTS and isinstance(value, Mapping) and "name" not in value:
                settings[key] = _with_settings(key, getattr(self, key), value)
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
        if not isinstance(self.sharpness, Mapping):
            raise SettingError(f"sharpness = {self.sharpness!r}; give a Sharpness, or settings such as {{'rho': 0.05}}")
        return Sharpness(**known_settings("sharpness", Sharpness, self.sharpness))

    @property
    def cost(self) -> float:
        """Of one training step of all members, in forward passes (ordinary training: 3)."""
        sharp = self.sharpness_part
        passes = 2 if sharp is not None and sharp.rho > 0 else 1
        return self.members * passes * ESTIMATORS.resolve(self.estimator).cost


def known_settings(owner: str, kind: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a dataclass, after a look at their names."""
    allowed = {f.name for f in dataclasses.fields(kind) if f.init}
    for key in settings:
        if key not in allowed:
            raise SettingError(f"{owner} has no setting '{key}'; {nearest(key, allowed)}")
    return dict(settings)


_PARTS = frozenset({"posterior", "estimator", "divergence", "kl_weight", "stepper", "rate", "collector", "post_hoc"})
"""Fields that hold one part: settings alone change the one that is there. (A nameless mapping of priors is by name.)"""


def _with_settings(axis: str, part: Choice, settings: Mapping[str, Any]) -> Choice:
    """The part with some of its settings changed, in the form that it has."""
    if isinstance(part, str):
        return {"name": part, **settings}
    if isinstance(part, Mapping):
        return {**part, **settings}
    if isinstance(part, functools.partial):
        return functools.partial(part, **settings)
    if isinstance(part, type):
        return functools.partial(part, **settings)
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return dataclasses.replace(part, **known_settings(f"{axis} {label_of(part)}", part, settings))
    if part is None:
        raise SettingError(f"{axis}: there is none whose {sorted(settings)} could be changed; give one by name")
    raise SettingError(
        f"{axis} {label_of(part)} is an object without settings: make it with the {sorted(settings)} wanted"
    )
