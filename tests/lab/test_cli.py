"""The command line: each command in this process, on a stream that says it is a terminal or not."""

from __future__ import annotations

import errno
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayeswell.lab import cli, terminal
from bayeswell.lab.cli import main
from bayeswell.lab.settings import RunSettings
from bayeswell.lab.terminal import SafeStream, printable, table_text

Run = Callable[..., tuple[int, str, str]]


class Screen(io.StringIO):
    """A terminal of 80 columns."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal, "terminal_width", lambda: 80)


def call(*arguments: str, screen: bool = False) -> tuple[int, str, str]:
    before = sys.stdout, sys.stderr
    out, err = (Screen() if screen else io.StringIO() for _ in before)
    sys.stdout, sys.stderr = out, err
    try:
        code = main(list(arguments))
    finally:
        sys.stdout, sys.stderr = before
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def run() -> str:
    code, _, _ = call("train", "--data", "wine", "--method", "map", "--epochs", "2", "--folder", "run", "--quiet")
    assert code == 0
    return "run"


def test_train_ends_with_three_lines_of_80_columns() -> None:
    code, out, err = call("train", "--data", "wine", "--method", "map", "--epochs", "2", screen=True)
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == ["test", "cost", "folder"]
    assert max(map(len, lines)) <= 80
    assert "epoch 2/2" in err
    assert lines[2].endswith("runs/wine-map-seed0")


def test_train_prints_the_record_as_json() -> None:
    code, out, _ = call("train", "--data", "wine", "--method", "map", "--epochs", "1", "--quiet", "--json")
    record = json.loads(out)
    assert code == 0
    assert record["method"] == "map"
    assert set(record["scores"]["nll"]) == {"value", "se"}


def test_options_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'data = "wine"\nmethod = "k-tied"\nepochs = 9\nsettings = {posterior = {rank = 1}}'
    )
    options = cli._parsed("train", ["--config", "run.toml", "--epochs", "2", "--set", "rank=3", "model.hidden=[4,5]"])
    found = cli._settings(options)
    assert (found.data, found.epochs, found.method_part.posterior.rank) == ("wine", 2, 3)
    assert found.model_settings == {"hidden": [4, 5]}


def test_every_setting_has_an_option() -> None:
    arguments = ["--batch-size", "7", "--lr", "0.1", "--validation", "0.2", "--standardize", "false", "--fold", "1/5",
                 "--calibrate", "true", "--ood", "noise", "corrupted", "--early_stopping", "3"]  # fmt: skip
    found = cli._settings(cli._parsed("train", arguments))
    expected = RunSettings(batch_size=7, lr=0.1, validation=0.2, standardize=False, fold="1/5", calibrate=True,
                           ood=["noise", "corrupted"], early_stopping=3)  # fmt: skip
    assert found == expected


def test_evaluate_shows_scores_with_errors(run: str) -> None:
    code, out, _ = call("evaluate", run, screen=True)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert any(line.startswith("NLL ") and "±" in line and "nats" in line for line in out.splitlines())
    code, out, _ = call("evaluate", run, "--draws", "3", "--ood", "noise", "--json")
    assert "ood_auroc_entropy" in json.loads(out)["scores"]


def test_predictions_reach_terminal_pipe_file_and_json(run: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(30, 13)) * 3 + 10)
    common = ("predict", run, "--input", "x.npz", "--draws", "3")
    code, screen, _ = call(*common, screen=True)
    assert code == 0
    assert max(map(len, screen.splitlines())) <= 80
    assert "10 more rows" in screen
    _, piped, _ = call(*common)
    _, said, _ = call(*common, "--out", "p.csv")
    _, text, _ = call(*common, "--json")
    assert piped == (tmp_path / "p.csv").read_text()
    assert "30 predictions in p.csv" in said
    rows = json.loads(text)["predictions"]
    assert len(rows) == len(piped.splitlines()) - 1 == 30
    assert rows[0]["label"] == piped.splitlines()[1].split(",")[0]


def test_names_of_classes_have_no_control_characters(tmp_path: Path) -> None:
    rows = [f"{value},{chr(27) + '[31mred' if value > 0 else 'blue'}" for value in np.linspace(-1, 1, 40)]
    (tmp_path / "t.csv").write_text("\n".join(["size,kind", *rows]))
    call("train", "--data", "table:t.csv", "--method", "map", "--epochs", "2", "--folder", "r", "--quiet")
    for arguments in ((), ("--json",), ("--out", "p.csv")):
        code, out, _ = call("predict", "r", "--input", "t.csv", *arguments, screen=not arguments)
        assert code == 0
        assert "\x1b" not in out
    assert "\x1b" not in (tmp_path / "p.csv").read_text()


def test_compare_report_list_and_verify(tmp_path: Path) -> None:
    compared = ("compare", "--methods", "map,bbb", "--data", "wine", "--seeds", "2", "--epochs", "1", "--folder", "c")
    code, out, err = call(*compared, screen=True)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "4/4 wine, bbb, seed 1" in err
    code, out, _ = call(*compared, "--json", "--quiet")
    assert {row["method"] for row in json.loads(out)["table"]} == {"map", "bbb"}
    code, out, _ = call("list", "c", "--json")
    assert len(json.loads(out)) == 4
    assert call("verify", "c")[0] == 0
    path = tmp_path / "c" / "wine" / "map-seed0" / "settings.json"
    path.write_bytes(path.read_bytes() + b" ")
    code, out, _ = call("verify", "c")
    assert code == 1
    assert "settings.json" in out


def test_report_writes_a_page(run: str, tmp_path: Path) -> None:
    code, out, _ = call("report", run, "--out", "page.html")
    assert code == 0
    assert "page.html" in out
    assert (tmp_path / "page.html").stat().st_size > 1000


def test_sweep_prints_the_best_trials() -> None:
    arguments = ("sweep", "--data", "wine", "--method", "map", "--epochs", "1", "--space", "lr=1e-3,1e-2")
    code, out, err = call(*arguments, "--sampler", "grid", "--trials", "2")
    assert code == 0
    assert "2 complete" in out
    assert "2/2" in err


def test_resume_shows_a_finished_run(run: str) -> None:
    code, out, _ = call("resume", run)
    assert (code, len(out.splitlines())) == (0, 3)


@pytest.mark.parametrize("kind", ["", "methods", "data", "models", "scores", "posterior", "optimizer"])
def test_lists_fit_80_columns(kind: str) -> None:
    code, out, _ = call("list", *([kind] if kind else []), screen=True)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "'train'"),
        (["train", "--epohcs", "3"], "'--epochs'"),
        (["train", "--epochs", "x"], "--epochs must be int, got 'x'"),
        (["train", "--method", "bbc"], "'bbb'"),
        (["train", "--set", "rank"], "NAME=VALUE"),
        (["train", "--set", "temperatur=1"], "'temperature'"),
        (["train", "--data", "digitz"], "'digits'"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate"], "run"),
        (["predict", "nowhere", "--input", "x.csv"], "nowhere"),
        (["verify", "nowhere"], "nowhere"),
        (["list", "method"], "'methods'"),
        (["compare", "--methods", "map,bbc"], "'bbb'"),
        (["train", "--config", "no.toml"], "no.toml"),
        (["evaluate", "x", "--model", "mlp"], "FILE.py:NAME"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err


def test_help_of_each_command() -> None:
    for name in cli.COMMANDS:
        code, out, _ = call(name, "--help")
        assert code == 0
        assert f"bayeswell {name}" in out
    assert all(name in call()[1] for name in cli.COMMANDS)


def test_debug_raises() -> None:
    with pytest.raises(Exception, match="bbc"):
        call("train", "--method", "bbc", "--debug")


def test_interrupts_end_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt("stopped after step 3; resume=True continues the run")

    monkeypatch.setattr(cli, "train", stop)
    code, _, err = call("train")
    assert code == 130
    assert "bayeswell resume FOLDER" in err


class Full(io.StringIO):
    """A stream that fails with an error number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, "no")


@pytest.mark.parametrize(("number", "lost"), [(errno.EPIPE, False), (errno.ENOSPC, True)])
def test_streams_survive_what_they_cannot_write(number: int, lost: bool) -> None:
    stream = SafeStream(Full(number))
    assert stream.write("abc") == 3
    assert stream.lost_output is lost


def test_a_full_disk_behind_stdout_ends_with_1(monkeypatch: pytest.MonkeyPatch, run: str, tmp_path: Path) -> None:
    for number, expected in ((errno.EPIPE, 0), (errno.ENOSPC, 1)):
        monkeypatch.setattr(sys, "stdout", Full(number))
        assert main(["evaluate", run]) == expected


def test_tables_drop_their_last_columns_and_name_them() -> None:
    text = table_text(["a", "b", "c", "d"], [["x" * 30, "1", "2" * 30, "3" * 30]], 80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.endswith("not shown at 80 columns: d")
    assert printable("a\x1b[31m\x00b") == "a\\x1b[31m\\x00b"
