"""Verdict, tiles and tables of a report: what the scores of the runs say, in few words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...metrics import Estimate, find_score, mean_over_seeds
from ..comparison import ComparedRun, Comparison
from ..measure import RunRecord
from ..plots.comparing import EXAMPLES, paired_table, short_name

GOOD, BAD, NEUTRAL = "good", "bad", "neutral"
SCORE = "nll"
COLUMNS = {
    "classes": ("nll", "accuracy", "ece", "ood_auroc_entropy"),
    "real": ("nll", "rmse", "crps", "coverage_90"),
}


@dataclass(frozen=True)
class Tile:
    """One number with its heading and a note; ``tone`` is "good", "bad" or "neutral"."""

    heading: str
    value: str
    note: str
    tone: str = NEUTRAL


@dataclass(frozen=True)
class Cell:
    """A score; ``better`` than that of the reference method: True or False if significant, else None."""

    text: str
    better: bool | None = None


@dataclass(frozen=True)
class Row:
    """The mean scores of one method on one problem."""

    method: str
    cells: tuple[Cell, ...]
    cost: str
    warning: str = ""


@dataclass(frozen=True)
class Table:
    """The scores of all methods on one problem; headings have an arrow in the better direction."""

    problem: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Standing:
    """One method against the reference method over all problems.

    Args:
        wins: problems on which it is significantly better.
        losses: problems on which it is significantly worse.
        difference: mean difference over the problems.
        se: of the difference; None for several problems.
        cost: mean training cost relative to ordinary training.
    """

    method: str
    wins: int
    losses: int
    problems: int
    difference: float
    se: float | None
    cost: float


@dataclass(frozen=True)
class Summary:
    """The head of a report.

    Args:
        reference: the method that others are compared with; None where there is nothing to compare.
        paired_over: "runs", or "test examples" where each method has one run.
        comparisons: number of tests.
    """

    verdict: str
    tiles: tuple[Tile, ...]
    reference: str | None
    paired_over: str
    comparisons: int = 0


def summarize(comparison: Comparison) -> Summary:
    """Return verdict and tiles."""
    table = paired_table(comparison, SCORE) if len(comparison.methods) > 1 else None
    if table is None or not (table["pairs"] > 0).any():
        return Summary(_plain_verdict(comparison), _plain_tiles(comparison), None, "")
    reference = str(table["reference"].iloc[0])
    standings = [_standing(comparison, method, own) for method, own in table[table["pairs"] > 0].groupby("method")]
    best = min(standings, key=lambda one: (one.losses - one.wins, one.difference))
    over = EXAMPLES if (table["over"] == EXAMPLES).any() else "runs"
    tiles = (_gain(best, reference), _cost(comparison, best, reference), _trust(comparison))
    tests = int((table["pairs"] > 0).sum())
    return Summary(_verdict(comparison, best, reference), tiles, reference, over, tests)


def _standing(comparison: Comparison, method: Any, rows: Any) -> Standing:
    better = list(rows["better"])
    se = float(rows["se"].iloc[0]) if len(rows) == 1 else math.nan
    return Standing(
        str(method),
        wins=sum(one is True for one in better),
        losses=sum(one is False for one in better),
        problems=len(rows),
        difference=float(rows["difference"].mean()),
        se=None if math.isnan(se) else se,
        cost=_mean_cost(comparison, str(method), "relative"),
    )


def _verdict(comparison: Comparison, best: Standing, reference: str) -> str:
    base, cost = short_name(reference), f"{_times(best.cost)} the cost of ordinary training"
    where = f"on {best.wins} of {best.problems} problems" if best.problems > 1 else f"on {comparison.problems[0]}"
    if best.wins == 0 and best.losses == 0:
        many = len(comparison.methods) > 2
        found = "No method is significantly better" if many else f"{best.method} is not significantly better"
        cheapest = min(comparison.methods, key=lambda method: _mean_cost(comparison, method, "relative"))
        return f"{found} in NLL than {base}: the cheapest method, {short_name(cheapest)}, is enough here."
    if best.wins == 0 and len(comparison.methods) == 2:
        return f"{best.method} is significantly worse in NLL than {base}; keep {base}."
    if best.wins == 0:
        return f"No method is better in NLL than {base}; keep {base}."
    worse = f" and worse on {best.losses}" if best.losses else ""
    return (
        f"{best.method} is significantly better in NLL than {base} {where}{worse}, at {cost}{_rival(comparison, best)}."
    )


def _rival(comparison: Comparison, best: Standing) -> str:
    # The cheapest method that is not significantly worse than the best one.
    if best.problems > 1:
        return ""
    equal = comparison.best(SCORE).get(comparison.problems[0], [])
    costs = {method: _mean_cost(comparison, method, "relative") for method in equal if method != comparison.reference}
    cheapest = min(costs, key=lambda method: costs[method], default=best.method)
    if cheapest == best.method or best.method not in costs or not costs[cheapest] < costs[best.method]:
        return ""
    return f"; {cheapest} ({_times(costs[cheapest])}) is not significantly worse than {best.method}"


def _gain(best: Standing, reference: str) -> Tile:
    tone = GOOD if best.wins > max(best.losses, best.problems // 2) else BAD if best.losses > best.wins else NEUTRAL
    if best.problems > 1:
        rest = best.problems - best.wins - best.losses
        note = f"{best.method} against {short_name(reference)}: {best.losses} worse, {rest} not significantly different"
        return Tile("Gain", f"{best.wins} of {best.problems} better", note, tone)
    value = signed(best.difference, best.se)
    significant = "significant at 5 %" if best.wins or best.losses else "not significant"
    return Tile("Gain", f"{value} nats", f"ΔNLL of {best.method} vs {short_name(reference)}, {significant}", tone)


def _cost(comparison: Comparison, best: Standing, reference: str) -> Tile:
    shared = [p for p in comparison.problems if all(comparison.records(p, m) for m in (best.method, reference))]
    own, base = (_mean_cost(comparison, method, "seconds", shared) for method in (best.method, reference))
    note = f"{best.method}: {own:.3g} s of training a run, {short_name(reference)}: {base:.3g} s"
    return Tile("Cost", _times(best.cost), note, NEUTRAL if best.cost <= 2 else BAD)


def _trust(comparison: Comparison) -> Tile:
    total, finished = len(comparison.runs), finished_runs(comparison)
    failed = total - len(finished)
    warned = sum(not record.ok for _, record in finished)
    seeds = len({(run.seed, run.fold) for run in comparison.runs})
    repeats = "one run" if total == 1 else "one run of each method" if seeds == 1 else f"{seeds} runs of each method"
    if failed:
        return Tile("Trust", f"{failed} of {total} failed", f"runs without a result; {repeats}", BAD)
    if warned:
        return Tile("Trust", f"{warned} of {total} warned", f"runs with a failed check, listed below; {repeats}", BAD)
    return Tile("Trust", "checks passed", repeats, GOOD if seeds > 1 else NEUTRAL)


def _plain_verdict(comparison: Comparison) -> str:
    finished = finished_runs(comparison)
    if not finished:
        return "No run has finished."
    if len(finished) > 1:
        return f"{len(finished)} runs that cannot be compared in pairs: no common problem and seed."
    run, record = finished[0]
    keys = [key for key in COLUMNS[record.task] if key in record.scores][:3]
    scores = ", ".join(f"{find_score(key).heading} {record.scores[key]}" for key in keys)
    return f"{run.method} on {run.problem}: {scores}."


def _plain_tiles(comparison: Comparison) -> tuple[Tile, ...]:
    finished = finished_runs(comparison)
    if not finished:
        return ()
    record = finished[0][1]
    constant = record.baseline.get(SCORE)
    note = "" if constant is None else f"; the best constant prediction has {constant:.3g}"
    value = Tile("NLL", str(record.scores[SCORE]), f"nats, over {record.cost.get('test', '?')} test examples{note}")
    cost = float(record.cost.get("relative") or math.nan)
    seconds = Tile("Cost", _times(cost), f"{record.cost.get('seconds', math.nan):.3g} s of training")
    return (value, seconds, _trust(comparison)) if len(finished) == 1 else (_trust(comparison),)


def tables_of(comparison: Comparison) -> list[Table]:
    """Return one table for each problem with a finished run."""
    problems = [p for p in comparison.problems if any(comparison.records(p, m) for m in comparison.methods)]
    return [_table(comparison, problem) for problem in problems]


def _table(comparison: Comparison, problem: str) -> Table:
    records = [record for run, record in finished_runs(comparison) if run.problem == problem]
    keys = columns_of(comparison, problem, records[0].task)
    marks = {key: _marks(comparison, problem, key) for key in keys}
    base = comparison.reference if comparison.reference in comparison.methods else comparison.methods[0]
    base_texts = {key: _mean_text(list(comparison.records(problem, base).values()), key) for key in keys}
    rows = []
    for method in comparison.methods:
        own = list(comparison.records(problem, method).values())
        if own:
            cells = tuple(_cell(_mean_text(own, key), base_texts[key], marks[key].get(method)) for key in keys)
            cost = _times(_mean([float(record.cost.get("relative") or math.nan) for record in own]))
            rows.append(Row(method, cells, cost, _warning(own)))
    runs = max(len(comparison.records(problem, method)) for method in comparison.methods)
    errors = "mean ± standard error over runs" if runs > 1 else "± standard error over test examples"
    examples = records[0].cost.get("test")
    tested = "" if examples is None else f", {examples:,} test examples"
    caption = f"{runs} {'run' if runs == 1 else 'runs'} of each method{tested}; {errors}"
    return Table(problem, caption, tuple(_heading(key) for key in keys), tuple(rows))


def _cell(text: str, reference: str, better: bool | None) -> Cell:
    # A difference below the digits that are shown is not marked.
    return Cell(text, None if text == reference else better)


def columns_of(comparison: Comparison, problem: str, task: str) -> list[str]:
    """Return the scores of a table: one ECE, and one AUROC for each OOD set (two at most)."""
    measured = comparison.scores(problem)
    keys = [key for name in COLUMNS[task] for key in measured if key.partition(".")[0] == name]
    outside = [key for key in keys if key.startswith("ood_")]
    return [key for key in keys if key not in outside[2:]]


def _marks(comparison: Comparison, problem: str, key: str) -> Mapping[str, bool | None]:
    if len(comparison.methods) < 2:
        return {}
    table = paired_table(comparison, key)
    own = table[(table["problem"] == problem) & (table["pairs"] > 0)]
    return dict(zip(own["method"], own["better"], strict=True))


def _heading(key: str) -> str:
    name, _, data = key.partition(".")
    score = find_score(name)
    arrow = {"lower": " ↓", "higher": " ↑"}.get(score.direction, "")
    return f"{score.heading}{f' {data}' if data else ''}{arrow}"


def _mean_text(records: Sequence[RunRecord], key: str) -> str:
    found = [record.all_scores()[key] for record in records if key in record.all_scores()]
    finite = [one for one in found if math.isfinite(one.value)]
    if not finite:
        return "–"
    return str(finite[0] if len(finite) == 1 else mean_over_seeds([one.value for one in finite]))


def _warning(records: Sequence[RunRecord]) -> str:
    warned = sum(not record.ok for record in records)
    return f"{warned} of {len(records)} runs failed a check" if warned else ""


def _mean_cost(comparison: Comparison, method: str, name: str, problems: Sequence[str] | None = None) -> float:
    wanted = comparison.problems if problems is None else problems
    records = [record for problem in wanted for record in comparison.records(problem, method).values()]
    return _mean([float(record.cost.get(name) or math.nan) for record in records])


def finished_runs(comparison: Comparison) -> list[tuple[ComparedRun, RunRecord]]:
    return [(run, run.record) for run in comparison.runs if run.record is not None]


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _times(cost: float) -> str:
    return "–" if math.isnan(cost) else f"{cost:.2g}×" if cost < 100 else f"{cost:.0f}×"


def signed(value: float, se: float | None) -> str:
    """Return a difference with its sign, a true minus, and its standard error."""
    text = str(Estimate(abs(value), se))
    return f"{'−' if value < 0 else '+'}{text}"
