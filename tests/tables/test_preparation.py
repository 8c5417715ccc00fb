from __future__ import annotations

import dataclasses
import datetime
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from bayeswell.core.errors import DataError, DataWarning, FileError
from bayeswell.tables import CLASSES, REAL, Preparation

FRAME = pd.DataFrame(
    {
        "age": [20.0, 30.0, math.nan, 50.0],
        "color": ["red", "blue", "red", None],
        "count": pd.array([1, 2, 3, None], dtype="Int64"),
        "flag": [True, False, True, True],
    }
)


def trip(preparation):
    return Preparation.from_json(json.loads(json.dumps(preparation.to_json())))


@dataclasses.dataclass(frozen=True)
class Real:
    mean: Tensor
    std: Tensor

    def rescaled(self, scale, shift):
        return Real(self.mean * scale + shift, self.std * scale)


@dataclasses.dataclass(frozen=True)
class Classes:
    probabilities: Tensor
    class_names: tuple[str, ...] | None = None


def test_frame_becomes_numbers():
    found = Preparation.fit(FRAME)
    features = ("age", "age is missing", "color = blue", "color = red", "color is missing", "count", "count is missing")
    assert found.features == (*features, "flag")
    expected = [
        [20, 0, 0, 1, 0, 1, 0, 1],
        [30, 0, 1, 0, 0, 2, 0, 0],
        [100 / 3, 1, 0, 1, 0, 3, 0, 1],
        [50, 0, 0, 0, 1, 2, 1, 1],
    ]
    torch.testing.assert_close(found.inputs(FRAME), torch.tensor(expected, dtype=torch.float32))


def test_scaling_has_zero_mean_and_unit_std_but_for_indicators():
    found = Preparation.fit(FRAME, standardize=True)
    values = found.inputs(FRAME).double()
    for column in (0, 5, 7):
        assert values[:, column].mean().item() == pytest.approx(0, abs=1e-6)
        assert values[:, column].std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert set(values[:, [1, 2, 3, 4, 6]].flatten().tolist()) == {0.0, 1.0}


def test_columns_are_found_by_name():
    found = Preparation.fit(FRAME, standardize=True)
    shuffled = FRAME.assign(other=1)[["other", "flag", "count", "color", "age"]]
    assert torch.equal(found.inputs(shuffled), found.inputs(FRAME))
    with pytest.raises(DataError, match="no column 'age'"):
        found.inputs(FRAME.drop(columns="age"))


def test_polars_frames_are_read_like_pandas():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": [1.0, None, 3.0], "t": ["a", "b", None], "n": [1, 2, None]})
    same = pd.DataFrame({"x": [1.0, None, 3.0], "t": ["a", "b", None], "n": [1, 2, None]})
    assert torch.equal(Preparation.fit(frame).inputs(frame), Preparation.fit(same).inputs(same))


def test_mapping_of_columns_is_a_table_at_prediction():
    found = Preparation.fit(FRAME[["age", "color"]])
    values = found.inputs({"color": ["red", "blue"], "age": [1.0, 2.0]})
    assert values.tolist() == [[1, 0, 0, 1, 0], [2, 0, 1, 0, 0]]


def test_unknown_categories_and_missing_cells_warn_once():
    found = Preparation.fit(pd.DataFrame({"a": [1.0, 3.0], "t": ["x", "y"]}))
    with pytest.warns(DataWarning, match="unknown categories") as caught:
        values = found.inputs(pd.DataFrame({"a": [math.nan, 5.0], "t": ["z", None]}))
    assert len(caught) == 1
    assert values.tolist() == [[2, 0, 0], [5, 0, 0]]


def test_categories_of_whole_numbers_do_not_depend_on_their_type():
    found = Preparation.fit(pd.DataFrame({"t": pd.Categorical([1, 2, 1])}))
    assert found.features == ("t = 1", "t = 2")
    assert found.inputs(pd.DataFrame({"t": [1.0, 2.0]})).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (pd.to_datetime(["2020-01-01", "2021-01-01"]), "dates"),
        ([datetime.date(2020, 1, 1), None], "dates"),
        ([1.0, "two"], "row 1 is 'two'"),
        ([None, None], "every cell is missing"),
        ([1.0, math.inf], "row 1 is inf"),
        ([1.0, 1e39], "row 1 is 1e[+]39"),
        ([[1], [2]], "list"),
        ([f"id{i}" for i in range(30)], "looks like an id"),
        ([f"t{i % 101}" for i in range(500)], "at most 100"),
    ],
)
def test_unusable_columns_are_refused_by_name(cells, message):
    with pytest.raises(DataError, match=message) as error:
        Preparation.fit(pd.DataFrame({"bad": cells}))
    assert "bad" in str(error.value)


def test_numbers_are_not_texts_at_prediction():
    found = Preparation.fit(pd.DataFrame({"a": [1.0, 2.0]}))
    with pytest.raises(DataError, match="'two' is a text"):
        found.inputs(pd.DataFrame({"a": ["two", "one"]}))


def test_images_are_scaled_by_channel():
    images = torch.rand(50, 3, 4, 5) * torch.tensor([1.0, 5.0, 100.0]).view(3, 1, 1)
    scaled = Preparation.fit(images, standardize=True).inputs(images).double()
    torch.testing.assert_close(scaled.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std((0, 2, 3), correction=0), torch.ones(3).double())


def test_large_offsets_do_not_cancel():
    values = 1e9 + torch.randn(100, 1, dtype=torch.float64)
    scaled = Preparation.fit(values, standardize=True, dtype=torch.float64).inputs(values)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(1).double(), atol=1e-6, rtol=0)


def test_tokens_and_constant_columns_are_not_scaled():
    tokens = torch.randint(0, 9, (5, 7))
    assert torch.equal(Preparation.fit(tokens, standardize=True).inputs(tokens), tokens)
    constant = torch.full((5, 2), 0.1)
    assert torch.equal(Preparation.fit(constant, standardize=True).inputs(constant), torch.zeros(5, 2))


def test_targets_round_trip_to_their_units():
    targets = torch.randn(40, 2) * torch.tensor([3.0, 0.01]) + torch.tensor([100.0, -2.0])
    found = trip(Preparation.fit(torch.randn(40, 3), targets, standardize=True))
    scaled = found.targets(targets)
    restored = found.restore(Real(scaled.double(), torch.ones(40, 2).double()))
    torch.testing.assert_close(restored.mean, targets.double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(restored.std[0], targets.double().std(0, correction=0))


def test_nll_shift_is_that_of_the_density():
    targets = torch.randn(30) * 7 + 2
    found = Preparation.fit(torch.randn(30, 1), targets, standardize=True)
    std = targets.double().std(correction=0)
    raw = torch.distributions.Normal(targets.double().mean(), 0.3 * std).log_prob(targets.double())
    scaled = torch.distributions.Normal(0.0, 0.3).log_prob(found.targets(targets).double())
    torch.testing.assert_close(-raw, -scaled + found.nll_shift, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("targets", "kind", "names", "numbers"),
    [
        (["b", "a", "b"], None, ("a", "b"), [1, 0, 1]),
        (pd.Series(["b", "a", "b"], dtype="category"), None, ("a", "b"), [1, 0, 1]),
        (pd.Series([True, False, True]), None, ("False", "True"), [1, 0, 1]),
        (np.array([True, False, True]), None, ("False", "True"), [1, 0, 1]),
        (pd.Series([7, 3, 7]), CLASSES, ("3", "7"), [1, 0, 1]),
        (pd.DataFrame({"y": [10, 9, 10]}), CLASSES, ("9", "10"), [1, 0, 1]),
        (pd.Series([1, 0, 1]), CLASSES, None, [1, 0, 1]),
        (torch.tensor([1, 0, 1]), CLASSES, None, [1, 0, 1]),
        (np.array([2, 0, 5]), CLASSES, None, [2, 0, 5]),
    ],
)
def test_classes_become_numbers(targets, kind, names, numbers):
    found = trip(Preparation.fit(torch.zeros(3, 1), targets, kind=kind))
    assert found.class_names == names
    assert found.targets(targets).tolist() == numbers
    assert found.targets(targets).dtype == torch.int64


def test_predictions_get_class_names():
    found = Preparation.fit(torch.zeros(3, 1), ["x", "y", "x"])
    assert found.restore(Classes(torch.ones(4, 2) / 2)).class_names == ("x", "y")


@pytest.mark.parametrize(
    ("targets", "kind", "message"),
    [
        (["a", "b"], REAL, "likelihood needs numbers"),
        (["a", "a"], None, "at least two classes"),
        (pd.Series([1.0, None]), REAL, "row 1 is missing"),
        (["a", None], None, "row 1 is missing"),
        (np.array([1.0, np.nan]), REAL, "row 1 is missing"),
        (np.ma.masked_array([1.0, 2.0], [0, 1]), REAL, "masked"),
    ],
)
def test_unusable_targets_are_refused(targets, kind, message):
    with pytest.raises(DataError, match=message):
        Preparation.fit(torch.zeros(2, 1), targets, kind=kind, standardize=True)


def test_unknown_class_is_named():
    found = Preparation.fit(torch.zeros(2, 1), ["cat", "dog"])
    with pytest.raises(DataError, match=r"row 1: unknown class 'dot'.*'dog'"):
        found.targets(["cat", "dot"])


def test_permuted_target_index_is_refused():
    targets = pd.Series([1.0, 2.0, 3.0, 4.0], index=[3, 2, 1, 0])
    with pytest.raises(DataError, match="different orders"):
        Preparation.fit(FRAME, targets)


def test_other_shapes_are_refused():
    found = Preparation.fit(torch.randn(5, 3), torch.randn(5), standardize=True)
    with pytest.raises(DataError, match=r"\(2, 4\).*\(n, 3\)"):
        found.inputs(torch.randn(2, 4))
    with pytest.raises(DataError, match=r"targets of shape"):
        found.targets(torch.randn(2, 2))
    with pytest.raises(DataError, match="trained on a table"):
        Preparation.fit(FRAME).inputs(np.zeros((2, 9)))


def test_json_round_trip_is_exact():
    found = Preparation.fit(FRAME, pd.Series([0.1, 0.2, 0.3, 1.0]), standardize=True, dtype=torch.float64)
    again = trip(found)
    assert again.columns == found.columns
    assert torch.equal(again.inputs(FRAME), found.inputs(FRAME))
    assert again.nll_shift == found.nll_shift


@pytest.mark.parametrize(
    "change", [{"format": 1}, {"dtype": "object"}, {"columns": [{"name": "x"}]}, {"input_scaling": 3}]
)
def test_altered_json_is_a_file_error(change):
    record = Preparation.fit(FRAME, standardize=True).to_json()
    with pytest.raises(FileError, match="preparation"):
        Preparation.from_json({**record, **change})
