"""Pages of the site that are kept elsewhere in the repository, where code hosts look for them.

README.md, CONTRIBUTING.md and others become pages of the site. Links from and to them are those of the repository, so
that they work on a code host; here they are turned to the pages of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
KEPT_ELSEWHERE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/reporting.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "benchmarks/results/plot.svg": "project/benchmarks.svg",
    "benchmarks/results/quality.svg": "project/quality.svg",
}
"""The place in the repository -> the place in the site."""

_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    """Add what is kept outside docs/."""
    for place, there in KEPT_ELSEWHERE.items():
        path = ROOT / place
        if path.suffix == ".md":
            files.append(File.generated(config, there, content=turned(path.read_text(encoding="utf-8"), place, there)))
        else:
            files.append(File.generated(config, there, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of pages in docs/; the others were turned when they were added."""
    there = page.file.src_uri
    return markdown if there in KEPT_ELSEWHERE.values() else turned(markdown, f"docs/{there}", there)


def turned(markdown: str, place: str, there: str) -> str:
    """Links of the file at ``place`` in the repository, made links of the page ``there`` in the site."""

    def turn(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), found[2]))
        if target in KEPT_ELSEWHERE:
            inside = KEPT_ELSEWHERE[target]
        elif target.startswith("docs/"):
            inside = target.removeprefix("docs/")
        else:
            return found[0]
        return f"{found[1]}{posixpath.relpath(inside, posixpath.dirname(there) or '.')}{found[3]}"

    return _LINK.sub(turn, markdown)
