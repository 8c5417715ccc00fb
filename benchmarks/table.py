"""The record as tables: the part of benchmarks/README.md between two marks."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from . import goals, ours, peers
from .goals import Verdict
from .nets import NETS
from .record import ratio
from .summary import Summary, summarise

BEGIN = "<!-- measured: written by `make bench` from here -->"
END = "<!-- measured: to here -->"

_PER_CENT = 0.1
"""Limits below this are shares of a step, written in per cent."""


NOWHERE: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def rewrite(page: Path, record: Mapping[str, Any], elsewhere: Mapping[str, Mapping[str, Any]] = NOWHERE) -> None:
    """Put the tables of the record between the marks of the page, its goals beside those of other machines."""
    page.write_text(between_marks(page.read_text(encoding="utf-8"), render(record, elsewhere)), encoding="utf-8")


def between_marks(text: str, new: str, begin: str = BEGIN) -> str:
    """The text with what is between the marks exchanged."""
    if text.count(begin) != 1 or text.count(END) != 1 or text.index(begin) > text.index(END):
        raise ValueError(f"the page must have '{begin}' and then '{END}', each once")
    before, after = text.split(begin)[0], text.split(END)[1]
    return f"{before}{begin}\n\n{new.strip()}\n\n{END}{after}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def render(record: Mapping[str, Any], elsewhere: Mapping[str, Mapping[str, Any]] = NOWHERE) -> str:
    """All tables that the record has numbers for, and the goals on other kinds of machine."""
    parts = record["parts"]
    made = [
        _circumstances(parts),
        _goals(record, elsewhere),
        _ratios("A training step", parts, "step", _STEP_NOTE),
        _ratios("A prediction with 30 draws", parts, "predict", _PREDICT_NOTE),
        _loops(parts),
        _updates(parts),
        _memory(parts),
        _ratios("Large networks: a training step", parts, "large", _LARGE_NOTE),
        _peaks("Large networks: peak memory", parts, "large"),
        _ratios("In bfloat16", parts, "bf16", _BF16_NOTE),
        _ratios("Networks that torch.compile has compiled", parts, "compile", _COMPILE_NOTE),
        _series("Growth with the width of an MLP: a training step", parts, "growth/width", "width"),
        _series("Growth with the batch: a training step of the MLP", parts, "growth/batch", "batch"),
        _series("Growth with draws: a prediction of LeNet-5", parts, "growth/draws-lenet", "draws"),
        _series("Growth with draws: a prediction of the MLP", parts, "growth/draws-mlp", "draws"),
        _start(parts),
        _failures(parts),
    ]
    return "\n\n".join(text for text in made if text)


_GOAL_NOTE = (
    "Steps are compared with an ordinary step with Adam as torch makes it by default, as the numbers were that the "
    "goals were set by; beside it the ratio to a step with torch's fused Adam, which is faster."
)
_STEP_NOTE = (
    "Time over that of an ordinary step with torch's default Adam in the same moment: median of rounds ± its standard "
    "error; in brackets over an ordinary step with torch's fused Adam, which is faster."
)
_PREDICT_NOTE = (
    "Time over that of 30 passes of the ordinary network: median of rounds ± its standard error. Batches of "
    + ", ".join(f"{net.predict_batch} ({net.title.split(',')[0]})" for net in NETS.values() if net.predict_batch)
    + "."
)


_LARGE_NOTE = (
    "As above; one process for all cases of a network, which take turns. Measured on request (`--only large`)."
)
_BF16_NOTE = "Both under autocast to bfloat16 (`bf16-mixed`); weights and posterior stay in float32."
_COMPILE_NOTE = "Over the ordinary step of the network as it is; `compiled` ones are `bayesian(torch.compile(net))`."


def _circumstances(parts: Mapping[str, Any]) -> str:
    if not parts:
        return "Nothing was measured yet."
    several = "; ".join(
        sorted({f"{p['cpu']}, {p['cores']} cores, {p['system']}, Python {p['python']}" for p in parts.values()})
    )
    versions = {f"{k} {v}" for p in parts.values() for k, v in p["versions"].items() if v is not None}
    missing = {k for p in parts.values() for k, v in p["versions"].items() if v is None}
    when = sorted(p["when"] for p in parts.values())
    threads = ", ".join(sorted({str(p["threads"]) for p in parts.values()}))
    commits = ", ".join(sorted({p["commit"] for p in parts.values()}))
    compiled = {p["compiled"] for p in parts.values()}
    kernels = "with" if compiled == {True} else "without" if compiled == {False} else "in part with"
    noise = [
        f"{net} {_pm(found, 3)} (quartiles {found.low:.3f} to {found.high:.3f})"
        for net in NETS
        if f"step/{net}" in parts and (found := ratio(parts[f"step/{net}"], ours.PLAIN_AGAIN)) is not None
    ]
    lines = [
        f"- Machine: {several}; {threads} threads; load of 1 minute when parts began: "
        f"{min(p['load'] for p in parts.values()):.1f} to {max(p['load'] for p in parts.values()):.1f}.",
        f"- Measured {when[0]} to {when[-1]} at commit {commits}, {kernels} bayeswell's compiled formulas.",
        f"- Versions: {', '.join(sorted(versions))}"
        + (f"; not installed: {', '.join(sorted(missing))}" if missing else "")
        + ".",
    ]
    if noise:
        lines.append(f"- Noise: the ordinary step against itself: {'; '.join(noise)}. Without noise all would be 1.")
    return "\n".join(lines)


def _goals(record: Mapping[str, Any], elsewhere: Mapping[str, Mapping[str, Any]]) -> str:
    found = goals.verdicts(record)
    if all(one.found is None for one in found):
        return ""
    others = {name: {one.goal: one for one in goals.verdicts(other)} for name, other in elsewhere.items()}
    rows = [
        [one.goal.title, _goal_number(one), _limit(one), one.word, _over_fused(one, record), _best_peer(one, record)]
        + [_number_elsewhere(verdicts[one.goal]) for verdicts in others.values()]
        for one in found
    ]
    header = ["", "measured", "goal: at most", "", "over fused Adam", "best peer in the same run"]
    header += [f"on {name}" for name in elsewhere]
    notes = [_GOAL_NOTE, *(_of_another_machine(name, other) for name, other in elsewhere.items())]
    text = "\n".join(notes)
    return f"### Goals\n\n{text}\n\n{markdown(header, rows)}"


def _number_elsewhere(one: Verdict) -> str:
    """The number alone where the goal was met, the verdict beside it where it was not."""
    number = _goal_number(one)
    return number if one.met or not number else f"{number} ({one.word})"


def _of_another_machine(name: str, record: Mapping[str, Any]) -> str:
    parts = record["parts"].values()
    commits, cpus = (", ".join(sorted({part[key] for part in parts})) for key in ("commit", "cpu"))
    found = goals.verdicts(record)
    measured = sum(one.found is not None for one in found)
    return (
        f"The column 'on {name}' is a record of another machine ({cpus}, at commit {commits}), with the same goals and "
        f"margins, of which {sum(one.met for one in found)} of {measured} measured ones were met: its numbers without "
        "brackets."
    )


def _over_fused(one: Verdict, record: Mapping[str, Any]) -> str:
    part = record["parts"].get(one.goal.part)
    if part is None or one.goal.kind != "ratio" or one.goal.over is not None or ours.PLAIN_FUSED not in part["seconds"]:
        return ""
    found = ratio(part, one.goal.case, ours.PLAIN_FUSED)
    return "" if found is None else f"{found.median:.2f}"


def _goal_number(one: Verdict) -> str:
    if one.found is None:
        return ""
    if one.goal.limit < _PER_CENT:
        return f"{100 * one.found.median:.2g} %"
    return _pm(one.found)


def _limit(one: Verdict) -> str:
    return f"{100 * one.goal.limit:g} %" if one.goal.limit < _PER_CENT else f"{one.goal.limit:.2f}"


def _best_peer(one: Verdict, record: Mapping[str, Any]) -> str:
    part = record["parts"].get(one.goal.part)
    if part is None or not one.goal.peers:
        return ""
    found = {name: ratio(part, peers.PREFIX + name) for name in one.goal.peers}
    known = {name: summary.median for name, summary in found.items() if summary is not None}
    if not known:
        return ""
    best = min(known, key=lambda name: known[name])
    return f"{best} {known[best]:.2f}"


def _ratios(title: str, parts: Mapping[str, Any], group: str, note: str) -> str:
    nets = [name for name in NETS if f"{group}/{name}" in parts]
    if not nets:
        return ""
    cases: dict[str, None] = {}
    for net in nets:
        cases.update(dict.fromkeys(parts[f"{group}/{net}"]["seconds"]))
    rows = []
    for case in [*(c for c in cases if not _is_peer(c)), *(c for c in cases if _is_peer(c))]:
        cells = [_ratio_cell(parts[f"{group}/{net}"], case) for net in nets]
        rows.append([f"*{case.removeprefix(peers.PREFIX)}*" if _is_peer(case) else case, *cells])
    header = ["peers in italics", *(NETS[net].title for net in nets)]
    return f"### {title}\n\n{note}\n\n{markdown(header, rows)}"


def _ratio_cell(part: Mapping[str, Any], case: str) -> str:
    if case == part["reference"]:
        return f"{1e3 * statistics.median(part['seconds'][case]):.3g} ms"
    found = ratio(part, case)
    if found is None:
        return ""
    fused = ratio(part, case, ours.PLAIN_FUSED) if ours.PLAIN_FUSED in part["seconds"] else None
    return _pm(found) + ("" if fused is None or case == ours.PLAIN_FUSED else f" ({fused.median:.2f})")


def _loops(parts: Mapping[str, Any]) -> str:
    rows = []
    for net in NETS:
        part = parts.get(f"loop/{net}")
        if part is not None:
            for case in part["seconds"]:
                rows.append([NETS[net].title, case, _ratio_cell(part, case)])  # noqa: PERF401
    note = "Over an ordinary step on the same shuffled data, the three in turns; `fit` with folder and progress bar."
    return f"### Through `fit`\n\n{note}\n\n{markdown(['', '', 'a step'], rows)}" if rows else ""


def _updates(parts: Mapping[str, Any]) -> str:
    places = [name for name in parts if name.startswith("update/")]
    if not places:
        return ""
    cases = list(parts[places[0]]["seconds"])
    rows = [[case, *(_ratio_cell(parts[place], case) for place in places)] for case in cases]
    return (
        "### An optimizer's update alone\n\nOver torch's fused Adam on the same parameters and gradients.\n\n"
        + markdown(["", *(place.removeprefix("update/") for place in places)], rows)
    )


def _memory(parts: Mapping[str, Any]) -> str:
    nets = [name for name in NETS if f"memory/{name}" in parts]
    if not nets:
        return ""
    found = {net: parts[f"memory/{net}"] for net in nets}
    kinds = ("weights_bytes", "gradients_bytes", "adam_state_bytes", "activations_bytes", "inputs_bytes")
    rows = [
        [
            f"of the ordinary step: {kind.removesuffix('_bytes').replace('_', ' ')}",
            *(_mb(found[n]["parts"][kind]) for n in nets),
        ]
        for kind in kinds
    ]
    cases: dict[str, None] = {}
    for net in nets:
        cases.update(dict.fromkeys(found[net]["peaks"]))
    for case in cases:
        cells = [_peak_cell(found[net]["peaks"], case) for net in nets]
        rows.append([f"peak: {_shown(case)}", *cells])
    note = (
        "MB. A peak is what the process grew by at most, from before the network was built to after three steps, each "
        "case in a process of its own; in brackets over that of the ordinary step."
    )
    return f"### Memory\n\n{note}\n\n{markdown(['', *(NETS[net].title for net in nets)], rows)}"


def _peaks(title: str, parts: Mapping[str, Any], group: str) -> str:
    nets = [name for name in NETS if f"{group}/{name}" in parts]
    if not nets:
        return ""
    peaks = {net: parts[f"{group}/{net}"]["peaks"] for net in nets}
    rows = [["weights", *(f"{parts[f'{group}/{net}']['weights']:,}" for net in nets)]]
    cases = dict.fromkeys(case for net in nets for case in peaks[net])
    rows += [[case, *(_peak_cell(peaks[net], case) for net in nets)] for case in cases]
    note = "MB, each case in a process of its own; in brackets over that of the ordinary step."
    return f"### {title}\n\n{note}\n\n{markdown(['', *(NETS[net].title for net in nets)], rows)}"


def _peak_cell(peaks: Mapping[str, Any], case: str) -> str:
    if case not in peaks:
        return ""
    own = statistics.median(peaks[case])
    base = statistics.median(peaks[ours.PLAIN]) if ours.PLAIN in peaks else None
    return _mb(own) + ("" if base is None else f" ({own / base:.2f})")


def _series(title: str, parts: Mapping[str, Any], name: str, axis: str) -> str:
    if name not in parts:
        return ""
    points: Mapping[str, Any] = parts[name]["points"]
    cases: dict[str, None] = {}
    for point in points.values():
        cases.update(dict.fromkeys(point["seconds"]))
    rows = []
    if all("weights" in point for point in points.values()):
        rows.append(["weights", *(f"{point['weights']:,}" for point in points.values())])
    rows += [[_shown(case), *(_ratio_cell(point, case) for point in points.values())] for case in cases]
    return f"### {title}\n\n{markdown([axis, *points], rows)}"


def _start(parts: Mapping[str, Any]) -> str:
    texts = []
    if "start/import" in parts:
        seconds = parts["start/import"]["seconds"]
        base = seconds["torch"]
        rows = []
        for name, values in seconds.items():
            beyond = summarise([own - torch for own, torch in zip(values, base, strict=True)])
            rows.append([name, f"{statistics.median(values):.2f} s", f"{beyond.median:.2f} s"])
        texts.append(markdown(["imports, a process of its own", "whole", "beyond torch"], rows))
    for net in NETS:
        if f"start/{net}" not in parts:
            continue
        rows = []
        for name, several in parts[f"start/{net}"]["first"].items():
            middle = (statistics.median(one[key] for one in several) for key in ("build", "first", "later"))
            rows.append([name, *(f"{1e3 * seconds:.3g} ms" for seconds in middle)])
        texts.append(markdown([NETS[net].title, "build", "first step", "later step"], rows))
    note = (
        "The cache is that of torch's compiler (TORCHINDUCTOR_CACHE_DIR). bayeswell's own formulas are compiled when "
        "it is installed, so that no step should wait for a compiler. Building comes after torch's first optimizer, "
        "whose imports take a second by themselves."
    )
    return f"### Start\n\n{note}\n\n" + "\n\n".join(texts) if texts else ""


def _failures(parts: Mapping[str, Any]) -> str:
    rows = [
        [name, _shown(case), reason.replace("|", "/")]
        for name, part in parts.items()
        for case, reason in part.get("failed", {}).items()
    ]
    return f"### What could not be measured\n\n{markdown(['part', 'case', 'reason'], rows)}" if rows else ""


def _is_peer(case: str) -> bool:
    return case.startswith(peers.PREFIX)


def _shown(case: str) -> str:
    return f"*{case.removeprefix(peers.PREFIX)}*" if _is_peer(case) else case


def _pm(found: Summary, digits: int = 2) -> str:
    return f"{found.median:.{digits}f} ± {found.error:.{digits}f}"


def _mb(count: float) -> str:
    return f"{count / 1e6:.1f}"
