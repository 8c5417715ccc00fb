"""Every method against ordinary training (``map``) on the same problems at the same seeds.

The standard error is that of the mean of the paired differences. With three seeds it is itself known only to about a
half of its size: "within two standard errors" is a convention, not a test at a level, so the plain count stands beside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .differences import Mean, Results
from .plan import CONTROL
from .problems import TEN
from .verdict import MET, NOISE, SHORT, UNKNOWN, Verdict, mark, signed

SHARE = 0.8
"""At least as good as the control on so many of the problems: 8 of 10."""
WORSE = 0.02
"""Nats: nobody may be worse by more without a warning."""
DETECTION = 0.01
"""How far the AUROC may be below the control's."""


def as_good_as_control(found: Results) -> Verdict:
    """NLL at most the control's within two paired standard errors, on at least 8 of 10 problems, for every method."""
    title = f"every method at least as good as {CONTROL} in NLL within two standard errors on 8 of 10 problems"
    lines, good, judged = [], 0, 0
    for method in _others(found, TEN):
        differences = _differences(found, method, TEN, "nll")
        if not differences:
            continue
        level = [name for name, one in differences.items() if one.within_noise]
        plainly = sum(one.mean <= 0 for one in differences.values())
        enough = len(level) >= math.ceil(SHARE * len(differences)) and len(differences) == len(TEN)
        judged, good = judged + 1, good + enough
        missing = "" if len(differences) == len(TEN) else f", {len(TEN) - len(differences)} not measured"
        losses = [f"{name} {signed(one)}" for name, one in differences.items() if name not in level]
        lines.append(
            f"{mark(enough)} {method}: {len(level)} of {len(differences)} ({plainly} without the errors){missing}"
            + (f"; loses on {', '.join(losses)}" if losses else "")
        )
    word = UNKNOWN if not judged else MET if good == judged else SHORT
    return Verdict(title, word, f"{good} of {judged} methods", tuple(lines))


def never_silently_worse(found: Results) -> Verdict:
    """Worse than the control by more than 0.02 nats only with a warning in each run that was so much worse."""
    title = f"no method worse than {CONTROL} by more than {WORSE} nats without a warning"
    silent, noisy, warned, cells, lines = 0, 0, 0, 0, []
    for method in _others(found, TEN):
        for problem, one in _differences(found, method, TEN, "nll").items():
            cells += 1
            if one.mean <= WORSE:
                continue
            lines_of = found.at(problem, method)
            bad = [seed for seed, own in found.pairs(problem, method).items() if own > WORSE]
            quiet = [s for s in bad if not lines_of[s].get("warnings") and "error" not in lines_of[s]]
            if not quiet:
                warned += 1
                lines.append(f"+ {method} on {problem}: {signed(one)}, warned: {_first_words(lines_of[bad[0]])}")
                continue
            beyond = one.above(WORSE)
            silent, noisy = silent + beyond, noisy + (not beyond)
            which = f"silent at {len(quiet)} of {one.count} seeds" + ("" if beyond else ", within noise")
            lines.append(f"{mark(not beyond)} {method} on {problem}: {signed(one)}, {which}")
    word = UNKNOWN if not cells else SHORT if silent else NOISE if noisy else MET
    numbers = f"of {cells} pairs {silent} silently worse, {noisy} within noise of the limit, {warned} worse with a word"
    return Verdict(title, word, numbers, tuple(lines))


def foreign_images_stand_out(found: Results) -> Verdict:
    """AUROC of foreign images at most 0.01 below the control's."""
    title = f"AUROC of foreign images no more than {DETECTION} below {CONTROL}'s"
    low, noisy, cells, lines = 0, 0, 0, []
    for method in _others(found, TEN):
        for problem, one in _differences(found, method, TEN, "auroc").items():
            cells += 1
            if one.mean >= -DETECTION:
                continue
            beyond = Mean(-one.mean, one.error, one.count).above(DETECTION)
            low, noisy = low + beyond, noisy + (not beyond)
            lines.append(f"{mark(not beyond)} {method} on {problem}: {signed(one)}" + ("" if beyond else " (noise)"))
    word = UNKNOWN if not cells else SHORT if low else NOISE if noisy else MET
    return Verdict(title, word, f"of {cells} pairs {low} lower, {noisy} lower within noise", tuple(lines))


def _others(found: Results, problems: Sequence[str]) -> list[str]:
    return [name for name in found.methods(problems) if name != CONTROL]


def _differences(found: Results, method: str, problems: Sequence[str], metric: str) -> dict[str, Mean]:
    known = {problem: found.difference(problem, method, metric) for problem in problems}
    return {problem: one for problem, one in known.items() if one is not None}


def _first_words(line: object) -> str:
    assert isinstance(line, dict)
    notes = line.get("warnings") or [line.get("error", "")]
    return str(notes[0])[:90]
