"""Write docs/bad_input.md from tests/bad_inputs.py, or check that it is up to date (``--check``)."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, SOURCE = ROOT / "docs" / "bad_input.md", ROOT / "tests" / "bad_inputs.py"

INTRODUCTION = """# Bad input

What is wrong is said in one line, as an error of our own (`BayeswellError`, and a `ValueError` too), before any
training. Made by `tools/write_bad_input_page.py` from `tests/bad_inputs.py`, which says what `x`, `y`, `put`, `net` and
the others are; tests try every line of the table.

Tensors and arrays are looked at whole when `fit` begins, so a row is a row of the data as given. Loaders and data sets
cannot be read twice cheaply: their first two examples are tried before training, and every batch is looked at when it
is met; the example is named by its place in the data set. What a network's own code raises is passed on as it is.

Types: real numbers take the dtype of the network (float64 and float16 too). Whole numbers and booleans stay as they are
where the network takes them so (an `Embedding`), else they become real numbers. Bytes (`uint8`) are refused by a
network of real numbers: they are mostly pictures, and 0 to 255 trains badly. Targets of classes are whole numbers of
any width; targets of real numbers and counts may be whole or real.

| what | the call | the line |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    sys.path.insert(0, str(SOURCE.parent))
    bad_inputs: Any = importlib.import_module("bad_inputs")
    warnings.simplefilter("ignore")
    lines = []
    for name, call in calls():
        try:
            bad_inputs.CASES[name][0]()
        except bad_inputs.bw.BayeswellError as error:
            lines.append(f"| {name} | `{_cell(call)}` | {_plain(_cell(shortened(str(error))))} |\n")
    return INTRODUCTION + "".join(lines)


def calls() -> Iterator[tuple[str, str]]:
    """The name of every case and its call, as it is written."""
    for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "CASES":
            assert isinstance(node.value, ast.Dict)
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                assert isinstance(key, ast.Constant)
                assert isinstance(value, ast.Tuple)
                assert isinstance(value.elts[0], ast.Lambda)
                yield str(key.value), ast.unparse(value.elts[0].body)


def shortened(line: str) -> str:
    """Without most of the names that are allowed."""
    before, found, names = line.partition("allowed: ")
    listed = names.split(", ")
    return f"{before}{found}{', '.join(listed[:3])}, ..." if found and len(listed) > 6 else line


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    """A text that Markdown leaves as it is: ``<lambda>`` is no tag, ``__len__`` not bold."""
    return re.sub(r"[_*]{2}", lambda found: "".join(f"\\{one}" for one in found[0]), text.replace("<", "&lt;"))


def main() -> int:
    """Write or check."""
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE.name} is out of date; run: python tools/write_bad_input_page.py")
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
