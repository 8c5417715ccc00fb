"""The fenced blocks of a Markdown page, and what stands before them.

A block knows its language, the line of its opening fence, its lines and how far it is indented. ``<!-- not run: reason
-->`` on the line before a fence keeps a block from being run; ``<!-- numbers: 0.5 -->`` says how far, relative to their
size, numbers may be from those that are printed, from there to the end of the page.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

RUN = ("python", "console")
FENCE = re.compile(r"^( *)(`{3,})\s*([\w-]*)[^`]*$")
NOT_RUN = re.compile(r"^\s*<!--\s*not run:?\s*(.*?)\s*-->\s*$")
NUMBERS = re.compile(r"^\s*<!--\s*numbers:\s*([\d.]+)\s*-->\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its first line of code stands on ``line + 1``, both counted from one."""

    language: str
    line: int
    lines: tuple[str, ...]
    indent: int
    reason: str | None = None
    """Why it is not run; None where it is."""
    tolerance: float | None = None
    """Of numbers, relative to their size; None for the usual one."""
    output_of: int | None = None
    """The line of the block whose output this one is."""

    @property
    def code(self) -> str:
        """Without the indentation of the list it stands in."""
        return textwrap.dedent("\n".join(self.lines))

    @property
    def runs(self) -> bool:
        """Whether it is one that is executed."""
        return self.language in RUN and self.reason is None


class PageError(Exception):
    """A page that cannot be read: its line and what is wrong."""

    def __init__(self, line: int, fault: str) -> None:
        super().__init__(f"{line}: {fault}")


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return list(_read(text.splitlines()))


def _read(lines: list[str]) -> Iterator[Block]:
    tolerance: float | None = None
    before: Block | None = None  # the block that a text block would be the output of
    reason: str | None = None
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if found := NUMBERS.match(line):
            tolerance = float(found[1])
        elif found := NOT_RUN.match(line):
            reason = found[1]
            if not reason:
                raise PageError(number, "`not run` without a reason: <!-- not run: needs a GPU -->")
        elif opening := FENCE.match(line):
            end = _end_of(lines, number, opening[2])
            language, indent = opening[3].lower(), len(opening[1])
            output = language == "text" and before is not None and before.runs
            block = Block(
                language=language,
                line=number,
                lines=tuple(lines[number:end]),
                indent=indent,
                reason=reason,
                tolerance=tolerance,
                output_of=before.line if output and before is not None and reason is None else None,
            )
            yield block
            before, reason, number = block, None, end + 1
        elif line.strip():
            before, reason = None, None


def _end_of(lines: list[str], first: int, fence: str) -> int:
    for place in range(first, len(lines)):
        closing = lines[place].strip()
        if closing.startswith(fence) and set(closing) == {"`"}:
            return place
    raise PageError(first, f"a block that begins with {fence} and does not end")
