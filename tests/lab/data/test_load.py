"""Choices of data, and out-of-distribution inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from bayeswell.core.errors import DataError, SettingError
from bayeswell.lab.data import DATASETS, find_data, load_data
from bayeswell.lab.settings import Code, CodeRecord


def test_names_with_either_dash_and_settings() -> None:
    assert find_data("breast_cancer") == find_data("breast-cancer")
    assert find_data({"name": "fashion_mnist"}).name == "fashion-mnist"
    assert find_data({"name": "table", "path": "a.csv"}) == find_data("table:a.csv")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SettingError, match="unknown data set 'digit'; did you mean 'digits'"):
        load_data("digit")
    with pytest.raises(DataError, match="'table' needs a path: table:PATH"):
        load_data("table")


def test_every_data_set_has_a_summary() -> None:
    assert all(DATASETS[name].summary for name in DATASETS)


def test_noise_has_the_mean_and_std_of_the_test_inputs() -> None:
    data = load_data("digits", ood=["noise", {"name": "noise", "seed": 2}])
    one, two = data.ood["noise"], data.ood["noise seed=2"]
    assert not torch.equal(one, two)
    count = one.numel()
    inputs = data.test[0]
    assert float(one.mean() - inputs.mean()) == pytest.approx(0, abs=5 * float(inputs.std()) / count**0.5)
    assert float(one.std() / inputs.std()) == pytest.approx(1, abs=5 / (2 * count) ** 0.5)


def test_another_table_is_scaled_like_the_data(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": np.arange(20.0), "b": ["x", "y"] * 10, "y": ["p", "q"] * 10})
    frame.to_csv(tmp_path / "one.csv", index=False)
    frame.assign(a=frame.a + 100).to_csv(tmp_path / "other.csv", index=False)
    data = load_data(f"table:{tmp_path}/one.csv", ood=f"table:{tmp_path}/other.csv")
    found = data.raw_inputs(data.ood[f"table:{tmp_path}/other.csv"])
    assert float(found[:, 0].min()) >= 99.9


def test_wrong_ood_data_are_refused() -> None:
    with pytest.raises(DataError, match="is the data set itself"):
        load_data("wine", ood="wine")
    with pytest.raises(DataError, match=r"'digits' has inputs of shape \(1, 8, 8\), but 'wine' of \(13,\)"):
        load_data("wine", ood="digits")
    with pytest.raises(DataError, match="made from another data set"):
        load_data("noise")


def test_the_preparation_of_a_trained_model_is_kept() -> None:
    x = np.arange(20.0)[:, None]
    known = load_data((x, np.array(["b", "a"] * 10))).preparation
    other = load_data((x + 5, np.array(["a", "b"] * 10), x + 5, np.array(["a", "b"] * 10)), preparation=known)
    assert other.preparation is known
    torch.testing.assert_close(other.test[0], known.inputs(x + 5))
    assert other.test[1].tolist() == [0, 1] * 10
    with pytest.raises(SettingError, match="has the class 'c'"):
        load_data((x, np.array(["a", "c"] * 10)), preparation=known)


def test_code_of_the_user_makes_data(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\ndef data(n=30):\n    return np.ones((n, 2)) * np.arange(n)[:, None], np.arange(n) % 2\n"
    )
    code = Code(str(path), "data")
    assert len(load_data(code).train[1]) == 22
    assert len(load_data({"name": code, "n": 40}).train[1]) == 30
    with pytest.raises(SettingError, match="has no setting 'm'"):
        load_data({"name": code, "m": 40})
    with pytest.raises(SettingError, match=r"named by a file, and is not run; name it yourself: data=mine\.py:data"):
        load_data(CodeRecord("mine.py", "data"))
