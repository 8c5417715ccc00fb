"""What methods reach at the cost of one ordinary training, for docs/which_method.md.

Methods whose step costs no more than an ordinary one stand as they were measured at the epochs of all; dearer ones as
``make quality ARGS="--only equal-cost"`` measured them, with fewer epochs or a budget of 1.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.quality.differences import Mean
from benchmarks.quality.plan import CONTROL, at_one_training
from benchmarks.table import markdown

import measured
from measured import CORRUPTED, ECE, ERRORS, MISSED, NLL, RMSE, SEVERAL, Score, Tables, cost, linked, marked

_ABOUT_ONE = 1.05
COMMAND = 'make quality ARGS="--only equal-cost"'
NOT_YET = f"Not measured yet: `{COMMAND}` does it."


@dataclass(frozen=True)
class Group:
    """Problems of one kind, and the scores that its table has; the first decides the order."""

    title: str
    problems: tuple[str, ...]
    scores: tuple[Score, ...]


GROUPS = (
    Group("images", measured.IMAGES, (NLL, ERRORS, ECE, MISSED, CORRUPTED)),
    Group("tables of real targets", measured.REGRESSION, (NLL, RMSE)),
    Group("tables of classes", measured.SMALL_CLASSES, (NLL, ERRORS, ECE)),
    Group("texts", measured.TEXTS, (NLL, ERRORS, ECE)),
)


def problems_of(group: Group) -> list[str]:
    """Those where at least half as many of the dearer methods were shortened as where most were.

    A problem that was hardly begun would leave out all methods that it does not have yet.
    """
    shortened = at_one_training().values()
    known = measured.measured_on(group.problems, NLL)
    counts = {name: sum(len(measured.results().at(name, one)) >= SEVERAL for one in shortened) for name in known}
    return [name for name in known if counts[name] and 2 * counts[name] >= max(counts.values())]


def standings(group: Group) -> tuple[dict[str, Mean], list[str]]:
    """NLL against the control's of all that cost about one training, the best first, and what was left out."""
    problems = problems_of(group)
    if not problems:
        return {}, []
    dear = at_one_training()
    plain = [
        name for name in measured.results().methods(problems)
        if name not in {CONTROL, *dear} and not measured.changed_since(name) and cost(name, problems) <= _ABOUT_ONE
    ]  # fmt: skip
    found = {name: measured.standing(name, NLL, problems) for name in (*plain, *dear.values())}
    known = {CONTROL: Mean(0.0, 0.0, len(problems))} | {name: one for name, one in found.items() if one is not None}
    ordered = sorted(known, key=lambda name: known[name].mean)
    return {name: known[name] for name in ordered}, [name for name, one in found.items() if one is None]


def table(group: Group) -> str:
    """Every method at this cost, in all scores of the group."""
    problems, (found, left) = problems_of(group), standings(group)
    if not found:
        return NOT_YET
    rows = []
    for method in found:
        cells = []
        for score in group.scores:
            own = measured.measured_on(problems, score)
            one = None if method == CONTROL else measured.standing(method, score, own)
            cells.append("" if one is None else marked(one, score.digits))
        rows.append([linked(method), *cells, f"{cost(method, problems):.2f}"])
    words = [f"On {', '.join(problems)}. {measured.circumstances(problems, list(found))}"]
    if left:
        words += [f"Left out, since not measured on all of them at several seeds: {', '.join(left)}."]
    header = ["", *(score.title for score in group.scores), "cost"]
    return markdown(header, rows) + "\n\n" + " ".join(words)


def leaders() -> str:
    """Who leads each group in NLL, and what cannot be told from it."""
    rows = []
    for group in GROUPS:
        found, _ = standings(group)
        if not found:
            rows.append([group.title, "not measured yet", "", ""])
            continue
        best = next(iter(found))
        against = "" if best == CONTROL else marked(found[best], NLL.digits)
        level = measured.not_told_apart(best, list(found), NLL, problems_of(group))
        rows.append([group.title, linked(best), against, level])
    return markdown(["", "leads", NLL.title, "not told apart from it"], rows)


def in_words() -> str:
    """Who leads, and what became of the dearer methods."""
    leads, better, worse, compared = [], [], [], 0
    for group in GROUPS:
        found, _ = standings(group)
        if not found:
            continue
        best = next(iter(found))
        leads.append(
            f"`{best}` on {group.title}" + ("" if best == CONTROL else f" ({marked(found[best], NLL.digits)})")
        )
        dear = {name: found[name] for name in at_one_training().values() if name in found}
        compared += len(dear)
        better += [f"`{name}` on {group.title}" for name, one in dear.items() if measured.gains(one)]
        worse += [f"`{name}` on {group.title}" for name, one in dear.items() if one.above(0.0)]
    if not leads:
        return NOT_YET
    return (
        f"Lowest in NLL at this cost: {', '.join(leads)}. Of {compared} comparisons of dearer methods, held to this "
        f"cost, with `{CONTROL}` they win {_listed(better)} and lose {_listed(worse)}; the other "
        f"{compared - len(better) - len(worse)} are within two standard errors."
    )


def _listed(names: list[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


TABLES: Tables = {
    "one training: in words": in_words,
    "one training: leaders": leaders,
    **{f"one training: {group.title}": partial(table, group) for group in GROUPS},
}
"""The tables of docs/which_method.md on this cost, by the name that its markers have."""
