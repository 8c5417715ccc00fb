"""Columns of real pandas and polars frames: numbers, missing cells, texts; what was learned is all that is used."""

from __future__ import annotations

import datetime
import decimal
import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from bayeswell.errors import BayeswellWarning, DataError
from bayeswell.tables import Columns, Preparation, Table, as_array, is_frame, table_of

CELLS: dict[str, list[Any]] = {
    "age": [31.5, None, 64.0, 50.5],
    "smoker": [True, False, None, True],
    "children": [2, 0, 1, None],
    "ward": ["b", "a", None, "b"],
    "weight": [70, 80, 90, 60],
}
FEATURES = (
    "age", "age is missing", "smoker", "smoker is missing", "children", "children is missing", "ward = a", "ward = b",
    "ward is missing", "weight",
)  # fmt: skip
MEAN_AGE = (31.5 + 64.0 + 50.5) / 3
EXPECTED = [
    [31.5, 0, 1, 0, 2, 0, 0, 1, 0, 70],
    [MEAN_AGE, 1, 0, 0, 0, 0, 1, 0, 0, 80],
    [64.0, 0, 2 / 3, 1, 1, 0, 0, 0, 1, 90],
    [50.5, 0, 1, 0, 1, 1, 0, 1, 0, 60],
]


def pandas_frame() -> pd.DataFrame:
    return pd.DataFrame(CELLS)


def nullable_frame() -> pd.DataFrame:
    kinds = {"age": "Float64", "smoker": "boolean", "children": "Int64", "ward": "category", "weight": "int16"}
    return pandas_frame().astype(kinds)


def object_frame() -> pd.DataFrame:
    frame = pandas_frame().astype(object)
    frame["age"] = [decimal.Decimal("31.5"), None, decimal.Decimal(64), decimal.Decimal("50.5")]
    return frame


def polars_frame() -> pl.DataFrame:
    return pl.DataFrame(CELLS)


def polars_categories() -> pl.DataFrame:
    return pl.DataFrame(CELLS).with_columns(pl.col("ward").cast(pl.Categorical))


@pytest.mark.parametrize("made", [pandas_frame, nullable_frame, object_frame, polars_frame, polars_categories])
def test_every_kind_of_frame_becomes_the_same_numbers(made: Any) -> None:
    frame = made()
    columns = Columns.learn(table_of(frame))
    assert columns.features == FEATURES
    np.testing.assert_allclose(columns.matrix(table_of(frame)), EXPECTED, rtol=1e-15)


@pytest.mark.parametrize("made", [pandas_frame, polars_frame])
def test_columns_are_found_by_name_and_others_are_left_alone(made: Any) -> None:
    frame = made()
    columns = Preparation(Columns.learn(table_of(frame)))
    order = ["weight", "ward", "age", "children", "smoker"]
    turned = frame[order]
    turned = turned.assign(born="x") if hasattr(turned, "assign") else turned.with_columns(born=pl.lit("x"))
    assert torch.equal(columns.inputs(turned), columns.inputs(frame))
    with pytest.raises(DataError, match=r"there is no column 'ward'; allowed: age, children, smoker, weight"):
        columns.inputs(frame[["age", "smoker", "children", "weight"]])


def test_a_new_frame_is_filled_from_the_training_rows_and_told_once() -> None:
    train = pd.DataFrame({"size": [1.0, 2.0, 6.0], "colour": ["red", "blue", "red"]})
    columns = Columns.learn(table_of(train))
    new = pd.DataFrame({"colour": ["green", "green", "red", None, "lime"], "size": [np.nan, 100.0, 5.0, 7.0, 8.0]})
    with pytest.warns(BayeswellWarning) as said:
        found = columns.matrix(table_of(new))
    assert found.tolist() == [[3.0, 0, 0], [100.0, 0, 0], [5.0, 0, 1], [7.0, 0, 0], [8.0, 0, 0]]
    assert len(said) == 1
    line = str(said[0].message)
    assert "column 'size': 1 missing cells, filled with the mean 3" in line
    assert "column 'colour': 'green' (2 rows), 'lime' (1 rows) not among the categories" in line
    assert "column 'colour': 1 missing cells, all zeros" in line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        columns.matrix(table_of(train))


def test_what_was_learned_survives_json() -> None:
    columns = Columns.learn(table_of(pandas_frame()))
    again = Columns.from_json(json.loads(json.dumps(columns.as_json())))
    assert again == columns
    record = columns.as_json()
    for change in ({"mean": float("nan")}, {"missing": 1}, {"kind": "code"}):
        with pytest.raises((ValueError, KeyError)):
            Columns.from_json([{**record[0], **change}])
    with pytest.raises(ValueError, match="categories in order"):
        Columns.from_json([{**record[3], "categories": ["b", "a"]}])


def frame_with(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(30.0), **columns}, index=[f"p{i}" for i in range(30)])


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pd.date_range("2020-01-01", periods=30), "column 'c': it holds dates or times; make numbers of them"),
        ([datetime.date(2020, 1, 1)] * 30, "column 'c': it holds dates"),
        (pd.to_timedelta(range(30), unit="D"), "column 'c': it holds dates"),
        ([None] * 30, "column 'c': every cell is missing; leave the column out"),
        ([1.0] * 7 + ["?"] + [2.0] * 22, r"row p7, column 'c': a text \('\?'\), where others are numbers"),
        ([1.0] * 29 + [np.inf], "row p29, column 'c': inf is not a finite number"),
        ([1.0] * 3 + [1e200] + [2.0] * 26, r"row p3, column 'c': 1e\+200 is beyond 1e\+38"),
        ([f"name {i}" for i in range(30)], "column 'c': 30 different texts .* it looks like an id: leave it out"),
        ([[1, 2]] * 30, "row p0, column 'c': a list; each cell must be a number or a text"),
        ([1j] * 30, "column 'c': its cells are complex128"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_column_is_refused_in_one_line(column: Any, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        Columns.learn(table_of(frame_with(c=column if isinstance(column, list) else list(column))))
    assert "\n" not in str(caught.value)


def test_polars_dates_and_too_many_categories_are_refused() -> None:
    dates = pl.DataFrame({"c": [datetime.date(2020, 1, 1), None]})
    with pytest.raises(DataError, match="column 'c': it holds dates"):
        Columns.learn(table_of(dates))
    many = pl.DataFrame({"c": [f"t{i % 101}" for i in range(1000)]})
    with pytest.raises(DataError, match=r"101 different texts .* at most 100 become columns of their own"):
        Columns.learn(table_of(many))
    hundred = pl.DataFrame({"c": [f"t{i % 100}" for i in range(1000)]})
    assert len(Columns.learn(table_of(hundred)).features) == 100


def test_two_columns_of_one_name_and_empty_frames_are_refused() -> None:
    twice = pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    with pytest.raises(DataError, match="two columns have the name 'a'"):
        table_of(twice)
    with pytest.raises(DataError, match="it has no row"):
        table_of(pd.DataFrame({"a": []}))
    with pytest.raises(DataError, match="it has no column"):
        table_of(pd.DataFrame(index=[0, 1]))


def test_categories_of_numbers_are_names_not_numbers() -> None:
    frame = pd.DataFrame({"zone": pd.Categorical([3, 1, 3])})
    columns = Columns.learn(table_of(frame))
    assert columns.features == ("zone = 1", "zone = 3")
    assert columns.matrix(table_of(pd.DataFrame({"zone": [1.0, 3.0]}))).tolist() == [[1, 0], [0, 1]]


def test_numbers_from_frames_that_nothing_was_learned_of() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    assert as_array(frame).tolist() == [[1, 0.5], [2, 1.5]]
    assert as_array(pl.from_pandas(frame)).tolist() == [[1, 0.5], [2, 1.5]]
    assert is_frame(frame)
    assert not is_frame(np.zeros((2, 2)))
    assert not is_frame(torch.zeros(2))
    with pytest.raises(DataError, match="inputs: row 0, column 'b': 'x' is not a finite number"):
        as_array(pd.DataFrame({"b": ["x", "y"]}))
    with pytest.raises(DataError, match="1 cells are missing, the first in row 1"):
        as_array(pd.DataFrame({"b": [1.0, None]}))


class Foreign:
    """An array of another library: DLPack alone, or ``__array__``."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)


class WithDLPack(Foreign):
    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


class WithArray(Foreign):
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values.numpy()


@pytest.mark.parametrize("kind", [WithDLPack, WithArray])
def test_arrays_of_other_libraries(kind: type[Foreign]) -> None:
    values = torch.tensor([[1.5, 2.0], [3.0, 4.0]])
    found = as_array(kind(values))
    assert torch.equal(torch.as_tensor(found), values)
    assert as_array([1, 2]) == [1, 2]
    assert as_array("text") == "text"


def test_rows_of_a_table_keep_their_names() -> None:
    table = Table({"a": np.array([1.0, np.inf, 3.0])}, [2, 3, 4], "own.csv")
    part = table[torch.tensor([2, 1])]
    assert (part.column("a").tolist(), list(part.rows)) == ([3.0, np.inf], [4, 3])
    with pytest.raises(DataError, match=r"own\.csv: row 3, column 'a': inf is not a finite number"):
        Columns.learn(part)
