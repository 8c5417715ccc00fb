"""New inputs from a file are predicted as the training data were seen, and no cell is a formula."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from bayeswell.datasets import Scaling, load_data
from bayeswell.errors import BayeswellError, DataError
from bayeswell.experiments import Experiment, predict_file, run, write_predictions
from bayeswell.experiments.data_card import DataCard
from bayeswell.experiments.predicting import harmless, prediction_rows, read_inputs
from bayeswell.predictive import ClassPrediction, RealPrediction
from bayeswell.predictive.predictor import load

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on y = 3 a - b, far from standardised units; its file lies beside it."""
    folder = tmp_path_factory.mktemp("table")
    generator = np.random.default_rng(4)
    a, b = generator.normal(10, 3, 300), generator.normal(-50, 8, 300)
    rows = [["a", "b", "y"], *([x, z, 3 * x - z] for x, z in zip(a, b, strict=True))]
    with open(folder / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    run(
        Experiment(
            method={"name": "map", "stepper": {"lr": 0.03}}, data=str(folder / "t.csv"), batch_size=50, epochs=40,
            model={"name": "mlp", "hidden": []},
        ),
        folder / "run",
    )  # fmt: skip
    return folder


def test_columns_are_found_by_name_and_units_are_raw(table: Path) -> None:
    new = table / "new.csv"
    new.write_text("y,b,extra,a\n0,-40,7,12\n0,-60,7,6\n", encoding="utf-8")
    found, card = predict_file(table / "run", new, draws=1)
    header, *rows = list(prediction_rows(found, card))
    assert header == ["mean", "std", "epistemic_std", "aleatoric_std"]
    # 3 a - b; the std of the targets is 12, so a slip of units or columns is far outside.
    assert [row[0] for row in rows] == pytest.approx([76, 78], abs=2)
    assert isinstance(found, RealPrediction)
    assert rows[0][1] == pytest.approx((rows[0][2] ** 2 + rows[0][3] ** 2) ** 0.5)
    assert rows[0][2] == 0  # one network: no doubt about weights


def test_without_names_columns_stand_in_order(table: Path) -> None:
    new = table / "plain.csv"
    new.write_text("12,-40\n6,-60\n", encoding="utf-8")
    found, card = predict_file(table / "run", new, draws=1)
    assert [row[0] for row in list(prediction_rows(found, card))[1:]] == pytest.approx([76, 78], abs=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,c\n1,2\n", "no column 'b'"),
        ("a,b\n1,nan\n", "row 2, column 'b': 'nan'"),
        ("a,b\n1,2\n3,\n", "row 3, column 'b': the cell is empty"),
        ("a,b\n1,2\n3\n", "row 3"),
        ("1,2,3\n", "3 columns; an example has 2"),
        ("a,b\n", "no row"),
        ("", "empty"),
    ],
)
def test_what_cannot_be_read_is_named(table: Path, text: str, words: str) -> None:
    new = table / "bad.csv"
    new.write_text(text, encoding="utf-8")
    with pytest.raises(BayeswellError, match=words):
        predict_file(table / "run", new)


def test_images_come_from_arrays_in_any_usual_layout(tmp_path: Path, small: Experiment) -> None:
    run(small, tmp_path / "run")
    raw = load_data("digits", standardise=False).test[0][:7]
    expected = load(tmp_path / "run" / "model").predict(load_data("digits").test[0][:7], draws=1)
    assert isinstance(expected, ClassPrediction)
    layouts = {
        "nchw": raw.numpy(),
        "nhw": raw[:, 0].numpy(),
        "nhwc": raw.permute(0, 2, 3, 1).numpy(),
    }
    for name, array in layouts.items():
        np.savez(tmp_path / f"{name}.npz", x=array)
        found, card = predict_file(tmp_path / "run", tmp_path / f"{name}.npz", draws=1)
        assert isinstance(found, ClassPrediction)
        torch.testing.assert_close(found.probabilities, expected.probabilities)
    np.savez(tmp_path / "bytes.npz", x=(raw * 255).round().to(torch.uint8).numpy())
    as_bytes = read_inputs(tmp_path / "bytes.npz", card)
    assert (as_bytes - card.scaling.inputs(raw)).abs().max() < 0.01
    write_predictions(tmp_path / "p.csv", found, card)
    with open(tmp_path / "p.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["label"]) for row in rows] == expected.labels.tolist()
    assert [float(row["p_3"]) for row in rows] == pytest.approx(expected.probabilities[:, 3].tolist())
    np.savez(tmp_path / "bad.npz", x=np.full((2, 8, 8), np.nan))
    with pytest.raises(DataError, match=r"index \[0, 0, 0\] is nan"):
        predict_file(tmp_path / "run", tmp_path / "bad.npz")
    np.savez(tmp_path / "bad.npz", x=np.zeros((2, 9, 9)))
    with pytest.raises(DataError, match="shape"):
        predict_file(tmp_path / "run", tmp_path / "bad.npz")


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_text_is_a_formula(cell: str) -> None:
    assert harmless(cell) == f"'{cell}"
    card = DataCard("x", (1,), 2, (cell, "fine"), None, Scaling())
    half = torch.tensor([[0.9, 0.1]])
    found = ClassPrediction(half, *(torch.zeros(1) for _ in range(3)), draws=1)
    assert list(prediction_rows(found, card))[1][0] == f"'{cell}"


@pytest.mark.parametrize("cell", ["-1", "+2.5", "fine", "a=b", ""])
def test_numbers_and_ordinary_texts_stay(cell: str) -> None:
    assert harmless(cell) == cell
