"""Which axis a part belongs to, and the part that the axis makes of an object."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from torch.distributions import Distribution
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..errors import SettingError, nearest
from ..methods.registering import REGISTRIES
from ..methods.steppers import find_stepper
from ..optimizers import OPTIMIZERS
from ..registry import Registry, kind_of
from ..samplers import SAMPLERS

STEPPER = "stepper"
AXES = (
    *("prior", "likelihood", "estimator", "divergence", "posterior", STEPPER, "collector", "post_hoc", "rate"),
    "kl_weight",
)
_BY_MEMBER = {
    "expected_nll": "estimator", "nll": "likelihood", "density": "prior", "factor": "rate", "finish": "post_hoc",
}  # fmt: skip
_POSTERIOR_WORDS, _COLLECTOR_WORDS = {"layout", "prior", "means"}, {"model", "total_steps", "batches"}


def axis_of(part: Any, axis: str | None) -> str:
    """The axis that was given, or the one that the part's members say."""
    if axis is not None:
        chosen = STEPPER if axis in ("optimizer", "sampler") else axis
        if chosen not in AXES:
            raise SettingError(f"check_part: axis = {axis!r}; {nearest(str(axis), AXES)}")
        return chosen
    if isinstance(part, str | Mapping):
        return _axis_of_name(part if isinstance(part, str) else part.get("name"))
    kind = part.func if isinstance(part, functools.partial) else part
    if isinstance(kind, type) and issubclass(kind, Optimizer):
        return STEPPER
    if isinstance(kind, type) and issubclass(kind, LRScheduler):
        return "rate"
    if isinstance(part, Distribution):
        return "prior"
    for member, found in _BY_MEMBER.items():
        if hasattr(part, member):
            return found
    if hasattr(part, "build"):
        words = set(inspect.signature(part.build).parameters)
        if hasattr(part, "lr"):
            return STEPPER
        if words & _POSTERIOR_WORDS or words & _COLLECTOR_WORDS:
            return "posterior" if len(words & _POSTERIOR_WORDS) > len(words & _COLLECTOR_WORDS) else "collector"
    if callable(part) and hasattr(part, "needs"):
        return "divergence"
    possible = "kl_weight, rate or likelihood" if callable(part) else ", ".join(AXES)
    raise SettingError(f"check_part: {kind_of(part)} may be a part of several axes or none; say axis = {possible}")


def _axis_of_name(name: Any) -> str:
    found = [axis for axis in AXES if any(registry.knows(name) for registry in registries(axis))]
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingError(f"check_part: '{name}' is a name on several axes; say axis = {' or '.join(found)}")
    every = [known for axis in AXES for registry in registries(axis) for known in registry]
    raise SettingError(f"check_part: there is no part '{name}'; {nearest(str(name), every)}")


def registries(axis: str) -> tuple[Registry[Any], ...]:
    """Those that hold the names of an axis."""
    return (SAMPLERS, OPTIMIZERS) if axis == STEPPER else (REGISTRIES[axis],)


def resolved(axis: str, part: Any, outside: tuple[type, ...] = ()) -> Any:
    """The part as the axis will use it."""
    if axis != STEPPER:
        return REGISTRIES[axis].resolve(part, outside)
    name = part.get("name") if isinstance(part, Mapping) else None
    if name is not None and not any(registry.knows(name) for registry in registries(STEPPER)):
        return OPTIMIZERS.resolve(part, outside)
    return find_stepper(part)
