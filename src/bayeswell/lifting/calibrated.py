"""A trained model with a scaled spread, and the way back."""

from __future__ import annotations

import copy
import dataclasses
from typing import TypeVar

from ..posteriors import Delta
from .module import BayesianModule
from .saving import Saved

SavedT = TypeVar("SavedT", bound=Saved)


def with_scaled_stds(model: BayesianModule, scale: float) -> BayesianModule:
    """The same network under w = mean + scale (w' - mean), w' from the posterior; at 0 its mean as a ``delta``.

    Everything else is shared; the posterior is copied. Refused where the posterior has no spread around a mean.
    """
    if scale == 1:
        return model
    if scale == 0:
        point = Delta()
        return model.with_posterior(point, point.build(model.layout, model.prior, model.posterior.mean_vector()))
    posterior = copy.deepcopy(model.posterior)
    posterior.scale_stds(scale)
    return model.with_posterior(model.posterior_part, posterior)


def uncalibrated(saved: SavedT) -> SavedT:
    """What training goes on from: without what calibration has changed (a scale of 0 leaves the mean, a point)."""
    found = saved.calibration
    if found is None or not found.changes:
        return saved
    model = saved.model if found.std_scale == 0 else with_scaled_stds(saved.model, 1 / found.std_scale)
    # A part with a ``widening`` other than 1 has the method that made it so.
    widened = getattr(saved.likelihood, "widened", None)
    likelihood = saved.likelihood if widened is None or found.widening == 1 else widened(1 / found.widening)
    return dataclasses.replace(saved, model=model, likelihood=likelihood, calibration=None)
