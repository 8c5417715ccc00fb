"""The progress bar on a terminal: rich's where it is installed, else one line that is written over."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.training.progress import PlainBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def train() -> Any:
    x = torch.randn(40, 2)
    return bw.fit(nn.Linear(2, 2), (x, x.argmax(1)), "map", likelihood="categorical", epochs=3, batch_size=8, seed=0)


@pytest.mark.parametrize("rich_there", [True, False])
def test_a_terminal_sees_where_training_stands(monkeypatch: pytest.MonkeyPatch, rich_there: bool) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("bayeswell.training.progress._REFRESH_SECONDS", -1.0)
    if not rich_there:
        for name in ("rich", "rich.console", "rich.progress"):
            monkeypatch.setitem(sys.modules, name, None)
    train()
    shown = terminal.getvalue()
    assert "map" in shown
    assert "15/15" in shown
    assert "steps/s" in shown
    if not rich_there:
        assert shown.endswith("\n")
        assert "\x1b" not in shown
        lines = shown.removesuffix("\n").split("\r")
        assert lines[0] == ""
        assert lines[1].startswith("map 0/15 -:--:--")
        assert all("\n" not in line for line in lines)


@pytest.mark.parametrize("columns", ["70", "45"])
def test_where_training_stands_is_seen_where_the_numbers_have_no_room(
    monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    pytest.importorskip("rich")  # without it the line is cut without a mark
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("bayeswell.training.progress._REFRESH_SECONDS", -1.0)
    train()
    last = terminal.getvalue().removesuffix("\n\x1b[?25h").split("\r")[-1]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last)
    assert "15/15" in plain
    assert "0:00:00" in plain
    assert "steps/s" in plain
    assert plain.rstrip().endswith("…")
    assert len(plain) <= int(columns)
    assert "\n" not in plain


def test_a_shorter_line_hides_the_longer_one_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    bar = PlainBar()
    bar.start()
    bar.add_task("bbb", total=1000, completed=10, numbers="")
    bar.update(None, completed=11, numbers="n" * 100)
    bar.update(None, completed=12, numbers="short")
    bar.stop()
    _, first, long, short = capsys.readouterr().err.removesuffix("\n").split("\r")
    assert first == "bbb 10/1000 -:--:--"
    assert len(long) == 39  # it fits, with the cursor behind it
    assert short.rstrip().endswith("short")
    assert len(short) == len(long)


def test_the_time_left_is_that_of_the_steps_since_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([100.0, 105.0])
    monkeypatch.setattr("bayeswell.training.progress.time.monotonic", lambda: next(clock))
    bar = PlainBar()
    bar.start()
    bar._total, bar._began_at = 1010, 10  # as a run that goes on from step 10
    bar.update(None, completed=60, numbers="")
    # 50 steps in 5 s: the other 950 take 95.
    assert "60/1010 0:01:35" in capsys.readouterr().err
