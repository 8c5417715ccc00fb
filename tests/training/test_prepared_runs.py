"""Runs of prepared data in a folder: what was learned of units and names belongs to the run, and commands know it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.experiments import evaluate, predict_file, write_predictions

pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")
SHORT: dict[str, Any] = {"method": "bbb", "epochs": 3, "progress": False}


def patients(count: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    age = np.where(generator.random(count) < 0.1, np.nan, generator.normal(50, 12, count).round(1))
    smoker = generator.random(count) < 0.4
    frame = pandas.DataFrame({"age": age, "smoker": smoker, "ward": generator.choice(["a", "b"], count)})
    return frame, pandas.Series(np.where(smoker, "ill", "well"), name="diagnosis")


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.Linear(8, 2))


@pytest.mark.parametrize("calibrate", [False, 2])
def test_other_units_are_other_data(tmp_path: Path, calibrate: Any) -> None:
    """Scaled, y and 1024 y are the same numbers to the last bit: the run must not take one for the other."""
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(2))
    y, net = 3 + x.sum(1, keepdim=True), nn.Linear(3, 1)
    given: dict[str, Any] = {**SHORT, "likelihood": "gaussian", "standardise": True, "calibrate": calibrate}
    first = bw.fit(net, (x, y), folder=tmp_path / "run", **given)
    with pytest.raises(bw.SettingError, match=r"begun otherwise.*preparation"):
        bw.fit(net, (x, 1024 * y), folder=tmp_path / "run", resume=True, **given)
    again = bw.fit(net, (x, y), folder=tmp_path / "run", resume=True, **given)
    for result in (again, bw.load(tmp_path / "run" / "model")):
        torch.testing.assert_close(result.predict(x, seed=1).mean, first.predict(x, seed=1).mean)


def test_commands_know_the_columns_of_a_frame(tmp_path: Path) -> None:
    """A file with the frame's columns, in any order, with the words True and False: the same predictions."""
    frame, labels = patients(120)
    result = bw.fit(network(), (frame, labels), folder=tmp_path / "run", **SHORT)
    file = tmp_path / "new.csv"
    frame[["ward", "smoker", "age"]].to_csv(file, index=False)
    found, spec = predict_file(tmp_path / "run", file, draws=20, seed=4)
    assert spec.class_names == ("ill", "well")
    expected = result.predict(frame, draws=20, seed=4)
    torch.testing.assert_close(found.probabilities, expected.probabilities)
    write_predictions(tmp_path / "p.csv", found, spec)
    with open(tmp_path / "p.csv", encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["label"] for row in rows] == list(expected.label_names)


def test_all_rows_of_a_file_test_what_a_program_trained(tmp_path: Path) -> None:
    frame, labels = patients(120)
    result = bw.fit(network(), (frame, labels), folder=tmp_path / "run", **SHORT)
    file = tmp_path / "all.csv"
    frame.assign(diagnosis=labels).to_csv(file, index=False)
    record = evaluate(tmp_path / "run", str(file), draws=20, seed=4)
    assert record["examples"] == 120
    own = result.evaluate(frame, labels, draws=20, seed=4)
    assert record["test"]["values"]["nll"] == pytest.approx(float(own["nll"]), rel=1e-6)


def test_what_cannot_be_meant_is_told_by_its_name() -> None:
    x, y, net = torch.randn(40, 3), torch.randint(2, (40,)), nn.Linear(3, 2)
    with pytest.raises(bw.DataError, match="validation of type float; give held-out"):
        bw.fit(net, (x, y), validation=0.2, **SHORT)  # type: ignore[arg-type]
    with pytest.raises(bw.SettingError, match="standardise with epochs = 0"):
        bw.fit(net, (x, y), "map", epochs=0, standardise=True, progress=False)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=10)
    frame, labels = patients(40)
    with pytest.raises(bw.DataError, match="validation of type DataLoader; the model prepares"):
        bw.fit(network(), (frame, labels), validation=loader, **SHORT)


def test_a_comparison_takes_a_frame_with_named_classes(tmp_path: Path) -> None:
    """The same numbers as a comparison of the table that the frame is written to."""

    class Net(nn.Sequential):
        def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
            super().__init__(nn.Linear(input_shape[0], 6), nn.Tanh(), nn.Linear(6, outputs))

    frame, labels = patients(80)
    frame["smoker"] = frame["smoker"].map({True: "yes", False: "no"})
    settings: dict[str, Any] = {"epochs": 2, "draws": 5, "seeds": 1, "standardise": True, "progress": False}
    data, test = (frame[:60], labels[:60]), (frame[60:], labels[60:])
    found = bw.compare(Net, data, ["map"], test=test, folder=tmp_path / "frame", **settings)
    for name, (rows, classes) in {"train": data, "test": test}.items():
        rows.assign(diagnosis=classes).to_csv(tmp_path / f"{name}.csv", index=False)
    files = {"name": "csv", "path": str(tmp_path / "train.csv"), "test_path": str(tmp_path / "test.csv")}
    other = bw.compare(Net, files, ["map"], folder=tmp_path / "file", **settings)
    first, second = (one.to_frame() for one in (found, other))
    assert first["nll"].iloc[0] == pytest.approx(second["nll"].iloc[0], rel=1e-6)
