"""Commands that pages print without running them: does each ``bayeswell`` command and option and ``make`` target exist?

Looked at are ``sh`` blocks, console blocks that are not run, indented listings and code within a line.
A ``bayeswell`` line is given to the parser of the command line itself, which does not run it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doc_page import blocks_of

LISTED = re.compile(r"^(?:\$ |\s{4,}\$ |\s{4,})?((?:bayeswell|make) .*)$")
INLINE = re.compile(r"`((?:bayeswell|make) [a-z-][^`]*)`")


def commands_in(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of every command that a page prints and does not run."""
    lines = text.splitlines()
    listing = set()
    for block in blocks_of(text):
        inside = range(block.line, block.line + len(block.lines))
        if block.language in {"sh", "bash", "shell"} or (block.language == "console" and not block.runs):
            listing |= set(inside)
        for place in (block.line - 1, *inside, block.line + len(block.lines)):
            if place not in listing and place < len(lines):
                lines[place] = ""
    for place, line in enumerate(lines):
        indented = line.startswith("    ")
        found = LISTED.match(line) if place in listing or indented else None
        if found:
            yield place + 1, _whole(found[1], lines[place + 1 :])
        else:
            yield from ((place + 1, inline[1]) for inline in INLINE.finditer(line))


def _whole(command: str, following: list[str]) -> str:
    """A command with the lines that it goes on in."""
    for line in following:
        if not command.endswith("\\"):
            break
        command = f"{command[:-1]}{line.strip()}"
    return command


def fault_of(command: str, targets: set[str], parser: Any) -> str:
    """What is wrong with a command, in a line; nothing if it could be run."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError as error:
        return f"`{command}`: {error}"
    words = words[: next((place for place, word in enumerate(words) if word in {"|", "&&", ">", ";"}), None)]
    if words[0] == "make":
        missing = [word for word in words[1:] if "=" not in word and not word.startswith("-") and word not in targets]
        return f"`{command}`: the Makefile has no target {missing[0]}" if missing else ""
    name, rest = words[1], words[2:]
    if name in {"--help", "--version", "-h"}:
        return ""
    if name not in parser.commands:
        return f"`{command}`: there is no such command; there are {', '.join(parser.commands)}"
    asked = parser.commands[name]
    try:
        _, left, _ = asked.make_parser(asked.context_class(asked, info_name=name)).parse_args(args=_complete(rest))
    except Exception as error:  # the parser's own kinds, which differ from version to version of typer
        return f"`{command}`: {error}"
    return f"`{command}`: nothing takes {left[0]}" if left else ""


def _complete(words: list[str]) -> list[str]:
    """``bayeswell train ...``, as prose has it, without its dots."""
    return [word for word in words if word != "..."]


def targets_of(makefile: Path) -> set[str]:
    """The names that ``make`` knows."""
    return set(re.findall(r"^([a-z][a-z-]*):", makefile.read_text(encoding="utf-8"), flags=re.MULTILINE))


def command_faults(text: str, project: Path) -> list[tuple[int, str]]:
    """Line and fault of each command of a page that could not be run."""
    found = list(commands_in(text))
    if not found:
        return []
    import typer

    from bayeswell.cli.app import app

    parser, targets = typer.main.get_command(app), targets_of(project / "Makefile")
    judged = ((line, fault_of(command, targets, parser)) for line, command in found)
    return [(line, fault) for line, fault in judged if fault]
