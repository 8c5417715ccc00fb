from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from bayeswell.core.errors import DataError
from bayeswell.tables import as_tensors, as_weights, check_index

VALUES = np.array([[1.0, -2.5], [3.0, 4.0], [0.5, 6.0]])


@pytest.mark.parametrize(
    "given",
    [
        VALUES,
        VALUES[::-1][::-1],
        VALUES[::-1].copy()[::-1],
        VALUES.T.copy().T,
        VALUES.astype(">f8"),
        VALUES.astype(np.longdouble),
        VALUES.tolist(),
        pd.DataFrame(VALUES),
        torch.from_numpy(VALUES),
    ],
    ids=["plain", "double", "negative strides", "fortran", "big-endian", "longdouble", "lists", "frame", "tensor"],
)
def test_arrays_keep_their_values(given):
    found = as_tensors(given, torch.float32)
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.from_numpy(VALUES).float())


@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8", "i2", ">i4", "?"])
def test_integers_keep_their_values(kind):
    found = as_tensors(np.array([0, 1, 1], dtype=kind))
    assert found.tolist() == [0, 1, 1]
    assert found + found is not None


def test_unsigned_tensors_become_signed():
    assert as_tensors(torch.tensor([1, 2], dtype=torch.uint16)).dtype == torch.int64


def test_read_only_arrays_are_copied():
    array = np.arange(3.0)
    array.flags.writeable = False
    as_tensors(array).add_(1)
    assert array.tolist() == [0, 1, 2]


def test_nested_inputs_keep_their_structure():
    found = as_tensors({"a": np.ones(2), "b": (np.zeros(2), [1, 2])})
    assert found["a"].dtype == torch.float64
    assert [part.tolist() for part in found["b"]] == [[0, 0], [1, 2]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ma.masked_array([1.0, 2.0], [True, False]), "masked"),
        (torch.eye(2).to_sparse(), "sparse"),
        (np.array(["a", "b"]), "numbers"),
        (np.array([None, 1]), "numbers"),
        ([[1.0, 2.0], [3.0]], "unequal lengths"),
        (np.array([1 + 2j]), "numbers"),
    ],
)
def test_other_data_are_refused_in_one_line(given, message):
    with pytest.raises(DataError, match=message) as error:
        as_tensors(given)
    assert "\n" not in str(error.value)


def test_scipy_sparse_is_refused():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(DataError, match="toarray"):
        as_tensors(sparse.eye(3).tocsr())


def test_weights_are_checked():
    assert as_weights([1, 2], 2, torch.float32).dtype == torch.float32
    for bad, message in (
        ([1.0], "one for each"),
        ([1.0, -1.0], "example 1 is -1"),
        ([np.nan, 1.0], "example 0 is nan"),
    ):
        with pytest.raises(DataError, match=message):
            as_weights(bad, 2, torch.float32)


def test_permuted_index_is_refused():
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=["a", "b", "c"])
    target = pd.Series([0, 1, 0], index=["a", "b", "c"])
    check_index(frame, target)
    check_index(frame, target.to_numpy())
    check_index(frame, target.reset_index(drop=True))
    with pytest.raises(DataError, match="different orders"):
        check_index(frame, target[["c", "a", "b"]])
    check_index(frame, target[["c", "a", "b"]].loc[frame.index])
