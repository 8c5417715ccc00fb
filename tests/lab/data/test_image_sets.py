"""Readers of published image sets, on small files of their formats."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from bayeswell.core.errors import DataError, FileError
from bayeswell.lab.data import load_data
from bayeswell.lab.data.image_sets import read_idx
from lab.data.published import idx, tar, write, write_mnist


def records(count: int, labels: int) -> tuple[bytes, np.ndarray]:
    rng = np.random.default_rng(count)
    pixels = rng.integers(0, 256, (count, 3, 32, 32), np.uint8)
    heads = np.stack([np.arange(count) % 20] * (labels - 1) + [np.arange(count) % 10], 1).astype(np.uint8)
    return np.concatenate([heads, pixels.reshape(count, -1)], 1).tobytes(), pixels


def test_mnist_has_the_pixels_and_labels_of_its_files(tmp_path: Path) -> None:
    images = write_mnist(tmp_path)
    data = load_data("mnist", folder=str(tmp_path), standardize=False)
    for part, (inputs, targets) in (("train", data.train), ("test", data.test)):
        torch.testing.assert_close(inputs[:, 0].numpy(), images[part].astype(np.float32) / 255)
        assert targets.tolist() == [i % 10 for i in range(len(images[part]))]
    assert data.image_shape == (1, 28, 28)
    assert data.class_names == tuple("0123456789")


def test_pixels_are_standardized_by_channel(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    data = load_data("mnist", folder=str(tmp_path))
    assert float(data.train[0].mean()) == pytest.approx(0, abs=1e-5)
    assert float(data.train[0].std(correction=0)) == pytest.approx(1, abs=1e-5)


def test_not_mnist_is_for_ood_tests_only(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    images = write_mnist(tmp_path, "notmnist", train=0)
    data = load_data("mnist", folder=str(tmp_path), ood="notmnist")
    torch.testing.assert_close(data.raw_inputs(data.ood["notmnist"])[:, 0].numpy(), images["test"] / np.float32(255))
    with pytest.raises(DataError, match="test examples only"):
        load_data("notmnist", folder=str(tmp_path))


def test_cifar10_from_its_folder_and_from_its_archive(tmp_path: Path) -> None:
    parts = {f"cifar-10-batches-bin/data_batch_{i}.bin": records(4 + i, 1) for i in range(1, 6)}
    parts["cifar-10-batches-bin/test_batch.bin"] = records(11, 1)
    packed = {name: content for name, (content, _) in parts.items()}
    for name, content in packed.items():
        write(tmp_path / "a" / name, content)
    write(tmp_path / "b" / "cifar-10-binary.tar.gz", tar(packed))
    for folder in ("a", "b"):
        data = load_data("cifar10", folder=str(tmp_path / folder), standardize=False)
        expected = np.concatenate([pixels for name, (_, pixels) in parts.items() if "data" in name])
        torch.testing.assert_close(data.train[0].numpy(), expected / np.float32(255))
        assert data.test[1].tolist() == [i % 10 for i in range(11)]


def test_cifar100_takes_the_fine_labels(tmp_path: Path) -> None:
    for name, count in (("train", 12), ("test", 5)):
        write(tmp_path / f"cifar-100-binary/{name}.bin", records(count, 2)[0])
    data = load_data("cifar100", folder=str(tmp_path))
    assert data.train[1].tolist() == [i % 10 for i in range(12)]
    assert data.outputs == 100


def test_svhn_class_ten_is_digit_zero(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (32, 32, 3, 20), np.uint8)
    for name in ("train", "test"):
        stream = io.BytesIO()
        savemat(stream, {"X": pixels, "y": np.arange(20)[:, None] % 10 + 1})
        write(tmp_path / f"svhn/{name}_32x32.mat", stream.getvalue())
    data = load_data("svhn", folder=str(tmp_path), standardize=False)
    assert data.train[1].tolist() == [(i + 1) % 10 for i in range(20)]
    torch.testing.assert_close(data.train[0][7].numpy(), pixels[:, :, :, 7].transpose(2, 0, 1) / np.float32(255))


def test_svhn_crops_for_cifar(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
    stream = io.BytesIO()
    np.savez(stream, x=pixels, y=np.arange(6))
    write(tmp_path / "svhn/svhn_ood_5k.npz", stream.getvalue())
    data = load_data((np.random.default_rng(1).random((40, 3, 32, 32)), np.arange(40) % 2))
    found = load_data(data, ood="svhn-ood", folder=str(tmp_path)).ood["svhn-ood"]
    torch.testing.assert_close(data.raw_inputs(found).numpy(), pixels.transpose(0, 3, 1, 2) / np.float32(255))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"abc", "cannot be read as a gzip file"),
        (idx(np.zeros((2, 3)))[:-9], "cannot be read as a gzip file"),
        (gzip.compress(b"\x01\x00\x08\x01"), "not an idx file"),
        (gzip.compress(b"\x00\x00\x08\x01\x00\x00\x00\x05abc"), r"shape \(5,\), but 3 bytes"),
    ],
    ids=["not gzip", "cut", "wrong magic number", "too few bytes"],
)
def test_broken_idx_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    write(tmp_path / "file", content)
    with pytest.raises(FileError, match=message):
        read_idx(tmp_path / "file")


def test_labels_out_of_range_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write(tmp_path / "mnist/t10k-labels-idx1-ubyte.gz", idx(np.arange(20)))
    with pytest.raises(FileError, match="labels from 0 to 19; allowed: 0 to 9"):
        load_data("mnist", folder=str(tmp_path))
