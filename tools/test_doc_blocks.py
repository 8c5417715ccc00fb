"""Run the code of README.md and docs/**/*.md, and compare the output with what the pages show.

The Python blocks of a page share their names and run in order in an empty folder. Output stands below each ``print``,
as ``#> `` comments or as a string, which ``pytest tools/test_doc_blocks.py --update-examples`` writes. Numbers with a
decimal point may differ by 20 % or 0.02: other processors round otherwise, and training amplifies it. Shell blocks
that begin with ``bayeswell`` run in the same folder. A block fenced as ``python no-run`` is skipped.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.exists()]
RELATIVE, ABSOLUTE = 0.2, 0.02
SHELL = re.compile(r"^( *)```(?:bash|sh|console|shell)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
SEPARATORS = re.compile(r"(?<=\d),(?=\d{3}\b)")


def shell_blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and the commands of each shell block that begins with ``bayeswell``."""
    text = page.read_text(encoding="utf-8")
    for match in SHELL.finditer(text):
        commands = textwrap.dedent(match[2])
        if commands.startswith(("bayeswell ", "$ bayeswell ")):
            yield text.count("\n", 0, match.start()) + 1, commands


def blocks_of(page: Path) -> list[CodeExample | str]:
    """Return the blocks that run, in the order of the page."""
    found: list[tuple[int, CodeExample | str]] = list(shell_blocks(page))
    found += [(one.start_line, one) for one in find_examples(page) if "no-run" not in one.prefix]
    return [block for _, block in sorted(found, key=lambda pair: pair[0])]


def run_shell(commands: str, place: str) -> None:
    """Run the commands with this interpreter's bayeswell."""
    script = re.sub(r"^(\$ )?bayeswell ", f'"{sys.executable}" -m bayeswell ', commands, flags=re.MULTILINE)
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{place}: code {done.returncode}\n{commands}\n{done.stderr[-2000:]}"


def output_lines(source: str) -> list[str]:
    """Return the lines of a block without the marks of its output."""
    lines = (re.sub(r"^\s*#> ?", "", line).strip() for line in source.splitlines())
    return [SEPARATORS.sub("", line) for line in lines if line and line not in ('"""', "'''")]


def is_close(shown: str, printed: str) -> bool:
    """Compare two lines: words must agree; numbers may differ a little if the line holds a decimal point."""
    if shown == printed:
        return True
    if re.sub(r"\s+", " ", NUMBER.sub("0", shown)) != re.sub(r"\s+", " ", NUMBER.sub("0", printed)):
        return False
    pairs = list(zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True))
    if not any("." in one for pair in pairs for one in pair):
        return all(a == b for a, b in pairs)
    numbers = [(float(a), float(b)) for a, b in pairs]
    return all(abs(a - b) <= max(ABSOLUTE, RELATIVE * max(abs(a), abs(b))) for a, b in numbers)


def difference(shown: str, printed: str) -> str:
    """Return a diff of the lines that disagree, or nothing."""
    before, after = output_lines(shown), output_lines(printed)
    if len(before) == len(after) and all(map(is_close, before, after)):
        return ""
    return "\n".join(difflib.unified_diff(before, after, "the page", "the output", lineterm="", n=1))


def run_python(block: CodeExample, evaluate: EvalExample, names: dict[str, Any]) -> dict[str, Any]:
    """Run one block with the names of those before, and return them with its own."""
    if evaluate.update_examples:
        return {**names, **evaluate.run_print_update(block, module_globals=names, rewrite_assertions=False)}
    # The public run_print_check compares every digit.
    printed, own = evaluate._run(block, "check", names, False, None)
    changed = difference(block.source, printed.updated_print_statements(block) or block.source)
    assert not changed, f"{block.path.relative_to(ROOT)}:{block.start_line}\n{changed}"
    return {**names, **own}


def test_numbers_are_compared_with_a_tolerance_and_words_exactly() -> None:
    assert is_close("nll 0.093 ± 0.018", "nll 0.105 ± 0.001")
    assert is_close("mean std 1.2e2 of 10", "mean std  110.0 of 10")
    assert not is_close("nll 0.5", "nll 0.7")
    assert not is_close("ece 0.5", "nll 0.5")
    assert not is_close("10 classes", "11 classes")
    assert not difference("print(x)\n#> 1.00\n", "print(x)\n#> 1.01\n")
    assert "+two" in difference("print(x)\n#> one\n", 'print(x)\n"""\none\ntwo\n"""\n')


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, eval_example: EvalExample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_of(page)
    if not blocks:
        pytest.skip("no code that runs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    eval_example.set_config(line_length=120)
    names: dict[str, Any] = {}
    for block in blocks:
        if isinstance(block, str):
            run_shell(block, str(page.relative_to(ROOT)))
        else:
            names = run_python(block, eval_example, names)
