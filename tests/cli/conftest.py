"""The command line in this process: what it prints, and with which code it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bayeswell.cli import main
from bayeswell.report import figures
from plots.quick_drawing import drawn_quickly  # noqa: F401 -- a fixture for all tests below

SMALL = ["--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "2", "--batch-size", "300", "--draws", "5"]
"""A network that trains in a blink."""


@dataclass(frozen=True)
class Said:
    """What a command left: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def bayeswell(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command."""

    def command(*arguments: str | Path) -> Said:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return command


@pytest.fixture
def few_pictures(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A page has these pictures alone, besides that of a comparison; k-hat, which no test reads, is of fewer draws."""

    def only(*names: str) -> None:
        for place in ("TOGETHER", "ALONE"):
            all_of_them = getattr(figures, place)
            monkeypatch.setattr(figures, place, tuple(name for name in all_of_them if name in names))
        monkeypatch.setattr("bayeswell.experiments.inspection.posterior.PASSES", 60)

    return only


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main(["train", "--method", "map", *SMALL, "--ood", "noise", "--quiet", "--out", str(folder)]) == 0
    return folder
