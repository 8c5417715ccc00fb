"""Bad input is one line on stderr and exit code 2: no traceback, nothing on stdout, nothing left on disk."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from bayeswell.cli import main
from bayeswell.errors import SettingError

OUT = "--out new"
APP = sys.modules["bayeswell.cli.app"]  # `bayeswell.cli.app` is the application itself
CASES = [
    ("train --method bbbb --out new", "did you mean 'bbb'"),
    ("train --data digts --out new", "did you mean 'digits'"),
    ("train --model cn --out new", "did you mean 'cnn'"),
    ("train --likelihood gausian --out new", "did you mean 'gaussian'"),
    ("train --ood nois --out new", "did you mean 'noise'"),
    ("train --set stepper.lrr=1 --out new", "did you mean 'lr'"),
    ("train --set posterir=x --out new", "did you mean 'posterior'"),
    ("train --set stepper --out new", "setting=value"),
    ("train --set temperature=warm --out new", "temperature = 'warm'"),
    ("train --set stepper.lr=fast --out new", "lr = 'fast'"),
    ("train --set posterior=normall --out new", "unknown posterior 'normall'"),
    ("train --data-set splt=3 --out new", "did you mean 'split'"),
    ("train --model cnn --model-set widht=3 --out new", "did you mean 'width'"),
    ("train --model-set widht=3 --out new", "did you mean 'width'"),
    ("train --config nothing.toml --out new", "nothing.toml"),
    ("train --config key.toml --out new", "unknown key 'epoch'; did you mean 'epochs'"),
    ("train --config syntax.toml --out new", "line 1"),
    ("train --config part.toml --out new", "did you mean 'lr'"),
    ("train --config kind.toml --out new", "epochs = 'many'"),
    ("train --data nothing.csv --out new", "nothing.csv"),
    ("train --data nan.csv --out new", "nan.csv: row 3, column 'b': 'inf'"),
    ("train --data one_class.csv --out new", "two classes"),
    ("train --data ./nowhere --out new", "nowhere"),
    ("train --data mnist --out new", "BAYESWELL_OFFLINE"),
    ("train --epochs 0 --out new", "epochs = 0"),
    ("train --epochs x --out new", "--epochs"),
    ("train --epoch 3 --out new", "--epochs"),
    ("train --seed -1 --out new", "seed = -1"),
    ("train --validation 1.5 --out new", "validation = 1.5"),
    ("train --validation 5000 --out new", "validation = 5000"),
    ("train --validation 0.9999 --out new", "holds out 1,348, which leaves none to learn from"),
    ("train --config list.toml --out new", "validation = [1]"),
    ("train --early-stopping 2 --out new", "validation"),
    ("train --precision 8 --out new", "precision = '8'"),
    ("train --threads 0 --out new", "threads = 0"),
    ("train --likelihood gaussian --method map --quiet --out new", "targets"),
    ("train --model lenet5 --data wine --out new", "images"),
    ("train --augment --data wine --out new", "only images"),
    ("train --out FINISHED", "already holds a run"),
    ("train --out nan.csv", "nan.csv"),
    ("train --out FINISHED --resume --method map --epochs 7", "epochs was 2, is now 7"),
    ("train --out new --name x", "--name"),
    ("train --name ../../x", "run name '../../x'"),
    ("train --name /x", "run name '/x'"),
    ("resume nothing", "no such folder"),
    ("resume .", "holds no run"),
    ("resume", "RUN"),
    ("evaluate nothing", "no such folder"),
    ("evaluate .", "neither a run nor a model"),
    ("evaluate FINISHED --draws 0", "draws = 0"),
    ("evaluate FINISHED --data wine", "shape"),
    ("evaluate FINISHED --data-set severity=3", "--data"),
    ("predict FINISHED --input nothing.csv", "nothing.csv"),
    ("predict FINISHED --input nan.csv", "columns"),
    ("predict FINISHED --input key.toml", ".csv or .npz"),
    ("predict FINISHED", "--input"),
    ("compare --methods map,bbbb --out new", "did you mean 'bbb'"),
    ("compare --methods map,map --out new", "each method once"),
    ("compare --methods map --set bbb:temperature=1 --out new", "not among the methods"),
    ("compare --methods a=map,a=bbb --out new", "a label of its own"),
    ("compare --methods a=bbbb --out new", "did you mean 'bbb'"),
    ("compare --methods bbb:lr=0.1 --out new", "give it a label"),
    ("compare --methods a= --out new", "LABEL=METHOD"),
    ("compare --methods a=bbb:lr --out new", "setting=value"),
    ("study nothing.toml", "nothing.toml"),
    ("study nothing.toml --scale huge", "allowed: cpu, paper, smoke"),
    ("study .", "unknown key 'epoch'"),
    ("compare --out new", "which methods"),
    ("compare --methods map", "--out"),
    ("methods bbbb", "did you mean 'bbb'"),
    ("models cn", "did you mean 'cnn'"),
    ("data digts", "did you mean 'digits'"),
    ("lr-range --lowest 2", "lowest"),
    ("lr-range --method map --steps 2 --plot nothing/x.png", "nothing/x.png"),
    ("trian", "No such command"),
    ("train extra", "extra"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with files that have something wrong with them."""
    files = {
        "key.toml": "epoch = 3\n",
        "syntax.toml": "epochs = \n",
        "part.toml": "[method]\nname = 'bbb'\nstepper.lrr = 1\n",
        "kind.toml": "epochs = 'many'\n",
        "list.toml": "validation = [1]\n",
        "nan.csv": "a,b,y\n1,2,0\n3,inf,1\n4,5,0\n",
        "one_class.csv": "a,b,y\n1,2,x\n3,4,x\n4,5,x\n4,5,x\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAYESWELL_OFFLINE", "1")
    monkeypatch.setenv("BAYESWELL_DATA", str(tmp_path / "no_data"))
    return tmp_path


@pytest.mark.parametrize(("command", "words"), CASES, ids=[command for command, _ in CASES])
def test_bad_input_is_one_line(bayeswell: Any, folder: Path, finished: Path, command: str, words: str) -> None:
    before = sorted(folder.rglob("*"))
    said = bayeswell(*(str(finished) if word == "FINISHED" else word for word in command.split()))
    lines = [line for line in said.err.splitlines() if not line.startswith("warning: ")]
    assert said.code == 2
    assert said.out == ""
    assert len(lines) == 1, said.err
    assert lines[0].startswith("bayeswell: ")
    assert words in lines[0]
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("out", ["x" * 5000, "a\0b", ""])
def test_a_path_that_cannot_be_is_refused(bayeswell: Any, folder: Path, out: str) -> None:
    said = bayeswell("train", "--out", out)
    assert said.code == 2
    assert len(said.err.splitlines()) == 1


def test_line_breaks_and_escapes_in_names_stay_on_the_one_line(bayeswell: Any, folder: Path) -> None:
    said = bayeswell("train", "--method", "a\nb\x1b[31m", "--out", "new")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert "\x1b" not in said.err


def test_debug_shows_where_it_was(bayeswell: Any) -> None:
    with pytest.raises(SettingError, match="bbbb"):
        bayeswell("train", "--method", "bbbb", "--out", "new", "--debug")
    with pytest.raises(SettingError, match="bbbb"):
        bayeswell("--debug", "methods", "bbbb")


def test_a_fault_of_our_own_is_one_line_too(bayeswell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("bayeswell.methods.method_names", broken)
    said = bayeswell("methods", "--json")
    assert said.code == 1
    assert said.err.splitlines() == ["bayeswell: RuntimeError: two lines (a fault of bayeswell; --debug shows where)"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "bayeswell: out of memory: free some"),
        (RuntimeError("[enforce fail at x.cpp] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 "
                      "bytes. Error code 12"), r"out of memory \(.*tried to allocate 9 bytes.*\): free some"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), r"out of memory \(libtorch_cpu"),
        (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. "), "process that reads .*pid 12"),
        (RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly"), "process that reads .*12, 13"),
    ],
)  # fmt: skip
def test_what_the_machine_takes_away_is_no_fault_of_ours(
    error: Exception, words: str, bayeswell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starved(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("bayeswell.methods.method_names", starved)
    said = bayeswell("methods", "--json")
    assert said.code == 1
    (line,) = said.err.splitlines()
    assert re.search(words, line)
    assert "`resume` goes on" in line
    assert "a fault of" not in line


@pytest.mark.parametrize("place", ["_commands", "use_lasting_streams"])
def test_memory_that_ends_before_the_command_begins(
    place: str, bayeswell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(APP, place, _out_of_memory)
    said = bayeswell("methods", "--json")
    assert said.code == 1
    (line,) = said.err.splitlines()
    assert line.startswith("bayeswell: out of memory: free some")


def test_too_little_memory_for_that_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("bayeswell.methods.method_names", _out_of_memory)
    monkeypatch.setattr(APP, "one_line", _out_of_memory)
    assert main(["methods", "--json"]) == 1
    assert capfd.readouterr().err == "bayeswell: out of memory\n"


def _out_of_memory(*arguments: object) -> None:
    raise MemoryError


def test_an_interrupt_leaves_with_130(bayeswell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bayeswell.methods.method_names", interrupted)
    assert bayeswell("methods", "--json").code == 130
