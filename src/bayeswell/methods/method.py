"""A method is a choice of parts; it holds no maths of its own. ``resolved.resolve`` makes the parts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..elements import without_replaced
from ..errors import SettingError, nearest, require_count, require_positive
from ..estimators import ESTIMATORS
from ..gradients import Sharpness
from ..lifting import STARTS, TRAINED, require_rest
from ..registry import known_settings, label_of
from ..types import PREDICTIONS, SAMPLED
from .steppers import find_stepper
from .tempering import AUTO, PRIOR_WEIGHT

OWN_DROPOUT = "own"
OVER_BATCHES = "1/batches"
"""What gradients may be multiplied by: one over the number of batches of an epoch."""
Choice = Any
"""A part by name, as ``{"name": ..., setting: value}``, or as any object that its axis takes."""


DISPERSED = "dispersed"
"""The start that differs from member to member; the others are ``bayesian``'s."""


@dataclass(frozen=True)
class Method:
    """Everything that decides how a network is trained, except the data and how long.

    Every field may be given in ``fit``: any legal combination, not only the named ones. The posterior aimed at is
    exp(-(NLL + ``prior_weight`` * -log p(w)) / ``temperature``): the temperature T says how wide it is, the prior's
    weight how hard the prior pulls on the means. A number T has that weight too, unless one is given: T scales the
    whole divergence under the prior as it is, 1 is Bayes' rule, below 1 is a cold posterior. With "auto" the fit finds
    T and the weight is 0.1 (``Tempering``); ``temperature=result.temperature, prior_weight=0.1`` says the same in
    numbers. A sampler's or post-hoc part's own temperature is a further factor. ``std_multiplier`` is the learning rate
    of stds relative to that of means, ``std_lr`` (if given) that rate itself; ``std_stepper`` (if given) moves
    stds and learned noise in place of ``stepper``, at its own rate; ``rate`` multiplies all learning rates
    along training, ``std_rate`` (if given) those of stds and learned noise in its place. ``plateau`` maps a group
    ("means", "stds", "noise") to a ``Plateau`` on a metric of its own (nll, kl, total; of held-out data validation.nll
    and its kin); ``alternate`` trains means and stds in turn, so many epochs each. ``gradient_scale``
    "1/batches" multiplies gradients by 1 / M, M the number of batches, as Book's thesis does: SGD's rates then mean
    what they mean there, and Adam's eps weighs M times as much; records stay in nats per datum. ``dropout`` makes
    dropout drawable: with the network's own p ("own"), or another. ``prediction`` is what a prediction averages over
    draws: networks ("sampled"), or the network to first order around the posterior's mean ("linearised"), or nothing:
    the network at that mean ("mean").

    ``means`` says where the ``members`` start: the first at the given network's weights and each further one at new
    ones from the network's own initialisation ("dispersed": ensembles live on that spread, and chains that have not
    mixed can be told by it), or all of them as ``bayesian`` has it: "redrawn", "prior", or "network", which keeps
    weights that were trained before. ``rest`` says what becomes of parameters that ``where`` leaves out: "trained"
    without a posterior, or "frozen" (BatchNorm's statistics too). ``budget`` is how many times ordinary training all
    members together may cost: ``fit`` takes as many as it pays for ("auto": by how long the run is).
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
    prior_weight: float | None = None
    stepper: Choice = "adam"
    std_stepper: Choice | None = None
    std_multiplier: float = 10.0
    std_lr: float | None = None
    rate: Choice = "cosine"
    std_rate: Choice | None = None
    plateau: Mapping[str, Any] | None = None
    alternate: int | None = None
    clip_norm: float | None = None
    gradient_scale: str | None = None
    sharpness: Sharpness | Mapping[str, Any] | None = None
    collector: Choice | None = None
    post_hoc: Choice | None = None
    dropout: float | str | None = None
    members: int = 1
    budget: float | str | None = None
    means: str = DISPERSED
    rest: str = TRAINED
    prediction: str = SAMPLED

    def __post_init__(self) -> None:
        require_count(self.name, "members", self.members)
        number = isinstance(self.budget, int | float) and not isinstance(self.budget, bool)
        if not (self.budget is None or self.budget == AUTO or (number and float(self.budget) > 0)):
            raise SettingError(
                f"{self.name}: budget = {self.budget!r}; give how many times ordinary training, or '{AUTO}'"
            )
        if isinstance(self.temperature, str) and self.temperature != AUTO:
            raise SettingError(f"{self.name}: temperature = {self.temperature!r}; give a number, or '{AUTO}'")
        if self.prior_weight is not None:
            require_positive(self.name, "prior_weight", self.prior_weight)
            if self.temperature == AUTO:
                raise SettingError(
                    f"{self.name}: prior_weight = {self.prior_weight!r} goes with a temperature that is a number; with "
                    f"temperature = '{AUTO}' it is {PRIOR_WEIGHT}"
                )
        if not isinstance(self.std_multiplier, int | float) or not self.std_multiplier > 0:
            raise SettingError(f"{self.name}: std_multiplier = {self.std_multiplier!r}; it must be a number above 0")
        if self.std_lr is not None:
            require_positive(self.name, "std_lr", self.std_lr)
        if self.gradient_scale not in (None, OVER_BATCHES):
            raise SettingError(
                f"{self.name}: gradient_scale = {self.gradient_scale!r}; allowed: '{OVER_BATCHES}', or none"
            )
        if isinstance(self.dropout, str) and self.dropout != OWN_DROPOUT:
            raise SettingError(f"{self.name}: dropout = {self.dropout!r}; give a number in [0, 1), or 'own'")
        if self.clip_norm is not None and not (isinstance(self.clip_norm, int | float) and self.clip_norm > 0):
            raise SettingError(f"{self.name}: clip_norm = {self.clip_norm!r}; it must be above 0")
        if self.plateau is not None and not isinstance(self.plateau, Mapping):
            raise SettingError(
                f"{self.name}: plateau = {self.plateau!r}; give a metric for each group, as in {{'means': 'nll'}}"
            )
        if self.means not in (DISPERSED, *STARTS):
            raise SettingError(f"{self.name}: means = {self.means!r}; {nearest(str(self.means), (DISPERSED, *STARTS))}")
        require_rest(self.name, self.rest)
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

        A stepper that is named without a rate keeps the method's own where that means the same: the stepper is the same
        one, or both bound their steps by the rate (Adam and its kin). Where the rate means something else (SGD's and
        a sampler's scale with the gradient, IVON's with the curvature) the new one has its own default: of Adam's kin
        the rate that fits the run.
        """
        settings = dict(settings)
        if "lr" in settings:
            rate = {"lr": settings.pop("lr")}
            stepper = settings.get("stepper", rate)
            settings["stepper"] = _with_settings("stepper", stepper, rate) if stepper is not rate else rate
        if "members" in settings:  # so many, whatever they cost
            settings.setdefault("budget", None)
        allowed = {"name", "summary", "paper", *self.settings()}
        for key, value in settings.items():
            if key not in allowed:
                raise SettingError(f"method '{self.name}' has no setting '{key}'; {nearest(key, self.settings())}")
            if key in _PARTS and isinstance(value, Mapping) and "name" not in value:
                settings[key] = _with_settings(key, getattr(self, key), value)
        if "stepper" in settings:
            settings["stepper"] = _with_rate(settings["stepper"], self.stepper)
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


_PARTS = frozenset(
    {
        "posterior",
        "estimator",
        "divergence",
        "kl_weight",
        "stepper",
        "std_stepper",
        "rate",
        "std_rate",
        "collector",
        "post_hoc",
    }
)
"""Fields that hold one part: settings alone change the one that is there. (A nameless mapping of priors is by name.)"""


def _with_rate(choice: Choice, own: Choice) -> Choice:
    """A stepper that is named without a rate, with the one that ``changed`` promises."""
    named = {"name": choice} if isinstance(choice, str) else choice
    if not isinstance(named, Mapping) or "lr" in named:
        return choice
    wanted, before = find_stepper(named), find_stepper(own)
    if wanted.name == before.name or (wanted.step_bound is not None and before.step_bound is not None):
        return choice if before.lr is None else {**named, "lr": before.lr}
    return choice


def _with_settings(axis: str, part: Choice, settings: Mapping[str, Any]) -> Choice:
    """The part with some of its settings changed, in the form that it has."""
    if isinstance(part, str):
        return {"name": part, **settings}
    if isinstance(part, Mapping):
        return {**without_replaced(part, settings), **settings}
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
