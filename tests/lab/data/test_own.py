"""Data of the user: tables, arrays and folders of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

from bayeswell.core.errors import DataError, FileError
from bayeswell.lab.data import load_data

ROWS = 40
FRAME = pandas.DataFrame(
    {
        "id": [f"p{i}" for i in range(ROWS)],
        "age": np.linspace(20, 80, ROWS),
        "ward": ["a", "b", None, "a"] * 10,
        "code": [1, 2] * 20,
        "price": np.linspace(-1, 3, ROWS) ** 2,
        "ill": ["yes", "no", "no", "yes"] * 10,
    }
)


def table(folder: Path, **settings: Any) -> dict[str, Any]:
    path = folder / "people.csv"
    FRAME.to_csv(path, index=False)
    return {"name": f"table:{path}", "drop": ["id"], **settings}


def test_a_table_of_texts_and_numbers(tmp_path: Path) -> None:
    data = load_data(table(tmp_path))
    assert (data.name, data.task, data.class_names) == ("people", "classes", ("no", "yes"))
    assert data.preparation.features == ("age", "ward = a", "ward = b", "ward is missing", "code", "price")
    assert float(data.train[0][:, 0].mean()) == pytest.approx(0, abs=1e-6)
    ward = data.train[0][:, 1:4]
    assert set(ward.flatten().tolist()) == {0.0, 1.0}
    assert torch.equal(ward.sum(1), torch.ones(len(ward)))


def test_the_preparation_takes_new_rows(tmp_path: Path) -> None:
    data = load_data(table(tmp_path))
    frame = pandas.read_csv(tmp_path / "people.csv")
    prepared = data.preparation.inputs(frame)
    for row in data.test[0]:
        assert bool((prepared - row).abs().sum(1).min() < 1e-5)


def test_a_real_target_is_standardized_and_restored(tmp_path: Path) -> None:
    data = load_data(table(tmp_path, target="price", columns=["age"]))
    assert (data.task, data.outputs, data.input_shape) == ("real", 1, (1,))
    age = data.raw_inputs(data.test[0]).double()
    scaling = data.preparation.target_scaling
    assert scaling is not None
    expected = ((age - 20) / 60 * 4 - 1) ** 2
    torch.testing.assert_close(scaling.restore(data.test[1]).double(), expected, atol=1e-5, rtol=1e-5)


def test_integers_are_classes_unless_the_task_says_otherwise(tmp_path: Path) -> None:
    assert load_data(table(tmp_path, target="code")).class_names == ("1", "2")
    assert load_data(table(tmp_path, target="code", task="real")).task == "real"


def test_categories_that_look_like_numbers(tmp_path: Path) -> None:
    data = load_data(table(tmp_path, columns=["code"], categories=["code"]))
    assert data.preparation.features == ("code = 1", "code = 2")


def test_a_second_file_is_the_test_set(tmp_path: Path) -> None:
    FRAME.iloc[:8].to_parquet(tmp_path / "test.parquet")
    data = load_data(table(tmp_path, test_path=str(tmp_path / "test.parquet")))
    assert (len(data.train[1]), len(data.test[1])) == (ROWS, 8)


def test_wrong_columns_files_and_cells_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no column 'prise'; did you mean 'price'"):
        load_data(table(tmp_path, target="prise"))
    with pytest.raises(FileError, match="there is no such file"):
        load_data(f"table:{tmp_path / 'none.csv'}")
    with pytest.raises(DataError, match="is no number, but `task` is 'real'"):
        load_data(table(tmp_path, task="real"))
    with pytest.raises(DataError, match="target of row 2 is missing"):
        load_data(table(tmp_path, target="ward"))


def test_an_npz_file_with_a_test_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.random((9, 3)), "y": np.arange(9) % 3 + 5, "x_test": rng.random((4, 3)), "y_test": [5, 6, 7, 7]}
    np.savez(tmp_path / "own.npz", **arrays)
    data = load_data(f"npz:{tmp_path / 'own.npz'}", standardize=False)
    assert data.class_names == ("5", "6", "7")
    assert data.test[1].tolist() == [0, 1, 2, 2]
    torch.testing.assert_close(data.train[0].numpy(), arrays["x"].astype(np.float32))


def test_pickles_in_npz_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.array([{}, {}], dtype=object), y=[0, 1])
    with pytest.raises(FileError, match="cannot be read as an npz file"):
        load_data(f"npz:{tmp_path / 'own.npz'}")


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [((6, 5, 4), np.float32, (1, 5, 4)), ((6, 5, 4, 3), np.uint8, (3, 5, 4)), ((6, 3, 5, 4), np.uint8, (3, 5, 4))],
)
def test_layouts_of_images(shape: tuple[int, ...], dtype: Any, expected: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    data = load_data((x, np.arange(6) % 2, x, np.arange(6) % 2), standardize=False)
    assert data.input_shape == expected
    values = x.transpose(0, 3, 1, 2) if shape == (6, 5, 4, 3) else x.reshape(6, *expected)
    scale = 255 if dtype == np.uint8 else 1
    torch.testing.assert_close(data.train[0].numpy(), values.astype(np.float32) / scale)


def test_frames_of_other_libraries() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": list(range(20)), "b": ["u", "v", None, "u"] * 5})
    data = load_data((frame, polars.Series("y", ["p", "q"] * 10)))
    assert data.preparation.features == ("a", "b = u", "b = v", "b is missing")
    assert data.class_names == ("p", "q")


def test_mistakes_with_arrays_are_refused() -> None:
    x = np.zeros((6, 2))
    with pytest.raises(DataError, match="6 inputs but 5 targets"):
        load_data((x, np.arange(5)))
    with pytest.raises(DataError, match="every target is '1'"):
        load_data((x, np.ones(6, int)))
    with pytest.raises(DataError, match=r"data of 3 arrays; give \(x, y\)"):
        load_data((x, x, x))
    with pytest.raises(DataError, match=r"shape \(6, 1, 1, 1, 1\)"):
        load_data((x[:, :1].reshape(6, 1, 1, 1, 1), np.arange(6) % 2))
