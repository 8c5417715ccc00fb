"""The conformance suite: the checks of an axis, one by one, on one part."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..errors import BayeswellWarning, SettingError, nearest
from ..registry import label_of
from .axes import axis_of, resolved
from .collectors import SUITE as COLLECTOR
from .divergences import SUITE as DIVERGENCE
from .estimators import SUITE as ESTIMATOR
from .general import EVERY_AXIS, Subject
from .likelihoods import SUITE as LIKELIHOOD
from .post_hoc import SUITE as POST_HOC
from .posteriors import SUITE as POSTERIOR
from .priors import SUITE as PRIOR
from .report import Check, Omitted, PartError, Report, Suite
from .schedules import KL_WEIGHT, RATE
from .steppers import SUITE as STEPPER

_SEED = 1729

_SUITES: Mapping[str, Suite] = {
    "prior": PRIOR,
    "likelihood": LIKELIHOOD,
    "estimator": ESTIMATOR,
    "divergence": DIVERGENCE,
    "posterior": POSTERIOR,
    "stepper": STEPPER,
    "collector": COLLECTOR,
    "post_hoc": POST_HOC,
    "rate": RATE,
    "kl_weight": KL_WEIGHT,
}


def check_part(part: Any, axis: str | None = None, **hints: Any) -> Report:
    """Run every check of the axis on a part; the first that fails raises ``PartError`` with one line.

    Args:
        part: whatever the axis takes: an object, a registered name, ``{"name": ..., setting: value}``, an ordinary
            object (a torch optimizer's class, a distribution, a function).
        axis: prior, likelihood, estimator, divergence, posterior, stepper, collector, post_hoc, rate or kl_weight;
            None: as its members say.
        hints: what a check cannot know. likelihood: ``outputs`` and ``targets`` to try it on, ``normalised=False``
            if exp(-nll) is no density. estimator, post_hoc: ``exact=False`` if it is not exact for linear regression
            with Gaussian noise. stepper that samples: the relative ``tolerance`` (0.1) of the spread of its draws.
            collector: ``total_steps`` (40) and ``batches`` (4) of a run that it can work in.

    Noise has fixed seeds, so a result does not change from run to run; the global generator is left as it was.
    """
    axis = axis_of(part, axis)
    suite = _SUITES[axis]
    for name in hints:
        if name not in suite.hints:
            raise SettingError(f"check_part: {axis} has no hint '{name}'; {nearest(name, suite.hints)}")
    passed: list[str] = []
    left_out: dict[str, str] = {}
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore", BayeswellWarning)
        label = _label(part)
        found = _run(axis, label, "resolves", lambda: resolved(axis, part))
        passed.append("resolves")
        for check in EVERY_AXIS:
            _note(axis, label, check, Subject(axis, found), passed, left_out)
        case = _run(axis, label, "builds", lambda: suite.make(found, **hints))
        for check in suite.checks:
            torch.manual_seed(_SEED)
            _note(axis, label, check, case, passed, left_out)
    return Report(axis, label, tuple(passed), left_out)


def _label(part: Any) -> str:
    """What the part is called in messages: as it was given, not as the axis adapts it."""
    if isinstance(part, Mapping):
        return f"'{part.get('name')}'"
    return f"'{part}'" if isinstance(part, str) else label_of(getattr(part, "func", part))


def _note(axis: str, label: str, check: Check, case: Any, passed: list[str], left_out: dict[str, str]) -> None:
    try:
        _run(axis, label, check.__name__, lambda: check(case))
    except Omitted as reason:
        left_out[check.__name__] = str(reason)
    else:
        passed.append(check.__name__)


def _run(axis: str, label: str, check: str, work: Callable[[], Any]) -> Any:
    """What the work gives; whatever goes wrong in it is said in one line that names axis, part and check."""
    try:
        return work()
    except Omitted:
        raise
    except PartError as error:
        raise PartError(f"{axis} {label}, check '{check}': {error}") from error
    except Exception as error:
        reason = " ".join(str(error).split())
        raise PartError(f"{axis} {label}, check '{check}': it raises {type(error).__name__}: {reason:.300}") from error
