"""K-fold: every example tests once, never what was trained on it, and means and errors are over folds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bayeswell.cli import main
from bayeswell.datasets import find_data
from bayeswell.errors import DataError, SettingError
from bayeswell.experiments import Experiment, compare
from bayeswell.experiments.folds import Fold
from bayeswell.experiments.problem import data_of
from bayeswell.report.differences import difference
from bayeswell.report.reading import read_runs
from bayeswell.report.summary import tables_of

SMALL = {"data": "wine", "model": {"name": "mlp", "hidden": [4]}, "epochs": 2, "batch_size": 60, "draws": 3}


def test_the_parts_are_a_partition_and_the_rest_is_trained_on() -> None:
    raw = find_data("wine").read(None)
    assert raw.train is not None
    everything = sorted(map(tuple, torch.cat([raw.train[0], raw.test[0]]).tolist()))
    tested = []
    for number in range(1, 5):
        fold = Fold(find_data("wine"), number, 4).read(None)
        assert fold.train is not None
        test, train = (list(map(tuple, inputs.tolist())) for inputs in (fold.test[0], fold.train[0]))
        assert sorted(test + train) == everything
        assert len(test) in (44, 45)
        tested += test
    assert sorted(tested) == everything


def test_scaling_is_of_the_training_examples_alone() -> None:

    data = data_of(Experiment(**SMALL, fold="2/4"))  # type: ignore[arg-type]
    assert torch.allclose(data.train[0].mean(0), torch.zeros(13), atol=1e-5)
    assert not torch.allclose(data.test[0].mean(0), torch.zeros(13), atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*rare:bayeswell.errors.BayeswellWarning")
def test_what_columns_become_is_learned_from_the_rows_that_a_fold_trains_on(tmp_path: Path) -> None:
    """A text that stands in test rows alone is no column of the network."""
    file = tmp_path / "table.csv"
    rows = [
        f"{'' if row == 3 else row},{'rare' if row == 7 else 'a' if row % 2 else 'b'},{row % 3}" for row in range(40)
    ]
    file.write_text("\n".join(["x,kind,y", *rows]) + "\n")
    given = {**SMALL, "data": {"name": "csv", "path": str(file), "task": "classification"}}
    tested = set()
    for number in range(1, 5):
        data = data_of(Experiment(**given, fold=f"{number}/4"))  # type: ignore[arg-type]
        assert data.table is not None
        names = " ".join(data.table.features)
        tested.add("rare" in names)
        assert len(data.train[1]) == 30
    assert tested == {True, False}  # three folds train on the rare text, the fourth has it in its test rows


def test_means_and_errors_are_over_folds_and_methods_meet_in_pairs(tmp_path: Path) -> None:
    base = Experiment(**SMALL, method="map")  # type: ignore[arg-type]
    methods = {"map": base, "fast": base.changed({"method.stepper.lr": 0.05})}
    record = compare(methods, [0, 1], tmp_path, folds=3)
    values: dict[str, np.ndarray] = {}
    for label in methods:
        values[label] = np.array([[_nll(tmp_path / f"{label}-seed{seed}-fold{fold}") for seed in (0, 1)]
                                  for fold in (1, 2, 3)])  # fmt: skip
    for row in record["rows"]:
        folds = values[row["method"]].mean(1)
        assert row["scores"]["nll"]["mean"] == pytest.approx(folds.mean(), rel=1e-12)
        assert row["scores"]["nll"]["standard_error_over_folds"] == pytest.approx(folds.std(ddof=1) / math.sqrt(3))
        assert row["scores"]["nll"]["standard_error_over_seeds"] is None
    (table,) = tables_of(read_runs([tmp_path]).runs)
    rows = {row.label: row for row in table.rows}
    assert len(rows["map"].runs) == 6
    found = difference(rows["fast"], rows["map"], "nll")
    assert found is not None
    differences = (values["fast"] - values["map"]).mean(1)
    assert (found.value, found.error) == pytest.approx((differences.mean(), differences.std(ddof=1) / math.sqrt(3)))
    assert found.over == "3 folds"


def _nll(folder: Path) -> float:
    return float(json.loads((folder / "result.json").read_text())["test"]["values"]["nll"])


def test_train_with_folds_shows_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "-d", "wine", "-m", "map", "-n", "mlp", "--model-set", "hidden=[4]", "-e", "1", "--draws", "2"]
    assert main([*words, "--folds", "2", "--out", str(tmp_path / "runs"), "-q"]) == 0
    said = capsys.readouterr()
    assert "2 folds" in said.out
    assert "over folds" in said.out
    assert (tmp_path / "runs" / "map-seed0-fold2" / "result.json").exists()


@pytest.mark.parametrize("fold", ["0/5", "6/5", "1/1", "2", "x", 2, True])
def test_a_fold_that_cannot_be_is_refused(fold: object) -> None:
    with pytest.raises(SettingError, match="fold = "):
        Experiment(**SMALL, fold=fold)  # type: ignore[arg-type]


def test_more_folds_than_examples_are_refused() -> None:
    with pytest.raises(DataError, match="has only 178 examples"):
        Fold(find_data("wine"), 1, 179).read(None)
