"""How a sweep did as a whole: which share of its trials succeeded, and the band of their learning curves."""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import bayeswell as bw
from bayeswell import plots
from bayeswell.cli import main
from bayeswell.persistence import write_document
from bayeswell.sweeps.bands import bands_of, quantile
from bayeswell.sweeps.results import SweepResult, TrialRecord
from bayeswell.training import RunFolder


def result_of(values: list[float | None], direction: str = "minimize", running: int = 0) -> SweepResult:
    """Trials with these values; None is one that failed."""
    states = ["failed" if value is None else "complete" for value in values] + ["running"] * running
    trials = [
        TrialRecord(number, state, {}, value, 1.0, 1, None)
        for number, (state, value) in enumerate(zip(states, [*values, *[None] * running], strict=True))
    ]
    return SweepResult("s", len(trials), direction, tuple(trials))


def test_success_is_at_least_as_good_and_failures_are_none() -> None:
    values = [0.1, 0.5, 0.7, None, None]
    assert result_of(values).success_rate(0.5) == 2 / 5
    assert result_of(values).success_rate(0.05) == 0
    assert result_of(values).success_rate(9.0) == 3 / 5
    assert result_of(values, "maximize").success_rate(0.5) == 2 / 5
    assert result_of(values, "maximize").success_rate(0.6) == 1 / 5
    assert result_of(values, running=3).success_rate(0.5) == 2 / 5  # those are not known yet
    assert result_of([], running=1).success_rate(0.5) is None


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 10])
def test_quantiles_are_numpys_until_they_are_infinite(count: int) -> None:
    values = sorted(np.random.default_rng(count).normal(size=count).tolist())
    for share in (0.25, 0.5, 0.75):
        assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), rel=1e-12)
    assert quantile([1.0, 2.0, math.inf], 0.5) == 2
    assert quantile([1.0, 2.0, math.inf], 0.75) == math.inf
    assert quantile([1.0, math.inf, math.inf, math.inf], 0.5) == math.inf


def plant(folder: Path, curves: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of runs with these scores of each epoch; a list within is of the members of an ensemble."""
    rows = {
        str(folder / "trials" / name): [
            {"member": member, "epoch": epoch, "validation.nll": value, "nll": 77.0}
            for epoch, values in enumerate(curve)
            for member, value in enumerate(values if isinstance(values, list) else [values])
        ]
        for name, curve in curves.items()
    }
    for place in rows:
        Path(place).mkdir(parents=True)
    monkeypatch.setattr(RunFolder, "epochs", lambda self: rows.get(str(self.path), []))


def test_the_band_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four trials: one in two seeds, one an ensemble of two, one that failed after an epoch, one on another machine."""
    curves: dict[str, list[Any]] = {
        "0000/seed0": [1.0, 0.6], "0000/seed1": [3.0, 0.8],
        "0001": [[2.0, 6.0], [1.0, 2.0]],
        "0002": [9.0],
        "0004": [5.0, 3.0],
    }  # fmt: skip
    plant(tmp_path, curves, monkeypatch)
    found = bands_of(result_of([0.7, 1.5, None, 0.1, 3.0], running=1), tmp_path, "validation.nll")
    # Epoch 0: 2, 4, 5 and 9. Epoch 1: 0.7, 1.5, 3 and one that failed.
    assert found == {
        "score": "validation.nll", "direction": "minimize", "epochs": [0, 1],
        "lower": [pytest.approx(3.5), pytest.approx(1.3)],
        "median": [pytest.approx(4.5), pytest.approx(2.25)],
        "upper": [pytest.approx(6.0), None],
        "trials": [4, 4], "failed": 1, "elsewhere": 1,
    }  # fmt: skip
    assert bands_of(result_of([0.7]), tmp_path, "validation.rmse") is None


def test_where_higher_is_better_failures_are_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, {"0000": [0.5, 0.9], "0001": [0.6], "0002": [0.7, 0.8], "0003": [0.2, None]}, monkeypatch)
    found = bands_of(result_of([0.9, 0.6, None, None], "maximize"), tmp_path, "validation.nll")
    assert found is not None
    # Epoch 1: the second had ended well before; 0.9, 0.8, and a number that is none.
    assert found["trials"] == [4, 3]
    assert found["median"] == [pytest.approx(0.55), pytest.approx(0.8)]
    assert found["lower"] == [pytest.approx(0.425), None]
    assert found["upper"] == [pytest.approx(0.625), pytest.approx(0.85)]


def test_the_picture_has_the_numbers() -> None:
    record = {"score": "validation.nll", "direction": "minimize", "epochs": [0, 1, 2], "lower": [1.0, 0.5, 0.4],
              "median": [2.0, 1.0, 0.9], "upper": [3.0, 2.0, None], "trials": [5, 5, 5], "failed": 2}  # fmt: skip
    axes = plots.plot_trial_bands(record, ax=Figure().add_subplot())
    assert axes.lines[0].get_ydata().tolist() == [2.0, 1.0, 0.9]  # type: ignore[union-attr]
    (band,) = axes.collections
    corners = {(round(float(x), 6), round(float(y), 6)) for x, y in np.asarray(band.get_paths()[0].vertices)}
    top = round(axes.get_ylim()[1], 6)
    assert {(0, 1), (1, 0.5), (2, 0.4), (0, 3), (1, 2), (2, top)} <= corners
    assert top > 3


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of four trials one diverges."""
    folder = tmp_path_factory.mktemp("bands") / "s"
    command = ["sweep", "-d", "wine", "-m", "map", "-e", "3", "--sampler", "grid", "--set", "stepper=sgd",
               "--space", "stepper.lr=0.001,0.01,0.1,1e30", "--threshold", "0.5", "--out", str(folder),
               "-q"]  # fmt: skip
    assert main(command) == 0
    return folder


def test_the_command_keeps_and_shows_them(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads((done / "result.json").read_text())
    assert [trial["state"] for trial in record["trials"]] == ["complete"] * 3 + ["failed"]
    passed = sum(trial["value"] is not None and trial["value"] <= 0.5 for trial in record["trials"])
    assert record["success"] == {"threshold": 0.5, "rate": passed / 4}
    bands = record["bands"]
    runs = [done / "trials" / f"{number:04d}" for number in range(3)]
    last = sorted(RunFolder(run).epochs()[-1]["validation.nll"] for run in runs)
    assert bands["epochs"] == [0, 1, 2]
    assert bands["trials"] == [4, 4, 4]
    assert bands["median"][-1] == pytest.approx((last[1] + last[2]) / 2)
    assert bands["lower"][-1] == pytest.approx(0.25 * last[0] + 0.75 * last[1])
    assert bands["upper"][-1] is None
    assert main(["sweep", "--join", str(done), "--threshold", "1e9", "-q"]) == 0
    shown = capsys.readouterr().out
    assert "success rate 0.75: 3 of 4 trials have nll at most 1e+09; the 1 that failed are not among them" in shown
    assert f"median {bands['median'][-1]:.4g}, quartiles {bands['lower'][-1]:.4g} and failed" in shown


def test_the_page_of_a_sweep_shows_the_band(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bayeswell.report import figures, write_report
    from bayeswell.report import page as pages

    # Pictures of single trials, and how the others look, take most of the time and are nothing to this test.
    monkeypatch.setattr(pages, "MOST", 1)
    monkeypatch.setattr(figures, "_laid_out", lambda figure: figure)
    monkeypatch.setattr(figures, "figure_to_svg", lambda figure, name, alt: f'<svg aria-label="{escape(alt)}"></svg>')
    page = write_report([done], tmp_path / "page.html").read_text()
    assert "validation.nll over 4 trials, of which 1 failed" in page
    record = json.loads((done / "result.json").read_text())
    other = tmp_path / "s"
    other.mkdir()
    (other / "sweep.json").write_text("{}")
    record = {name: value for name, value in record.items() if name != "seal"}
    write_document(other / "result.json", {**record, "bands": {"score": "<b>", "epochs": "x"}})
    (other / "trials").symlink_to(done / "trials")
    assert "no picture &#39;trial_bands&#39;" in write_report([other], tmp_path / "other.html").read_text()


def test_from_python(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    x = torch.randn(60, 2)
    net = torch.nn.Linear(2, 2)
    found = bw.sweep(net, (x, (x[:, 0] > 0).long()), {"stepper.lr": "0.01,0.1"}, method="map", epochs=2,
                     sampler="grid", folder=tmp_path / "s")  # fmt: skip
    assert found.success_rate(1e9) == 1
    assert found.bands == json.loads((tmp_path / "s" / "result.json").read_text())["bands"]
    assert found.bands is not None
    assert found.bands["trials"] == [2, 2]
