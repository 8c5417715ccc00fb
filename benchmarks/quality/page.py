"""The record as docs/quality.md: the part between two marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import table as speed_table
from ..table import markdown
from . import peers, plan, published
from .against_goals import LEAST_SPLITS, level_sets, time_ratio
from .differences import Mean, Results, at_equal_cost
from .plan import CONTROL
from .problems import BESIDE, PROBLEMS, SLOW, TEN, UCI
from .verdicts import verdicts
from .words import in_words

BEGIN = "<!-- measured: written by `make quality` from here -->"
END = speed_table.END
SHOWN = (*TEN, *BESIDE)
"""The problems that tables have a column for."""


def rewrite(page: Path, found: Results, sessions: Sequence[Mapping[str, Any]], old: int) -> None:
    """Put what was measured between the marks of the page."""
    text = page.read_text(encoding="utf-8")
    page.write_text(speed_table.between_marks(text, render(found, sessions, old), BEGIN), encoding="utf-8")


def render(found: Results, sessions: Sequence[Mapping[str, Any]], old: int = 0) -> str:
    """Everything that the record has numbers for."""
    if not found.lines:
        return "Nothing was measured yet."
    made = [
        _circumstances(found, sessions, old), _shown(found), in_words(found),
        _table(found, "NLL", SHOWN, "nll", 3, _NLL_NOTE),
        _differences(found), _equal_cost(found), _one_training(found),
        _table(found, "Accuracy", SHOWN, "accuracy", 3), _table(found, "RMSE", SHOWN, "rmse", 3, _RMSE_NOTE),
        _table(found, "Calibration error (ECE, 15 bins)", SHOWN, "ece", 3),
        _table(found, "Foreign images: AUROC of the entropy", SHOWN, "auroc", 3, _OOD_NOTE),
        _table(found, "Corrupted images: NLL", SHOWN, "shifted_nll", 3, _SHIFT_NOTE),
        _table(found, "Corrupted images: accuracy", SHOWN, "shifted_accuracy", 3),
        _cost(found), *(_whole(found, name) for name in SLOW),
        _uci(found, "log-likelihood", "nll", -1.0), _uci(found, "RMSE", "rmse", 1.0), _peers(found), _failures(found),
    ]  # fmt: skip
    return "\n\n".join(text for text in made if text)


_NLL_NOTE = "Test NLL in nats, of regressions in the target's own units: mean over seeds ± its standard error."
_RMSE_NOTE = "In the target's own units."
_OOD_NOTE = (
    "Uniform noise for digits, house numbers (SVHN) for CIFAR-10, letters (notMNIST) for the others: 0.5 is chance."
)
_SHIFT_NOTE = (
    "The first 2,000 test images, each with one of six corruptions at severity 3: Gaussian and impulse noise, motion "
    "blur, fog, contrast, elastic."
)


def _circumstances(found: Results, sessions: Sequence[Mapping[str, Any]], old: int) -> str:
    machines = sorted({f"{one['cpu']}, {one['cores']} cores, {one['system']}" for one in sessions})
    commits = ", ".join(dict.fromkeys(str(one["commit"]) for one in sessions))
    when = sorted(str(one["when"]) for one in sessions)
    torch = sorted({str(one["versions"]["torch"]) for one in sessions})
    runs = sum(len(lines) for lines in found.lines.values())
    seeds = sorted({len(found.at(name, CONTROL)) for name in TEN if found.at(name, CONTROL)})
    trained = ", ".join(f"{name} {PROBLEMS[name].epochs}" for name in found.problems([*SHOWN, *SLOW]))
    names = plan.other_names()
    lines = [
        f"- {runs} runs; {' or '.join(map(str, seeds)) or 'no'} seeds a cell, which decide split, start and training.",
        f"- Epochs: {trained}; batches of 100, or a fiftieth of fewer data, but 16 at least.",
        f"- Machine: {'; '.join(machines)}; torch {', '.join(torch)}; one thread a run, two runs at a time.",
        f"- Measured {when[0]} to {when[-1]} at commit {commits}." if when else "",
        f"- Other names of the same settings, not run twice: {', '.join(f'{a} is {b}' for a, b in names.items())}."
        if names else "",
        f"- {old} results of other settings than today's are left out." if old else "",
    ]  # fmt: skip
    return "\n".join(line for line in lines if line)


def _shown(found: Results) -> str:
    rows = [[one.title, one.word, one.numbers] for one in verdicts(found)]
    return "### What has to be shown\n\n" + markdown(["", "", "measured"], rows)


def _rows(
    found: Results, problems: Sequence[str], cell: Callable[[str, str], str], methods: Sequence[str] | None = None
) -> list[list[str]]:
    """A row for each method that has anything to show."""
    rows = [[name, *(cell(problem, name) for problem in problems)] for name in methods or found.methods(problems)]
    return [row for row in rows if any(row[1:])]


def _table(found: Results, title: str, among: Sequence[str], metric: str, digits: int, note: str = "") -> str:
    problems = [name for name in found.problems(among) if found.score(name, CONTROL, metric) is not None]

    def cell(problem: str, method: str) -> str:
        return _pm(found.score(problem, method, metric), digits)

    rows = _rows(found, problems, cell) if problems else []
    return _section(title, note, ["", *problems], rows)


def _above_control(found: Results, problem: str, method: str) -> str:
    one = found.difference(problem, method)
    if one is None or method == CONTROL:
        return ""
    text = "failed" if not math.isfinite(one.mean) else f"{one.mean:+.3f} ± {one.error:.3f}"
    if not one.within_noise:
        warned = all(line.get("warnings") or "error" in line for line in found.at(problem, method).values())
        return f"**{text}**" + (" ⚠" if warned else "")
    return text


def _differences(found: Results) -> str:
    problems = found.problems(SHOWN)

    def cell(problem: str, method: str) -> str:
        return _above_control(found, problem, method)

    note = (
        f"To {CONTROL} at the same seeds, ± the standard error of the paired differences. Bold: worse by more than two "
        "of them; ⚠: and every run warned."
    )
    return _section(f"NLL above {CONTROL}'s", note, ["", *problems], _rows(found, problems, cell))


def _equal_cost(found: Results) -> str:
    problems = found.problems(TEN)

    def cell(problem: str, method: str) -> str:
        one = at_equal_cost(found, problem, method)
        if one is None or one[1] == 1:
            return ""
        if not math.isfinite(one[0].error):
            return f"{one[0].mean:+.3f}"  # one seed
        text = f"{one[0].mean:+.3f} ± {one[0].error:.3f}"
        return text if one[0].within_noise else f"**{text}**"

    note = (
        f"NLL above that of {CONTROL} trained for 2 or 5 times the epochs, the first of them that costs as much as the "
        "method: what the method gains beyond longer training. Methods that cost no more than ordinary training have "
        "their row above. Bold as there."
    )
    rows = _rows(found, problems, cell)
    return _section(f"At equal cost: NLL above longer {CONTROL}'s", note, ["", *problems], rows) if rows else ""


def _one_training(found: Results) -> str:
    methods = found.shortened(SHOWN)
    problems = [name for name in SHOWN if any(found.at(name, method) for method in methods)]

    def cell(problem: str, method: str) -> str:
        text, passes = _above_control(found, problem, method), found.score(problem, method, "passes")
        return f"{text} ({passes.mean:.2f})" if text and passes is not None and math.isfinite(passes.mean) else text

    note = (
        f"NLL above that of {CONTROL}, of methods that cost more, held to its cost: their epochs divided by that of a "
        "step, or that budget given to those that take one; in brackets the passes it came to. Bold and ⚠ as above."
    )
    rows = _rows(found, problems, cell, methods) if methods else []
    return _section(f"At the cost of one training: NLL above {CONTROL}'s", note, ["", *problems], rows)


def _cost(found: Results) -> str:
    problems = found.problems(SHOWN)

    def cell(problem: str, method: str) -> str:
        return _price(found, problem, method)

    note = (
        "Passes through the network in training, relative to ordinary training of the same epochs; in brackets the "
        f"time of `fit` over {CONTROL}'s in the same session, where two runs at a time disturb each other."
    )
    return _section("Cost", note, ["", *problems], _rows(found, problems, cell))


_COLUMNS = (
    ("accuracy", "accuracy"), ("nll", "NLL"), ("ece", "ECE"), ("auroc", "AUROC"), ("shifted_nll", "NLL, corrupted"),
    ("shifted_accuracy", "accuracy, corrupted"),
)  # fmt: skip


def _whole(found: Results, problem: str) -> str:
    if not found.problems([problem]):
        return ""
    rows = []
    for method in found.methods([problem]):
        scores = [_pm(found.score(problem, method, metric), 4) for metric, _ in _COLUMNS]
        rows.append([method, *scores, _price(found, problem, method), str(len(found.at(problem, method)))])
    one = PROBLEMS[problem]
    title = f"{one.data}, whole, {one.model['name']}, {one.epochs} epochs, batch {one.batch_size}"
    return _section(title, "", ["", *(title for _, title in _COLUMNS), "passes (time)", "seeds"], rows)


def _uci(found: Results, title: str, metric: str, sign: float) -> str:
    problems = [name for name in UCI if any(name in level_sets(found, m, metric) for m in found.methods([name]))]
    if not problems:
        return ""

    def cell(problem: str, method: str) -> str:
        own = found.score(problem, method, metric)
        if own is None or own.count < LEAST_SPLITS:
            return ""
        text = _pm(Mean(sign * own.mean, own.error, own.count), 2 if problem != "naval" or metric == "nll" else 4)
        return text if level_sets(found, method, metric)[problem] else f"**{text}**"

    rows = _rows(found, problems, cell)
    for study in published.STUDIES:
        printed = [published.published(metric, problem)[study] for problem in problems]
        rows.append([f"*{study}*", *(f"{sign * one.mean:.2f} ± {one.error:.2f}" for one in printed)])
    counts = sorted({len(found.at(name, CONTROL)) for name in problems})
    note = (
        f"Means over {' or '.join(map(str, counts))} of the standard splits ± standard error; in italics what was "
        "published, over all 20 (protein: 5). Bold: worse than the best of the three by more than two combined "
        "standard errors and its rounding."
    )
    return _section(f"UCI tables: test {title}", note, ["", *problems], rows)


def _peers(found: Results) -> str:
    names = found.methods(peers.PROBLEMS, peers=True)
    if not names:
        return ""
    columns = [(p, m) for p in found.problems(peers.PROBLEMS) for m in ("nll", "accuracy", "ece", "auroc")]
    columns = [(p, m) for p, m in columns if any(found.score(p, name, m) is not None for name in names)]
    ours = found.methods(peers.PROBLEMS)
    rows = []
    for name in [*ours, *names]:
        cells = [_pm(found.score(problem, name, metric), 3) for problem, metric in columns]
        versions = {str(line.get("version", "")) for p in peers.PROBLEMS for line in found.at(p, name).values()} - {""}
        label = f"*{name.removeprefix(peers.PREFIX)}* {' '.join(sorted(versions))}" if name in names else name
        rows.append([label, *cells])
    settings = "; ".join(f"{name}: {peer.settings}" for name, peer in peers.PEERS.items())
    note = f"In italics, with the settings of their READMEs, the same epochs and batches, 100 draws. {settings}."
    return _section("Beside other libraries", note, ["", *(f"{p} {m}" for p, m in columns)], rows)


def _failures(found: Results) -> str:
    rows = [
        [problem, method, str(seed), str(line["error"])]
        for (problem, method), lines in found.lines.items()
        for seed, line in lines.items()
        if "error" in line
    ]
    return _section("What failed", "", ["problem", "method", "seed", "reason"], rows)


def _price(found: Results, problem: str, method: str) -> str:
    """Passes, and the time in brackets."""
    passes, taken = found.score(problem, method, "passes"), time_ratio(found, problem, method)
    if passes is None or not math.isfinite(passes.mean):
        return ""
    return f"{passes.mean:.1f}" + ("" if taken is None else f" ({taken:.1f})")


def _section(title: str, note: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    return f"### {title}\n\n" + (f"{note}\n\n" if note else "") + markdown(header, rows)


def _pm(one: Mean | None, digits: int) -> str:
    if one is None:
        return ""
    if not math.isfinite(one.mean):
        return "failed"
    return f"{one.mean:.{digits}f}" + (f" ± {one.error:.{digits}f}" if math.isfinite(one.error) else "")
