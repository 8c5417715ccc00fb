"""What the tables say, in words: which methods gain where, and which lose."""

from __future__ import annotations

import math

from .differences import Mean, Results
from .plan import CONTROL
from .problems import TEN


def in_words(found: Results) -> str:
    """A line for each method, the best first."""
    lines = {}
    for method in found.methods(TEN):
        if method == CONTROL:
            continue
        known = {name: found.difference(name, method) for name in TEN}
        differences = {name: one for name, one in known.items() if one is not None}
        if differences:
            lines[method] = (_rank(differences), _line(found, method, differences))
    if not lines:
        return ""
    ordered = sorted(lines, key=lambda name: lines[name][0])
    text = "\n".join(f"- {lines[name][1]}" for name in ordered)
    note = f"NLL against {CONTROL}, in nats; better, worse: by more than two standard errors of the paired difference."
    return f"### In words\n\n{note}\n\n{text}"


def _rank(differences: dict[str, Mean]) -> tuple[int, int]:
    """Fewer losses first, then more gains."""
    worse = sum(not one.within_noise for one in differences.values())
    return worse, -sum(_gains(one) for one in differences.values())


def _gains(one: Mean) -> bool:
    return Mean(-one.mean, one.error, one.count).above(0.0)


def _line(found: Results, method: str, differences: dict[str, Mean]) -> str:
    better = [f"{name} ({one.mean:+.3f})" for name, one in differences.items() if _gains(one)]
    worse = []
    for name, one in differences.items():
        if not one.within_noise:
            lines = found.at(name, method).values()
            warned = all(line.get("warnings") or "error" in line for line in lines)
            number = "failed" if not math.isfinite(one.mean) else f"{one.mean:+.3f}"
            worse.append(f"{name} ({number}, {'with a warning' if warned else 'without a warning'})")
    level = len(differences) - len(better) - len(worse)
    return (
        f"**{method}**: better on {len(better)}, level on {level}, worse on {len(worse)} of {len(differences)}."
        + (f" Gains on {', '.join(better)}." if better else "")
        + (f" Loses on {', '.join(worse)}." if worse else "")
    )
