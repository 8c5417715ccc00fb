"""``fit(folder=...)`` leaves a run that every command knows, also of a network that no file can hold."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.cli import main
from bayeswell.experiments import DataSpec, finished_result
from bayeswell.persistence import read_lines

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # the runs are too short
X = torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0.2).long()

CODE = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        return self.last(torch.sin(x))
"""


class Own(nn.Module):
    """Not made of torch's layers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.sin(x))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """New inputs, labelled ones, and the code of the network."""
    for name, header in (("new.csv", "a,b,c"), ("labelled.csv", "a,b,c,label")):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header.split(","))
            for row, label in zip(X.tolist(), Y.tolist(), strict=True):
                writer.writerow(row + ([label] if "label" in header else []))
    (tmp_path / "net.py").write_text(CODE)
    return tmp_path


def test_a_run_of_fit_is_a_whole_one(tmp_path: Path) -> None:
    result = bw.fit(nn.Sequential(nn.Linear(3, 2)), (X, Y), "bbb", epochs=3, batch_size=20, folder=tmp_path / "run")
    record = finished_result(tmp_path / "run")
    assert record is not None
    assert record["method"] == "bbb"
    assert record["std_ratio"] == result.std_ratio
    assert record["temperature"] == result.temperature
    assert record["parameters"] == 8
    assert record["cost"]["steps"] == 9
    assert record["examples"] == {"train": 60, "test": 0}
    assert record["test"] is None
    assert not record["time"]["resumed"]
    again = bw.load(tmp_path / "run" / "model").predict(X, draws=4)
    assert torch.equal(again.probabilities, result.predict(X, draws=4).probabilities)
    spec = DataSpec.read(tmp_path / "run")
    assert (spec.input_shape, spec.outputs, spec.class_names) == ((3,), 2, ("0", "1"))


def test_resumed_it_is_the_same(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"epochs": 2, "batch_size": 20, "folder": tmp_path / "run"}
    torch.manual_seed(0)
    net = Own()
    bw.fit(net, (X, Y), "map", **arguments)
    before = json.loads((tmp_path / "run" / "result.json").read_text())
    (tmp_path / "run" / "result.json").unlink()
    bw.fit(net, (X, Y), "map", **arguments, resume=True)
    after = json.loads((tmp_path / "run" / "result.json").read_text())
    assert after["time"]["resumed"]
    assert {**before, "time": None} == {**after, "time": None}


def test_the_commands_know_it(files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    result = bw.fit(Own(), (X, Y), "bbb", epochs=3, batch_size=20, folder="run", validation=(X, Y))
    found = result.predict(X, draws=10)
    assert isinstance(found, bw.ClassPrediction)
    assert main(["resume", "run"]) == 0
    said = capsys.readouterr()
    assert "is finished" in said.out
    assert "validation" in said.out
    assert main(["evaluate", "run", "--data", "labelled.csv", "--data-set", "test_share=1"]) == 2
    assert "'Own' is an object of a program" in capsys.readouterr().err
    assert main(["evaluate", "run", "--model", "net.py:Own"]) == 2
    assert "--data held_out.csv" in capsys.readouterr().err
    words = ["evaluate", "run", "--data", "labelled.csv", "--data-set", "test_share=1", "--draws", "10"]
    assert main([*words, "--model", "net.py:Own", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["test"]["values"]
    assert measured["accuracy"] == pytest.approx(float((found.labels == Y).double().mean()), abs=1e-12)
    words = ["predict", "run", "--input", "new.csv", "--draws", "10", "--model", "net.py:Own", "--json"]
    assert main(words) == 0
    rows = json.loads(capsys.readouterr().out)["predictions"]
    assert [row["p_1"] for row in rows] == pytest.approx(found.probabilities[:, 1].tolist(), abs=1e-6)
    assert main(["report", "run", "--model", "net.py:Own", "--out", "page.html", "-q"]) == 0
    inspection = json.loads(Path("run/inspection.json").read_text())
    assert inspection["records"].keys() >= {"layers", "spectra"}
    assert "bbb" in Path("page.html").read_text()


def test_one_that_is_not_finished_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Stop(bw.Callback):
        def after_epoch(self, run: bw.Run, record: bw.EpochRecord) -> None:
            raise KeyError("stop")

    with pytest.raises(KeyError):
        bw.fit(Own(), (X, Y), "map", epochs=2, folder=tmp_path / "run", callbacks=[Stop()])
    for command in ("resume", "evaluate"):
        assert main([command, str(tmp_path / "run")]) == 2
        assert "fit(..., folder=..., resume=True)" in capsys.readouterr().err


def test_calibrated_runs_keep_what_was_calibrated(tmp_path: Path) -> None:
    result = bw.fit(
        nn.Linear(3, 2), (X, Y), "map", epochs=2, batch_size=20, folder=tmp_path / "run", calibrate=2, progress=False
    )
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["calibration"]["text"] == str(result.calibration)
    assert bw.load(tmp_path / "run" / "model").calibration == result.calibration
    assert not (tmp_path / "run" / "folds" / "0" / "model").exists()


def test_what_cannot_be_kept_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    def noisy(outputs: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Normal(outputs, 0.3)

    likelihood: Any = lambda outputs: noisy(outputs)  # noqa: E731  # without a name by which a file could call it
    with pytest.warns(bw.BayeswellWarning, match="the model is not kept"):
        result = bw.fit(nn.Linear(3, 1), (X, X[:, :1]), "map", likelihood, epochs=1, folder=tmp_path / "run")
    assert result.predict(X, draws=2) is not None
    assert not (tmp_path / "run" / "result.json").exists()


def test_csv_logger_from_python(tmp_path: Path) -> None:
    bw.fit(nn.Linear(3, 2), (X, Y), "deep-ensemble", members=2, epochs=3, batch_size=20, folder=tmp_path / "run",
           callbacks=[bw.CSVLogger(tmp_path / "log.csv")])  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert [{key: float(value) for key, value in row.items()} for row in rows] == [
        {key: float(value) for key, value in line.items()} for line in lines
    ]
