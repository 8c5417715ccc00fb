"""What was gained over ordinary training, and at what price, in words made from the numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .differences import Difference, difference
from .numbers import SCORES, Score, number, shown
from .reading import mapping
from .summary import MethodRow, Table

CONTROL = "map"
JUDGED = ("accuracy", "rmse", "nll", "crps", "ece", "shifted_accuracy", "shifted_nll", "shifted_ece",
          "ood_auroc_entropy")  # fmt: skip
_NAMES = {
    "accuracy": "accuracy",
    "shifted_accuracy": "accuracy on corrupted images", "shifted_nll": "NLL on corrupted images",
    "shifted_ece": "ECE on corrupted images", "ood_auroc_entropy": "AUROC of inputs from outside",
}  # fmt: skip
_SAME = 0.005
_CHANCE = 0.05
"""How many of equal pairs are more than two standard errors apart, nearly."""

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
        return _NAMES.get(self.score.key, self.score.heading)

    def told(self) -> str:
        """``NLL (0.0632, by 0.0160 ± 0.0060)``; of what is level the difference with its sign."""
        apart, error = self.difference.value, self.difference.error
        spread = "" if error is None else f" ± {error:.2g}"
        if self.sense == "level":
            return f"{self.name} ({shown(self.value)}, {apart:+.4f}{spread})"
        return f"{self.name} ({shown(self.value)}, by {shown(abs(apart))}{spread})"


@dataclass(frozen=True)
class Verdict:
    """A line on the control, a line for each other method, what the words mean, and all in one sentence."""

    data: str
    control: str
    lines: list[str]
    meaning: str
    closing: str


def verdict_of(table: Table) -> Verdict | None:
    """The words of a table; None where there is no control, or nothing beside it."""
    control = next((row for row in table.rows if row.first.method == CONTROL), None)
    others = [row for row in table.rows if row is not control]
    if control is None or not others:
        return None
    judged = {id(row): _findings(row, control) for row in others}
    found = [row for row in others if judged[id(row)]]
    if not found:
        return None
    return Verdict(
        data=table.data,
        control=_control(control),
        lines=[_line(row, control, judged[id(row)]) for row in found],
        meaning=_meaning([finding for row in found for finding in judged[id(row)]], control),
        closing=_closing(table.data, control, [(row, judged[id(row)]) for row in found]),
    )


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
        text = f"better than {name} in {_listed(better)}"
        text += f"; worse in {_listed(worse)}" if worse else ""
        text += f"; level in {_listed(level)}" if level else ""
    elif worse:
        text = f"loses to {name}: worse in {_listed(worse)}, better in nothing"
        text += f"; level in {_listed(level)}" if level else ""
    else:
        text = f"no better than {name} here, and no worse: level in {_listed(level)}"
    return f"{row.label}: {text}. {_price(row, control)}{_gap(row)}"


def _control(row: MethodRow) -> str:
    scores = [f"{_NAMES.get(s.key, s.heading)} {row.cells[s.key].text}" for s in SCORES
              if s.key in JUDGED and s.key in row.cells]  # fmt: skip
    passes = "" if row.cost is None else f", for {row.cost:,.0f} passes"
    what = "ordinary training, is what the others are measured against"
    return f"{row.label}, {what}: {', '.join(scores)}{passes}.{_gap(row)}"


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


def _gap(row: MethodRow) -> str:
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


def _meaning(findings: Sequence[Finding], control: MethodRow) -> str:
    overs = _listed(list(dict.fromkeys(finding.difference.over for finding in findings)))
    chance = _CHANCE * len(findings)
    alone = "" if any(finding.difference.over.split()[-1] in ("seeds", "folds") for finding in findings) else (
        " It is one training each: with another seed all may move again."
    )  # fmt: skip
    return (
        f"Better and worse are differences from {control.label} of more than two standard errors (over {overs}); "
        f"of the {len(findings)} differences about {max(1, round(chance))} would look so by chance.{alone}"
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
    parts = [f"{_listed(kinds[kind])} {kind[len(kinds[kind]) > 1]}" for kind in order if kind in kinds]
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


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
