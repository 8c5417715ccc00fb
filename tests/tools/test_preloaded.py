"""The command of ``tools/preloaded.py`` does what the interpreter does; what is imported before is there, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from preloaded import ALONE, Preloaded


@pytest.fixture(scope="module")
def command() -> Iterator[str]:
    with Preloaded(["fractions", "no_such_library"]) as python:
        yield python.command


def said(python: str, *arguments: str, **settings: object) -> tuple[int, str, str]:
    done = subprocess.run([python, *arguments], capture_output=True, text=True, check=False, **settings)  # type: ignore[call-overload]
    return done.returncode, done.stdout, done.stderr


SCRIPT = """
import atexit, os, pickle, sys
class Own: pass
atexit.register(print, "the end")
print(sys.argv[1:], __name__, type(pickle.loads(pickle.dumps(Own()))) is Own, os.path.basename(os.getcwd()))
print(sys.path[0] if sys.path[0] else "here", os.environ["WORD"], sys.stdin.read())
"""


@pytest.mark.parametrize("kind", ["code", "file", "module"])
def test_a_program_sees_what_it_sees_of_the_interpreter(command: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SCRIPT)
    arguments = {"code": ["-c", SCRIPT], "file": ["program.py"], "module": ["-m", "program"]}[kind]
    found, expected = (
        said(python, *arguments, "one", "--two", cwd=tmp_path, env=os.environ | {"WORD": "a b"}, input="typed")
        for python in (command, sys.executable)
    )
    assert found == expected
    assert found[1].endswith("typed\nthe end\n")


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError('words')",
        "def f():\n    1 / 0\nf()",
        "import sys; sys.exit(7)",
        "import sys; sys.exit('a line')",
        "import sys; sys.exit()",
        "x = (",
        "import os; os.kill(os.getpid(), 15)",
        "import os; os.kill(os.getpid(), 9)",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
        "print('no newline', end='')",
    ],
)
def test_a_program_ends_as_under_the_interpreter(command: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(code)
    assert said(command, str(tmp_path / "program.py")) == said(sys.executable, str(tmp_path / "program.py"))


def test_libraries_are_there_and_paths_are_those_of_the_program(command: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("x = 3")
    code = "import sys; print('fractions' in sys.modules, 'own' in sys.modules); import own; print(own.x)"
    assert said(command, "-c", code, env=os.environ | {"PYTHONPATH": str(tmp_path)})[1] == "True False\n3\n"
    assert said(command, "-c", "import own")[0] == 1, "nothing of another program is left"
    assert said(command, "-I", "-c", "import sys; print('fractions' in sys.modules)")[1] == "False\n", "plain Python"


def test_signals_go_on_to_the_program(command: str) -> None:
    code = (
        "import time\ntry:\n    print('on', flush=True)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('so')"
    )
    process = subprocess.Popen([command, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "so\n"
    assert process.returncode == 0


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_the_program_is_killed_with_the_command(command: str) -> None:
    code = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([command, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    program = int(process.stdout.readline())
    assert program != process.pid
    process.kill()
    process.communicate()
    assert gone(program)


def test_pipes_of_multiprocessing_reach_the_program(command: str) -> None:
    """As ``spawn`` passes them on: by number, and at their end when the program has ended."""
    (there, sent), (received, back) = os.pipe(), os.pipe()
    code = f"import os; os.write({back}, os.read({there}, 9) + b' back')"
    process = subprocess.Popen([command, "-c", code], pass_fds=[there, back])
    os.close(there)
    os.close(back)
    os.write(sent, b"there and")
    os.close(sent)
    assert process.wait(30) == 0
    with os.fdopen(received, "rb") as answer:
        assert answer.read() == b"there and back"


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_program_leaves_running_is_ended_where_that_is_asked(command: str, alone: bool) -> None:
    code = (
        "import subprocess\nnowhere = subprocess.DEVNULL\n"
        "print(subprocess.Popen(['sleep', '60'], stdin=nowhere, stdout=nowhere, stderr=nowhere).pid)"
    )
    _, out, _ = said(command, "-c", code, env=os.environ | ({ALONE: "1"} if alone else {}))
    left = int(out)
    if alone:
        assert gone(left)
    else:
        os.kill(left, signal.SIGKILL)  # it was there
