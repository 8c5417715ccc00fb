"""What a table says, in words made from the numbers alone: who leads, what was gained over ordinary training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .advice import Advice, advise, gap_of
from .differences import CHANCE, Difference, difference
from .numbers import SCORES, Score, listed, name_of, shown
from .ranking import Contest, contest_of
from .rows import MethodRow, Table

CONTROL = "map"
JUDGED = ("accuracy", "rmse", "nll", "crps", "brier", "ece", "calibration_error", "shifted_accuracy", "shifted_nll",
          "shifted_ece", "ood_auroc_entropy")  # fmt: skip
_SAME = 0.005
_MARKS = (
    "★ marks the best mean of a score and all that cannot be told from it by their differences in pairs: the method "
    "that is truly best is among them in at least 95 of 100 such tables. Where no error is known, the best mean alone "
    "is marked."
)
_ONE_SEED = " With one seed that is said of these trained networks, not of the methods: another seed may change it."

GAIN = ("is better in some scores and worse in none", "are better in some scores and worse in none")
MIXED = ("is better in some scores and worse in others", "are better in some scores and worse in others")
LEVEL = ("makes no difference that can be told", "make no difference that can be told")
LOSE = ("loses", "lose")


@dataclass(frozen=True)
class Finding:
    """One score of a method beside the control's. ``sense``: better, worse, or level."""

    score: Score
    value: float
    difference: Difference
    sense: str

    @property
    def name(self) -> str:
        """In a sentence."""
        return name_of(self.score)

    def told(self) -> str:
        """``NLL (0.0632, by 0.0160 ± 0.0060)``; of what is level the difference with its sign."""
        apart, error = self.difference.value, self.difference.error
        spread = "" if error is None else f" ± {error:.2g}"
        if self.sense == "level":
            return f"{self.name} ({shown(self.value)}, {apart:+.4f}{spread})"
        return f"{self.name} ({shown(self.value)}, by {shown(abs(apart))}{spread})"


@dataclass(frozen=True)
class Verdict:
    """``opening`` says who leads, ``advice`` whom to take for what, ``marks`` what a star means.

    Where ordinary training is among the methods: a line on it (``control``), one for each other method, what their
    words mean, and all in one sentence (``closing``); else these are empty. ``worse`` has by its label each method that
    is worse than the control by more than chance gives to one of twenty methods that are not, with a line that says so.
    """

    data: str
    opening: str
    advice: list[Advice]
    marks: str
    control: str = ""
    lines: list[str] = field(default_factory=list)
    meaning: str = ""
    closing: str = ""
    worse: dict[str, str] = field(default_factory=dict)


def verdict_of(table: Table) -> Verdict | None:
    """The words of a table; None where there is nothing to compare."""
    contests = {score.key: contest for score in SCORES if (contest := contest_of(table.rows, score)) is not None}
    judged = {key: contest for key, contest in contests.items() if key in JUDGED}
    control = control_of(table)
    if not judged:
        return None
    others = [(row, _findings(row, control)) for row in table.rows if row is not control] if control is not None else []
    found = [(row, findings) for row, findings in others if findings]
    verdict = Verdict(
        table.data, _opening(list(judged.values()), control, {id(row): part for row, part in found}),
        advise(table, contests), f"{_MARKS}{_ONE_SEED if _one_seed(table) else ''}",
    )  # fmt: skip
    if control is None or not found:
        return verdict
    return replace(
        verdict,
        control=_control(control),
        lines=[_line(row, control, findings) for row, findings in found],
        meaning=_meaning([finding for _, findings in found for finding in findings], control),
        closing=_closing(table.data, control, found),
        worse={row.label: line for row, findings in found if (line := _worse(findings, control))},
    )


def _one_seed(table: Table) -> bool:
    """Whether nothing is known of how scores move from seed to seed."""
    return all(len(row.runs) < 2 for row in table.rows)


def control_of(table: Table) -> MethodRow | None:
    """The row of ordinary training."""
    return next((row for row in table.rows if row.first.method == CONTROL), None)


def _opening(contests: Sequence[Contest], control: MethodRow | None, findings: dict[int, list[Finding]]) -> str:
    """Who has most of the best means, in which of them it is truly ahead, and what it has over the control."""
    leads: dict[int, list[Contest]] = {}
    for contest in contests:
        leads.setdefault(id(contest.leader), []).append(contest)
    top = max(leads.values(), key=len)
    leader, count = top[0].leader, len(contests)
    decided = [name_of(contest.score) for contest in top if contest.decided]
    of = f"{len(top)} of {count} scores" if count > 1 else f"the only score, {name_of(top[0].score)}"
    if all(contest.open and not contest.unknown for contest in contests):
        where = f"In none of the {count} scores" if count > 1 else f"In {name_of(top[0].score)}"
        told = (
            "can any other method be told from the best" if count > 1 else "no other method can be told from the best"
        )
        said = f"{where} {told}; {leader.label} has the best mean in {of}."
    elif len(decided) == len(top):
        said = f"{leader.label} leads in {of}, ahead of every other method by more than the error."
    elif decided:
        said = f"{leader.label} has the best mean in {of}; ahead of every other by more than the error only in "
        said += f"{listed(decided)}."
    else:
        said = f"{leader.label} has the best mean in {of}, but in none of them is it ahead of every other by more than "
        said += "the error."
    return f"{said}{_over_control(leader, control, findings)}"


def _over_control(leader: MethodRow, control: MethodRow | None, findings: dict[int, list[Finding]]) -> str:
    if control is None:
        return ""
    if leader is control:
        return f" {control.label} is ordinary training: no Bayesian method leads in more scores."
    found = findings.get(id(leader), [])
    better, worse = ([one.name for one in found if one.sense == sense] for sense in ("better", "worse"))
    if not better and not worse:
        gained = f" Against {control.label} alone nothing differs by more than its error."
    else:
        parts = [f"better in {listed(better)}"] if better else []
        parts += [f"worse in {listed(worse)}"] if worse else []
        rest = len(found) - len(better) - len(worse)
        level = f"; the other {rest} scores do not differ by more than their error" if rest > 1 else ""
        gained = f" Against {control.label} alone it is {' and '.join(parts)}{level}."
    return f"{gained} {_price(leader, control)}"


def _worse(findings: Sequence[Finding], control: MethodRow) -> str:
    """A line if a method is worse than the control, by more than chance gives among so many scores."""
    found = [
        finding.told() for finding in findings
        if finding.sense == "worse" and finding.difference.beyond(len(findings))
    ]  # fmt: skip
    return f"worse than {control.label} by more than the error: {listed(found)}" if found else ""


def _findings(row: MethodRow, control: MethodRow) -> list[Finding]:
    found = []
    for score in SCORES:
        apart = difference(row, control, score.key) if score.key in JUDGED else None
        if apart is None:
            continue
        good = apart.value > 0 if score.better == "high" else apart.value < 0
        sense = ("better" if good else "worse") if apart.told else "level"
        found.append(Finding(score, row.cells[score.key].mean, apart, sense))
    return found


def _of(findings: Sequence[Finding], sense: str) -> list[str]:
    return [finding.told() for finding in findings if finding.sense == sense]


def _line(row: MethodRow, control: MethodRow, findings: Sequence[Finding]) -> str:
    better, worse, level = (_of(findings, sense) for sense in ("better", "worse", "level"))
    name = control.label
    if better:
        text = f"better than {name} in {listed(better)}"
        text += f"; worse in {listed(worse)}" if worse else ""
        text += f"; level in {listed(level)}" if level else ""
    elif worse:
        text = f"loses to {name}: worse in {listed(worse)}, better in nothing"
        text += f"; level in {listed(level)}" if level else ""
    else:
        text = f"no better than {name} here, and no worse: level in {listed(level)}"
    return f"{row.label}: {text}. {_price(row, control)}{gap_of(row)}"


def _control(row: MethodRow) -> str:
    scores = [f"{name_of(s)} {row.cells[s.key].text}" for s in SCORES
              if s.key in JUDGED and s.key in row.cells]  # fmt: skip
    passes = "" if row.cost is None else f", for {row.cost:,.0f} passes"
    what = "ordinary training, is what the others are measured against"
    return f"{row.label}, {what}: {', '.join(scores)}{passes}.{gap_of(row)}"


def times_of(row: MethodRow, control: MethodRow) -> float | None:
    """The passes of a row over those of the control."""
    return None if row.cost is None or not control.cost else row.cost / control.cost


def _price(row: MethodRow, control: MethodRow) -> str:
    times = times_of(row, control)
    if times is None:
        return "What it costs is not known."
    if abs(times - 1) < _SAME:
        return f"It costs what {control.label} costs."
    return f"It costs {times:.3g} times {control.label}'s passes."


def _meaning(findings: Sequence[Finding], control: MethodRow) -> str:
    overs = listed(list(dict.fromkeys(finding.difference.over for finding in findings)))
    chance = CHANCE * len(findings)
    limits = sorted(finding.difference.limit() for finding in findings)
    low, high = f"{limits[0]:.1f}", f"{limits[-1]:.1f}"
    errors = "two" if low == high == "2.0" else low if low == high else f"{low} to {high}"
    alone = "" if any(finding.difference.over.split()[-1] in ("seeds", "folds") for finding in findings) else (
        " It is one training each: with another seed all may move again."
    )  # fmt: skip
    about = f"about {round(chance)}" if round(chance) else "fewer than one"
    return (
        f"Better and worse are differences from {control.label} of more than {errors} standard errors (over {overs}); "
        f"of the {len(findings)} differences {about} would look so by chance.{alone}"
    )


def _closing(data: str, control: MethodRow, found: Sequence[tuple[MethodRow, list[Finding]]]) -> str:
    kinds: dict[tuple[str, str], list[str]] = {}
    for row, findings in found:
        senses = {finding.sense for finding in findings}
        kind = (
            GAIN if "better" in senses and "worse" not in senses
            else MIXED if "better" in senses
            else LOSE if "worse" in senses
            else LEVEL
        )  # fmt: skip
        kinds.setdefault(kind, []).append(row.label)
    order = (GAIN, MIXED, LEVEL, LOSE)
    parts = [f"{listed(kinds[kind])} {kind[len(kinds[kind]) > 1]}" for kind in order if kind in kinds]
    return f"On {data}, against {control.label}: {'; '.join(parts)}.{_lowest(control, found)}"


def _lowest(control: MethodRow, found: Sequence[tuple[MethodRow, list[Finding]]]) -> str:
    """Who has the lowest NLL, and what it costs: the method to take if the price does not matter."""
    rows = [row for row in (control, *(row for row, _ in found)) if "nll" in row.cells]
    if not rows:
        return ""
    best = min(rows, key=lambda row: row.cells["nll"].mean)
    if best is control:
        return f" The lowest NLL is {control.label}'s own, {best.cells['nll'].text}."
    times = times_of(best, control)
    same = times is not None and abs(times - 1) < _SAME
    price = (
        "" if times is None else ", at the same price" if same else f", at {times:.3g} times {control.label}'s passes"
    )
    apart = next((f for row, findings in found if row is best for f in findings if f.score.key == "nll"), None)
    sure = "" if apart is None or apart.sense == "better" else ", though by less than can be told"
    return f" The lowest NLL is {best.label}'s, {best.cells['nll'].text}{price}{sure}."
