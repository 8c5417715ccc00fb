"""Progress bar, log and early stopping."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bayeswell.core.errors import FileError, SettingError
from bayeswell.training import CSVLog, KeepBest, ProgressBar
from bayeswell.training.data import Columns, held_out
from small_runs import X, Y, plan, run

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Full(Terminal):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_lines_in_a_file() -> None:
    stream = io.StringIO()
    run(plan(callbacks=[ProgressBar(stream)], epochs=3, validation=held_out((X, Y), Columns(), None)))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("bbb [#######---] epoch 2/3 loss ")
    assert "val nll" in lines[1]
    assert "accuracy" in lines[1]


def test_a_terminal_sees_80_columns() -> None:
    stream = Terminal()
    run(plan(callbacks=[ProgressBar(stream)], epochs=2))
    text = stream.getvalue()
    assert text.endswith("\n")
    assert "\r" in text
    assert max(len(line) for line in text.replace("\n", "\r").split("\r")) < 80


def test_a_full_disk_behind_the_stream_ends_nothing() -> None:
    member = run(plan(callbacks=[ProgressBar(Full())], epochs=2))[0]
    assert len(member.history.epochs) == 2


def test_csv_log(tmp_path: Path) -> None:
    path = tmp_path / "log" / "metrics.csv"
    run(plan(callbacks=[CSVLog(path)], epochs=3))
    lines = path.read_text().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("epoch,step,total,nll,kl")
    assert lines[3].startswith("2,15,")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"):
        run(plan(callbacks=[CSVLog(tmp_path / "file" / "x.csv")], epochs=1))


def test_early_stopping_by_accuracy_and_unknown_metric() -> None:
    validation = held_out((X, Y), Columns(), None)
    member = run(plan("map", early_stopping=KeepBest("accuracy", patience=1), validation=validation, epochs=30))[0]
    scores = [record.validation["accuracy"] for record in member.history.epochs]
    assert scores[-1] <= max(scores[:-1])
    with pytest.raises(SettingError, match="acuracy"):
        run(plan("map", early_stopping=KeepBest("acuracy"), validation=validation, epochs=1))
