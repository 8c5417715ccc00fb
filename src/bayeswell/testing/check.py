"""The conformance checks of one kind of part, run on one part."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..averaging import AVERAGERS
from ..core.errors import BayeswellWarning, SettingError, nearest
from ..core.registry import Registry, describe
from ..estimators import ESTIMATORS
from ..laplace import POST_HOC
from ..likelihoods import LIKELIHOODS
from ..objectives import DIVERGENCES, KL_WEIGHTS
from ..optim import OPTIMIZERS, SCHEDULES
from ..posteriors import POSTERIORS
from ..priors import PRIORS
from ..sampling import SAMPLERS
from .averagers import AveragerChecks
from .divergences import DivergenceChecks
from .estimators import EstimatorChecks
from .likelihoods import LikelihoodChecks
from .optimizers import OptimizerChecks
from .post_hoc import PostHocChecks
from .posteriors import PosteriorChecks
from .priors import PriorChecks
from .report import Omitted, PartError, Report, require, require_same
from .samplers import SamplerChecks
from .schedules import KLWeightChecks, ScheduleChecks

SEED = 1729

_KINDS: dict[str, tuple[type[Any], Registry[Any]]] = {
    "prior": (PriorChecks, PRIORS),
    "likelihood": (LikelihoodChecks, LIKELIHOODS),
    "posterior": (PosteriorChecks, POSTERIORS),
    "estimator": (EstimatorChecks, ESTIMATORS),
    "divergence": (DivergenceChecks, DIVERGENCES),
    "optimizer": (OptimizerChecks, OPTIMIZERS),
    "sampler": (SamplerChecks, SAMPLERS),
    "averaging": (AveragerChecks, AVERAGERS),
    "post_hoc": (PostHocChecks, POST_HOC),
    "schedule": (ScheduleChecks, SCHEDULES),
    "kl_weight": (KLWeightChecks, KL_WEIGHTS),
}
KINDS = tuple(_KINDS)
"""Kinds of parts that ``check_part`` knows."""


def check_part(kind: str, part: Any, **hints: Any) -> Report:
    """Run every check of a kind on a part; the first failure raises ``PartError``.

    Noise has fixed seeds, so the result does not change between runs; torch's global generator is restored.

    Args:
        kind: one of ``KINDS``.
        part: what the kind accepts: an object, a name, ``{"name": ..., setting: value}``, or an ordinary object (a
            class of torch optimizers, a function).
        hints: facts that a check cannot know. likelihood: ``outputs`` and ``targets`` to try, ``normalized=False`` if
            exp(-nll) is no density. estimator, post_hoc: ``exact=False`` if it is not exact for linear regression.
            sampler: the relative ``tolerance`` (0.1) of the std of its draws. averaging: ``total_steps`` (40) and
            ``batches`` (4) of a run.
    """
    if kind not in _KINDS:
        raise SettingError(f"check_part: `kind` = {kind!r}; {nearest(str(kind), KINDS)}")
    checks, registry = _KINDS[kind]
    known = list(inspect.signature(checks).parameters)[1:]
    for name in hints:
        if name not in known:
            raise SettingError(f"check_part: kind '{kind}' has no hint '{name}'; {nearest(name, known)}")
    run = _Run(kind, _label(part))
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore", BayeswellWarning)
        found = run.do("resolves", lambda: registry.resolve(part))
        run.do("settings_round_trip", lambda: _check_settings(found, registry))
        case = run.do("builds", lambda: checks(found, **hints))
        for name in _checks_as_defined(case):
            torch.manual_seed(SEED)
            run.do(name.removeprefix("check_"), getattr(case, name))
    return Report(kind, run.label, tuple(run.passed), run.left_out)


class _Run:
    """Runs checks and keeps their results; any error becomes a ``PartError`` with the kind, the part and the check."""

    def __init__(self, kind: str, label: str) -> None:
        self.kind, self.label = kind, label
        self.passed: list[str] = []
        self.left_out: dict[str, str] = {}

    def do(self, name: str, work: Callable[[], Any]) -> Any:
        try:
            result = work()
        except Omitted as omitted:
            self.left_out[name] = str(omitted)
            return None
        except PartError as error:
            raise PartError(f"{self.kind} {self.label}, check '{name}': {error}") from error
        except Exception as error:
            reason = " ".join(str(error).split())
            message = f"{self.kind} {self.label}, check '{name}': {type(error).__name__}: {reason:.300}"
            raise PartError(message) from error
        self.passed.append(name)
        return result


def _checks_as_defined(case: Any) -> list[str]:
    return [name for kind in reversed(type(case).__mro__) for name in vars(kind) if name.startswith("check_")]


def _label(part: Any) -> str:
    if isinstance(part, str | Mapping):
        return f"'{part if isinstance(part, str) else part.get('name')}'"
    name = getattr(part, "name", None)
    return f"'{name}'" if isinstance(name, str) and name else getattr(part, "__name__", type(part).__name__)


def _check_settings(part: Any, registry: Registry[Any]) -> None:
    # Files need name and settings to make the same part again.
    name = getattr(part, "name", None)
    if not isinstance(name, str) or not name or not dataclasses.is_dataclass(part):
        raise Omitted("it is no dataclass with a `name`, so it cannot be saved by name")
    settings = [getattr(part, field.name) for field in dataclasses.fields(part) if field.init]
    if any(callable(value) for value in settings):
        raise Omitted("a setting is code, so it cannot be saved by name")
    if name not in registry:
        raise Omitted("it is not registered, so it cannot be saved by name")
    require(registry[name] is type(part), f"the name '{name}' belongs to {registry[name].__qualname__}")
    again = registry.resolve(describe(part))
    require_same("the settings of the part made again", describe(again), describe(part))
