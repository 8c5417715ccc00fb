"""csv files with texts, missing cells, ids and absurd numbers: the preparation of the Python door, from files."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bayeswell.datasets import load_data, load_inputs
from bayeswell.errors import BayeswellWarning, DataError, SettingError


def choice(tmp_path: Path, text: str, **settings: Any) -> dict[str, Any]:
    path = tmp_path / "own.csv"
    path.write_text(text, encoding="utf-8")
    return {"name": "csv", "path": str(path), **settings}


def clinic(rows: int = 40) -> str:
    lines = ["patient,age,sex,ward,y"]
    for i in range(rows):
        age = ("", "NA", "?", "nan")[i % 4] if i % 10 == 3 else str(20 + i)
        lines.append(f"p{i:03},{age},{'f' if i % 2 else 'm'},{'' if i % 6 == 5 else 'abc'[i % 3]},{1.5 * i}")
    return "\n".join(lines) + "\n"


def test_texts_and_missing_cells_become_numbers_learned_from_training_rows(tmp_path: Path) -> None:
    chosen = choice(tmp_path, clinic(), id="patient", split=3)
    data = load_data(chosen, validation=8, standardise=False)
    assert data.table is not None
    features = data.table.features
    assert features[:4] == ("age", "age is missing", "sex = f", "sex = m")
    assert (data.columns, data.target_name) == (("age", "sex", "ward"), "y")
    inputs, targets = data.train
    row = (targets[:, 0] / 1.5).round().long()  # which line each example was
    lost = row % 10 == 3
    ages = (20 + row).float()
    mean = ages[~lost].mean()
    torch.testing.assert_close(inputs[:, 0], torch.where(lost, mean, ages))
    assert torch.equal(inputs[:, 1], lost.float())
    assert torch.equal(inputs[:, 2], (row % 2).float())
    # Validation and test are filled with that same mean.
    for part in (data.validation, data.test):
        assert part is not None
        there = (part[1][:, 0] / 1.5).round().long() % 10 == 3
        torch.testing.assert_close(part[0][there, 0], mean.expand(int(there.sum())))
    scaled = load_data(chosen, validation=8)
    torch.testing.assert_close(scaled.train[0][:, 0].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    assert torch.equal(scaled.train[0][:, 1:], inputs[:, 1:])  # 0 and 1 of our own stay


def test_numbers_that_are_names_and_numbers_with_a_slip(tmp_path: Path) -> None:
    text = "zone,x,y\n" + "".join(f"0{i % 3},{i},{i}.5\n" for i in range(30))
    data = load_data(choice(tmp_path, text, categories=["zone"]), standardise=False)
    assert data.table is not None
    assert data.table.features == ("zone = 00", "zone = 01", "zone = 02", "x")
    slip = text.replace("7,7.5", "seven,7.5")
    with pytest.raises(DataError, match=r"own\.csv: row 9, column 'x': 'seven' is not a finite number, others are"):
        load_data(choice(tmp_path, slip))


@pytest.mark.parametrize(
    ("settings", "words", "kind"),
    [
        ({}, "column 'patient': 30 different texts .* looks like an id: leave it out .id, or columns", DataError),
        ({"id": "nobody"}, "no column 'nobody'; allowed: age, patient", DataError),
        ({"id": "y"}, "column 'y' is the target and cannot be the id too", DataError),
        ({"id": "age", "columns": ["age"]}, "column 'age' is the id and cannot be an input too", DataError),
        ({"categories": "sex"}, "categories = 'sex'; it must be a list", SettingError),
        ({"id": "patient", "categories": ["sexx"]}, "no column 'sexx'; did you mean 'sex'", DataError),
    ],
)
def test_settings_of_columns_are_checked(
    settings: dict[str, Any], words: str, kind: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(kind, match=words):
        load_data(choice(tmp_path, clinic(), **settings))


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("1.7e308", r"row 6, column 'x': 1\.7e\+308 is beyond 1e\+38"),
        ("1.8e308", "row 6, column 'x': '1.8e308' is not a"),
    ],
)
def test_no_cell_makes_a_scale_infinite(cell: str, words: str, tmp_path: Path) -> None:
    lines = [f"{i},{i % 7}.25" for i in range(40)]
    lines[4] = f"{cell},3.25"
    with pytest.raises(DataError, match=words):
        load_data(choice(tmp_path, "x,y\n" + "\n".join(lines)))
    lines[4] = "4,1e200"
    with pytest.raises(DataError, match=r"row 6, column 'y': the target '1e200' is beyond 1e\+38"):
        load_data(choice(tmp_path, "x,y\n" + "\n".join(lines)))
    lines[4] = "1e30,3.25"
    with pytest.warns(BayeswellWarning, match=r"own\.csv: row 6, column 'x': 1e\+30"):
        data = load_data(choice(tmp_path, "x,y\n" + "\n".join(lines), split=1))
    assert all(bool(tensor.isfinite().all()) for tensor in data.scaling.tensors() if tensor is not None)
    lines[4] = "4,-1e30"
    with pytest.warns(BayeswellWarning, match=r"own\.csv: row 6, column 'y': -1e\+30"):
        load_data(choice(tmp_path, "x,y\n" + "\n".join(lines), split=1))


def test_npz_numbers_too(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) + 0.5
    x[3, 1] = 1e200
    np.savez(tmp_path / "own.npz", x=x, y=y)
    with pytest.raises(DataError, match=r"array 'x': the value at index \[3, 1\] is 1e\+200; .* at most 1e\+38"):
        load_data(str(tmp_path / "own.npz"))
    x[3, 1], y[5] = 0.0, 1e200
    np.savez(tmp_path / "own.npz", x=x, y=y)
    with pytest.raises(DataError, match=r"target 1e\+200 of example 6 is beyond"):
        load_data(str(tmp_path / "own.npz"))


def test_classes_above_two_to_the_53_stay_apart(tmp_path: Path) -> None:
    first, second = 2**53, 2**53 + 1
    text = "x,y\n" + "".join(f"{i},{(first, second)[i % 2]}\n" for i in range(20))
    data = load_data(choice(tmp_path, text, task="classification"), standardise=False)
    assert data.class_names == (str(first), str(second))
    assert torch.equal(data.train[1], (data.train[0][:, 0] % 2).long())
    np.savez(tmp_path / "own.npz", x=np.arange(20.0)[:, None], y=np.array([first, second] * 10))
    assert load_data({"name": "npz", "path": str(tmp_path / "own.npz"), "task": "classification"}).class_names == (
        str(first), str(second)
    )  # fmt: skip


def test_many_columns_take_time_in_proportion(tmp_path: Path) -> None:
    def seconds(columns: int) -> float:
        names = ",".join(f"c{i}" for i in range(columns)) + ",y\n"
        rows = "".join(",".join(["1", "2"] * (columns // 2)) + f",{i}.5\n" for i in range(2))
        chosen = choice(tmp_path, names + rows, columns=[f"c{i}" for i in range(columns)], test_share=0.5)
        began = time.process_time()
        with pytest.raises(DataError, match="no column 'zz'"):
            load_data({**chosen, "columns": [*chosen["columns"], "zz"]})
        return time.process_time() - began

    seconds(100)
    assert seconds(20_000) < 3  # it was seconds times ten when each name was looked for among all


def test_inputs_from_another_file_are_prepared_alike(tmp_path: Path) -> None:
    text = "age,sex,y\n" + "".join(f"{20 + i},{'fm'[i % 2]},{'ab'[i % 2]}\n" for i in range(40))
    data = load_data(choice(tmp_path, text))
    other = tmp_path / "other.csv"
    other.write_text("age,sex,y\n99,f,a\n,m,b\n30,x,b\n", encoding="utf-8")
    with pytest.warns(BayeswellWarning, match=r"other\.csv: unlike the training rows: .*'x' \(1 rows\)"):
        found = load_inputs({"name": "csv", "path": str(other), "test_share": 1}, data)
    assert found.shape == (3, 3)
    assert found[1, 0].abs() < 1e-6  # the mean of the training rows, scaled
    assert found[:, 1:].tolist() == [[1, 0], [0, 1], [0, 0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_inputs(choice(tmp_path, text) | {"test_share": 1}, data)
