"""Published image sets, read from their original files: MNIST and its relatives, CIFAR, SVHN."""

from __future__ import annotations

import gzip
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from ...core.errors import FileError
from .dataset import Pair, Raw
from .files import find_file, read_members, reading

DIGITS = tuple(map(str, range(10)))


@dataclass(frozen=True)
class Mnist:
    """Images in the idx format: (n, 28, 28) bytes and (n,) labels, compressed by gzip."""

    name: ClassVar[str] = "mnist"
    summary: ClassVar[str] = "60,000 + 10,000 gray 28x28 images of handwritten digits, 10 classes"
    class_names: ClassVar[tuple[str, ...]] = DIGITS
    trains: ClassVar[bool] = True

    def read(self, folder: str | None) -> Raw:
        train = self._pair("train", folder) if self.trains else None
        return Raw(self.name, train, self._pair("t10k", folder), self.class_names)

    def _pair(self, part: str, folder: str | None) -> Pair:
        paths = (f"{self.name}/{part}-images-idx3-ubyte.gz", f"{self.name}/{part}-labels-idx1-ubyte.gz")
        places = [find_file(path, folder) for path in paths]
        pixels, labels = (read_idx(place) for place in places)
        if pixels.ndim != 3 or labels.shape != pixels.shape[:1]:
            raise FileError(f"{places[0]} has shape {pixels.shape}, and its labels {labels.shape}; not (n, H, W), (n,)")
        return as_images(pixels[:, None]), as_classes(labels, 10, places[1])


@dataclass(frozen=True)
class FashionMnist(Mnist):
    name = "fashion-mnist"
    summary = "60,000 + 10,000 gray 28x28 images of clothes, 10 classes"
    class_names = (
        *("t-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )


@dataclass(frozen=True)
class NotMnist(Mnist):
    """Letters A to J: out-of-distribution inputs for MNIST and Fashion-MNIST."""

    name = "notmnist"
    summary = "10,000 gray 28x28 images of letters, for OOD tests only"
    class_names = tuple("ABCDEFGHIJ")
    trains = False


@dataclass(frozen=True)
class Cifar10:
    """The binary version: records of labels (1 byte each) and pixels (3, 32, 32)."""

    name: ClassVar[str] = "cifar10"
    summary: ClassVar[str] = "50,000 + 10,000 color 32x32 images of animals and vehicles, 10 classes"
    class_names: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    labels: ClassVar[int] = 1
    archive: ClassVar[str] = "cifar-10-binary.tar.gz"
    train_files: ClassVar[tuple[str, ...]] = tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6))
    test_file: ClassVar[str] = "cifar-10-batches-bin/test_batch.bin"

    def read(self, folder: str | None) -> Raw:
        files = read_members(self.archive, (*self.train_files, self.test_file), folder)
        train = self._pair(b"".join(files[name] for name in self.train_files))
        return Raw(self.name, train, self._pair(files[self.test_file]), self.class_names)

    def _pair(self, data: bytes) -> Pair:
        size = self.labels + 3 * 32 * 32
        if not data or len(data) % size:
            raise FileError(f"{self.name}: {len(data):,} bytes are not a whole number of records of {size} bytes")
        records = np.frombuffer(data, np.uint8).reshape(-1, size)
        images = as_images(records[:, self.labels :].reshape(-1, 3, 32, 32))
        return images, as_classes(records[:, self.labels - 1], len(self.class_names), self.name)


@dataclass(frozen=True)
class Cifar100(Cifar10):
    """The binary version with fine labels: each record has a coarse label, a fine label and the pixels."""

    name = "cifar100"
    summary = "50,000 + 10,000 color 32x32 images, 100 classes"
    class_names = tuple(map(str, range(100)))
    labels = 2
    archive = "cifar-100-binary.tar.gz"
    train_files = ("cifar-100-binary/train.bin",)
    test_file = "cifar-100-binary/test.bin"


@dataclass(frozen=True)
class Svhn:
    """House-number digits, the official crops; class 10 of the files is digit 0."""

    name: ClassVar[str] = "svhn"
    summary: ClassVar[str] = "73,257 + 26,032 color 32x32 images of house-number digits, 10 classes"

    def read(self, folder: str | None) -> Raw:
        return Raw(self.name, self._pair("train", folder), self._pair("test", folder), DIGITS)

    def _pair(self, part: str, folder: str | None) -> Pair:
        from scipy.io import loadmat

        place = find_file(f"svhn/{part}_32x32.mat", folder)
        with reading(place, "a MATLAB file with X (H, W, 3, n) and y"):
            found: dict[str, Any] = loadmat(place, variable_names=["X", "y"])
            images, labels = found["X"].transpose(3, 2, 0, 1), found["y"].reshape(-1) % 10
        return as_images(images), as_classes(labels, 10, place)


@dataclass(frozen=True)
class SvhnOod:
    """House-number digits cropped from full images: out-of-distribution inputs for CIFAR, not for accuracy."""

    name: ClassVar[str] = "svhn-ood"
    summary: ClassVar[str] = "5,000 color 32x32 images of house-number digits, for OOD tests only"

    def read(self, folder: str | None) -> Raw:
        place = find_file("svhn/svhn_ood_5k.npz", folder)
        with reading(place, "an npz file with x (n, H, W, 3) and y"), np.load(place, allow_pickle=False) as arrays:
            images, labels = arrays["x"].transpose(0, 3, 1, 2), arrays["y"]
        return Raw(self.name, None, (as_images(images), as_classes(labels, 10, place)), DIGITS)


def read_idx(place: Path) -> np.ndarray[Any, Any]:
    """Return the array of an idx file: magic bytes 0 0 8 d, d sizes as big-endian int32, and the bytes."""
    with reading(place, "a gzip file"):
        content = gzip.decompress(place.read_bytes())
    start = 4 + 4 * content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    if not start or len(content) < start:
        raise FileError(f"{place} is not an idx file of bytes: it begins with {content[:4].hex(' ')}")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        raise FileError(f"{place}: the header says shape {shape}, but {len(content) - start:,} bytes follow")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def as_images(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a copy: the array may share the memory of a file."""
    return torch.from_numpy(np.array(array, np.uint8, order="C"))


def as_classes(labels: np.ndarray[Any, Any], count: int, owner: object) -> torch.Tensor:
    found = torch.from_numpy(labels.astype(np.int64))
    if bool(((found < 0) | (found >= count)).any()):
        raise FileError(f"{owner}: labels from {int(found.min())} to {int(found.max())}; allowed: 0 to {count - 1}")
    return found
