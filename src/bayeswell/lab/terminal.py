"""Output of the commands: tables at the width of the terminal, and streams that outlive their readers."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from .files import to_jsonable

WIDTH = 80
_GAP = 2
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return a text with control characters, which names may bring along, as escapes such as ``\\x1b``."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def terminal_width() -> int:
    return shutil.get_terminal_size((WIDTH, 24)).columns


def table_text(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int = WIDTH, *, title: str = "", left: int = 1
) -> str:
    """Return a table of at most ``width`` columns; the last columns are dropped if need be, and named below it.

    Args:
        headings: of the columns, most important first.
        rows: of cells.
        width: of the terminal.
        title: a line above.
        left: number of first columns that are aligned to the left.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(headings, *cells, strict=True)]
    shown = len(headings)
    while shown > 2 and sum(widths[:shown]) + _GAP * (shown - 1) > width:
        shown -= 1
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", show_edge=False)
    for place, heading in enumerate(headings[:shown]):
        table.add_column(heading, justify="left" if place < left else "right", no_wrap=True)
    for row in cells:
        table.add_row(*row[:shown])
    lines = [printable(title)] if title else []
    lines.append(_rendered(table, width))
    if shown < len(headings):
        lines.append(f"not shown at {width} columns: {', '.join(heading.strip() for heading in headings[shown:])}")
    return "\n".join(lines)


def _rendered(table: Table, width: int) -> str:
    text = io.StringIO()
    Console(file=text, width=width, markup=False, highlight=False, emoji=False, no_color=True).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def json_text(value: Any) -> str:
    return json.dumps(to_jsonable(value), indent=1, ensure_ascii=True)


class SafeStream:
    """Text stream that drops what it cannot write: a closed pipe or a full disk does not end a run.

    ``error`` is the first failure, None without.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError) as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._drop(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _drop(self, error: Exception) -> None:
        if self.error is None and isinstance(error, OSError):
            self.error = error
        # Whatever is still in the buffer goes nowhere too, so that Python can flush it at exit.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    @property
    def lost_output(self) -> bool:
        """True if output was lost that a reader still wanted: a closed pipe is the reader's choice."""
        return self.error is not None and self.error.errno not in (errno.EPIPE, errno.EIO)


@contextlib.contextmanager
def safe_streams() -> Any:
    """Replace stdout and stderr by ``SafeStream`` inside the block; yields that of stdout."""
    before = sys.stdout, sys.stderr
    # A stream that was closed before the process began is None.
    out, err = (SafeStream(stream or io.StringIO()) for stream in before)
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before
