"""Write the verdicts of studies into the pages on papers, or check that they are up to date (``--check``).

    python tools/write_verdicts.py             write them
    python tools/write_verdicts.py --check     exit code 1 where a page is not what studies/README.md says

``bayeswell study`` makes studies/README.md from the committed results: the count of all claims of a paper and what they
are worth, and a row for each that it is known for. The site has no page of the studies themselves, so that each page of
docs/papers takes its rows from there, between two marks, and docs/papers/index.md the counts.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # the benchmarks are a package in the project's folder, not an installed one

from benchmarks.table import between_marks, markdown

from bayeswell.studies import Study, find_studies
from bayeswell.studies.page import GAINS, PAGE, findings_of, write_index, write_page

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "<!-- measured: written by tools/write_verdicts.py from here -->"
PAGES = {
    "hwa": "hwa", "thesis": "thesis", "variational_laplace": "variational_laplace", "flat_seeking": "flat",
    "k_tied": "k_tied",
}  # fmt: skip
"""The folder of a paper's studies, and its page."""
_LINK = re.compile(r"\[([^\]]*)\]\(([\w-]+)/README\.md\)")


def rows_of(index: str) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of the two tables of studies/README.md: claims that papers are known for, and all of them by paper."""
    tables: list[list[list[str]]] = []
    before = ""
    for line in index.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            tables[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        before = line
    if len(tables) != 2:
        raise ValueError(
            f"studies/README.md has {len(tables)} tables, not 2; bayeswell study studies --no-run makes it"
        )
    counts, claims = tables
    return claims[2:], counts[2:]


def folder_of(cell: str) -> str:
    """The folder that a row's first cell links to."""
    found = _LINK.search(cell)
    if found is None:
        raise ValueError(f"studies/README.md: no paper in '{cell}'")
    return found[2]


def claims_of(index: str, folder: str) -> str:
    """The rows of one paper, its counts, and where all the rest stands."""
    claims, counts = rows_of(index)
    own = [row[1:] for row in claims if folder_of(row[0]) == folder]
    of_paper = [row[1:] for row in counts if folder_of(row[0]) == folder]
    if not of_paper:
        raise ValueError(f"studies/README.md: no studies of '{folder}', which has a page in docs/papers")
    short, runs, holds, fails, untested, unknown = of_paper[0]
    said = [f"{holds} hold", f"{fails} do not hold", f"{untested} cannot be tested at this scale"]
    if unknown != "0":
        said.append(f"{unknown} wait for their runs")
    if runs.startswith("0 "):
        return f"No runs yet; `studies/{folder}/README.md` has every claim with its rule and the paper's number."
    tried = (
        f"Tried by {runs} runs at a scale that two cores can do: of its claims {', '.join(said)} "
        f"(`studies/{folder}/README.md` has each with its rule, the paper's number, ours ± standard error and the "
        "controls). Those that the paper is known for:"
    )
    table = markdown(["claim", "in the paper", "ours", "verdict, and what controls say"], own)
    return "\n\n".join([*([f"**In short.** {short}"] if short else []), tried, table, GAINS])


def counts_of(index: str) -> str:
    """A row for each paper, with a link to its page."""
    rows = []
    for name, *columns in rows_of(index)[1]:
        folder, title = folder_of(name), _LINK.sub(r"\1", name)
        if folder not in PAGES:
            raise ValueError(f"studies/{folder} has no page in docs/papers; name one in tools/write_verdicts.py")
        rows.append([f"[{title}]({PAGES[folder]}.md#claims)", *columns])
    head = ["claims of", "in short", "runs", "hold", "do not hold", "not testable at this scale", "no results yet"]
    return markdown(head, rows)


def pages_of(studies: Path) -> dict[Path, str]:
    """studies/README.md and that of every paper, as the study files and the committed results have them now."""
    by_folder: dict[Path, list[Study]] = {}
    for study in find_studies(studies):
        by_folder.setdefault(study.path.parent, []).append(study)
    found = {folder: findings_of(by_folder[folder]) for folder in sorted(by_folder)}
    pages = {}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / studies.resolve().name  # which the page names
        root.mkdir()
        pages[studies / PAGE] = write_index(root, found).read_text(encoding="utf-8")
        for folder, one in found.items():
            (root / folder.name).mkdir()
            pages[folder / PAGE] = write_page(root / folder.name, one).read_text(encoding="utf-8")
    return pages


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 where a page is out of date."""
    parser = argparse.ArgumentParser(description="The verdicts of studies in the pages on papers.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is out of date")
    parser.add_argument("--index", type=Path, default=ROOT / "studies" / "README.md", help="studies/README.md")
    parser.add_argument("--pages", type=Path, default=ROOT / "docs" / "papers", help="docs/papers")
    given = parser.parse_args(arguments)
    index, old_pages = given.index.read_text(encoding="utf-8"), 0
    for page, text in pages_of(given.index.parent).items() if given.check else ():
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            print(f"{page} is not what study files and results say; run: bayeswell study studies --no-run")
            old_pages += 1
    made = {name: claims_of(index, folder) for folder, name in PAGES.items()} | {"index": counts_of(index)}
    for name, text in made.items():
        page = given.pages / f"{name}.md"
        old = page.read_text(encoding="utf-8")
        new = between_marks(old, text, BEGIN)
        if new != old:
            old_pages += 1
            if given.check:
                print(f"{page.name} is not what the studies say; run: python tools/write_verdicts.py")
            else:
                page.write_text(new, encoding="utf-8")
    return int(given.check and old_pages > 0)


if __name__ == "__main__":
    sys.exit(main())
