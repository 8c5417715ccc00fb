"""A name for a part from outside the package."""

from __future__ import annotations

from typing import Any

from ..averaging import AVERAGING
from ..divergences import DIVERGENCES
from ..errors import SettingError, nearest
from ..estimators import ESTIMATORS
from ..likelihoods import LIKELIHOODS
from ..models import MODELS
from ..optimizers import OPTIMIZERS, RATES
from ..post_hoc import POST_HOC
from ..posteriors import POSTERIORS
from ..priors import PRIORS
from ..registry import Registry
from ..samplers import SAMPLERS
from ..schedules import KL_WEIGHTS
from .named import add_method

REGISTRIES: dict[str, Registry[Any]] = {
    "posterior": POSTERIORS,
    "prior": PRIORS,
    "likelihood": LIKELIHOODS,
    "estimator": ESTIMATORS,
    "divergence": DIVERGENCES,
    "kl_weight": KL_WEIGHTS,
    "rate": RATES,
    "collector": AVERAGING,
    "post_hoc": POST_HOC,
    "model": MODELS,
}
_STEPPERS = ("stepper", "optimizer", "sampler")


def register(axis: str, part: Any) -> Any:
    """Give a part of one's own its name: for settings, commands, TOML and saved files. The part comes back.

    ``axis`` is one of posterior, prior, likelihood, estimator, divergence, kl_weight, rate, stepper, collector,
    post_hoc, model, method; ``part`` a class with a class attribute ``name`` (a ``Method`` for the axis "method").
    Another installed package does the same by an entry point ``axis.name`` in the group ``bayeswell.parts``. What a
    part must have is in ``bayeswell.types``; ``bayeswell.testing.check_part`` tries it.
    """
    if axis == "method":
        return add_method(part)
    if axis in _STEPPERS:
        return (SAMPLERS if getattr(part, "samples", False) else OPTIMIZERS).register(part)
    if axis not in REGISTRIES:
        raise SettingError(f"register: axis = {axis!r}; {nearest(str(axis), [*REGISTRIES, 'stepper', 'method'])}")
    return REGISTRIES[axis].register(part)
