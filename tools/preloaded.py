"""A Python whose libraries are imported once: its programs are forked from a process that has them.

    with Preloaded(["torch", "lightning_fabric"]) as python:
        subprocess.run([python.command, "-c", "import torch; print(torch.ones(2))"])

``command`` is an executable that is called as ``python`` is: ``-c code``, ``-m module`` or a file, with arguments,
environment, folder, standard streams and exit status of its own; INT, TERM, HUP and USR1 go on to the program, which is
killed if the command is. With other options (``-I``, ``-W`` ...) it is the plain interpreter.

The libraries are imported when the first program asks for them, by a process of one thread, as others would be lost by
a fork: their programs have one thread too. The package itself is not to be among them: each program imports it from
where its ``PYTHONPATH`` says, as a fresh interpreter would. Variables that the interpreter reads as it begins, such as
``PYTHONHASHSEED``, are those of ``environment``.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from code import InteractiveInterpreter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MOST_STREAMS = 64
ALONE = "PRELOADED_ALONE"
"""A variable: what a program has started and left running is ended with it."""
EXECUTABLE = "PRELOADED_PYTHON"
"""A variable with what ``sys.executable`` shall be: the command itself, for programs that start others like them."""
LIBRARIES = (
    "multiprocessing.spawn", "torch", "numpy", "lightning_fabric", "safetensors.torch", "scipy.stats",
    "sklearn.datasets", "pandas", "matplotlib.pyplot", "rich.table", "typer", "optuna", "jinja2",
)  # fmt: skip
"""What most programs of the project import, and is slow to import; what is not installed is left out."""

COMMAND = """#!/bin/sh
case $1 in
    -c | -m | [!-]*) exec "{python}" -I -S "{file}" ask "{place}" "$@" ;;
    *) exec "{python}" "$@" ;;
esac
"""


class Preloaded:
    """The command and the process behind it, which ends with whoever started it.

    Where a process cannot be watched by a file descriptor (not Linux), the command is the plain interpreter.
    """

    def __init__(self, libraries: Sequence[str] = LIBRARIES, environment: Mapping[str, str] | None = None) -> None:
        self.command = sys.executable
        self._server: subprocess.Popen[bytes] | None = None
        if not hasattr(os, "pidfd_open"):
            return
        self.folder = Path(tempfile.mkdtemp(prefix="preloaded-"))
        place, self.command = self.folder / "socket", str(self.folder / "python")
        file, given = Path(__file__).resolve(), dict(os.environ if environment is None else environment)
        given.pop("PYTHONPATH", None)
        Path(self.command).write_text(COMMAND.format(python=sys.executable, file=file, place=place), encoding="utf-8")
        Path(self.command).chmod(0o755)
        with socket.socket(socket.AF_UNIX) as ear:  # it listens before anybody can ask
            ear.bind(str(place))
            ear.listen(64)
            self._server = subprocess.Popen(
                [sys.executable, str(file), "serve", str(ear.fileno()), *libraries],
                env=given | dict.fromkeys(THREADS, "1"),
                pass_fds=[ear.fileno()], stdin=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip

    def close(self) -> None:
        """End the process; programs that still run are not waited for."""
        if self._server is None:
            return
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Preloaded:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def serve(ear: socket.socket, libraries: Sequence[str]) -> dict[str, Any] | None:
    """Fork for everybody who asks: in a new program what was asked for, in the server None when its owner is gone."""
    with contextlib.suppress(ValueError):  # what this file's own folder gave to the path is no part of a program's
        sys.path.remove(str(Path(__file__).resolve().parent))
    signal.signal(signal.SIGCHLD, _reap)
    imported = False
    while True:
        ready, _, _ = select.select([ear.fileno(), 0], [], [])
        if 0 in ready:
            return None
        asking, _ = ear.accept()
        if not imported:
            imported = True
            for name in libraries:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
            gc.collect()
            gc.freeze()  # so that a fork's collector does not copy every page
        if os.fork() == 0:
            ear.close()
            return _begin(asking)
        asking.close()


def _begin(asking: socket.socket) -> dict[str, Any]:
    """In a fork of the server: fork the program, and tell its pid and its end to the one who asked."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, streams, _, _ = socket.recv_fds(asking, 65536, MOST_STREAMS)
    while not data.endswith(b"\n"):
        more = asking.recv(65536)
        if not more:
            os._exit(1)
        data += more
    asked = dict(json.loads(data))
    program = os.fork()
    if program == 0:
        asking.close()
        os.setsid()
        _place(streams, asked["streams"])
        return asked
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(program)
    with contextlib.suppress(OSError):
        asking.sendall(f"{program}\n".encode())
        ready, _, _ = select.select([ended, asking.fileno()], [], [])
        if ended not in ready:  # the one who asked is gone: as if it had been the program itself
            os.kill(program, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    if ALONE in asked["environment"]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program, signal.SIGKILL)
    with contextlib.suppress(OSError):
        asking.sendall(f"{status}\n".encode())
    os._exit(0)


def _place(streams: Sequence[int], numbers: Sequence[int]) -> None:
    """Give each stream the number that it has where it comes from."""
    above = max(*numbers, *streams) + 1
    for stream, number in zip(streams, numbers, strict=True):  # out of each other's way
        os.dup2(stream, above + number)
    for stream in streams:
        os.close(stream)
    for number in numbers:
        os.dup2(above + number, number)
        os.close(above + number)


def _reap(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


_RUNNERS = (runpy.__file__, sys.modules[InteractiveInterpreter.__module__].__file__, "<frozen runpy>")


class _Program(InteractiveInterpreter):
    """Code of ``__main__``, whose errors are raised."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        assert error is not None
        raise error


def become(asked: Mapping[str, Any]) -> None:
    """The program that was asked for, in this process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell in the background has it ignored
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # as torch's and Python's, not that of all forks
    if EXECUTABLE in os.environ:
        sys.executable = os.environ[EXECUTABLE]
        multiprocessing.set_executable(sys.executable)
    kind, *arguments = asked["arguments"]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    main = ModuleType("__main__")
    first = {"-c": "", "-m": os.getcwd()}.get(kind, os.path.dirname(os.path.abspath(kind)))
    sys.path[:0] = [first, *paths]
    try:
        if kind == "-m":
            sys.argv[:] = arguments
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
            return
        sys.modules["__main__"] = main
        if kind == "-c":
            code, sys.argv[:] = compile(arguments[0], "<string>", "exec"), ["-c", *arguments[1:]]
        else:
            main.__file__ = kind
            code, sys.argv[:] = compile(Path(kind).read_bytes(), kind, "exec"), [kind, *arguments]
        _Program(main.__dict__).runcode(code)
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, *_RUNNERS):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def end(work: Callable[[Mapping[str, Any]], None], asked: Mapping[str, Any]) -> NoReturn:
    """Do the work and end as an interpreter does, but for taking the libraries apart, which takes a second."""
    status = 0
    try:
        work(asked)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads, as the interpreter's own end does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status & 0xFF)


def ask(place: str, arguments: Sequence[str]) -> int:
    """Have a program run with this process's streams, folder and environment; its exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until there is somebody to pass them on to
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        streams = _open_streams(but=server.fileno())
        asked = {
            "arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ), "streams": streams,
        }  # fmt: skip
        message = json.dumps(asked).encode() + b"\n"
        sent = socket.send_fds(server, [message], streams)
        if sent < len(message):  # to send nothing fails, too, once the program has ended and nobody is there
            server.sendall(message[sent:])
        for stream in streams[3:]:  # it waits for nobody: whoever reads to the end of a pipe must come to it
            os.close(stream)
        answers = server.makefile("r")
        first = answers.readline()
        if not first:
            raise SystemExit("preloaded: the process that forks programs is gone")
        for number in FORWARDED:
            signal.signal(number, lambda number, _: _pass_on(int(first), number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        last = answers.readline()
    status = int(last) if last else 1
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _open_streams(but: int) -> list[int]:
    """The three standard ones, and what else this process was given: the pipes of multiprocessing."""
    found = []
    for stream in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            os.fstat(stream)  # not that of the listing itself
            if stream > 2 and stream != but:
                found.append(stream)
    return [0, 1, 2, *sorted(found)]


def _pass_on(program: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(program, number)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
    asked = serve(socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
    if asked is not None:
        end(become, asked)
