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
from .distributions import PosteriorChecks, PriorChecks
from .endings import AveragerChecks, PostHocChecks
from .likelihoods import LikelihoodChecks
from .objectives import DivergenceChecks, EstimatorChecks
from .optimizers import KLWeightChecks, OptimizerChecks, SamplerChecks, ScheduleChecks
from .report import Omitted, PartError, Report, applies, require, require_same

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
    report = Report(kind, _label(part))
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore", BayeswellWarning)
        found = _run(report, "resolves", lambda: registry.resolve(part))
        _run(report, "settings_round_trip", lambda: _check_settings(found, registry))
        case = _run(report, "builds", lambda: checks(found, **hints))
        for name in (name for base in reversed(type(case).__mro__) for name in vars(base)):
            if name.startswith("check_"):
                torch.manual_seed(SEED)
                _run(report, name.removeprefix("check_"), getattr(case, name))
    return report


def _run(report: Report, name: str, check: Callable[[], Any]) -> Any:
    try:
        result = check()
    except Omitted as omitted:
        report.left_out[name] = str(omitted)
        return None
    except Exception as error:
        kind = "" if isinstance(error, PartError) else f"{type(error).__name__}: "
        reason = " ".join(str(error).split())
        raise PartError(f"{report.kind} {report.part}, check '{name}': {kind}{reason:.300}") from error
    report.passed.append(name)
    return result


def _label(part: Any) -> str:
    if isinstance(part, str | Mapping):
        return f"'{part if isinstance(part, str) else part.get('name')}'"
    name = getattr(part, "name", None)
    return f"'{name}'" if isinstance(name, str) and name else getattr(part, "__name__", type(part).__name__)


def _check_settings(part: Any, registry: Registry[Any]) -> None:
    # Files need name and settings to make the same part again.
    name = getattr(part, "name", None)
    if not isinstance(name, str) or not dataclasses.is_dataclass(part):
        raise Omitted("it is no dataclass with a `name`")
    settings = [getattr(part, field.name) for field in dataclasses.fields(part) if field.init]
    applies(not any(callable(value) for value in settings), "a setting is code, so it cannot be saved by name")
    applies(name in registry, "it is not registered, so it cannot be saved by name")
    require(registry[name] is type(part), f"the name '{name}' belongs to {registry[name].__qualname__}")
    require_same("the settings of the part made again", describe(registry.resolve(describe(part))), describe(part))
