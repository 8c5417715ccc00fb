"""Pages of the studies: verdict tables in Markdown, the README of each paper, and the index of all."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from .definition import PAPERS, ROOT, Claim, Study, read_studies
from .figures import draw_plots
from .verdicts import HOLDS, VERDICTS, Findings, Verdict

PAGE = "README.md"
HEAD = ("claim", "in the paper", "ours", "verdict")
LEGEND = """Ours: mean ± half the 95 % interval of Student's t over seeds. Of two cells it is the gain of the first
over the second, positive where it is better; of one cell its score; else a ratio, or a slope along the grid."""


@functools.cache
def findings(folder: str) -> tuple[Findings, ...]:
    """Return the findings of the studies of a paper."""
    return tuple(Findings.of(study) for study in read_studies(ROOT) if study.folder.name == folder)


def verdict_table(paper: str, *, headlines: bool = True) -> str:
    """Return a paper's verdicts as Markdown: how many of each, and a table of the claims it is known for.

    Args:
        paper: folder of its studies, such as "hwa".
        headlines: False: a table of all claims.
    """
    found = findings(paper)
    counts = count_verdicts(found)
    total = ", ".join(f"{counts[word]} {word}" for word in VERDICTS)
    rows = [_row(claim, one) for one in found for claim in one.study.claims if claim.headline or not headlines]
    return "\n\n".join([f"{sum(counts.values())} claims: {total}.", _table(HEAD, rows), LEGEND.replace("\n", " ")])


def count_verdicts(found: Iterable[Findings]) -> Counter[str]:
    """Return the number of claims with each verdict; controls do not count."""
    return Counter(one.verdict(claim).word for one in found for claim in one.study.claims)


def write_pages(root: Path, studies: Sequence[Study]) -> None:
    """Write the README of each paper, with its pictures, and the table of the index."""
    findings.cache_clear()
    for folder in sorted({study.folder for study in studies}):
        parts = [f"# {PAPERS[folder.name]}", "Written by `python -m studies --no-run`."]
        parts += [_section(one) for one in findings(folder.name)]
        (folder / PAGE).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    index = root / PAGE
    before, begin, after = index.read_text(encoding="utf-8").partition(BEGIN)
    if begin:
        _, _, rest = after.partition(END)
        index.write_text(f"{before}{BEGIN}\n{count_table()}\n{END}{rest}", encoding="utf-8")


BEGIN, END = "<!-- counts -->", "<!-- end of counts -->"


def count_table() -> str:
    """Return the number of verdicts by paper."""
    rows, total = [], Counter[str]()
    for folder, title in PAPERS.items():
        counts = count_verdicts(findings(folder))
        total += counts
        rows.append([f"[{title}]({folder}/{PAGE})", *(str(counts[word]) for word in VERDICTS)])
    rows.append(["all", *(str(total[word]) for word in VERDICTS)])
    return _table(("paper", *VERDICTS), rows)


def _section(found: Findings) -> str:
    study, scale = found.study, found.scale
    state = f"Scale `{scale.name}`: {len(found.runs)} of {len(scale.cells) * scale.seeds} runs, {scale.seeds} seeds."
    if not found.runs:
        state = "No runs yet."
    parts = [f"## {study.title}", study.about, " ".join([state, scale.about]).strip()]
    rows = []
    for claim in study.claims:
        rows.append(_row(claim, found))
        verdicts = [(control, found.verdict(control)) for control in claim.controls]
        rows += [_row(control, found, "control: ") for control, verdict in verdicts if verdict.value is not None]
    parts.append(_table(HEAD, rows))
    parts += [f"![{title}](pictures/{path.name})" for title, path in draw_plots(found)]
    return "\n\n".join(part for part in parts if part)


def _row(claim: Claim, found: Findings, before: str = "") -> list[str]:
    verdict = found.verdict(claim)
    where = f" ({claim.where})" if claim.where else ""
    printed = "" if verdict.printed is None else f"{verdict.printed:.4g}"
    return [f"{before}{claim.text}{where}", printed, verdict.number, _word(claim, found, verdict)]


def _word(claim: Claim, found: Findings, verdict: Verdict) -> str:
    parts = [f"**{verdict.word}**"]
    if verdict.note:
        parts[0] += f": {verdict.note}"
    if claim.means and verdict.word == HOLDS:
        parts[0] += f": {claim.means}"
    if verdict.word == HOLDS:
        parts += [one.means for one in claim.controls if one.means and found.verdict(one).word == HOLDS]
    return "; ".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
