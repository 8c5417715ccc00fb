"""What the records of `make quality` and `make bench` say of methods, for their cards and docs/which_method.md."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import record as speed
from benchmarks.quality.differences import Mean, Results, mean_of
from benchmarks.quality.kept import Kept
from benchmarks.quality.lengths import parted
from benchmarks.quality.plan import CONTROL, DEVELOPMENT
from benchmarks.quality.problems import BESIDE, TEN
from benchmarks.table import markdown

from bayeswell import BayeswellError
from bayeswell.methods import find_method
from bayeswell.methods.budget import ORDINARY

ROOT = Path(__file__).resolve().parents[1]
QUALITY, SPEED = (ROOT / "benchmarks" / "results" / name for name in ("quality.jsonl", "record.json"))
_SESSION = "session/"
SEVERAL = 2
_MOST_DIGITS = 5
_ROUNDING = 0.02


@dataclass(frozen=True)
class Score:
    """A score against that of the control at the same seed: ``compare`` gives a number that is below 0 if better."""

    metric: str
    title: str
    compare: Callable[[float, float], float]
    digits: int


def _less(own: float, control: float) -> float:
    return own - control


def _more(own: float, control: float) -> float:
    return 100 * (control - own)


def _share(own: float, control: float) -> float:
    return 100 * math.log(own / control)


def _points(own: float, control: float) -> float:
    return 100 * (own - control)


NLL = Score("nll", "NLL, nats", _less, 3)
ERRORS = Score("accuracy", "errors, points", _more, 2)
RMSE = Score("rmse", "RMSE, %", _share, 1)
ECE = Score("ece", "ECE, points", _points, 2)
MISSED = Score("auroc", "1 - AUROC, points", _more, 1)
CORRUPTED = Score("shifted_nll", "NLL, nats, corrupted", _less, 3)

REGRESSION = ("diabetes", "boston", "concrete", "energy", "yacht")
SMALL_CLASSES = ("breast_cancer", "wine")
IMAGES = ("digits", "mnist-2k", "fashion-10k", "cifar-5k")
TEXTS = ("imdb-5k",)
assert {*TEN, *BESIDE} == {*REGRESSION, *SMALL_CLASSES, *IMAGES, *TEXTS}


@cache
def results() -> Results:
    """Every run of the record, whatever has changed since: a page says the commit that was measured."""
    return Results.of([line for key, line in _lines().items() if not key.startswith(_SESSION)])


@cache
def _lines() -> dict[str, dict[str, Any]]:
    return {key: line for key, line in Kept(QUALITY).read().items() if not key.endswith(DEVELOPMENT)}


def circumstances(problems: Sequence[str], methods: Sequence[str]) -> str:
    """When and at which commits was measured what a table shows."""
    found = results()
    used = {line["session"] for one in problems for method in methods for line in found.at(one, method).values()}
    sessions = [_lines()[_SESSION + one] for one in sorted(used) if _SESSION + one in _lines()]
    days = list(dict.fromkeys(str(one["when"])[:10] for one in sessions))
    commits = list(dict.fromkeys(str(one["commit"]) for one in sessions))
    return f"Measured {', '.join(days)} at commit {', '.join(commits)}." if sessions else ""


# Cards


def card(method: str) -> str:
    """The measured part of a card."""
    return "\n\n".join(part for part in (_quality(method), _time(method)) if part)


def _quality(method: str) -> str:
    found = results()
    problems = [name for name in (*TEN, *BESIDE) if found.at(name, method)]
    missing = [name for name in TEN if name not in problems]
    if not problems:
        command = f'make quality ARGS="--only {CONTROL},{method}"'
        return f"Quality: not measured yet. `{command}` does it ([how](../quality.md))."
    columns = [one for one in _COLUMNS if any(found.score(name, method, one[0]) is not None for name in problems)]
    rows = []
    for name in problems:
        cells = [_pm(found.score(name, method, metric), digits) for metric, _, digits in columns]
        difference = found.difference(name, method)
        if method != CONTROL and difference is not None:
            cells.insert(1, _signed(difference, 3, worse=not difference.within_noise))
        rows.append([name, *cells])
    titles = [title for _, title, _ in columns]
    if method != CONTROL:
        titles.insert(1, f"NLL above `{CONTROL}`'s")
    seeds = sorted({len(found.at(name, method)) for name in problems})
    notes = [
        f"Test scores of the defaults, mean over {_or(seeds)} seeds ± its standard error ([how](../quality.md)); NLL "
        "in nats, NLL and RMSE of regressions in the target's own units."
    ]
    if method != CONTROL:
        notes += [_in_words(method, problems), "Bold: worse by more than two standard errors of the paired difference."]
    if changed_since(method):
        notes += [
            f"**Measured before its defaults changed**: a step then cost {cost(method, problems):g}x ordinary "
            f"training, now {find_method(method).cost / ORDINARY:g}x."
        ]
    if missing:
        notes += [f"Not measured yet: {', '.join(missing)}."]
    notes += [circumstances(problems, [method])]
    return " ".join(notes[:1]) + "\n\n" + markdown(["", *titles], rows) + "\n\n" + " ".join(notes[1:])


_COLUMNS = (
    ("nll", "NLL", 3), ("accuracy", "accuracy", 3), ("rmse", "RMSE", 3), ("ece", "ECE", 3), ("auroc", "AUROC", 3),
    ("shifted_nll", "NLL, corrupted", 3), ("passes", "cost", 1),
)  # fmt: skip


def _in_words(method: str, problems: Sequence[str]) -> str:
    pairs = [found for name in problems if (found := results().difference(name, method)) is not None]
    better, worse = sum(gains(one) for one in pairs), sum(not one.within_noise for one in pairs)
    return (
        f"Against `{CONTROL}` in NLL: better on {better}, level on {len(pairs) - better - worse}, worse on {worse} of "
        f"{len(pairs)} problems."
    )


_CHANGED_SINCE: dict[str, str] = {}
"""Methods whose step is another than in the record of ``make bench``; a new record empties this."""


def _time(method: str) -> str:
    """The time of a training step over an ordinary one's."""
    if method in _CHANGED_SINCE:
        return f"Time of a step: not measured since its defaults changed ({_CHANGED_SINCE[method]}; `make bench`)."
    parts = json.loads(SPEED.read_text(encoding="utf-8"))["parts"]
    cells = []
    for net, title in (("mlp", "MLP 784-400-400-10"), ("lenet", "LeNet-5"), ("resnet", "ResNet-18"), ("lstm", "LSTM")):
        ratio = speed.ratio(parts[f"step/{net}"], method) if f"step/{net}" in parts else None
        if ratio is not None:
            cells.append(f"{title} {ratio.median:.2f} ± {ratio.error:.2f}")
    if not cells:
        return "Time of a step: not measured (`make bench`)."
    return f"Time of a training step over an ordinary one's (`make bench`): {', '.join(cells)}."


# Which method?


def standing(method: str, score: Score, problems: Sequence[str], than: str = CONTROL) -> Mean | None:
    """Mean over problems of the paired differences to another method; its error is that of the means over seeds."""
    means = []
    for problem in problems:
        own, other = results().at(problem, method), results().at(problem, than)
        seeds = [seed for seed in own if seed in other and score.metric in other[seed]]
        pairs = [
            score.compare(own[seed][score.metric], other[seed][score.metric]) if score.metric in own[seed] else math.inf
            for seed in seeds
        ]
        if len(pairs) < SEVERAL:  # a single seed has no error
            return None
        means.append(mean_of(pairs))
    if not means:
        return None
    error = math.sqrt(sum(one.error**2 for one in means)) / len(means)
    return Mean(statistics.fmean(one.mean for one in means), error, len(means))


def measured_on(problems: Sequence[str], score: Score) -> list[str]:
    """Those of some problems that have this score, and of at least half as many methods as the fullest of them.

    A problem that was hardly begun would leave out all methods that it does not have yet.
    """
    known = [name for name in problems if results().score(name, CONTROL, score.metric) is not None]
    counts = {name: len(results().methods([name])) for name in known}
    return [name for name in known if 2 * counts[name] >= max(counts.values())]


def cost(method: str, problems: Sequence[str]) -> float:
    """Passes in training over those of ordinary training, on average over the runs that came to an end."""
    lines = [line for name in problems for line in results().at(name, method).values()]
    return statistics.fmean([line["passes"] for line in lines if "passes" in line] or [float("nan")])


def changed_since(method: str) -> bool:
    """Whether the record is of another method under this name: one whose steps had another cost.

    What costs the same may have changed too; only `make quality` knows, by its checksums.
    """
    try:
        today = find_method(method)
    except BayeswellError:
        return True
    then = [line["passes"] for name in TEN for line in results().at(name, method).values() if "passes" in line]
    return today.budget is None and any(abs(one - today.cost / ORDINARY) > _ROUNDING for one in then)


def by_method(problems: Sequence[str], scores: Sequence[Score]) -> str:
    """A table: every method that was measured on all these problems, the best in the first score first."""
    problems = measured_on(problems, scores[0])
    found = _standings(problems, scores[0])
    if not found:
        return "Not measured yet."
    rows = []
    for method in sorted([CONTROL, *found], key=lambda name: 0.0 if name == CONTROL else found[name].mean):
        cells = []
        for score in scores:
            one = None if method == CONTROL else standing(method, score, measured_on(problems, score))
            cells.append("" if one is None else marked(one, score.digits))
        rows.append([linked(method), *cells, f"{cost(method, problems):.1f}"])
    every = {method for name in problems for method in results().methods([name])} - {CONTROL}
    changed = sorted(method for method in every if changed_since(method))
    left = sorted(every - set(found) - set(changed))
    words = [f"On {', '.join(problems)}. {circumstances(problems, [CONTROL, *found])}"]
    if left:
        words += [f"Left out, since not measured on all of them at several seeds: {', '.join(left)}."]
    if changed:
        words += [f"Left out, since defaults have changed since: {', '.join(changed)}."]
    return markdown(["", *(score.title for score in scores), "cost"], rows) + "\n\n" + " ".join(words)


def by_budget(problems: Sequence[str], score: Score, budgets: Sequence[float] = (1, 2, 5)) -> str:
    """A table: the best within each budget, and what cannot be told from it."""
    problems = measured_on(problems, score)
    found = {CONTROL: Mean(0.0, 0.0, len(problems)), **_standings(problems, score)}
    rows = []
    for budget in budgets:
        inside = [name for name in found if cost(name, problems) <= budget + 0.05] if problems else []
        if len(inside) < SEVERAL:
            continue
        best = min(inside, key=lambda name: found[name].mean)
        against = "" if best == CONTROL else marked(found[best], score.digits)
        rows.append([f"{budget:g}x", linked(best), against, not_told_apart(best, inside, score, problems)])
    if not rows:
        return "By budget: not measured yet."
    return markdown(["cost up to", "leads", score.title, "not told apart from it"], rows)


def not_told_apart(best: str, among: Sequence[str], score: Score, problems: Sequence[str]) -> str:
    """Those whose paired difference to the best is within two standard errors."""
    found = {name: standing(name, score, problems, than=best) for name in among if name != best}
    level = [name for name, one in found.items() if one is not None and not one.above(0.0)]
    return "all others" if len(level) == len(found) else ", ".join(f"`{name}`" for name in level) or "none"


def _standings(problems: Sequence[str], score: Score) -> dict[str, Mean]:
    """Every method but the control that was measured on all of them, as it is today."""
    if not problems:
        return {}
    every = [name for name in results().methods(problems) if name != CONTROL and not changed_since(name)]
    found = {name: standing(name, score, problems) for name in every}
    return {name: one for name, one in found.items() if one is not None}


# Texts


def linked(method: str) -> str:
    """The name with a link to the card, which a method has at any length of training."""
    return f"[`{method}`](cards/{parted(method).method}.md)"


def gains(one: Mean) -> bool:
    """Whether it is below zero by more than two standard errors."""
    return Mean(-one.mean, one.error, one.count).above(0.0)


def marked(one: Mean, digits: int) -> str:
    """✓ before what is better, bold what is worse, by more than two standard errors."""
    return ("✓ " if gains(one) else "") + _signed(one, digits, worse=one.above(0.0))


def _signed(one: Mean, digits: int, *, worse: bool) -> str:
    if not math.isfinite(one.mean):
        return "**failed**"
    while digits < _MOST_DIGITS and 0 < one.error < 0.5 * 10.0**-digits:
        digits += 1  # an error that is not shown as zero
    text = f"{one.mean:+.{digits}f}" + (f" ± {one.error:.{digits}f}" if math.isfinite(one.error) else "")
    return f"**{text}**" if worse else text


def _pm(one: Mean | None, digits: int) -> str:
    if one is None:
        return ""
    if not math.isfinite(one.mean):
        return "failed"
    shown = f"{one.mean:.{digits}f}"
    return f"{shown} ± {one.error:.{digits}f}" if one.error > 0 else shown


def _or(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))


Tables = Mapping[str, Callable[[], str]]
TABLES: Tables = {
    "accuracy: images": lambda: by_method(IMAGES, [ERRORS, NLL]),
    "accuracy: images, by budget": lambda: by_budget(IMAGES, ERRORS),
    "accuracy: tables": lambda: by_budget(SMALL_CLASSES, ERRORS),
    "accuracy: texts": lambda: by_method(TEXTS, [ERRORS, NLL]),
    "calibration: images": lambda: by_method(IMAGES, [NLL, ECE]),
    "calibration: images, by budget": lambda: by_budget(IMAGES, NLL),
    "calibration: tables": lambda: by_method(SMALL_CLASSES, [NLL, ECE, ERRORS]),
    "out of distribution": lambda: by_method(IMAGES, [MISSED, CORRUPTED]),
    "out of distribution, by budget": lambda: by_budget(IMAGES, MISSED),
    "regression": lambda: by_method(REGRESSION, [NLL, RMSE]),
    "regression, by budget": lambda: by_budget(REGRESSION, NLL),
}
"""The tables of docs/which_method.md, by the name that its markers have."""
