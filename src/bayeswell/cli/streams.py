"""What a command prints reaches whoever can see it, and ends nothing where nobody can.

A reader that has gone (a closed pipe, a lost terminal) does not end a run, and is no error of one that is finished.
What the encoding of a terminal does not know is written in plain letters. Control sequences that came in with names
(of classes, columns, files) are shown on a terminal, not obeyed: all but colours and the few that progress bars need.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import sys
from typing import TextIO

_GONE = (errno.EPIPE, errno.EIO, errno.ENXIO)
_PLAIN = {"±": "+-", "·": "-", "…": "...", "×": "x", "≤": "<=", "≥": ">=", "σ": "sigma", "–": "-", "—": "-"}
_ERRORS = "bayeswell-plain"
_KNOWN = r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[[0-9]*[AK]"
_CONTROL = re.compile(rf"({_KNOWN})|([\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f])")


def escaped(text: str) -> str:
    """The text with every control character but line ends and tabs as its escape: ``\\x1b``."""
    return _CONTROL.sub(lambda found: found[1] or f"\\x{ord(found[2]):02x}", text)


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter, "?") for letter in letters), error.end


class _Lasting(io.FileIO):
    """A file whose reader may go: what is written from then on goes nowhere."""

    def write(self, data: object) -> int:
        try:
            return super().write(data) or 0  # type: ignore[arg-type]
        except OSError as error:
            if error.errno not in _GONE:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes  # type: ignore[arg-type]


class _Shown(io.TextIOWrapper):
    """Text for a terminal."""

    def write(self, text: str) -> int:
        return super().write(escaped(text))


def lasting(stream: TextIO | None) -> TextIO:
    """The same stream, which lasts; one that leads nowhere for one that was closed from the start."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # it is open until the process ends
    codecs.register_error(_ERRORS, _plain)
    stream.flush()
    raw = _Lasting(stream.fileno(), "w", closefd=False)
    kind = _Shown if stream.isatty() else io.TextIOWrapper
    buffered = io.BufferedWriter(raw)
    return kind(buffered, encoding=stream.encoding, errors=_ERRORS, line_buffering=True, write_through=stream.isatty())


def use_lasting_streams() -> None:
    """For the rest of the process; streams that somebody has put in the place of the process's own are left alone."""
    if sys.stdout is None or sys.stdout is sys.__stdout__:
        sys.stdout = lasting(sys.stdout)
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = lasting(sys.stderr)
