"""New inputs from a file are predicted as the training data were seen, and no cell is a formula."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from bayeswell.datasets import Scaling, load_data
from bayeswell.errors import BayeswellError, DataError
from bayeswell.experiments import Experiment, evaluate, predict_file, run, write_predictions
from bayeswell.experiments.data_spec import DataSpec
from bayeswell.experiments.predicting import harmless, picture_files, prediction_rows, read_inputs
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
    found, spec = predict_file(table / "run", new, draws=1)
    header, *rows = list(prediction_rows(found, spec))
    assert header == ["mean", "std", "epistemic_std", "aleatoric_std"]
    # 3 a - b; the std of the targets is 12, so a slip of units or columns is far outside.
    assert [row[0] for row in rows] == pytest.approx([76, 78], abs=2)
    assert isinstance(found, RealPrediction)
    assert rows[0][1] == pytest.approx((rows[0][2] ** 2 + rows[0][3] ** 2) ** 0.5)
    assert rows[0][2] == 0  # one network: no doubt about weights


def test_without_names_columns_stand_in_order(table: Path) -> None:
    new = table / "plain.csv"
    new.write_text("12,-40\n6,-60\n", encoding="utf-8")
    found, spec = predict_file(table / "run", new, draws=1)
    assert [row[0] for row in list(prediction_rows(found, spec))[1:]] == pytest.approx([76, 78], abs=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,c\n1,2\n", "no column 'b'"),
        ("a,b\n1,inf\n", "row 2, column 'b': 'inf'"),
        ("a,b\n1,2\n3,four\n", "row 3, column 'b': 'four' is not a finite number"),
        ("a,b\n1,two\n3,four\n", "row 2, column 'b': 'two' is not a finite number"),
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
        found, spec = predict_file(tmp_path / "run", tmp_path / f"{name}.npz", draws=1)
        assert isinstance(found, ClassPrediction)
        torch.testing.assert_close(found.probabilities, expected.probabilities)
    np.savez(tmp_path / "bytes.npz", x=(raw * 16).to(torch.uint8).numpy())
    torch.testing.assert_close(read_inputs(tmp_path / "bytes.npz", spec), spec.scaling.inputs(raw))
    write_predictions(tmp_path / "p.csv", found, spec)
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


def test_digits_are_read_as_their_files_hold_them(tmp_path: Path, small: Experiment) -> None:
    """Pixels of scikit-learn's digits are 0 to 16: as real numbers, as bytes and in a table they have one answer."""
    record = run(small.changed({"epochs": 15, "method.stepper.lr": 0.02}), tmp_path / "run")
    own = record["test"]["values"]["accuracy"]
    assert own > 0.85
    found = load_digits()
    # The examples of the test, by the pixels themselves, as scikit-learn gives them.
    places = {image.tobytes(): place for place, image in enumerate(found.images)}
    images, targets = load_data("digits", standardise=False).test
    chosen = [places[(image[0] * 16).double().numpy().tobytes()] for image in images]
    raw = found.images[chosen]
    assert raw.max() == 16
    np.savez(tmp_path / "real.npz", x=raw)
    np.savez(tmp_path / "whole.npz", x=raw.astype(np.int64))
    np.savez(tmp_path / "bytes.npz", x=raw.astype(np.uint8))
    np.savetxt(tmp_path / "real.csv", raw.reshape(-1, 64), delimiter=",")
    np.savetxt(tmp_path / "whole.csv", raw.reshape(-1, 64), delimiter=",", fmt="%d")
    for name in ("real.npz", "whole.npz", "bytes.npz", "real.csv", "whole.csv"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns of arrays that cannot be written
            prediction, _ = predict_file(tmp_path / "run", tmp_path / name, draws=1)
        assert isinstance(prediction, ClassPrediction)
        assert float((prediction.labels == targets).double().mean()) == pytest.approx(own), name
    # Photographs of 0 to 255 are not digits of 0 to 16.
    np.savez(tmp_path / "photo.npz", x=(raw * 15).astype(np.uint8))
    with pytest.raises(DataError, match="pixels from 0 to 240; those of 'digits' are 0 to 16"):
        predict_file(tmp_path / "run", tmp_path / "photo.npz")


def test_byte_images_are_read_in_bytes_or_in_shares(tmp_path: Path) -> None:
    spec = DataSpec("mnist", (1, 2, 2), 10, None, None, Scaling(), raw_scale=255.0)
    pixels = np.array([[[0, 51], [102, 255]], [[1, 2], [3, 204]]])
    expected = torch.tensor(pixels / 255).float()[:, None]
    for name, array in {
        "bytes": pixels.astype(np.uint8), "whole": pixels, "real": pixels.astype(np.float32), "share": pixels / 255
    }.items():  # fmt: skip
        np.savez(tmp_path / f"{name}.npz", x=array)
        torch.testing.assert_close(read_inputs(tmp_path / f"{name}.npz", spec), expected)
    np.savetxt(tmp_path / "t.csv", pixels.reshape(2, 4), delimiter=",", fmt="%d")
    torch.testing.assert_close(read_inputs(tmp_path / "t.csv", spec), expected)
    # A dark byte is dark, however dark the file: whole numbers are never shares.
    np.savez(tmp_path / "dark.npz", x=np.ones((1, 2, 2), np.uint8))
    torch.testing.assert_close(read_inputs(tmp_path / "dark.npz", spec), torch.full((1, 1, 2, 2), 1 / 255))
    for wrong in (-1.0, 255.5):
        np.savez(tmp_path / "wrong.npz", x=np.full((1, 2, 2), wrong))
        with pytest.raises(DataError, match="0 to 255"):
            read_inputs(tmp_path / "wrong.npz", spec)


def test_a_card_comes_back_and_one_without_a_scale_of_pixels_is_that_of_its_data(tmp_path: Path) -> None:
    for name, scale in (("digits", 16.0), ("npz", 1.0)):
        DataSpec(name, (1, 8, 8), 10, None, None, Scaling(), ("a",), "y", "\t", 255.0).write(tmp_path)
        spec = DataSpec.read(tmp_path)
        assert (spec.columns, spec.target_name, spec.delimiter, spec.raw_scale) == (("a",), "y", "\t", 255.0)
        record = json.loads((tmp_path / "data.json").read_text())
        for key in ("raw_scale", "delimiter", "target_name"):
            del record[key]
        (tmp_path / "data.json").write_text(json.dumps(record))
        spec = DataSpec.read(tmp_path)
        assert (spec.raw_scale, spec.delimiter, spec.target_name) == (scale, ",", None)


@pytest.mark.parametrize(("given", "sign"), [(";", ";"), ("tab", "\t"), ("\\t", "\t"), ("\t", "\t")])
def test_the_delimiter_is_that_of_the_run(tmp_path: Path, given: str, sign: str) -> None:
    rows = [f"{x:.3f}{sign}{3 * x:.3f}" for x in np.random.default_rng(4).normal(10, 3, 60)]
    (tmp_path / "t.csv").write_text("\n".join([f"a{sign}y", *rows]), encoding="utf-8")
    experiment = Experiment(
        method={"name": "map", "stepper": {"lr": 0.1}}, data={"name": str(tmp_path / "t.csv"), "delimiter": given},
        batch_size=20, epochs=30, model={"name": "mlp", "hidden": []},
    )  # fmt: skip
    run(experiment, tmp_path / "run")
    (tmp_path / "new.csv").write_text(f"b{sign}a\n7{sign}12\n7{sign}8\n", encoding="utf-8")
    found, spec = predict_file(tmp_path / "run", tmp_path / "new.csv", draws=1)
    assert [row[0] for row in list(prediction_rows(found, spec))[1:]] == pytest.approx([36, 24], abs=2)


def test_a_run_on_pictures_looks_at_pictures(tmp_path: Path, small: Experiment) -> None:
    image = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(0)
    for name, level in (("dark", 60), ("light", 190)):
        (tmp_path / "pics" / name).mkdir(parents=True)
        for number in range(20):
            pixels = generator.normal(level, 20, (11, 9, 3)).clip(0, 255).astype(np.uint8)
            image.fromarray(pixels).save(tmp_path / "pics" / name / f"{number:02}.png")
    chosen = small.changed(
        {"data": {"name": str(tmp_path / "pics"), "size": 6, "grey": True}, "batch_size": 10, "epochs": 5}
    )
    record = run(chosen, tmp_path / "run")
    assert record["test"]["values"]["accuracy"] == 1
    found, spec = predict_file(tmp_path / "run", tmp_path / "pics", draws=1)
    rows = list(prediction_rows(found, spec, picture_files(tmp_path / "pics")))
    assert rows[0][:2] == ["file", "label"]
    assert [(Path(row[0]).parent.name, row[1]) for row in rows[1:]] == [("dark", "dark")] * 20 + [
        ("light", "light")
    ] * 20
    one, _ = predict_file(tmp_path / "run", tmp_path / "pics" / "light" / "07.png", draws=1)
    assert isinstance(one, ClassPrediction)
    assert isinstance(found, ClassPrediction)
    torch.testing.assert_close(one.probabilities[0], found.probabilities[27])
    # Measured on pictures too, at the size of the run without being told.
    assert evaluate(tmp_path / "run", str(tmp_path / "pics"), draws=1)["test"] == record["test"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no picture"):
        predict_file(tmp_path / "run", tmp_path / "empty")


def test_pictures_are_not_for_tables(table: Path) -> None:
    (table / "x.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"trained on shape \(2,\)"):
        predict_file(table / "run", table / "x.png")


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_text_is_a_formula(cell: str) -> None:
    assert harmless(cell) == f"'{cell}"
    spec = DataSpec("x", (1,), 2, (cell, "fine"), None, Scaling())
    half = torch.tensor([[0.9, 0.1]])
    found = ClassPrediction(half, *(torch.zeros(1) for _ in range(3)), draws=1)
    assert list(prediction_rows(found, spec))[1][0] == f"'{cell}"


@pytest.mark.parametrize("cell", ["-1", "+2.5", "fine", "a=b", ""])
def test_numbers_and_ordinary_texts_stay(cell: str) -> None:
    assert harmless(cell) == cell
