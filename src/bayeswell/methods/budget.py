"""How many members a run may have, and how long each: as its budget pays for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SettingError
from .method import Method
from .tempering import AUTO

ORDINARY = 3.0
"""Forward passes of a step of ordinary training: one forward, and a backward pass that counts two."""
SHORT, LONG = 250_000, 5_000_000
"""Examples seen in training (examples times epochs): below the first a run takes seconds, above the second long."""
LEAST_EPOCHS = 3


@dataclass(frozen=True)
class Plan:
    """The method with its members, how many epochs each of them has, and one line on why."""

    method: Method
    epochs: int
    note: str


def within_budget(method: Method, examples: int, epochs: int) -> Plan:
    """What a budget pays for: how many times ordinary training (``epochs`` epochs) all members together may cost.

    A number is that for any method: as many members of full length as it pays for. The budget "auto" goes by the
    length of a run. A short one (below SHORT examples seen) has five members of full length: they make predictions
    better most surely, and cost seconds. In a longer one members have half the epochs each, since an average of two
    networks of half the length is better than one of full length where data are many: twice ordinary training in
    all, so four of them, or the same cost above LONG, so two. docs/decisions.md has the measurements. A method without
    a budget keeps its members.
    """
    if method.budget is None:
        return Plan(method, epochs, "")
    each = method.cost / method.members / ORDINARY
    met = examples * epochs
    short = method.budget != AUTO or met < SHORT
    own = epochs if short else max(min(epochs, LEAST_EPOCHS), math.ceil(epochs / 2))
    if isinstance(method.budget, int | float):
        members, why = math.floor(method.budget / each + 1e-9), f"budget = {method.budget:g}"
    else:
        times = 5 if short else 2 if met < LONG else 1
        members = times * epochs // own
        length = "short" if short else "medium" if met < LONG else "long"
        why = f"a {length} run: {met:,} examples seen; budget=... sets another"
    if members < 1:
        raise SettingError(
            f"{method.name}: budget = {method.budget:g} times ordinary training, but one member costs {each:g}; raise "
            "it, or choose a method with a cheaper step (`bayeswell methods`)"
        )
    chosen = method.changed(members=members)
    network = "one network" if members == 1 else f"{members} members"
    lengths = "" if own == epochs else f" of {own} epochs each"
    cost = chosen.cost / ORDINARY * own / epochs
    return Plan(chosen, own, f"{method.name}: {network}{lengths}, {cost:.3g}x the cost of ordinary training ({why})")
