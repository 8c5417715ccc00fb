"""Formulas over whole weight vectors, compiled: each is one pass over memory where eager torch makes one an operation.

The libraries are made from the C++ files here when the package is installed, if there is a compiler. Whoever calls a
function here asks ``takes(...)`` first and has the same formula in torch's operations for every other case: no library,
another device or dtype, vmap, a network that is being compiled. ``BAYESWELL_NATIVE=0`` or ``disabled()`` turn them off.
"""

from __future__ import annotations

from .gaussian import (
    Precision,
    draw_and_kl,
    fresh_draws,
    half_squares,
    half_squares_slope,
    normals,
    slopes,
    tied_draw_and_kl,
    tied_slopes,
    variance,
    variance_slope,
    weighted_squares,
    weighted_squares_slopes,
)
from .library import Addresses, available, disabled, instruction_set, taken, takes, transformed
from .low_rank import low_rank_draw_and_kl, low_rank_fresh_draws, low_rank_slopes
from .recurrence import lstm_second_derivatives, lstm_step, lstm_step_backward, lstm_step_tangents
from .updates import (
    bounded_step,
    gradient_norms,
    hamiltonian_step,
    langevin_step,
    magnitude,
    momentum_step,
    newton_step,
    preconditioned_step,
)

__all__ = [
    "Addresses",
    "Precision",
    "available",
    "bounded_step",
    "disabled",
    "draw_and_kl",
    "fresh_draws",
    "gradient_norms",
    "half_squares",
    "half_squares_slope",
    "hamiltonian_step",
    "instruction_set",
    "langevin_step",
    "low_rank_draw_and_kl",
    "low_rank_fresh_draws",
    "low_rank_slopes",
    "lstm_second_derivatives",
    "lstm_step",
    "lstm_step_backward",
    "lstm_step_tangents",
    "magnitude",
    "momentum_step",
    "newton_step",
    "normals",
    "preconditioned_step",
    "slopes",
    "taken",
    "takes",
    "tied_draw_and_kl",
    "tied_slopes",
    "transformed",
    "variance",
    "variance_slope",
    "weighted_squares",
    "weighted_squares_slopes",
]
