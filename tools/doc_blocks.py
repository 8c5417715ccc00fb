"""Run the code of the documentation, and compare what it prints with what the pages show.

    python tools/doc_blocks.py                       README.md, CONTRIBUTING.md and docs/**/*.md
    python tools/doc_blocks.py docs/metrics.md       one page
    python tools/doc_blocks.py --write docs/x.md     fill its output blocks and pictures in anew

- ``python`` blocks of a page run in order, in one namespace, in a process of their own and an empty folder.
- ``console`` blocks hold lines ``$ command``, which sh runs in that folder, with ``bayeswell`` and ``python`` on the
  PATH; a line that ends with a backslash goes on. Every command must end with 0 (``command; echo $?`` shows another).
- A ``text`` block that follows with nothing but blank lines between is what the block prints (stdout; warnings go to
  stderr and do no harm). Words must agree; numbers may differ by 20 % or 0.02, whichever is more, since other
  processors round otherwise and training amplifies it. ``<!-- numbers: 0.5 -->`` says another share, from there on.
- ``<!-- not run: reason -->`` before a block keeps it from being run; it must still be Python.
- A picture that a block makes, ``band.png``, is shown as ``pictures/<page>-band.png``: ``--write`` copies it there, the
  check asks that it is there and is made.
- Other commands that a page prints must exist (tools/doc_commands.py).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from doc_commands import command_faults
from doc_page import Block, PageError, blocks_of
from preloaded import ALONE, Preloaded

ROOT = Path(__file__).parents[1]
RELATIVE, ABSOLUTE = 0.2, 0.02
FEW = 3
"""More pages than that are forked from a process that has imported the libraries once."""
MARK = "\x1e"
NUMBER = re.compile(r"((?:(?<![\w.])[-+])?(?<![\w.])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")
PICTURE = re.compile(r"pictures/([\w-]+\.(?:png|svg|jpg))")


@dataclass
class Outcome:
    """What became of a page."""

    page: Path
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0
    blocks: int = 0


def project_of(page: Path) -> Path:
    """The folder with the page's pyproject.toml: its ``src`` is what its code imports."""
    return next((folder for folder in page.resolve().parents if (folder / "pyproject.toml").exists()), ROOT)


def check(page: Path, *, write: bool = False, limit: float = 180.0, python: str = sys.executable) -> Outcome:
    """Run a page, and compare or write. ``python`` is what runs it and its commands."""
    outcome, begun, text = Outcome(page), time.monotonic(), page.read_text(encoding="utf-8")
    try:
        blocks = blocks_of(text)
        outcome.faults += [f"{line}: {fault}" for line, fault in command_faults(text, project_of(page))]
    except PageError as error:
        outcome.faults.append(str(error))
        return outcome
    outcome.faults += list(_not_python(blocks))
    running = [block for block in blocks if block.runs]
    outcome.blocks = len(running)
    if running and not outcome.faults:
        with tempfile.TemporaryDirectory(prefix="doc-blocks-") as place:
            printed, fault = run(page, running, Path(place), limit, python)
            outcome.faults += [fault] if fault else []
            if not fault:
                outcome.cpu = float((Path(place) / "cpu").read_text(encoding="utf-8"))
                outcome.faults += _pictures(page, text, Path(place) / "folder", write)
        if write and not fault:
            page.write_text(rewritten(text, blocks, printed), encoding="utf-8")
        else:
            outcome.faults += list(differences(blocks, printed))
    outcome.seconds = time.monotonic() - begun
    return outcome


def _not_python(blocks: Sequence[Block]) -> Iterator[str]:
    """Blocks that are not run are looked at too."""
    for block in blocks:
        if block.language == "python":
            try:
                ast.parse(block.code)
            except SyntaxError as error:
                yield f"{block.line + (error.lineno or 0)}: this is no Python: {error.msg}"


def script(running: Sequence[Block], place: Path) -> str:
    """The page as one program, each line of code on the line where the page has it, so that tracebacks name that."""
    lines: list[str] = []

    def put(line: int, text: str) -> None:
        lines.extend([""] * (line - len(lines)))
        lines[line - 1] += text

    put(1, "__import__('sys').path[0] = __import__('os').getcwd(); ")
    for block in running:
        put(block.line, f"print({MARK + str(block.line)!r}, flush=True); ")
        if block.language == "console":
            put(block.line, f"__import__('subprocess').run(['sh', {str(_shell(block, place))!r}], check=True)")
        else:
            for offset, line in enumerate(block.code.splitlines(), start=1):
                put(block.line + offset, line)
    spent = "sum(__import__('os').times()[:4])"  # of the page and of what it ran by itself
    return "\n".join([*lines, f"open({str(place / 'cpu')!r}, 'w').write(str({spent}))", ""])


def _shell(block: Block, place: Path) -> Path:
    """The commands of a console block as a shell script, which says at which line it failed."""
    written: list[str] = []
    command, at = "", block.line
    for number, line in enumerate(block.code.splitlines(), start=block.line + 1):
        if not command:
            if not line.strip() or line.startswith("#"):
                continue
            if not line.startswith("$ "):
                raise PageError(
                    number, f"a line of a console block begins with `$ `, its output is a text block: {line}"
                )
            line, at = line[2:], number
        command += line + "\n"
        if not line.endswith("\\"):
            written.append(
                f'{command}s=$?; [ $s = 0 ] || {{ echo "line {at}: the command ended with $s" >&2; exit $s; }}'
            )
            command = ""
    file = place / f"{block.line}.sh"
    file.write_text("\n".join(written) + "\n", encoding="utf-8")
    return file


def run(page: Path, running: Sequence[Block], place: Path, limit: float, python: str) -> tuple[dict[int, str], str]:
    """What each block printed, by its line, and what went wrong."""
    program, folder = place / f"{page.stem}.py", place / "folder"
    folder.mkdir()
    try:
        program.write_text(script(running, place), encoding="utf-8")
    except PageError as error:
        return {}, str(error)
    with (place / "out").open("w+", encoding="utf-8") as out, (place / "err").open("w+", encoding="utf-8") as err:
        arguments = [python, str(program)]
        environment = _environment(page, place, python)
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
        out.seek(0)
        err.seek(0)
        said, complained = out.read().replace(f"{folder}/", ""), err.read().replace(str(program), str(page))
    printed = {}
    for part in said.split(MARK)[1:]:
        line, _, text = part.partition("\n")
        printed[int(line)] = "\n".join(row.rstrip() for row in text.rstrip().splitlines()).strip("\n")
    if code == 0:
        return printed, ""
    last = list(printed)[-1] if printed else running[0].line
    printed.pop(last, None)  # it did not come to its end, so its output is not compared
    why = f"took longer than {limit:g} s" if code is None else "failed"
    shown = "\n".join(complained.rstrip().splitlines()[-25:])
    return printed, f"{last}: the block {why}\n{shown}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing that a page started outlives it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(page: Path, place: Path, python: str) -> dict[str, str]:
    """The settings of every page, the sources beside it, its commands on the PATH."""
    commands = place / "bin"
    commands.mkdir()
    for name, arguments in (("python", ""), ("python3", ""), ("bayeswell", "-m bayeswell ")):
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec "{python}" {arguments}"$@"\n', encoding="utf-8")
        command.chmod(0o755)
    settings = _settings()
    paths = [str(project_of(page) / "src"), *filter(None, [settings.get("PYTHONPATH")])]
    path = f"{commands}{os.pathsep}{settings.get('PATH', os.defpath)}"
    return settings | {"PATH": path, "PYTHONPATH": os.pathsep.join(paths), ALONE: "1"}


def _settings() -> dict[str, str]:
    """The same numbers and width of tables everywhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BAYESWELL_", "COV_", "PYTEST_"))}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1"}
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
    return kept | threads | plain | offline | {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def differences(blocks: Sequence[Block], printed: dict[int, str]) -> Iterator[str]:
    """What a page shows and its code does not print."""
    for block in blocks:
        if block.output_of is None or block.output_of not in printed:
            continue
        shown, found = block.code.strip("\n"), printed[block.output_of]
        if not agree(shown, found, RELATIVE if block.tolerance is None else block.tolerance):
            names = ("the page shows", "its code prints")
            compared = difflib.unified_diff(shown.splitlines(), found.splitlines(), *names, lineterm="", n=1)
            yield f"{block.line}: another output\n" + "\n".join(f"    {line}" for line in compared)


def agree(shown: str, found: str, relative: float = RELATIVE) -> bool:
    """Whether the words are the same and the numbers close; blanks and the length of ruled lines do not count."""
    first, second = _pieces(shown), _pieces(found)
    return len(first) == len(second) and all(
        one == other if place % 2 == 0 else _close(float(one), float(other), relative)
        for place, (one, other) in enumerate(zip(first, second, strict=True))
    )


def _pieces(text: str) -> list[str]:
    """Words and numbers in turn, beginning with words."""
    ruled = re.sub(r"([─━═_=-])\1+", r"\1", text)
    pieces = NUMBER.split(re.sub(r"(?<=\d)\.(?!\d)", "", ruled))
    return [piece if place % 2 else " ".join(piece.split()) for place, piece in enumerate(pieces)]


def _close(one: float, other: float, relative: float) -> bool:
    return abs(one - other) <= max(ABSOLUTE, relative * max(abs(one), abs(other)))


def rewritten(text: str, blocks: Sequence[Block], printed: dict[int, str]) -> str:
    """The page with its output blocks filled in anew."""
    lines = text.split("\n")
    for block in reversed(blocks):
        if block.output_of is not None:
            indent = " " * block.indent
            new = [f"{indent}{line}".rstrip() for line in printed[block.output_of].splitlines()]
            lines[block.line : block.line + len(block.lines)] = new
    return "\n".join(lines)


def _pictures(page: Path, text: str, folder: Path, write: bool) -> Iterator[str]:
    """Pictures named after the page are made by its blocks."""
    for name in sorted(set(PICTURE.findall(text))):
        own = name.removeprefix(f"{page.stem}-")
        if own == name:
            continue
        shown, made = page.parent / "pictures" / name, folder / own
        line = text[: text.index(name)].count("\n") + 1
        if not made.is_file():
            yield f"{line}: no block makes {own}, which the page shows as pictures/{name}"
        elif write:
            shown.parent.mkdir(exist_ok=True)
            shutil.copyfile(made, shown)
        elif not shown.is_file():
            yield f"{line}: pictures/{name} is not there; tools/doc_blocks.py --write {page} makes it"


def all_pages(project: Path) -> list[Path]:
    """Every page whose code is run."""
    return [project / "README.md", project / "CONTRIBUTING.md", *sorted((project / "docs").rglob("*.md"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """A line for each page; 1 if one of them does not hold."""
    parser = argparse.ArgumentParser(description="Run the code of the documentation and compare what it prints.")
    parser.add_argument("pages", nargs="*", type=Path, help="all of README.md, CONTRIBUTING.md and docs/ without any")
    parser.add_argument("--write", action="store_true", help="fill output blocks and pictures in anew")
    parser.add_argument("--jobs", type=int, default=1, help="pages at a time")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds that a page may take")
    given = parser.parse_args(arguments)
    missing = [str(page) for page in given.pages if not page.is_file()]
    if missing:
        parser.error(f"no such page: {', '.join(missing)}")
    pages, begun, failed = given.pages or all_pages(ROOT), time.monotonic(), 0
    with contextlib.ExitStack() as stack:
        python = sys.executable
        if len(pages) > FEW:
            python = stack.enter_context(Preloaded(environment=_settings())).command
        pool = stack.enter_context(ThreadPoolExecutor(given.jobs))
        checked = pool.map(lambda page: check(page, write=given.write, limit=given.limit, python=python), pages)
        for outcome in checked:
            failed += bool(outcome.faults)
            state = "FAILED" if outcome.faults else "ok"
            spent = f"{outcome.seconds:6.1f} s, {outcome.cpu:5.1f} s of a core"
            print(f"{state:6} {spent}, {outcome.blocks:2} blocks  {_shown(outcome.page)}", flush=True)
            for fault in outcome.faults:
                print(f"{_shown(outcome.page)}:{fault}", flush=True)
    print(f"{len(pages)} pages, {failed} failed, {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


def _shown(page: Path) -> str:
    here = Path.cwd()
    return str(page.resolve().relative_to(here)) if page.resolve().is_relative_to(here) else str(page)


if __name__ == "__main__":
    sys.exit(main())
