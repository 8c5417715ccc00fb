"""Loading by name: what standardisation may look at, splits, fingerprints, and sets read from small files."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bayeswell.datasets import (
    DATASETS,
    Data,
    Scaling,
    data_status,
    digits,
    find_data,
    load_data,
    load_inputs,
    noise_like,
)
from bayeswell.datasets.reviews import encode, tokens, word_numbers
from bayeswell.errors import BayeswellError, DataError, FileError, SettingError
from bayeswell.registry import settings_of
from bayeswell.tables import scaling_of

Idx = Callable[[np.ndarray], bytes]
Publish = Callable[[str, Mapping[str, bytes]], Path]
Pack = Callable[[Mapping[str, bytes]], bytes]
DRAW = np.random.default_rng(5)
PIXELS, MORE_PIXELS = DRAW.integers(0, 256, (30, 28, 28)), DRAW.integers(0, 200, (12, 28, 28))


def mnist_files(idx: Idx, folder: str = "mnist") -> dict[str, bytes]:
    return {
        f"{folder}/train-images-idx3-ubyte.gz": idx(PIXELS),
        f"{folder}/train-labels-idx1-ubyte.gz": idx(np.arange(30) % 10),
        f"{folder}/t10k-images-idx3-ubyte.gz": idx(MORE_PIXELS),
        f"{folder}/t10k-labels-idx1-ubyte.gz": idx(np.arange(12) % 7),
    }


# The registry


def test_every_member_says_what_it_is() -> None:
    assert set(DATASETS) == {
        *(
            "digits",
            "breast_cancer",
            "wine",
            "diabetes",
            "gap",
            "mnist",
            "fashion_mnist",
            "notmnist",
            "cifar10",
            "cifar100",
        ),
        *("svhn", "svhn_ood", "imdb", "uci", "csv", "npz", "images", "noise", "corrupted"),
    }
    for name, (summary, paper) in DATASETS.summaries().items():
        assert summary.endswith((".", ":"))
        assert paper
        assert DATASETS[name].examples
        assert DATASETS[name].source in {"bundled", "files", "own", "derived"}
        assert len(getattr(DATASETS[name], "class_names", ())) in {0, 10, 100}


def test_cifar100_has_its_hundred_names_in_alphabetic_order() -> None:
    names = DATASETS["cifar100"].class_names  # type: ignore[attr-defined]
    assert len(set(names)) == 100
    assert list(names) == sorted(names)
    assert (names[0], names[30], names[99]) == ("apple", "dolphin", "worm")


def test_names_settings_and_paths_find_a_set() -> None:
    assert settings_of(find_data("uci_wine_red")) == {"name": "uci", "set": "wine-red", "split": 0}
    assert settings_of(find_data({"name": "uci-naval", "split": 19})) == {"name": "uci", "set": "naval", "split": 19}
    assert settings_of(find_data({"name": "uci", "set": "yacht"})) == {"name": "uci", "set": "yacht", "split": 0}
    assert find_data("some/table.csv").path == "some/table.csv"  # type: ignore[attr-defined]
    assert find_data("some/table.npz").name == "npz"
    part = find_data("fashion-mnist")
    assert find_data(part) is part
    for choice, words in [
        ("minst", "did you mean 'mnist'"),
        ("uci_bosten", "did you mean 'boston'"),
        ({"name": "uci", "split": 20}, "boston has the splits 0 to 19"),
        ({"name": "uci", "set": "protein", "split": 5}, "protein has the splits 0 to 4"),
        ({"name": "digits", "share": 0.1}, "has no setting 'share'"),
        ({"name": "digits", "test_share": 1.0}, "test_share = 1.0"),
        ({"name": "digits", "split": -1}, "split = -1"),
        ({"name": "imdb", "length": 0}, "length = 0"),
        ({"name": "corrupted", "severity": 9}, "severity = 9"),
        ({"name": "corrupted", "corruption": "snwo"}, "did you mean 'snow'"),
        ("csv", "needs the setting 'path'"),
    ]:
        with pytest.raises(SettingError, match=words) as caught:
            load_data(choice)
        assert "\n" not in str(caught.value)


def test_what_stands_for_one_is_told(tmp_path: Path) -> None:
    """The pixels of digits are 0 to 16, bytes 0 to 255; all else is taken as it is."""
    assert [load_data(name).raw_scale for name in ("digits", "wine", "diabetes")] == [16, 1, 1]
    pixels = np.arange(60 * 4).reshape(60, 2, 2) % 200
    for dtype, scale in ((np.uint8, 255), (np.float32, 1), (np.int64, 1)):
        np.savez(tmp_path / "x.npz", x=pixels.astype(dtype), y=np.arange(60) % 2)
        data = load_data(str(tmp_path / "x.npz"), standardise=False)
        assert data.raw_scale == scale
        assert float(data.train[0].max() * scale) == pytest.approx(199, abs=8)


def test_a_share_that_leaves_nothing_says_so() -> None:
    for share, words in (
        (0.999, "holds out 134, which leaves none to learn"),
        (0.001, "holds out 0, which leaves none to look"),
    ):
        with pytest.raises(SettingError, match=f"validation = {share} of 134 training examples {words}"):
            load_data("wine", validation=share)


# Standardisation and splits


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine", "diabetes"])
def test_standardisation_is_that_of_the_training_examples_alone(name: str) -> None:
    data = load_data(name, validation=0.2)
    plain = load_data(name, validation=0.2, standardise=False)
    assert data.validation is not None
    assert plain.validation is not None
    axes = (0, 2, 3) if name == "digits" else 0
    train = plain.train[0].double()
    mean, std = train.mean(axes, keepdim=True), train.std(axes, keepdim=True, correction=0)
    for found, raw in [(data.train, plain.train), (data.validation, plain.validation), (data.test, plain.test)]:
        # Truth in float64 from the float32 raw values: their rounding is 6e-8 of values up to 30 std from zero.
        torch.testing.assert_close(found[0].double(), (raw[0] - mean) / std, atol=1e-3, rtol=1e-4)
    other = (plain.test[0].double().mean(axes, keepdim=True) - mean).abs().max()
    assert float(other) > 0, "if test and train had one mean, a leak could not be seen"
    wrong = (plain.train[0] - plain.test[0].double().mean(axes, keepdim=True)) / std
    assert float((data.train[0] - wrong).abs().max()) > 2e-3


def test_regression_targets_come_back_in_their_units() -> None:
    data, plain = load_data("diabetes"), load_data("diabetes", standardise=False)
    assert (data.likelihood, data.outputs, data.class_names) == ("gaussian", 1, None)
    assert data.train[1].shape == (332, 1)
    assert float(data.train[1].double().mean()) == pytest.approx(0, abs=1e-6)
    assert float(data.train[1].double().std(correction=0)) == pytest.approx(1, abs=1e-6)
    for mine, raw in [(data.train, plain.train), (data.test, plain.test)]:
        torch.testing.assert_close(data.scaling.raw_targets(mine[1]), raw[1])
        torch.testing.assert_close(data.scaling.targets(raw[1]), mine[1])
    # Disease progression runs from 25 to 346 over all 442 patients.
    both = torch.cat([plain.train[1], plain.test[1]])
    assert (float(both.min()), float(both.max()), len(both)) == (25, 346, 442)


def test_a_feature_that_never_changes_stays_finite() -> None:
    inputs = torch.tensor([[0.1, 3.0], [0.1, 5.0], [0.1, 9.0]], dtype=torch.float64)
    scaling = scaling_of("table", inputs, None)
    assert scaling.input_scale is not None
    assert scaling.input_scale[0] == 1
    torch.testing.assert_close(scaling.inputs(inputs)[:, 0], torch.zeros(3))
    assert scaling.target_shift is None


def test_digits_by_name_are_the_digits_of_the_function() -> None:
    data, split = load_data({"name": "digits", "split": 4}), digits(seed=4)
    assert torch.equal(data.train[0], split.train_inputs)
    assert torch.equal(data.train[1], split.train_targets)
    assert torch.equal(data.test[0], split.test_inputs)
    assert torch.equal(data.test[1], split.test_targets)
    assert (data.input_shape, data.outputs, data.likelihood) == ((1, 8, 8), 10, "categorical")


def rows(pair: tuple[Tensor, Tensor]) -> set[tuple[float, ...]]:
    return {tuple(row) for row in torch.cat([pair[0].flatten(1), pair[1].reshape(-1, 1)], dim=1).tolist()}


def test_some_of_the_training_examples() -> None:
    """Nested for one seed, others for another; what is held out and the test set stay the same."""
    settings: dict[str, Any] = {"validation": 50, "standardise": False}
    whole, many, few = (load_data("diabetes", **settings, train_size=size) for size in (None, 200, 0.3))
    left = len(whole.train[1])
    assert (len(many.train[1]), len(few.train[1])) == (200, round(0.3 * left))
    rows = [{tuple(row) for row in torch.cat(data.train, 1).tolist()} for data in (whole, many, few)]
    assert rows[2] < rows[1] < rows[0]
    other = load_data("diabetes", **settings, train_size=200, seed=1)
    assert {tuple(row) for row in torch.cat(other.train, 1).tolist()} != rows[1]
    for data in (many, few):
        assert data.validation is not None
        assert whole.validation is not None
        torch.testing.assert_close(data.validation, whole.validation, rtol=0, atol=0)
        torch.testing.assert_close(data.test, whole.test, rtol=0, atol=0)
    all_of_them = load_data("diabetes", **settings, train_size=left)
    torch.testing.assert_close(all_of_them.train, whole.train, rtol=0, atol=0)
    for size in (left + 1, 0, 1e-9, -3, True, math.nan, math.inf, 200.7, 1.0, "many"):
        with pytest.raises(SettingError, match=f"train_size = {size!r}; a number from 1 to the {left} training"):
            load_data("diabetes", **settings, train_size=size)


def test_validation_by_seed_and_by_the_last_of_train() -> None:
    settings: dict[str, bool] = {"standardise": False}
    whole = load_data("diabetes", **settings)
    last = load_data("diabetes", validation=50, validation_rule="last", **settings)
    assert last.validation is not None
    assert torch.equal(last.validation[0], whole.train[0][-50:])
    assert torch.equal(last.train[1], whole.train[1][:-50])
    drawn = [load_data("diabetes", validation=0.25, seed=seed, **settings) for seed in (0, 0, 1)]
    parts = []
    for data in drawn:
        assert data.validation is not None
        assert (len(data.train[1]), len(data.validation[1])) == (249, 83)
        assert rows(data.train) | rows(data.validation) == rows(whole.train)
        assert not rows(data.train) & rows(data.validation)
        assert torch.equal(data.test[0], whole.test[0]), "the seed must not move the test examples"
        parts.append(rows(data.validation))
    assert parts[0] == parts[1] != parts[2]


@pytest.mark.parametrize("validation", [-1, 332, 1.0, 1.5, -0.1, 1e-9, float("nan"), True, "10"])
def test_validation_that_cannot_be_is_refused(validation: object) -> None:
    with pytest.raises(SettingError, match="validation = "):
        load_data("diabetes", validation=validation)  # type: ignore[arg-type]


def test_unknown_validation_rule_is_refused() -> None:
    with pytest.raises(SettingError, match="did you mean 'last'"):
        load_data("diabetes", validation=5, validation_rule="lst")


def test_fingerprint_changes_with_any_number_and_name() -> None:
    data = load_data("wine", validation=20)
    first = data.fingerprint()
    assert first == load_data("wine", validation=20).fingerprint()
    assert len(first) == 64
    others = [
        load_data("wine", validation=20, seed=1),
        load_data("wine"),
        load_data("wine", validation=20, standardise=False),
    ]
    others.append(dataclasses.replace(data, name="vine"))
    others.append(dataclasses.replace(data, class_names=("a", "b", "c")))
    others.append(dataclasses.replace(data, scaling=Scaling()))
    others.append(dataclasses.replace(data, vocabulary=3))
    for field in ("train", "validation", "test"):
        inputs, targets = getattr(data, field)
        nudged = inputs.clone()
        nudged[-1, -1] = torch.nextafter(nudged[-1, -1], torch.tensor(9.0))
        others.append(dataclasses.replace(data, **{field: (nudged, targets)}))
        others.append(dataclasses.replace(data, **{field: (inputs, targets.flip(0))}))
        others.append(dataclasses.replace(data, **{field: (inputs.reshape(-1, 1, 13), targets)}))
    prints = [other.fingerprint() for other in others]
    assert len({first, *prints}) == len(prints) + 1


# Sets of files


def test_mnist_reads_images_and_labels_of_both_parts(idx: Idx, publish: Publish) -> None:
    folder = publish("mnist", mnist_files(idx))
    plain = load_data("mnist", folder=folder, standardise=False)
    np.testing.assert_allclose(plain.train[0][:, 0].numpy(), PIXELS / 255, atol=1e-7)
    np.testing.assert_allclose(plain.test[0][:, 0].numpy(), MORE_PIXELS / 255, atol=1e-7)
    assert plain.train[1].tolist() == [i % 10 for i in range(30)]
    assert plain.test[1].tolist() == [i % 7 for i in range(12)]
    data = load_data("mnist", folder=folder)
    mean, std = (PIXELS / 255).mean(), (PIXELS / 255).std(ddof=1)
    np.testing.assert_allclose(data.test[0][:, 0].numpy(), (MORE_PIXELS / 255 - mean) / std, atol=1e-5)
    assert (data.train[0].dtype, data.train[1].dtype) == (torch.float32, torch.int64)
    torch.testing.assert_close(data.scaling.raw_inputs(data.test[0]), plain.test[0])


def test_a_label_out_of_range_and_counts_that_differ_are_refused(idx: Idx, publish: Publish) -> None:
    files = mnist_files(idx)
    with pytest.raises(FileError, match="label 10 at index 1; labels must be 0 to 9"):
        load_data("mnist", folder=publish("mnist", files | {"mnist/t10k-labels-idx1-ubyte.gz": idx(np.arange(9, 21))}))
    with pytest.raises(FileError, match=r"\(12, 28, 28\)"):
        load_data("mnist", folder=publish("mnist", files | {"mnist/t10k-labels-idx1-ubyte.gz": idx(np.arange(3))}))


def test_cifar_takes_batches_in_order_and_fine_labels(publish: Publish) -> None:
    def record(labels: list[int], value: int) -> bytes:
        return bytes(labels) + bytes([value]) * 1024 + bytes([value + 1]) * 1024 + bytes([value + 2]) * 1024

    batches = {f"cifar-10-batches-bin/data_batch_{n}.bin": record([n], 10 * n) + record([9], 0) for n in range(1, 6)}
    folder = publish("cifar10", batches | {"cifar-10-batches-bin/test_batch.bin": record([3], 200)})
    data = load_data("cifar10", folder=folder, standardise=False)
    assert data.train[1].tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
    assert data.test[1].tolist() == [3]
    np.testing.assert_allclose(data.train[0][2, :, 5, 7].numpy() * 255, [20, 21, 22], atol=1e-4)
    folder = publish(
        "cifar100",
        {"cifar-100-binary/train.bin": record([19, 99], 1) * 3, "cifar-100-binary/test.bin": record([1, 30], 7)},
    )
    data = load_data("cifar100", folder=folder)
    assert data.train[1].tolist() == [99, 99, 99]
    assert data.test[1].tolist() == [30]
    assert data.outputs == 100


def test_svhn_puts_the_axes_right_and_ten_is_zero(publish: Publish) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    images = DRAW.integers(0, 256, (32, 32, 3, 4)).astype(np.uint8)

    def mat(**arrays: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        scipy_io.savemat(buffer, arrays)
        return buffer.getvalue()

    good = mat(X=images, y=np.array([[10], [1], [9], [10]], np.uint8))
    folder = publish("svhn", {"svhn/train_32x32.mat": good, "svhn/test_32x32.mat": good})
    data = load_data("svhn", folder=folder, standardise=False)
    assert data.train[1].tolist() == [0, 1, 9, 0]
    assert float(data.train[0][2, 1, 5, 30]) == pytest.approx(images[5, 30, 1, 2] / 255)
    for bad in (b"nothing of the kind", mat(y=np.ones((4, 1))), mat(X=images.astype(float), y=np.ones((4, 1)))):
        folder = publish("svhn", {"svhn/train_32x32.mat": bad, "svhn/test_32x32.mat": good})
        with pytest.raises(FileError, match=r"train_32x32\.mat"):
            load_data("svhn", folder=folder)


def uci_archive(tar_gz: Pack, **changes: bytes) -> bytes:
    lines = [f"{row} {row * row} 5.0 {100 - row} {row % 3}" for row in range(20)]
    files = {
        "data": "\n".join(lines).encode() + b"\n\n",
        "index_features": b"0\n1\n2\n",
        "index_target": b"3\n",
        "index_train_7": "\n".join(str(row) for row in range(19, 1, -1)).encode(),
        "index_test_7": b"0\n1\n",
    } | changes
    return tar_gz({f"UCI_Datasets/bostonHousing/data/{name}.txt": content for name, content in files.items()})


def test_uci_follows_the_index_files(tar_gz: Pack, publish: Publish) -> None:
    folder = publish("uci", {"uci/UCI_Datasets.tar.gz": uci_archive(tar_gz)})
    choice = {"name": "uci", "set": "boston", "split": 7}
    plain = load_data(choice, folder=folder, standardise=False)
    assert plain.name == "uci_boston"
    assert plain.train[0][0].tolist() == [19, 361, 5]
    assert plain.train[1][:3].tolist() == [[81], [82], [83]]
    assert plain.test[0].tolist() == [[0, 0, 5], [1, 1, 5]]
    data = load_data(choice, folder=folder)
    assert data.test[1].flatten().tolist() == pytest.approx(
        [(100 - 89.5) / 26.916**0.5, (99 - 89.5) / 26.916**0.5], rel=1e-4
    )
    assert data.train[0][:, 2].tolist() == [0.0] * 18
    with pytest.raises(FileError, match=r"does not hold .*index_train_8\.txt"):
        load_data(choice | {"split": 8}, folder=folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"index_test_7": b"0\n20\n"}, "whole numbers from 0 to 19"),
        ({"index_test_7": b"0\n2\n"}, "same row or column on both sides"),
        ({"index_target": b"2\n"}, "same row or column on both sides"),
        ({"index_test_7": b"0.5\n"}, "whole numbers"),
        ({"index_test_7": b""}, "whole numbers"),
        ({"data": b"1 2 3 4 5\n1 2 3 4\n"}, "row 2 has 4 columns"),
    ],
)
def test_uci_files_that_do_not_fit_are_refused(
    changes: dict[str, bytes], words: str, tar_gz: Pack, publish: Publish
) -> None:
    folder = publish("uci", {"uci/UCI_Datasets.tar.gz": uci_archive(tar_gz, **changes)})
    with pytest.raises(FileError, match=words):
        load_data({"name": "uci", "split": 7}, folder=folder)


def test_words_are_numbered_by_frequency_and_the_end_of_a_text_is_kept() -> None:
    assert tokens("It's GOOD,<br /><br />isn't it? 'Yes' -- 10/10_a") == [
        "it's",
        "good",
        "isn't",
        "it",
        "yes",
        "10",
        "10",
        "a",
    ]
    numbers = word_numbers([["b", "a", "a"], ["c", "b", "a"], ["d"]], vocabulary=5)
    assert numbers == {"a": 2, "b": 3, "c": 4}
    assert encode(["a", "d", "b"], numbers, 5) == [0, 0, 2, 1, 3]
    assert encode(["a", "d", "b", "c"], numbers, 2) == [3, 4]


def imdb_csv(reviews: list[tuple[int, str]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["id", "rating", "label", "text"])
    writer.writerows((i, 10 if label else 1, label, words) for i, (label, words) in enumerate(reviews))
    return gzip.compress(text.getvalue().encode())


TRAIN = [(1, f"good film number{i} good") for i in range(40)] + [(0, f"bad film, bad end{i}\nbad") for i in range(40)]


def test_imdb_learns_its_words_from_the_training_texts_and_mixes_the_classes(publish: Publish) -> None:
    files = {
        "imdb/imdb_train.csv.gz": imdb_csv(TRAIN),
        "imdb/imdb_test.csv.gz": imdb_csv([(1, "good movie"), (0, "bad")]),
    }
    data = load_data({"name": "imdb", "vocabulary": 10, "length": 4}, folder=publish("imdb", files))
    # bad 120, film 80, good 80 (tie: alphabet), then end0 ... once each.
    bad, film, good = 2, 3, 4
    by_class = {int(y): x.tolist() for x, y in zip(*data.train, strict=True)}
    assert by_class[1][:2] == [good, film]
    assert by_class[1][3] == good
    assert by_class[0][0] == film
    assert by_class[0][1] == by_class[0][3] == bad
    assert {tuple(x.tolist()): int(y) for x, y in zip(*data.test, strict=True)} == {
        (0, 0, good, 1): 1,
        (0, 0, 0, bad): 0,
    }
    assert (data.vocabulary, data.outputs, data.likelihood, data.input_shape) == (10, 2, "categorical", (4,))
    assert data.train[0].dtype == torch.int64
    assert int(data.train[0].max()) < 10
    # A fair shuffle of 40 and 40: the last 20 hold 10 +- 2 of each class; 3 to 17 fails once in 10,000 seeds.
    assert 3 <= int(data.train[1][-20:].sum()) <= 17


def test_imdb_original_archive_gives_the_same_as_the_csv_files(tar_gz: Pack, publish: Publish) -> None:
    test = [(1, "good movie"), (0, "bad")]
    choice = {"name": "imdb", "vocabulary": 50, "length": 6}
    files = {"imdb/imdb_train.csv.gz": imdb_csv(TRAIN), "imdb/imdb_test.csv.gz": imdb_csv(test)}
    first = load_data(choice, folder=publish("imdb", files))
    members = {
        "aclImdb/README": b"read me",
        "aclImdb/train/unsup/0_0.txt": b"unseen",
        "aclImdb/train/labeledBow.feat": b"0",
    }
    for part, reviews in (("train", TRAIN), ("test", test)):
        for label, kind in ((0, "neg"), (1, "pos")):
            texts = [text for found, text in reviews if found == label]
            for number in reversed(range(len(texts))):
                members[f"aclImdb/{part}/{kind}/{number}_{9 * label + 1}.txt"] = texts[number].encode()
    second = load_data(choice, folder=publish("imdb", {"imdb/aclImdb_v1.tar.gz": tar_gz(members)}))
    assert first.fingerprint() == second.fingerprint()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"id,rating,text\n1,2,x\n", "must include label and text"),
        (b"label,text\n1,good\n2,bad\n", "row 3: label '2'"),
        (b"label,text\n1,good\n", "both classes"),
        (b"label,text\n1,\xff\n", "UTF-8"),
    ],
)
def test_imdb_files_of_another_kind_are_refused(content: bytes, words: str, publish: Publish) -> None:
    files = {"imdb/imdb_train.csv.gz": gzip.compress(content), "imdb/imdb_test.csv.gz": imdb_csv(TRAIN)}
    with pytest.raises(FileError, match=words):
        load_data("imdb", folder=publish("imdb", files))


# Outside the distribution


def test_another_set_is_scaled_as_the_set_it_is_compared_with(idx: Idx, publish: Publish) -> None:
    folder = publish("mnist", mnist_files(idx))
    letters = DRAW.integers(0, 256, (9, 28, 28))
    publish(
        "notmnist",
        {"notmnist/t10k-images-idx3-ubyte.gz": idx(letters), "notmnist/t10k-labels-idx1-ubyte.gz": idx(np.arange(9))},
    )
    data = load_data("mnist", folder=folder)
    found = load_inputs("notmnist", data, folder=folder)
    mean, std = (PIXELS / 255).mean(), (PIXELS / 255).std(ddof=1)
    np.testing.assert_allclose(found[:, 0].numpy(), (letters / 255 - mean) / std, atol=1e-5)
    some = load_inputs("notmnist", data, count=4, seed=2, folder=folder)
    assert len(rows((some, torch.zeros(4))) & rows((found, torch.zeros(9)))) == 4
    assert torch.equal(some, load_inputs("notmnist", data, count=4, seed=2, folder=folder))
    with pytest.raises(DataError, match="notmnist' has 9 inputs; 10 were asked for"):
        load_inputs("notmnist", data, count=10, folder=folder)
    with pytest.raises(DataError, match="the data set itself"):
        load_inputs("mnist", data, folder=folder)
    with pytest.raises(DataError, match=r"'digits' has inputs of shape \(1, 8, 8\), 'mnist' of \(1, 28, 28\)"):
        load_inputs("digits", data, folder=folder)
    with pytest.raises(DataError, match="'notmnist' has test examples only"):
        load_data("notmnist", folder=folder)


def test_house_numbers_have_their_channels_first(publish: Publish) -> None:
    images = DRAW.integers(0, 256, (6, 32, 32, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, x=images, y=np.arange(6))
    folder = publish("svhn_ood", {"svhn/svhn_ood_5k.npz": buffer.getvalue()})
    shift, scale = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([2.0, 3.0, 4.0])[:, None, None]
    pair = (torch.zeros(2, 3, 32, 32), torch.tensor([0, 1]))
    like = Data("cifar10", pair, None, pair, (3, 32, 32), 2, "categorical", ("a", "b"), Scaling(shift, scale))
    found = load_inputs("svhn_ood", like, folder=folder)
    assert float(found[4, 2, 9, 8]) == pytest.approx((images[4, 9, 8, 2] / 255 - 0.3) / 4, abs=1e-6)


def test_noise_and_corrupted_are_made_from_the_test_inputs() -> None:
    data = load_data("digits")
    assert torch.equal(load_inputs("noise", data, seed=3), noise_like(data.test[0], seed=3))
    plain = load_data("digits", standardise=False)
    dull = load_inputs({"name": "corrupted", "corruption": "contrast", "severity": 2}, data)
    raw = plain.test[0]
    mean = raw.mean((2, 3), keepdim=True)
    torch.testing.assert_close(data.scaling.raw_inputs(dull), mean + 0.5 * (raw - mean), atol=1e-5, rtol=0)
    with pytest.raises(DataError, match="only images are corrupted"):
        load_inputs("corrupted", load_data("wine"))
    for name in ("noise", "corrupted"):
        with pytest.raises(DataError, match="load_inputs makes it"):
            load_data(name)


def test_noise_for_texts_is_of_words(publish: Publish) -> None:
    files = {"imdb/imdb_train.csv.gz": imdb_csv(TRAIN), "imdb/imdb_test.csv.gz": imdb_csv(TRAIN)}
    data = load_data({"name": "imdb", "vocabulary": 10, "length": 4}, folder=publish("imdb", files))
    noise = load_inputs("noise", data)
    assert noise.dtype == torch.int64
    assert set(noise.unique().tolist()) == set(range(10))


# Where files are


def test_status_says_whether_files_are_there(idx: Idx, publish: Publish, tmp_path: Path) -> None:
    assert data_status("mnist") == "absent"
    folder = publish("mnist", mnist_files(idx))
    assert data_status("mnist", folder) == "present"
    (folder / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    assert data_status("mnist", folder) == "absent"
    assert {data_status(name) for name in ("digits", "wine", "noise", "corrupted")} == {"bundled"}
    assert data_status("csv") == "absent"
    (tmp_path / "a.csv").touch()
    assert data_status({"name": "csv", "path": str(tmp_path / "a.csv")}) == "present"
    assert data_status({"name": "csv", "path": str(tmp_path / "b.csv")}) == "absent"
    with pytest.raises(BayeswellError, match="did you mean 'mnist'"):
        data_status("mnits")


def test_an_altered_or_missing_file_is_one_clear_line(idx: Idx, publish: Publish) -> None:
    folder = publish("mnist", mnist_files(idx))
    path = folder / "mnist/t10k-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(bytes(content))
    with pytest.raises(FileError, match=r"its SHA-256 is .* cut short or altered") as caught:
        load_data("mnist", folder=folder)
    assert str(path) in str(caught.value)
    path.unlink()
    with pytest.raises(FileError) as caught:
        load_data("mnist", folder=folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    assert "mnist/t10k-images-idx3-ubyte.gz" in message
    assert "BAYESWELL_DATA" in message


def test_folders_of_the_environment_are_searched_in_turn(
    idx: Idx, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    folder = publish("mnist", mnist_files(idx))
    monkeypatch.setenv("BAYESWELL_DATA", os.pathsep.join([str(tmp_path / "empty"), str(folder)]))
    assert len(load_data("mnist").train[1]) == 30
    with pytest.raises(FileError):
        load_data("mnist", folder=tmp_path / "empty")
