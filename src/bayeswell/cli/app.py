"""The commands put together, and what every one of them does when something is wrong.

Exit codes: 0 done; 1 a run failed; 2 bad input or usage; 128 + number after a signal (129 SIGHUP, 130 SIGINT, 143
SIGTERM).
Faults are one line on stderr, warnings too; ``--debug`` shows the traceback.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, TextIO

import typer

from ..errors import BayeswellError, BayeswellWarning, DivergenceError
from ..version import __version__
from .compare import compare
from .data import data
from .evaluate import evaluate, predict
from .fidelity import fidelity
from .lr_range import lr_range
from .methods import methods
from .models import models
from .parts import parts
from .report import report
from .screen import one_line
from .streams import use_lasting_streams
from .study import study
from .sweep import sweep
from .train import resume, train
from .verify import verify

DEBUG = "--debug"
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
# How torch says it, as a RuntimeError, and the loader of a library, as an ImportError.
_NO_MEMORY = re.compile(
    r"can't allocate memory|out of memory|[Cc]annot allocate memory|bad_alloc|failed to map segment"
)
_NO_WORKER = re.compile(r"DataLoader worker \(pid")

app = typer.Typer(
    name="bayeswell",
    help="Train any network as a Bayesian one, and see how sure it is.",
    epilog="Begin with:  [bold]bayeswell train --data digits --method bbb --out runs/first[/bold]\n"
    "Each command has examples:  bayeswell train --help",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# A new command has its place here, which is its place in the help.
COMMANDS = (
    train, resume, evaluate, predict, fidelity, compare, report, sweep, study, lr_range, methods, parts, models, data,
    verify,
)  # fmt: skip
for one in COMMANDS:
    app.command(one.name, help=one.help, epilog="\n".join(one.examples))(one.function)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bayeswell {__version__}")
        raise typer.Exit


@app.callback()
def everything(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show tracebacks; may stand behind any command too.")] = False,
) -> None:
    """Train any network as a Bayesian one, and see how sure it is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run([argument for argument in given if argument != DEBUG])
    except typer.Exit as leave:
        return leave.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    except Exception as error:
        if DEBUG in given:
            raise
        return _told(error)


@functools.cache
def _commands() -> typer.core.TyperGroup:
    """The parser of all commands, made of their signatures once for all calls of ``main`` in a process."""
    made = typer.main.get_command(app)
    assert isinstance(made, typer.core.TyperGroup)
    return made


def _run(arguments: Sequence[str]) -> int:
    use_lasting_streams()
    command = _commands()
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):  # of other libraries, for their own users
            warnings.simplefilter("ignore", category)
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("always", BayeswellWarning)
        warnings.showwarning = _show_warning
        code = command.main(args=list(arguments), prog_name="bayeswell", standalone_mode=False)
        return code if isinstance(code, int) else 0


def _told(error: Exception) -> int:
    """Say in one line what went wrong; the exit code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is imported to tell errors apart
            return _say(*_judged(error))
    except MemoryError:  # too little even for that line
        with contextlib.suppress(OSError):  # nobody may be there to read it
            os.write(2, b"bayeswell: out of memory\n")
        return FAILED


def _judged(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if isinstance(error, typer.TyperException):
        shown = getattr(error, "format_message", error.__str__)()
        context = getattr(error, "ctx", None)
        hint = f" (see: {context.command_path} --help)" if context is not None else ""
        return f"{shown}{hint}", BAD_INPUT
    if isinstance(error, BayeswellError):
        code = getattr(error, "exit_code", None)
        if isinstance(code, int):
            return str(error), code
        from ..experiments import RunFailed

        return str(error), FAILED if isinstance(error, RunFailed | DivergenceError) else BAD_INPUT
    if isinstance(error, OSError):
        where = f": {error.filename!r}" if error.filename else ""
        return f"{error.strerror or error}{where}", FAILED
    starved = _starved(error)
    if starved:
        return f"{starved}; a run in a folder has its last checkpoint, and `resume` goes on from it", FAILED
    return f"{type(error).__name__}: {error} (a fault of bayeswell; {DEBUG} shows where)", FAILED


def _starved(error: Exception) -> str:
    """What the machine would not give or took away; nothing if the error is of another kind."""
    said = str(error).partition("\n")[0]
    if isinstance(error, MemoryError) or _NO_MEMORY.search(said):
        return f"out of memory{f' ({said:.150})' if said else ''}: free some, or take a smaller batch_size or network"
    if isinstance(error, RuntimeError) and _NO_WORKER.search(said):
        return f"a process that reads the data has ended, killed or short of memory ({said:.150})"
    return ""


def _say(message: str, code: int) -> int:
    typer.echo(f"bayeswell: {one_line(message)}", err=True)
    return code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> Any:
    typer.echo(f"warning: {one_line(str(message))}", err=True)
