"""How many members a run may have, and how long each: as its budget pays for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass

from ..errors import SettingError
from .method import Method
from .named import METHODS
from .tempering import AUTO

ORDINARY = 3.0
"""Forward passes of a step of ordinary training: one forward, and a backward pass that counts two."""
SHORT, LONG = 250_000, 5_000_000
"""Examples seen in training (examples times epochs): below the first a run takes seconds, above the second long."""
LEAST_EPOCHS = 3
NEUTRAL = frozenset(
    {"lr", "stepper", "rate", "prior", "clip_norm", "gradient_scale", "sharpness", "dropout", "means", "rest",
     "members", "budget"}
)  # fmt: skip
"""Settings that a point has as well as a posterior."""


@dataclass(frozen=True)
class Plan:
    """The method with its members, how many epochs each of them has, and one line on why."""

    method: Method
    epochs: int
    note: str


def within_budget(
    method: Method, examples: int, epochs: int, classes: bool = True, given: Collection[str] = ()
) -> Plan:
    """What a budget pays for: how many times ordinary training (``epochs`` epochs) all members together may cost.

    A number is that for any method: as many members of full length as it pays for. The budget "auto" goes by the
    length of a run. A short one (below SHORT examples seen) has five members of full length: they make predictions
    better most surely, and cost seconds. In a longer one data are many, and the noise of drawn weights costs more than
    their width brings: the members of ``auto`` are points there, unless what is ``given`` in ``fit`` (or stands in the
    method) beside NEUTRAL settings asks for a posterior. A medium run may cost twice ordinary training: three members
    of two thirds of the epochs where ``classes`` are predicted, two of all epochs for real numbers, whose noise std
    goes on falling. A long one (above LONG) costs as much as ordinary training: two members of half the epochs, or one
    of all with its posterior where epochs are too few. docs/decisions.md has the measurements. A method without a
    budget keeps its members.
    """
    if method.budget is None:
        return Plan(method, epochs, "")
    if isinstance(method.budget, int | float):
        each = method.cost / method.members / ORDINARY
        return _planned(method, math.floor(method.budget / each + 1e-9), epochs, epochs, f"budget = {method.budget:g}")
    met = examples * epochs
    why = "a {} run: " + f"{met:,} examples seen; budget=... sets another"
    if met < SHORT:
        return _planned(method, 5, epochs, epochs, why.format("short"))
    length, members, share = ("long", 2, 1 / 2) if met >= LONG else ("medium", *((3, 2 / 3) if classes else (2, 1.0)))
    own = max(min(epochs, LEAST_EPOCHS), math.floor(epochs * share + 1e-9))
    paid = round(members * share) * epochs // own  # of few epochs the least is more than the share
    if paid < 2:
        return _planned(method, 1, epochs, epochs, why.format(length))
    return _planned(_of_points(method, given), min(members, paid), own, epochs, why.format(length))


def _of_points(method: Method, given: Collection[str]) -> Method:
    """The same with one weight vector a member, where nothing asks for more."""
    own = METHODS[AUTO]
    fields = {field.name for field in dataclasses.fields(Method)} - {"name", "summary", "paper"}
    other = {name for name in fields if getattr(method, name) != getattr(own, name)} | set(given)
    if method.name != own.name or not other <= NEUTRAL:
        return method
    rate = method.rate if "rate" in other else METHODS["map"].rate
    return method.changed(posterior="delta", collector=None, rate=rate)


def _planned(method: Method, members: int, own: int, epochs: int, why: str) -> Plan:
    """So many members of ``own`` epochs each, in a run for which ``epochs`` were asked."""
    each = method.cost / method.members / ORDINARY
    if members < 1:
        raise SettingError(
            f"{method.name}: budget = {method.budget:g} times ordinary training, but one member costs {each:g}; raise "
            "it, or choose a method with a cheaper step (`bayeswell methods`)"
        )
    chosen = method.changed(members=members)
    kind = "networks" if method.posterior == "delta" else "members"
    network = "one network" if members == 1 else f"{members} {kind}"
    lengths = "" if own == epochs else f" of {own} epochs each"
    cost = chosen.cost / ORDINARY * own / epochs
    return Plan(chosen, own, f"{method.name}: {network}{lengths}, {cost:.3g}x the cost of ordinary training ({why})")
