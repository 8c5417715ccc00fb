"""The settings of a training method, one frozen record of typed parts, and the named methods."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..averaging import AVERAGERS
from ..core.errors import SettingError, check_choice, check_integer, check_number, nearest
from ..core.protocols import FACTORIZED, LINEARIZED, PREDICTIONS, SAMPLED, OptimizerPart
from ..core.registry import describe
from ..estimators import ESTIMATORS
from ..laplace import POST_HOC
from ..objectives import DIVERGENCES, KL_WEIGHTS, Sharpness
from ..optim import OPTIMIZERS, SCHEDULES, Plateau
from ..posteriors import POSTERIORS
from ..sampling import SAMPLERS
from .temperature import AUTO, PRIOR_WEIGHT

OWN_DROPOUT = "own"
OVER_BATCHES = "1/batches"
INITS = ("auto", "network", "reinit", "prior")
OTHER_PARAMS = ("trained", "frozen")


def find_optimizer(choice: Any) -> OptimizerPart:
    """Return an optimizer or sampler from its name, its settings, or an object (also a torch optimizer class)."""
    name = choice.get("name") if isinstance(choice, Mapping) else choice
    if isinstance(name, str) and name not in OPTIMIZERS and name not in SAMPLERS:
        raise SettingError(f"unknown optimizer {name!r}; {nearest(name, [*OPTIMIZERS, *SAMPLERS])}")
    part: OptimizerPart = (SAMPLERS if name in SAMPLERS else OPTIMIZERS).resolve(choice)
    return part


def _record(kind: type, choice: Any) -> Any:
    if isinstance(choice, kind):
        return choice
    if not isinstance(choice, Mapping):
        raise SettingError(f"give a {kind.__name__} or a mapping of its settings, got {choice!r}")
    _check_settings(kind.__name__, kind, choice)
    return kind(**choice)


def _check_settings(owner: str, part: Any, settings: Mapping[str, Any]) -> None:
    allowed = [field.name for field in dataclasses.fields(part) if field.init]
    for key in settings:
        if key not in allowed:
            raise SettingError(f"{owner} has no setting '{key}'; {nearest(key, allowed)}")


_PARTS: dict[str, Callable[[Any], Any]] = {
    "posterior": POSTERIORS.resolve,
    "estimator": ESTIMATORS.resolve,
    "divergence": DIVERGENCES.resolve,
    "kl_weight": KL_WEIGHTS.resolve,
    "optimizer": find_optimizer,
    "std_optimizer": find_optimizer,
    "schedule": SCHEDULES.resolve,
    "std_schedule": SCHEDULES.resolve,
    "averaging": AVERAGERS.resolve,
    "post_hoc": POST_HOC.resolve,
    "sharpness": functools.partial(_record, Sharpness),
}
"""Fields that hold one part; each accepts a name, ``{"name": ..., setting: value}`` or an object."""
_NUMBERS: dict[str, dict[str, Any]] = {
    **{name: {"low": 0, "above": True} for name in ("prior_weight", "std_multiplier", "std_lr", "clip_norm", "budget")},
    "temperature": {"low": 0},
    "dropout": {"low": 0, "high": 1},
}
_WORDS = {"temperature": AUTO, "budget": AUTO, "dropout": OWN_DROPOUT}
"""Words that may replace a number."""
_INTEGERS = ("alternate", "members", "accumulate")
_CHOICES = {
    "init": ("auto", "network", "reinit", "prior"),
    "other_params": ("trained", "frozen"),
    "prediction": PREDICTIONS,
    "gradient_scale": ("1/batches",),
}
_TEXTS = ("name", "summary", "paper")


@dataclass(frozen=True)
class Method:
    """Everything that decides how a network is trained, except the data and the number of epochs.

    The target is exp(-(NLL - ``prior_weight`` log p(w)) / ``temperature``), NLL summed over the data. T = 1 is Bayes'
    rule, below 1 is a cold posterior.

    Args:
        name: of the method; ``summary`` and ``paper`` describe it.
        prior: a name, a mapping with a name, a part, ``{pattern: prior}`` by parameter name, or a function of the site.
        temperature: T, or "auto" (``AutoTemperature``).
        prior_weight: None means T: the temperature scales the whole KL. With "auto" it is 0.1.
        std_optimizer: moves stds and learned noise in place of ``optimizer``.
        std_multiplier: learning rate of the stds relative to that of the means; ``std_lr`` sets the rate itself.
        schedule: factor on all learning rates; ``std_schedule`` replaces it for stds and learned noise.
        plateau: ``{group: Plateau}`` for "means", "stds" or "noise", with a metric for each.
        alternate: train means and stds in turn, so many epochs each.
        gradient_scale: "1/batches" multiplies gradients by 1 / M, as in Book's thesis.
        dropout: "own" draws the masks of the network's dropout; a number sets its probability.
        members: networks that are trained independently.
        budget: cost of all members in ordinary trainings, or "auto" (``within_budget``).
        init: "auto": the first member starts at the weights of the network, the others are reinitialized; "network",
            "reinit" or "prior" hold for all members.
        other_params: of parameters outside ``where``: "trained" without a posterior, or "frozen".
        prediction: "sampled", "linearized" or "mean".
        where: names or patterns of the Bayesian parameters.
        accumulate: number of pieces in which a batch is computed.
    """

    name: str
    summary: str = ""
    paper: str = ""
    posterior: Any = "mean_field"
    prior: Any = "kaiming"
    estimator: Any = "weight_sampling"
    divergence: Any = None
    kl_weight: Any = "uniform"
    temperature: float | str = AUTO
    prior_weight: float | None = None
    optimizer: Any = "adam"
    std_optimizer: Any = None
    std_multiplier: float = 10.0
    std_lr: float | None = None
    schedule: Any = "cosine"
    std_schedule: Any = None
    plateau: Any = None
    alternate: int | None = None
    clip_norm: float | None = None
    gradient_scale: str | None = None
    sharpness: Any = None
    averaging: Any = None
    post_hoc: Any = None
    dropout: float | str | None = None
    members: int = 1
    budget: float | str | None = None
    init: str = "auto"
    other_params: str = "trained"
    prediction: str = SAMPLED
    where: Any = "all"
    accumulate: int = 1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                object.__setattr__(self, field.name, _checked(self.name, field.name, value))
        if self.temperature == AUTO and self.prior_weight is not None:
            raise SettingError(
                f"{self.name}: `prior_weight` = {self.prior_weight:g} needs a number as `temperature`; with 'auto' the "
                f"prior weight is {PRIOR_WEIGHT}"
            )

    @classmethod
    def settings(cls) -> list[str]:
        """Names that ``changed`` accepts."""
        return ["lr", *(field.name for field in dataclasses.fields(cls) if field.name not in _TEXTS)]

    def changed(self, **settings: Any) -> Method:
        """Return this method with other parts or settings.

        ``lr=1e-3`` changes the learning rate of the optimizer. A mapping without a name changes the part that is
        there: ``posterior={"rank": 3}``. An optimizer without ``lr`` keeps the present learning rate where it means
        the same: for the same optimizer, and between optimizers that bound their steps by it (the Adam family).
        """
        for key in settings:
            if key not in (*_TEXTS, *self.settings()):
                raise SettingError(f"method '{self.name}' has no setting '{key}'; {nearest(key, self.settings())}")
        changes = {key: value for key, value in settings.items() if key != "lr"}
        for key in changes.keys() & _PARTS.keys():
            if isinstance(changes[key], Mapping) and "name" not in changes[key]:
                changes[key] = _with_settings(key, getattr(self, key), changes[key])
            elif key == "optimizer":
                changes[key] = _keep_lr(changes[key], self.optimizer)
        if "lr" in settings:
            part = find_optimizer(changes.get("optimizer", self.optimizer))
            changes["optimizer"] = _with_settings("optimizer", part, {"lr": settings["lr"]})
        if "members" in changes:
            changes.setdefault("budget", None)
        return dataclasses.replace(self, **changes)

    @property
    def cost(self) -> float:
        """Cost of one step of all members in forward passes; ordinary training costs 3."""
        passes = 2 if self.sharpness is not None and self.sharpness.rho > 0 else 1
        return float(self.members * passes * self.estimator.cost)


def _checked(owner: str, field: str, value: Any) -> Any:
    if field in _PARTS:
        return _PARTS[field](value)
    if isinstance(value, str) and field in _WORDS:
        if value != _WORDS[field]:
            raise SettingError(f"{owner}: `{field}` must be a number or '{_WORDS[field]}', got {value!r}")
        return value
    if field in _NUMBERS:
        return check_number(owner, field, value, **_NUMBERS[field])
    if field in _INTEGERS:
        return check_integer(owner, field, value)
    if field in _CHOICES:
        return check_choice(owner, field, value, _CHOICES[field])
    if field == "plateau":
        return _plateaus(owner, value)
    return value


def _plateaus(owner: str, choice: Any) -> dict[str, Plateau]:
    if not isinstance(choice, Mapping):
        raise SettingError(f"{owner}: `plateau` must map groups to metrics, such as {{'means': 'nll'}}, got {choice!r}")
    named = {key: {"metric": value} if isinstance(value, str) else value for key, value in choice.items()}
    return {key: _record(Plateau, value) for key, value in named.items()}


def _with_settings(kind: str, part: Any, settings: Mapping[str, Any]) -> Any:
    if part is None:
        return settings  # A record such as sharpness needs no name; a part without one is refused by its registry.
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        raise SettingError(
            f"{kind} {type(part).__name__} is no dataclass, so its settings {sorted(settings)} are fixed"
        )
    _check_settings(f"{kind} '{getattr(part, 'name', kind)}'", part, settings)
    return dataclasses.replace(part, **settings)


def _keep_lr(choice: Any, old: OptimizerPart) -> Any:
    if not isinstance(choice, str | Mapping) or (isinstance(choice, Mapping) and "lr" in choice):
        return choice
    new = find_optimizer(choice)
    same_unit = new.name == old.name or (new.step_bound is not None and old.step_bound is not None)
    return _with_settings("optimizer", new, {"lr": old.lr}) if same_unit and old.lr is not None else new


def method_settings(method: Method) -> dict[str, Any]:
    """Return a method as JSON-ready data; ``method_from_settings`` inverts it."""
    return {field.name: _jsonable(getattr(method, field.name)) for field in dataclasses.fields(method)}


def method_from_settings(settings: Mapping[str, Any]) -> Method:
    """Return the method of ``method_settings``, also after a trip through JSON."""
    return Method(**{key: with_tuples(value) for key, value in settings.items()})


def _jsonable(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, Sharpness | Plateau):
        return dataclasses.asdict(value)
    return {key: _jsonable(item) for key, item in describe(value).items()}


def with_tuples(value: Any) -> Any:
    """Return settings from JSON, which has no tuples, with tuples in place of lists."""
    if isinstance(value, Mapping):
        return {key: with_tuples(item) for key, item in value.items()}
    return tuple(with_tuples(item) for item in value) if isinstance(value, list) else value


_POINT: dict[str, Any] = {"posterior": "delta"}
# Averages need steps that still move, and learned noise that is not that of large steps.
_AVERAGED: dict[str, Any] = {"schedule": {"name": "cosine", "final": 0.1}}
_POINT_AVERAGED = {**_POINT, **_AVERAGED}
_VL: dict[str, Any] = {"estimator": "variational_laplace", "prediction": LINEARIZED}
_SNAPSHOTS: dict[str, Any] = {
    "schedule": {"name": "cyclic", "cycles": 5},
    "averaging": {"name": "cycle_ends", "cycles": 5, "keep": 3},
}
# The samplers find their own step size; of the second half of a run at most 200 draws are kept.
_CHAIN: dict[str, Any] = {
    **_POINT,
    "schedule": "constant",
    "std_multiplier": 1.0,
    "averaging": {"name": "bank", "max_draws": 200},
}
# A damped Newton step; stds start at a twentieth of the prior's and are found within the run. The noise of a batch
# cancels in the difference of the two gradients of an antithetic pair.
_IVON: dict[str, Any] = {
    "estimator": {"name": "weight_sampling", "draws": 2, "antithetic": True},
    "optimizer": {
        "name": "ivon",
        "lr": 1.0,
        "beta2": None,
        "hess_init": None,
        "rescale_lr": False,
        "other_lr": "auto",
        "adam_lr": "auto",
    },
}
_HWA = "Hyperparameters Weight Averaging (HWA)"
_ENSEMBLES = "Lakshminarayanan et al. 2017"
_SWAG = "Maddox et al. 2019"


def _sampler(name: str, summary: str, paper: str, part: str, **settings: Any) -> Method:
    return Method(name, summary, paper, optimizer={"name": part, "lr": None, **settings}, **_CHAIN)


_TABLE = (
    Method(
        "auto", "averaged mean-field posteriors", f"{_HWA}; {_ENSEMBLES}", averaging="hwa", budget=AUTO, **_AVERAGED
    ),
    Method("map", "one weight vector, the prior as weight decay", "MacKay 1992", **_POINT),
    Method("bbb", "mean-field variational inference, one weight draw a batch", "Blundell et al. 2015"),
    Method("sgvb", "another name for bbb", "Kingma & Welling 2014"),
    Method("sgvb-lrt", "mean-field, activations are drawn", "Kingma et al. 2015", estimator="local_reparameterization"),
    Method("flipout", "mean-field with flipout", "Wen et al. 2018", estimator="flipout"),
    Method("k-tied", "rank-2 stds of each matrix", "Swiatkowski et al. 2020", posterior={"name": "k_tied", "rank": 2}),
    Method("low-rank", "diagonal plus rank-2 covariance", "Ong et al. 2018", posterior={"name": "low_rank", "rank": 2}),
    Method("vl", "variational Laplace: a curvature penalty at the mean", "Unlu & Aitchison 2021", **_VL),
    Method("vl-lazy", "variational Laplace, its penalty in every fourth step", "Unlu & Aitchison 2021", **_VL).changed(
        estimator={"every": 4}
    ),
    Method(
        "hwa", "averages of means and variances along training", _HWA, estimator="flipout", averaging="hwa", **_AVERAGED
    ),
    Method("swa", "the average of the last weights", "Izmailov et al. 2018", averaging="swa", **_POINT_AVERAGED),
    Method("swag-diag", "a diagonal Gaussian around the path", _SWAG, averaging="swag_diag", **_POINT_AVERAGED),
    Method("swag", "a low-rank Gaussian around the path", _SWAG, averaging="swag", **_POINT_AVERAGED),
    _sampler("sgld", "stochastic gradient Langevin dynamics", "Welling & Teh 2011", "sgld"),
    _sampler("sghmc", "stochastic gradient Hamiltonian Monte Carlo", "Chen et al. 2014", "sghmc"),
    _sampler("psgld", "Langevin dynamics with an RMSprop preconditioner", "Li et al. 2016", "psgld"),
    _sampler("csgld", "Langevin dynamics in cycles", "Zhang et al. 2020", "cyclical_sgld", cycles=None),
    Method("mc-dropout", "each draw is a set of masks", "Gal & Ghahramani 2016", dropout=OWN_DROPOUT, **_POINT),
    Method("deep-ensemble", "independently trained networks", _ENSEMBLES, members=5, **_POINT),
    Method("snapshot-ensemble", "networks at the ends of cycles", "Huang et al. 2017", **_POINT, **_SNAPSHOTS),
    Method(
        "laplace",
        "a Gaussian at the optimum from the curvature there",
        "MacKay 1992; Ritter et al. 2018",
        post_hoc="laplace",
        prediction=LINEARIZED,
        **_POINT,
    ),
    Method("ivon", "natural-gradient mean-field, curvature from pairs of draws", "Shen et al. 2024", **_IVON),
)

METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
"""Named methods; ``find_method`` also knows their sharpness-aware forms."""


def register_method(method: Method) -> Method:
    """Give a method its name for ``find_method``, the command line and saved files."""
    if METHODS.get(method.name, method) != method:
        raise SettingError(f"method '{method.name}' exists already; choose another name")
    METHODS[method.name] = method
    return method


def find_method(name: str | Method) -> Method:
    """Return a method by name; ``f-X`` is X with sharpness, ``f-X-geometry`` with the geometry |mean| / std."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str):
        kind = type(name).__name__
        raise SettingError(f"`method` must be a name or a Method, got type {kind}; data are one pair: fit(net, (x, y))")
    if name in METHODS:
        return METHODS[name]
    if name not in method_names():
        raise SettingError(f"unknown method {name!r}; {nearest(name, method_names())}")
    base = METHODS[name.removeprefix("f-").removesuffix("-geometry")]
    geometry = "mean_over_std" if name.endswith("-geometry") else "identity"
    return base.changed(
        name=name,
        summary=f"{base.summary}, sharpness-aware",
        paper=f"Nguyen et al. 2023; {base.paper}",
        sharpness={"geometry": geometry},
    )


def method_names() -> list[str]:
    """Return every name that ``find_method`` knows."""
    factorized = [name for name, method in METHODS.items() if FACTORIZED in method.posterior.provides]
    return [*METHODS, *(f"f-{name}" for name in METHODS), *(f"f-{name}-geometry" for name in factorized)]
