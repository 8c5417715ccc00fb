"""The best that was measured against numbers from outside: a goal on Fashion-MNIST, and published studies on UCI."""

from __future__ import annotations

import statistics

from . import published
from .differences import Mean, Results, mean_of
from .plan import AUTO, CONTROL
from .problems import TEN, UCI
from .verdict import MET, SHORT, UNKNOWN, Verdict, mark, signed

FASHION, FASHION_NLL, FASHION_ECE, FASHION_COST = "fashion", 0.233, 0.010, 2.0
TIME_MARGIN = 1.1
"""Of a measured time: two processes on one machine disturb each other."""
LEVEL_SETS = 7
LEAST_SPLITS = 5
"""Fewer standard splits say too little about a table."""


def fashion(found: Results) -> Verdict:
    """Fashion-MNIST whole with LeNet-5: the best NLL and ECE that twice the cost of ordinary training buys."""
    title = (
        f"Fashion-MNIST, LeNet-5, 10 epochs: NLL <= {FASHION_NLL} and ECE <= {FASHION_ECE} at <= {FASHION_COST:g}x "
        "the cost of ordinary training"
    )
    rows = []
    for method in found.methods([FASHION]):
        nll, ece = (found.score(FASHION, method, metric) for metric in ("nll", "ece"))
        passes = found.score(FASHION, method, "passes")
        if nll is None or ece is None or passes is None:
            continue
        taken = time_ratio(found, FASHION, method)
        cheap = passes.mean <= FASHION_COST and (taken is None or taken <= TIME_MARGIN * FASHION_COST)
        ok = cheap and nll.mean <= FASHION_NLL and ece.mean <= FASHION_ECE
        time = "" if taken is None else f", time x{taken:.2f}"
        text = f"{method}: NLL {_pm(nll)}, ECE {_pm(ece)}, passes x{passes.mean:.2f}{time}, {nll.count} seeds"
        rows.append((not ok, not cheap, nll.mean, f"{mark(ok)} {text}" + ("" if cheap else " (too dear)")))
    rows.sort()
    if not rows:
        return Verdict(title, UNKNOWN, "run it with --slow")
    best = rows[0]
    return Verdict(title, SHORT if best[0] else MET, f"best: {best[3][2:]}", tuple(row[3] for row in rows))


def uci(found: Results) -> Verdict:
    """At least level with the best of three published studies on 7 of 9 tables, in log-likelihood and in RMSE."""
    title = f"UCI, standard splits: level with the best of {', '.join(published.STUDIES)} on {LEVEL_SETS} of 9"
    lines, counts = [], {}
    for method in found.methods(UCI):
        levels = {metric: level_sets(found, method, metric) for metric in ("nll", "rmse")}
        measured = len(levels["nll"])
        if not measured:
            continue
        both = sum(levels["nll"][name] and levels["rmse"][name] for name in levels["nll"])
        nll, rmse = (sum(levels[metric].values()) for metric in ("nll", "rmse"))
        enough = min(nll, rmse) >= LEVEL_SETS
        counts[method] = (enough, min(nll, rmse), nll, rmse, measured)
        lost = [name for name, ok in levels["nll"].items() if not ok]
        lines.append(
            f"{mark(enough)} {method}: log-likelihood {nll}, RMSE {rmse}, both {both} of {measured}"
            + (f"; log-likelihood below on {', '.join(lost)}" if lost else "")
        )
    if not counts:
        return Verdict(title, UNKNOWN, "run it with --uci")
    shown = AUTO if AUTO in counts else max(counts, key=lambda name: counts[name])
    enough, _, nll, rmse, measured = counts[shown]
    numbers = f"{shown}: log-likelihood on {nll}, RMSE on {rmse} of {measured}"
    return Verdict(title, MET if enough else UNKNOWN if measured < len(UCI) else SHORT, numbers, tuple(lines))


def level_sets(found: Results, method: str, metric: str) -> dict[str, bool]:
    """Of the tables that were measured on five splits or more: whether the method is level with the best study."""
    result = {}
    for problem in UCI:
        own = found.score(problem, method, metric)
        if own is None or own.count < LEAST_SPLITS:
            continue
        limit = published.best(metric, problem)[1].mean + published.allowance(metric, problem, own.error)
        result[problem] = own.mean <= limit
    return result


def choosing_for_oneself(found: Results) -> Verdict:
    """``fit`` without a method is at least as good as the best single choice, within noise, on most problems."""
    title = "fit without a method: as good as the best single choice within two standard errors on most problems"
    if not found.methods([name for name in TEN if found.at(name, AUTO)]):
        return Verdict(title, UNKNOWN, f"'{AUTO}' was not measured")
    totals = {}
    for method in found.methods(TEN):
        scores = [found.score(problem, method, "nll") for problem in TEN]
        if method != AUTO and all(one is not None for one in scores):
            totals[method] = sum(one.mean for one in scores if one is not None) / len(TEN)
    if not totals:
        return Verdict(title, UNKNOWN, "no single method was measured on all problems")
    single = min(totals, key=lambda name: totals[name])
    lines, good, count = [], 0, 0
    for problem in TEN:
        own, other = found.at(problem, AUTO), found.at(problem, single)
        seeds = [seed for seed in own if seed in other and "nll" in own[seed] and "nll" in other[seed]]
        if not seeds:
            continue
        one = mean_of([own[seed]["nll"] - other[seed]["nll"] for seed in seeds])
        count, good = count + 1, good + one.within_noise
        picked = ", ".join(sorted({str(own[seed].get("picked", "")) for seed in seeds}))
        lines.append(f"{mark(one.within_noise)} {problem} (picked {picked}): {signed(one)} to {single}")
    word = MET if good > count / 2 and count == len(TEN) else SHORT
    return Verdict(title, word, f"{good} of {count}; the best single choice is {single}", tuple(lines))


def time_ratio(found: Results, problem: str, method: str) -> float | None:
    """The median time of fit over the control's, of runs of the same session; else of the same machine."""
    own, control = (list(found.at(problem, name).values()) for name in (method, CONTROL))
    for where in ("session", "cpu"):
        ratios = []
        for line in own:
            near = [one["seconds"] for one in control if "seconds" in one and one.get(where) == line.get(where)]
            if near and "seconds" in line:
                ratios.append(line["seconds"] / statistics.median(near))
        if ratios:
            return float(statistics.median(ratios))
    return None


def _pm(one: Mean) -> str:
    return f"{one.mean:.4f} ± {one.error:.4f}"
