"""Published image sets, read from their original files: MNIST and its relatives, CIFAR, SVHN."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from ...core.errors import FileError
from .dataset import Pair, Raw
from .files import DataFile, find_file, obtain, read_members, unpack_gzip

DIGITS = tuple(map(str, range(10)))
_TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
_TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
_CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"
_SVHN_URL = "http://ufldl.stanford.edu/housenumbers/"


@dataclass(frozen=True)
class Mnist:
    """Images in the idx format: (n, 28, 28) bytes and (n,) labels, compressed by gzip."""

    name: ClassVar[str] = "mnist"
    summary: ClassVar[str] = "60,000 + 10,000 gray 28x28 images of handwritten digits, 10 classes"
    class_names: ClassVar[tuple[str, ...]] = DIGITS
    url: ClassVar[str] = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    sha256: ClassVar[Mapping[str, str]] = {
        _TRAIN[0]: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        _TRAIN[1]: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        _TEST[0]: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        _TEST[1]: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }

    def read(self, folder: str | None) -> Raw:
        train = self._pair(_TRAIN, folder) if _TRAIN[0] in self.sha256 else None
        return Raw(self.name, train, self._pair(_TEST, folder), self.class_names)

    def _pair(self, names: tuple[str, str], folder: str | None) -> Pair:
        url = self.url
        files = [DataFile(f"{self.name}/{name}", url and url + name, self.sha256[name]) for name in names]
        pixels, labels = (read_idx(obtain(self.name, file, folder), file.path) for file in files)
        if pixels.ndim != 3 or labels.shape != pixels.shape[:1]:
            raise FileError(
                f"{files[0].path} has shape {pixels.shape}, and {files[1].path} {labels.shape}; "
                "they must be (n, H, W) and (n,)"
            )
        return as_images(pixels[:, None]), as_classes(labels, 10, files[1].path)


@dataclass(frozen=True)
class FashionMnist(Mnist):
    name = "fashion-mnist"
    summary = "60,000 + 10,000 gray 28x28 images of clothes, 10 classes"
    url = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    sha256: ClassVar[Mapping[str, str]] = {
        _TRAIN[0]: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        _TRAIN[1]: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        _TEST[0]: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        _TEST[1]: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    }
    class_names = (
        *("t-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )


@dataclass(frozen=True)
class NotMnist(Mnist):
    """Letters A to J: out-of-distribution inputs for MNIST and Fashion-MNIST."""

    name = "notmnist"
    summary = "10,000 gray 28x28 images of letters, for OOD tests only"
    url = ""
    sha256: ClassVar[Mapping[str, str]] = {
        _TEST[0]: "70ae9e06201f2827e5b0a3781a3169d735dd2efc69996b9eeaee7f10ed4044d7",
        _TEST[1]: "1fa03836e01c862542f8eb83463bb951bebec6fcb3efa28dad748c6b38a9021b",
    }
    class_names = tuple("ABCDEFGHIJ")


@dataclass(frozen=True)
class Cifar10:
    """The binary version, in its folder or archive: records of labels (1 byte) and pixels (3, 32, 32)."""

    name: ClassVar[str] = "cifar10"
    summary: ClassVar[str] = "50,000 + 10,000 color 32x32 images of animals and vehicles, 10 classes"
    class_names: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    labels: ClassVar[int] = 1
    subfolder: ClassVar[str] = "cifar-10-batches-bin"
    train_files: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    test_file: ClassVar[str] = "test_batch.bin"
    archive: ClassVar[DataFile] = DataFile(
        "cifar-10-binary.tar.gz",
        f"{_CIFAR_URL}cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    )

    def read(self, folder: str | None) -> Raw:
        files = self._files(folder)
        train = self._pair(b"".join(files[name] for name in self.train_files))
        return Raw(self.name, train, self._pair(files[self.test_file]), self.class_names)

    def _files(self, folder: str | None) -> dict[str, bytes]:
        names = (*self.train_files, self.test_file)
        paths = {name: f"{self.subfolder}/{name}" for name in names}
        if all(find_file(path, folder) for path in paths.values()):
            return {name: obtain(self.name, DataFile(path), folder) for name, path in paths.items()}
        packed = obtain(self.name, self.archive, folder)
        members = read_members(packed, self.archive.path, set(paths.values()).__contains__)
        for path in paths.values():
            if path not in members:
                raise FileError(f"{self.archive.path} does not hold {path}")
        return {name: members[path] for name, path in paths.items()}

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
    subfolder = "cifar-100-binary"
    train_files = ("train.bin",)
    test_file = "test.bin"
    archive = DataFile(
        "cifar-100-binary.tar.gz",
        f"{_CIFAR_URL}cifar-100-binary.tar.gz",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    )


@dataclass(frozen=True)
class Svhn:
    """House-number digits, the official crops; class 10 of the files is digit 0."""

    name: ClassVar[str] = "svhn"
    summary: ClassVar[str] = "73,257 + 26,032 color 32x32 images of house-number digits, 10 classes"
    sha256: ClassVar[Mapping[str, str]] = {
        "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    }

    def read(self, folder: str | None) -> Raw:
        train, test = (self._pair(name, folder) for name in self.sha256)
        return Raw(self.name, train, test, DIGITS)

    def _pair(self, name: str, folder: str | None) -> Pair:
        from scipy.io import loadmat

        file = DataFile(f"svhn/{name}", _SVHN_URL + name, self.sha256[name])
        try:
            found: dict[str, Any] = loadmat(io.BytesIO(obtain(self.name, file, folder)), variable_names=["X", "y"])
            images, labels = found["X"].transpose(3, 2, 0, 1), found["y"].reshape(-1) % 10
        except (KeyError, ValueError, TypeError, NotImplementedError) as error:
            raise FileError(f"{file.path} is not a MATLAB file with X (H, W, 3, n) and y: {error}") from error
        return as_images(images), as_classes(labels, 10, file.path)


@dataclass(frozen=True)
class SvhnOod:
    """House-number digits cropped from full images: out-of-distribution inputs for CIFAR, not for accuracy."""

    name: ClassVar[str] = "svhn-ood"
    summary: ClassVar[str] = "5,000 color 32x32 images of house-number digits, for OOD tests only"

    def read(self, folder: str | None) -> Raw:
        file = DataFile("svhn/svhn_ood_5k.npz")
        try:
            with np.load(io.BytesIO(obtain(self.name, file, folder)), allow_pickle=False) as arrays:
                images, labels = arrays["x"].transpose(0, 3, 1, 2), arrays["y"]
        except (KeyError, ValueError) as error:
            raise FileError(f"{file.path} must hold images x (n, H, W, 3) and labels y (n,): {error}") from error
        return Raw(self.name, None, (as_images(images), as_classes(labels, 10, file.path)), DIGITS)


def read_idx(data: bytes, owner: str) -> np.ndarray[Any, Any]:
    """Return the array of an idx file: magic bytes 0 0 8 d, d sizes as big-endian int32, and the bytes."""
    content = unpack_gzip(data, owner)
    start = 4 + 4 * content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    if not start or len(content) < start:
        raise FileError(f"{owner} is not an idx file of bytes: it begins with {content[:4].hex(' ')}")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        raise FileError(f"{owner}: the header says shape {shape}, but {len(content) - start:,} bytes follow")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def as_images(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a copy: the array may share the memory of a file."""
    return torch.from_numpy(np.array(array, np.uint8, order="C"))


def as_classes(labels: np.ndarray[Any, Any], count: int, owner: str) -> torch.Tensor:
    found = torch.from_numpy(labels.astype(np.int64))
    if bool(((found < 0) | (found >= count)).any()):
        raise FileError(f"{owner}: labels from {int(found.min())} to {int(found.max())}; allowed: 0 to {count - 1}")
    return found
