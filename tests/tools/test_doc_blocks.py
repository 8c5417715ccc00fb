"""The runner of the documentation: what it runs, what it refuses, and that faults planted in a page are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from doc_blocks import agree, check, main
from doc_commands import commands_in, fault_of
from doc_page import PageError, blocks_of

PAGE = """# A page

```python
import sys

from pathlib import Path

x = 0.25
print("x is", x)
print("noise", file=sys.stderr)
```

```text
x is 0.25
```

1. In a list:

   ```python
   def doubled():
       return 2 * x  # the namespace of the block above


   print(doubled(), Path.cwd().name, list(Path().iterdir()))
   ```

   ```text
   0.5 folder []
   ```

```console
$ echo "y = 3" > own.py
$ python -c "import own; print(own.y)"
$ echo one \\
    two; false; echo "ended with $?"
```

```text
3
one two
ended with 1
```

```python
import own

print(own.y)
```

<!-- not run: another library -->
```python
import a_library_that_is_not_there
```

```text
what it would print
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "page.md"
    file.write_text(PAGE)
    return file


def faults(page: Path, before: str = "", after: str = "") -> list[str]:
    """The faults of the page with one thing changed."""
    text = page.read_text()
    assert before in text
    page.write_text(text.replace(before, after, 1))
    return check(page, limit=60).faults


def test_a_page_that_holds(page: Path) -> None:
    outcome = check(page, limit=60)
    assert outcome.faults == []
    assert outcome.blocks == 4


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("x is 0.25", "x is 0.32", "+x is 0.25"),
        ("x is 0.25", "y is 0.25", "-y is 0.25"),
        ("   0.5 folder []", "   0.5 folder", "another output"),
        ("one two\n", "", "+one two"),
        ("2 * x  #", "2 * z  #", "return 2 * z"),
        ("import own\n\n", "import one\n\n", "No module named 'one'"),
        ("echo one", "ech one", "another output"),
        ('; echo "ended with $?"', "", "the command ended with 1"),
        ("$ echo one", "echo one", "begins with `$ `"),
        ("import a_library", "import: a_library", "no Python"),
        ("not run: another library", "not run:", "without a reason"),
    ],
)
def test_a_planted_fault_is_found(page: Path, before: str, after: str, words: str) -> None:
    found = faults(page, before, after)
    assert len(found) == 1, found
    assert words in found[0]


@pytest.mark.parametrize(
    ("before", "after", "block", "place"),
    [
        ("2 * x  #", "2 * z  #", "def doubled():", "line {}, in doubled"),
        ('; echo "ended with $?"', "", '$ echo "y = 3" > own.py', "line {}: the command ended with 1"),
    ],
)
def test_the_line_of_a_fault_is_that_of_the_page(page: Path, before: str, after: str, block: str, place: str) -> None:
    lines = [line.strip() for line in PAGE.splitlines()]
    (fault,) = faults(page, before, after)
    assert fault.startswith(f"{lines.index(block)}: the block failed"), "the line of its fence"
    fault_line = next(number for number, line in enumerate(lines, start=1) if before.strip("; ") in line)
    command_line = fault_line - (0 if "return" in lines[fault_line - 1] else 1)  # the first line of a command of two
    assert place.format(command_line) in fault


def test_a_block_that_does_not_end_is_ended(page: Path) -> None:
    page.write_text("# Slow\n\n```python\nimport time\nprint(1)\ntime.sleep(60)\n```\n")
    (fault,) = check(page, limit=1).faults
    assert fault.startswith("3: the block took longer than 1 s")


def test_an_open_fence_is_a_fault() -> None:
    with pytest.raises(PageError, match="2: a block that begins with ``` and does not end"):
        blocks_of("text\n```python\nx = 1\n")


def test_numbers_may_differ_as_the_page_says(page: Path) -> None:
    page.write_text("<!-- numbers: 0.5 -->\n\n```python\nprint(1.0)\n```\n\n```text\n0.6\n```\n")
    assert check(page, limit=60).faults == []
    assert faults(page, "0.5", "0.3") != []


@pytest.mark.parametrize(
    ("shown", "found", "same"),
    [
        ("NLL 0.52 ± 0.03", "NLL  0.55 ± 0.04", True),
        ("NLL 0.52", "NLL 0.64", True),
        ("NLL 0.52", "NLL 0.66", False),
        ("NLL 0.52", "ECE 0.52", False),
        ("0.001", "0.019", True),
        ("0.001", "0.03", False),
        ("[ 0.98, -0.31]", "[1.   , -0.30]", True),
        ("[0.98, 0.31]", "[0.98, -0.31]", False),
        ("1e-3 2e3", "1.1e-3 2.1e3", True),
        ("2e3", "3e3", False),
        ("float32", "float64", False),
        ("seed0 v1.2", "seed1 v1.2", False),
        ("3 members", "4 members", False),
        ("1797 examples", "1700 examples", True),
        ("a\n-----\nb", "a\n--------\nb", True),
        ("nan", "0.1", False),
        ("0.5", "0.5 0.5", False),
    ],
)
def test_words_agree_and_numbers_are_close(shown: str, found: str, same: bool) -> None:
    assert agree(shown, found) is same


def test_write_fills_in_outputs_and_pictures(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = '```python\nPath("band.png").write_bytes(b"first")\n```\n\n![a band](pictures/page-band.png)\n'
    page.write_text(PAGE.replace("x is 0.25", "to be filled in").replace("   0.5 folder []", "") + picture)
    assert main([str(page)]) == 1
    assert "pictures/page-band.png is not there" in capsys.readouterr().out
    assert main(["--write", str(page)]) == 0
    assert page.read_text() == PAGE + picture
    assert (page.parent / "pictures" / "page-band.png").read_bytes() == b"first"
    assert main([str(page)]) == 0
    page.write_text(page.read_text().replace('Path("band.png")', 'Path("bond.png")'))
    assert main([str(page)]) == 1
    assert "no block makes band.png" in capsys.readouterr().out


LISTING = """Run `make test` or `bayeswell train`, and `made up`.

    bayeswell train --data digits --set lr=0.1   # a word
    make check

```sh
bayeswell resume runs/first \\
    --epochs 60
```

```python
text = "`make nothing`"
```

<!-- not run: minutes -->
```console
$ bayeswell compare --methods map,bbb --data wine
```
"""


def test_commands_that_are_only_printed_are_found() -> None:
    assert list(commands_in(LISTING)) == [
        (1, "make test"),
        (1, "bayeswell train"),
        (3, "bayeswell train --data digits --set lr=0.1   # a word"),
        (4, "make check"),
        (7, "bayeswell resume runs/first --epochs 60"),
        (17, "bayeswell compare --methods map,bbb --data wine"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("", "", ""),
        ("make check", "make chekc", "no target chekc"),
        ("`make test`", "`make tset`", "no target tset"),
        ("train --data", "trian --data", "no such command"),
        ("--set lr", "--sett lr", "No such option: --sett"),
        ("--epochs 60", "--epochs", "requires an argument"),
        ("--data wine", "--data wine tea", "nothing takes tea"),
    ],
)
def test_a_command_that_does_not_exist_is_a_fault(page: Path, before: str, after: str, words: str) -> None:
    page.write_text(LISTING)
    found = faults(page, before, after)
    assert [words in fault for fault in found] == ([True] if words else [])


def test_make_takes_variables() -> None:
    assert fault_of('make PYTHON=/a/python test ARGS="-k name"', {"test"}, None) == ""
