"""The README of a study folder, and the index of all: made from study files and results, never written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..metrics.estimates import Estimate
from ..persistence import write_whole
from .claims import FAILS, HOLDS, UNKNOWN, UNTESTED, Claim, Verdict
from .definition import Study
from .findings import Findings, best_findings
from .pictures import draw
from .results import read_results

PAGE = "README.md"
_MADE = "Made by `bayeswell study`; do not edit."
_INDEX = """A claim has its rule in the file of its study; its row, the numbers and all controls are on the page of its
paper. `bayeswell study {root} --scale {scale}` runs what is missing, and goes on after a kill."""
_COUNTS = "Counted are all claims of a paper, by what our runs say of them; controls are not."
_KNOWN_FOR = "What each paper is known for:"
GAINS = """Paper and ours: of two ways to train the gain of the first over the second, positive where it is better; of
one way its score; else a ratio, or a slope along the grid, as the rule says."""
_COUNTED = (HOLDS, FAILS, UNTESTED, UNKNOWN)


def write_page(folder: Path, found: Mapping[str, tuple[Study, Findings | None]]) -> Path:
    """One page for the studies of a folder, with their pictures in ``pictures/``."""
    first = next(iter(found.values()))[0]
    parts = [f"# {first.paper}", _MADE]
    parts += [_study(folder, study, findings) for study, findings in found.values()]
    write_whole(folder / PAGE, ("\n\n".join(parts) + "\n").encode())
    return folder / PAGE


def write_index(root: Path, folders: Mapping[Path, Mapping[str, tuple[Study, Findings | None]]]) -> Path:
    """What the claims of all papers are worth: in one screen by paper, and below it by claim."""
    scales = {name for found in folders.values() for study, _ in found.values() for name in study.scales}
    how = _INDEX.format(root=root.resolve().name, scale="cpu" if "cpu" in scales else min(scales))
    lines = ["# Studies: papers' claims, tried", "", _MADE, "", how, "",
             f"| paper | in short | runs | {' | '.join(_COUNTED)} |", f"|{'---|' * (3 + len(_COUNTED))}"]  # fmt: skip
    for folder, found in folders.items():
        counts = dict.fromkeys(_COUNTED, 0)
        done = wanted = 0
        for study, findings in found.values():
            shown = findings or _nothing(study)
            if findings is not None or study.runs_on_a_processor:
                done, wanted = done + shown.done, wanted + shown.wanted
            for claim in study.claims:
                if not claim.control_of:
                    counts[shown.verdict(claim).word] += 1
        studies = [study for study, _ in found.values()]
        short = _cell(" ".join(study.summary for study in studies))
        cells = " | ".join(str(counts[word]) for word in _COUNTED)
        lines.append(f"| [{studies[0].paper}]({folder.name}/{PAGE}) | {short} | {done} of {wanted} | {cells} |")
    write_whole(root / PAGE, ("\n".join([*lines, "", _COUNTS, "", *_headlines(folders)]).rstrip() + "\n").encode())
    return root / PAGE


def _headlines(folders: Mapping[Path, Mapping[str, tuple[Study, Findings | None]]]) -> list[str]:
    """A row for each claim that a paper is known for, with the gain on both sides and what the controls tell."""
    rows = []
    for folder, found in folders.items():
        for study, findings in found.values():
            shown = findings or _nothing(study)
            for claim in study.claims:
                if claim.headline:
                    verdict = shown.verdict(claim)
                    paper = "" if verdict.printed is None else f"{verdict.printed:.7g}"
                    ours = "" if claim.rule == "not_testable" else _cell(verdict.said)
                    word = f"**{verdict.word}**{_controls(study, shown, claim)}"
                    place = f"[{folder.name}]({folder.name}/{PAGE})"
                    rows.append(f"| {place} | {_cell(claim.headline)} | {paper} | {ours} | {word} |")
    if not rows:
        return []
    head = ["| from | claim | in the paper | ours | verdict, and what controls say |", "|---|---|---|---|---|"]
    return [_KNOWN_FOR, "", *head, *rows, "", GAINS, ""]


def _controls(study: Study, found: Findings, claim: Claim) -> str:
    """What follows from the controls of a claim that hold, and the text of those that do not."""
    said = []
    for one in study.claims:
        word = found.verdict(one).word if one.control_of == claim.name else UNKNOWN
        if word == HOLDS:
            said.append(f"; {_cell(one.means or one.text)}")
        elif word == FAILS:
            said.append(f'; control not met: "{_cell(one.text)}"')
    return "".join(said)


def findings_of(studies: Sequence[Study]) -> dict[str, tuple[Study, Findings | None]]:
    """What the committed results of each study say."""
    return {study.name: (study, best_findings(study, read_results(study.results))) for study in studies}


def _nothing(study: Study) -> Findings:
    """A study without results: its claims have a row each all the same."""
    name = "cpu" if study.runs_on_a_processor else next(iter(study.scales))
    return Findings(study, study.scales[name], [])


def _study(folder: Path, study: Study, findings: Findings | None) -> str:
    shown = findings or _nothing(study)
    parts = [f"## {study.title}"]
    if study.about:
        parts.append(study.about)
    parts.append(_state(study, shown))
    parts.append(_claims(study, shown))
    if findings is not None:
        parts.append(_numbers(study, findings))
        parts += [f"![{title}](pictures/{path.name})" for title, path in draw(folder / "pictures", findings)]
        for line in findings.failures:
            parts.append(f"Failed: `{line.cell}` {dict(line.at) or ''} seed {line.seed}: {line.error}")
    return "\n\n".join(parts)


def _state(study: Study, found: Findings) -> str:
    scale = found.scale
    if not found.done:
        text = f"No results yet at the scale `{scale.name}` ({found.wanted} runs wanted)."
    else:
        text = (
            f"Scale `{scale.name}`: {found.done} of {found.wanted} runs, {len(scale.seeds)} seeds, "
            f"{found.seconds / 60:,.1f} minutes of machine time."
        )
    if scale.about:
        text += f" {scale.about}"
    if found.stale:
        text += (
            f" {found.stale} runs were made with other defaults than the package has now (`--renew` makes them again)."
        )
    commits = sorted({line.commit for line in found.lines if line.commit and line.scale == scale.name})
    if commits and found.done:
        text += f" Commit{'' if len(commits) == 1 else 's'} {', '.join(f'`{one}`' for one in commits)}."
    place = "/".join(study.path.resolve().parts[-3:])
    return f"{text}\n\n`bayeswell study {place} --scale {scale.name}`"


def _claims(study: Study, found: Findings) -> str:
    """Claims with the controls that tell below each."""
    rows = ["| claim | where | rule | paper | ours | verdict |", "|---|---|---|---|---|---|"]
    for claim in study.claims:
        if claim.control_of:
            continue
        rows.append(_row(claim, found.verdict(claim)))
        rows += [_row(one, found.verdict(one), "control: ") for one in study.claims if one.control_of == claim.name]
    return "\n".join([*rows, "", GAINS])


def _row(claim: Claim, verdict: Verdict, before: str = "") -> str:
    paper = "" if verdict.printed is None else f"{verdict.printed:.7g}"
    word = f"**{verdict.word}**"
    if claim.means and verdict.word == HOLDS:
        word += f": {claim.means}"
    said = "" if claim.rule == "not_testable" else verdict.said
    columns = [f"{before}{_cell(claim.text)}", _cell(claim.where), _cell(claim.in_words), paper, _cell(said), word]
    return f"| {' | '.join(columns)} |"


def _numbers(study: Study, found: Findings) -> str:
    """Every cell with every score: the paper's number, where there is one, before ours."""
    head = ["cell", "runs", *(f"{score}" for score in study.scores)]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    best = {cell.label: found.cell(cell.label, {}) for cell in found.scale.cells} if study.choose else {}
    for cell in found.scale.cells:
        mark = " (chosen)" if cell.at and best.get(cell.label) is cell else ""
        runs = len(found.values(cell.label, cell.at, study.scores[0]))
        at = {} if mark else cell.at  # what the paper prints without a point of the grid is its choice, beside ours
        scores = [_pair(found.printed(cell.label, at, score), found.score(cell, score)) for score in study.scores]
        rows.append(f"| {_cell(cell.name)}{mark} | {runs} | {' | '.join(scores)} |")
    wheres = sorted({one.where for one in study.printed})
    notes = [f"Paper ({'; '.join(wheres)}) \\| ours ± standard error over seeds." if wheres else
             "± standard error over seeds."]  # fmt: skip
    if study.choose:
        notes.append(f"Chosen: the point of the grid with the best mean {study.choose}; the test set plays no part.")
    return "\n".join([*rows, "", *notes])


def _pair(paper: float | None, ours: Estimate | None) -> str:
    left = "" if paper is None else f"{paper:g} \\| "
    if ours is None:
        return f"{left}–" if left else "–"
    return f"{left}{ours.value:.4g}" + ("" if not ours.error else f" ± {ours.error:.2g}")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
