"""TensorBoard is optional: it gets every number of every epoch, and its absence is one clear line."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from bayeswell.errors import SettingError
from bayeswell.experiments import Experiment, TensorBoardLogger, run
from bayeswell.persistence import read_lines


def test_tensorboard_gets_what_the_log_gets(tmp_path: Path, small: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, str, float, int]] = []
    opened: list[tuple[str, int]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            self.folder = folder
            opened.append((folder, purge_step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((self.folder, name, value, step))

        def close(self) -> None:
            """Nothing is waiting."""

    stand_in: Any = types.ModuleType("torch.utils.tensorboard")
    stand_in.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    chosen = small.changed({"method": {"name": "deep-ensemble", "members": 2}, "validation": 0.2})
    run(chosen, tmp_path / "run", loggers=[TensorBoardLogger(tmp_path / "events")])
    expected = [
        (str(tmp_path / "events" / f"member{line['member']}"), name.replace(".", "/"), value, line["step"])
        for line in read_lines(tmp_path / "run" / "metrics.jsonl")
        for name, value in line.items()
        if name not in {"member", "epoch", "step"}
    ]
    assert written == expected
    assert {name for _, name, _, _ in written} >= {"nll", "accuracy", "validation/nll", "lr/means"}
    assert opened == [(str(tmp_path / "events" / f"member{member}"), 0) for member in range(2)]


def test_without_tensorboard_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(SettingError, match=r"pip install 'bayeswell\[tensorboard\]'"):
        TensorBoardLogger(tmp_path)
