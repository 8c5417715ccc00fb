"""The number and length of the members of a run with a budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import NamedTuple

from ..core.errors import SettingError
from .method import METHODS, Method
from .temperature import AUTO

ORDINARY = 3.0
"""Forward passes of a step of ordinary training."""
SHORT, LONG = 250_000, 5_000_000
"""Examples seen in training (examples times epochs)."""
LEAST_EPOCHS = 3
NEUTRAL = frozenset(
    {"lr", "optimizer", "schedule", "prior", "clip_norm", "gradient_scale", "sharpness", "dropout"}
    | {"init", "other_params", "members", "budget"}
)
"""Settings that a point estimate has as well as a posterior."""


class Plan(NamedTuple):
    """The method with its members, the epochs of each of them, and a line that says why."""

    method: Method
    epochs: int
    note: str


def within_budget(
    method: Method, examples: int, epochs: int, classes: bool = True, changed: Collection[str] = ()
) -> Plan:
    """Choose members and epochs so that all members cost what the budget allows.

    A number is the cost in ordinary trainings of ``epochs`` epochs: as many members of full length as it pays for.
    "auto" depends on the examples seen. Below ``SHORT``: five members of full length. Up to ``LONG``: twice ordinary
    training, as three members of 2/3 of the epochs (classes) or two of all (real numbers). Above: two members of half
    the epochs. From ``SHORT`` on, the members of the method ``auto`` are point estimates, unless a setting outside
    ``NEUTRAL`` asks for a posterior.

    Args:
        classes: whether classes are predicted.
        changed: names of the settings that the user gave.
    """
    if method.budget is None:
        return Plan(method, epochs, "")
    if isinstance(method.budget, float):
        each = method.cost / method.members / ORDINARY
        return _plan(method, math.floor(method.budget / each + 1e-9), epochs, epochs, f"budget = {method.budget:g}")
    seen = examples * epochs
    why = f"{seen:,} examples seen; `budget` sets another cost"
    if seen < SHORT:
        return _plan(method, 5, epochs, epochs, why)
    members, share = (2, 1 / 2) if seen >= LONG else (3, 2 / 3) if classes else (2, 1.0)
    length = max(min(epochs, LEAST_EPOCHS), math.floor(epochs * share + 1e-9))
    affordable = round(members * share) * epochs // length
    if affordable < 2:
        return _plan(method, 1, epochs, epochs, why)
    return _plan(_point_estimate(method, changed), min(members, affordable), length, epochs, why)


def _point_estimate(method: Method, changed: Collection[str]) -> Method:
    # One weight vector a member, unless the settings ask for a posterior.
    own = METHODS[AUTO]
    fields = {field.name for field in dataclasses.fields(Method)} - {"name", "summary", "paper"}
    other = {name for name in fields if getattr(method, name) != getattr(own, name)} | set(changed)
    if method.name != own.name or not other <= NEUTRAL:
        return method
    schedule = method.schedule if "schedule" in other else METHODS["map"].schedule
    return method.changed(posterior="delta", averaging=None, schedule=schedule)


def _plan(method: Method, members: int, length: int, epochs: int, why: str) -> Plan:
    if members < 1:
        each = method.cost / method.members / ORDINARY
        raise SettingError(
            f"{method.name}: `budget` = {method.budget} ordinary trainings, but one member costs {each:g}; raise the "
            "budget or choose a cheaper method"
        )
    chosen = method.changed(members=members)
    kind = "one network" if members == 1 else f"{members} members"
    epochs_each = "" if length == epochs else f" of {length} epochs each"
    cost = chosen.cost / ORDINARY * length / epochs
    return Plan(chosen, length, f"{method.name}: {kind}{epochs_each}, {cost:.3g} x ordinary training ({why})")
