"""How many members a run may have: so many as its budget pays for."""

from __future__ import annotations

import math

from ..errors import SettingError
from .method import Method
from .tempering import AUTO

ORDINARY = 3.0
"""Forward passes of a step of ordinary training: one forward, and a backward pass that counts two."""
SHORT, LONG = 250_000, 5_000_000
"""Examples met in training: below the first a run takes seconds, above the second minutes to hours."""


def within_budget(method: Method, examples_met: int) -> tuple[Method, str]:
    """The method with the members that its budget pays for, and one line on what was chosen and why.

    A budget is how many times the cost of ordinary training (the same epochs of the same network) all members together
    may take. "auto" goes by how long a run is: 5 where ``examples_met`` (examples times epochs) is below SHORT, 2 below
    LONG, else 1; members are what makes predictions better most surely, and where runs are short they cost seconds. A
    method without a budget keeps its members.
    """
    if method.budget is None:
        return method, ""
    each = method.cost / method.members / ORDINARY
    budget, why = _budget(method, examples_met, each)
    members = math.floor(budget / each + 1e-9)
    if members < 1:
        raise SettingError(
            f"{method.name}: budget = {budget:g} times ordinary training, but one member costs {each:g}; raise it, or "
            "choose a method with a cheaper step (`bayeswell methods`)"
        )
    chosen = method.changed(members=members)
    network = "one network" if members == 1 else f"{members} members"
    cost = chosen.cost / ORDINARY
    return chosen, f"{method.name}: {network}, {cost:g}x the cost of ordinary training ({why})"


def _budget(method: Method, examples_met: int, each: float) -> tuple[float, str]:
    if isinstance(method.budget, int | float):
        return method.budget, f"budget = {method.budget:g}"
    assert method.budget == AUTO
    times = 5 if examples_met < SHORT else 2 if examples_met < LONG else 1
    length = "short" if times == 5 else "middling" if times == 2 else "long"
    return times * each, f"a {length} run: {examples_met:,} examples met; budget=... sets another"
