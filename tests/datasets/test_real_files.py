"""Facts about the published files, where they are there; the numbers are known from the literature or counted apart."""

from __future__ import annotations

import csv
import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bayeswell.datasets import data_folders, load_data, load_inputs

RealFiles = Callable[[str], str]


@pytest.fixture
def there(real_files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Point the environment at the published files of a set, or skip."""

    def point(name: str) -> None:
        monkeypatch.setenv("BAYESWELL_DATA", real_files(name))

    return point


def the_file(path: str) -> Path:
    """A published file itself, or a skip."""
    found = [folder / path for folder in data_folders() if (folder / path).is_file()]
    if not found:
        pytest.skip(f"{path} is not in BAYESWELL_DATA")
    return found[0]


def test_mnist(there: Callable[[str], None]) -> None:
    there("mnist")
    plain = load_data("mnist", standardise=False)
    images, labels = plain.train
    assert labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert torch.bincount(labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert plain.test[1][:5].tolist() == [7, 2, 1, 0, 4]
    assert torch.bincount(plain.test[1]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert float(images.double().mean()) == pytest.approx(0.1306604763, abs=1e-8)
    assert float(images.double().std()) == pytest.approx(0.3081078, abs=1e-6)
    assert int((images[0] * 255).round().sum()) == 27525
    del plain, images
    data = load_data("mnist", validation=10_000, validation_rule="last")
    assert data.validation is not None
    assert (len(data.train[1]), len(data.validation[1]), len(data.test[1])) == (50_000, 10_000, 10_000)
    assert torch.equal(data.validation[1], labels[50_000:])
    assert float(data.train[0].double().mean()) == pytest.approx(0, abs=1e-5)
    assert float(data.train[0].double().std()) == pytest.approx(1, abs=1e-5)
    assert abs(float(data.validation[0].double().mean())) > 1e-3, "the validation images have another mean"


def test_fashion_mnist(there: Callable[[str], None]) -> None:
    there("fashion_mnist")
    data = load_data("fashion_mnist", standardise=False)
    assert data.train[1][:5].tolist() == [9, 0, 0, 3, 0]
    assert torch.bincount(data.train[1]).tolist() == [6000] * 10
    assert torch.bincount(data.test[1]).tolist() == [1000] * 10
    assert float(data.train[0].double().mean()) == pytest.approx(0.28604, abs=1e-5)
    assert float(data.train[0].double().std()) == pytest.approx(0.35302, abs=1e-5)


def test_notmnist(there: Callable[[str], None]) -> None:
    there("notmnist")
    there("mnist")
    data = load_data("mnist")
    letters = load_inputs("notmnist", data)
    assert letters.shape == (10_000, 1, 28, 28)
    raw = data.scaling.raw_inputs(letters)
    assert float(raw.min()) == pytest.approx(0, abs=1e-6)
    assert float(raw.max()) == pytest.approx(1, abs=1e-6)
    # Letters fill their frame: more than twice the ink of handwritten digits (0.13).
    assert float(raw.mean()) > 0.35


def test_cifar10(there: Callable[[str], None]) -> None:
    there("cifar10")
    data = load_data("cifar10", standardise=False)
    assert data.class_names is not None
    assert [data.class_names[label] for label in data.train[1][:3]] == ["frog", "truck", "truck"]
    assert [data.class_names[label] for label in data.test[1][:3]] == ["cat", "ship", "ship"]
    assert torch.bincount(data.train[1]).tolist() == [5000] * 10
    found = data.train[0].mean((0, 2, 3)).tolist()
    assert found == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    assert [float(data.train[0][:, c].std()) for c in range(3)] == pytest.approx([0.2470, 0.2435, 0.2616], abs=1e-4)


def test_svhn_ood(there: Callable[[str], None]) -> None:
    there("svhn_ood")
    part = load_data("digits")  # of another shape: refused, but the file is read and checked
    with pytest.raises(ValueError, match=r"\(3, 32, 32\)"):
        load_inputs("svhn_ood", part)


# Rows, features, training rows of a split: counted from the archive; as in Hernandez-Lobato & Adams 2015, table 1.
UCI = {
    "boston": (506, 13, 455),
    "concrete": (1030, 8, 927),
    "energy": (768, 8, 691),
    "kin8nm": (8192, 8, 7373),
    "naval": (11934, 16, 10741),
    "power-plant": (9568, 4, 8611),
    "protein": (45730, 9, 41157),
    "wine-red": (1599, 11, 1439),
    "yacht": (308, 6, 277),
}


@pytest.mark.parametrize("name", UCI)
def test_uci(name: str, there: Callable[[str], None]) -> None:
    there("uci")
    rows, features, train = UCI[name]
    data = load_data(f"uci_{name}")
    assert (len(data.train[1]), len(data.test[1]), data.input_shape) == (train, rows - train, (features,))
    mean, std = data.train[0].double().mean(0), data.train[0].double().std(0, correction=0)
    assert float(mean.abs().max()) < 1e-5
    constant = std == 0
    assert int(constant.sum()) == (2 if name == "naval" else 0)
    assert float((std[~constant] - 1).abs().max()) < 1e-5
    assert float(data.train[1].double().mean().abs()) < 1e-5
    assert float((data.train[1].double().std(correction=0) - 1).abs()) < 1e-5
    assert float(data.test[0].double().mean(0).abs().max()) > 1e-3, "the test rows must not be centred on themselves"


def test_uci_boston_row_by_row(there: Callable[[str], None]) -> None:
    there("uci")
    with tarfile.open(the_file("uci/UCI_Datasets.tar.gz")) as tar:

        def numbers(name: str) -> np.ndarray:
            file = tar.extractfile(f"UCI_Datasets/bostonHousing/data/{name}.txt")
            assert file is not None
            return np.loadtxt(file)

        table, test = numbers("data"), numbers("index_test_3").astype(int)
        train = numbers("index_train_3").astype(int)
    assert sorted([*train, *test]) == list(range(506))
    data = load_data({"name": "uci", "set": "boston", "split": 3})
    np.testing.assert_allclose(data.scaling.raw_targets(data.test[1])[:, 0], table[test, 13], rtol=1e-5)
    truth = (table[test, :13] - table[train, :13].mean(0)) / table[train, :13].std(0)
    np.testing.assert_allclose(data.test[0], truth, atol=1e-5)
    assert table[:, 13].mean() == pytest.approx(22.5328, abs=1e-4)


@pytest.mark.slow
def test_imdb(there: Callable[[str], None]) -> None:
    there("imdb")
    data = load_data("imdb", validation=5000, validation_rule="last")
    assert data.validation is not None
    assert data.train[0].shape == (20_000, 80)
    assert (data.vocabulary, data.outputs) == (20_000, 2)
    assert torch.bincount(torch.cat([data.train[1], data.validation[1]])).tolist() == [12_500, 12_500]
    assert torch.bincount(data.test[1]).tolist() == [12_500, 12_500]
    # A fair shuffle: 2500 +- 32 of the last 5000 (without replacement); 5 std.
    assert 2340 < int(data.validation[1].sum()) < 2660
    seen = torch.cat([data.train[0], data.validation[0]])
    assert (int(seen.min()), int(seen.max())) == (0, 19_999)
    # "the" is the most frequent word of English, "and" and "a" follow in these reviews.
    counts = torch.bincount(seen.flatten(), minlength=20_000)
    assert int(counts[2:].argmax()) == 0
    # Apart from the words themselves: in how many reviews is "the" among the last 80 words?
    content = gzip.decompress(the_file("imdb/imdb_train.csv.gz").read_bytes()).decode()
    texts = [row["text"] for row in csv.DictReader(io.StringIO(content, newline=""))]
    table = {ord(character): " " for character in '.,!?;:()"-/*&$%#@[]{}<>=+_~^|`\\'}
    last = [text.lower().replace("<br />", " ").translate(table).split()[-80:] for text in texts]
    with_the = sum("the" in words for words in last)
    assert int((seen == 2).any(dim=1).sum()) == pytest.approx(with_the, rel=0.003)
