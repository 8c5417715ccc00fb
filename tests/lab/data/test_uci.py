"""The UCI tables: columns and rows follow the index files of the archive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bayeswell.core.errors import FileError, SettingError
from bayeswell.lab.data import find_data, load_data
from lab.data.published import tar, write

TABLE = np.arange(60.0).reshape(12, 5) ** 1.5


def write_archive(folder: Path) -> None:
    texts = {
        "data": "\n".join(" ".join(map(str, row)) for row in TABLE.tolist()),
        "index_features": "1 3 4",
        "index_target": "2",
        "index_train_7": " ".join(map(str, range(9, 0, -1))),
        "index_test_7": "0 11 10",
    }
    members = {f"UCI_Datasets/yacht/data/{name}.txt": text.encode() for name, text in texts.items()}
    write(folder / "uci/UCI_Datasets.tar.gz", tar(members))


def test_rows_and_columns_follow_the_index_files(tmp_path: Path) -> None:
    write_archive(tmp_path)
    data = load_data({"name": "uci-yacht", "split": 7}, folder=str(tmp_path), standardize=False)
    torch.testing.assert_close(data.test[0].double(), torch.tensor(TABLE[[0, 11, 10]][:, [1, 3, 4]]), rtol=1e-6, atol=0)
    torch.testing.assert_close(data.train[1][0].item(), TABLE[9, 2], rtol=1e-6, atol=0)
    assert (data.task, data.outputs, data.name) == ("real", 1, "uci-yacht")


def test_short_names() -> None:
    assert find_data("uci_wine_red") == find_data({"name": "uci", "set": "wine-red"})


def test_wrong_sets_and_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="did you mean 'boston'"):
        find_data({"name": "uci", "set": "bostn"})
    with pytest.raises(SettingError, match=r"`split` of protein must be 0 to 4, got 5"):
        find_data({"name": "uci-protein", "split": 5})
    write_archive(tmp_path)
    with pytest.raises(FileError, match=r"does not hold UCI_Datasets/yacht/data/index_train_3\.txt"):
        load_data({"name": "uci-yacht", "split": 3}, folder=str(tmp_path))
