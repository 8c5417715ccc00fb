"""Whom to take for what: for each purpose one method, the reason, and the number behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .differences import Difference
from .numbers import listed, name_of, number, shown
from .ranking import Contest
from .reading import mapping
from .rows import MethodRow, Table

PURPOSES = (
    ("accuracy", ("accuracy", "rmse")),
    ("probabilities", ("nll",)),
    ("calibration", ("ece", "calibration_error")),
    ("inputs from outside", ("ood_auroc_entropy",)),
)
"""What for, and the scores that decide it, of which a table has one."""
_LEVEL, _SPREAD = 0.9, 1.959964


@dataclass(frozen=True)
class Advice:
    """For a ``purpose`` take ``choice`` ("any" where nothing differs, "none" where none will do) for a ``reason``."""

    purpose: str
    choice: str
    reason: str


def advise(table: Table, contests: Mapping[str, Contest]) -> list[Advice]:
    """One for each purpose that the table has numbers for."""
    found = []
    for purpose, scores in PURPOSES:
        contest = next((contests[score] for score in scores if score in contests), None)
        if contest is not None:
            found.append(_for_score(purpose, contest))
    gap, cost = _for_gap(table.rows), _for_cost(table.rows, contests)
    return [*found, *(one for one in (gap, cost) if one is not None)]


def _for_score(purpose: str, contest: Contest) -> Advice:
    """The cheapest of those that cannot be told from the best."""
    score, leader, name = contest.score.key, contest.leader, name_of(contest.score)
    if contest.unknown and not contest.behind and len(contest.level) == 1:
        return Advice(purpose, leader.label, f"{name} {leader.cells[score].text} is the best mean; no error is known.")
    chosen = _cheapest(contest.level, leader)
    if contest.open and not contest.unknown:
        values = sorted(row.cells[score].mean for row in contest.level)
        dearer = any(_price(row) > _price(chosen) for row in contest.level)
        least = f" {chosen.label} costs least{_cost(chosen)}." if chosen.cost is not None and dearer else ""
        what = (
            f"{name} from {shown(values[0])} to {shown(values[-1])}: none differs from the best, {leader.label}'s, by"
        )
        return Advice(purpose, "any", f"{what} more than its error.{least}")
    best = f"{name} {leader.cells[score].text}"
    behind = f" Behind by more than the error: {_behind(contest.behind)}." if contest.behind else ""
    if len(contest.level) == 1:
        return Advice(purpose, leader.label, f"{best}, ahead of every other.{behind}")
    if chosen is leader:
        level = [row.label for row in contest.level if row is not chosen]
        costs = "costs" if len(level) == 1 else "cost"
        beside = f"level with it: {listed(level)}, which {costs} no less"
        return Advice(purpose, chosen.label, f"{best} is the best; {beside}.{behind}")
    own = f"{name} {chosen.cells[score].text} is level with the best, {leader.label}'s {leader.cells[score].text}"
    return Advice(purpose, chosen.label, f"{own}, at a lower price{_cost(chosen, leader)}.{behind}")


def _behind(rows: Sequence[tuple[MethodRow, Difference]]) -> str:
    return listed([f"{row.label} (by {shown(abs(apart.value))} ± {apart.error or 0:.2g})" for row, apart in rows])


def _for_cost(rows: Sequence[MethodRow], contests: Mapping[str, Contest]) -> Advice | None:
    """The cheapest, and what it gives up."""
    priced = [row for row in rows if row.cost is not None]
    if len(priced) < 2:
        return None
    chosen = min(priced, key=lambda row: (*_price(row), row.cells["nll"].mean if "nll" in row.cells else math.inf))
    equal = [row for row in priced if row is not chosen and row.cost == chosen.cost]
    more = _takes([row.label for row in equal if _price(row) > _price(chosen)], "more")
    as_many = _takes([row.label for row in equal if _price(row) == _price(chosen)], "as many numbers")
    same = f" ({'; '.join(filter(None, (more, as_many)))})" if equal else ""
    given = {
        name_of(contest.score): apart
        for contest in contests.values()
        if contest.score.key in {score for _, scores in PURPOSES for score in scores}
        for row, apart in contest.behind
        if row is chosen
    }
    lost = [f"{name} (by {shown(abs(apart.value))} ± {apart.error or 0:.2g})" for name, apart in given.items()]
    gives = f"gives up {listed(lost)} against the best" if lost else "gives up nothing that can be told"
    return Advice("cost", chosen.label, f"{_amount(chosen)}, the least{same}; it {gives}.{_leanest(rows, chosen)}")


def _takes(labels: Sequence[str], kept: str) -> str:
    """Who takes as many passes as the cheapest, and what it keeps beside it."""
    verbs = ("takes", "keeps") if len(labels) == 1 else ("take", "keep")
    return f"{listed(labels)} {verbs[0]} as many passes, and {verbs[1]} {kept}" if labels else ""


def _leanest(rows: Sequence[MethodRow], chosen: MethodRow) -> str:
    """The Bayesian method that keeps the fewest numbers, beside the next."""
    known = sorted(
        ((row.kept, index, row) for index, row in enumerate(rows) if row.is_bayesian and row.kept),
        key=lambda one: one[:2],
    )
    if len(known) < 2 or known[0][2] is chosen:
        return ""
    (least, _, row), (more, _, other) = known[:2]
    assert least is not None
    assert more is not None
    beside = f"{least / more:.2g} times {other.label}'s" if least < more else f"as many as {other.label}"
    return f" Of the Bayesian methods {row.label} keeps the fewest numbers, {least:,.0f}: {beside}."


def _price(row: MethodRow) -> tuple[float, float]:
    return (math.inf if row.cost is None else row.cost, math.inf if row.kept is None else row.kept)


def _cheapest(rows: Sequence[MethodRow], leader: MethodRow) -> MethodRow:
    """By passes, then by numbers kept; the leader if nothing is cheaper."""
    least = min(map(_price, rows))
    return leader if _price(leader) == least else next(row for row in rows if _price(row) == least)


def _amount(row: MethodRow) -> str:
    kept = "" if row.kept is None else f" and {row.kept:,.0f} numbers kept"
    return f"{row.cost:,.0f} passes{kept}"


def _cost(row: MethodRow, other: MethodRow | None = None) -> str:
    if row.cost is None:
        return ""
    if other is None or other.cost is None:
        return f" ({_amount(row)})"
    if row.cost < other.cost:
        return f" ({row.cost:,.0f} passes against {other.cost:,.0f})"
    return f" ({row.kept:,.0f} numbers kept against {other.kept:,.0f})" if row.kept and other.kept else ""


def _for_gap(rows: Sequence[MethodRow]) -> Advice | None:
    """Whose 90 % intervals hold where no training inputs were; of several the one of the lowest NLL."""
    known = [(row, found) for row in rows if (found := _covered(row)) is not None]
    if len(known) < 2:
        return None
    purpose = "inputs without data near them"
    places = f"the gap in the inputs ({_ends(known[0][0])})"
    good = [row for row, (share, count) in known if share >= _LEVEL - _SPREAD * _error(count)]
    shares = listed([f"{100 * share:.0f} % ({row.label})" for row, (share, _) in known])
    count = known[0][1][1]
    what = f"in {places}, of {count:,.0f} test targets there, the 90 % intervals hold {shares}"
    least = f"at least {100 * (_LEVEL - _SPREAD * _error(count)):.0f} % would be within the error"
    if not good:
        return Advice(purpose, "none", f"{what}; {least}.")
    having = [row for row in good if "nll" in row.cells] or good
    best = min(having, key=lambda row: row.cells["nll"].mean if "nll" in row.cells else math.inf)
    several = f", and of those that do {best.label} has the lowest NLL" if len(good) > 1 else ""
    return Advice(purpose, best.label, f"{what}; {least}{several}.")


def _error(count: float) -> float:
    """Of a share of 90 % among so many."""
    return math.sqrt(_LEVEL * (1 - _LEVEL) / count)


def _covered(row: MethodRow) -> tuple[float, float] | None:
    """The share of targets in the gap that the 90 % intervals hold, and how many there are."""
    gap = mapping(mapping(row.first.plot_record("regression_band")).get("gap"))
    covered, tests = _two(gap.get("covered")), _two(gap.get("tests"))
    return (covered[0], tests[0]) if covered is not None and tests is not None and tests[0] > 0 else None


def _ends(row: MethodRow) -> str:
    ends = _two(mapping(mapping(row.first.plot_record("regression_band")).get("gap")).get("ends"))
    return "" if ends is None else f"{ends[0]:.2g} to {ends[1]:.2g}"


def gap_of(row: MethodRow) -> str:
    """Where there is a gap in the inputs: how wide the band is in it, and whether it holds the targets."""
    gap = mapping(mapping(row.first.plot_record("regression_band")).get("gap"))
    covered, epistemic, ends = (_two(gap.get(name)) for name in ("covered", "epistemic", "ends"))
    if covered is None or epistemic is None or ends is None:
        return ""
    within, among = epistemic
    if among > 0:
        times = f"{within / among:.1f}"
        what = f"epistemic std {times} times that among the data"
        band = f"its band widens ({what})" if float(times) > 1 else f"its band does not widen ({what})"
    else:
        band = "it has no epistemic band" if within == 0 else "it has an epistemic band there alone"
    return (
        f" In the gap in the inputs ({ends[0]:.2g} to {ends[1]:.2g}) {band}, and its 90 % intervals hold "
        f"{100 * covered[0]:.0f} % of the targets there, {100 * covered[1]:.0f} % elsewhere."
    )


def _two(values: object) -> tuple[float, float] | None:
    found = [number(value) for value in values] if isinstance(values, list) else []
    return (found[0], found[1]) if len(found) == 2 and found[0] is not None and found[1] is not None else None
