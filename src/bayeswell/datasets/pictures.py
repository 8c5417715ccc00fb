"""Image sets that are published as files: MNIST and its kin, CIFAR, SVHN."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import FileError
from ..extras import needs_extra
from .data import Pair, Raw
from .files import DataFile, Release, obtain
from .formats import Array, read_idx, read_npz, read_records

DIGITS = tuple(map(str, range(10)))
_TRAIN_IMAGES, _TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
_TEST_IMAGES, _TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
_TORONTO = "https://www.cs.toronto.edu/~kriz/"


def _files(folder: str, url: str, sums: dict[str, str], archive: DataFile | None = None) -> tuple[Release, ...]:
    """One release: the SHA-256 of each file of a folder, each under the same address if there is one."""
    return (
        Release(tuple(DataFile(f"{folder}/{name}", sha, url and url + name) for name, sha in sums.items()), archive),
    )


@dataclass(frozen=True)
class _Published:
    """An image set: who published what, and how the files are read."""

    name: ClassVar[str]
    paper: ClassVar[str]
    examples: ClassVar[str]
    releases: ClassVar[tuple[Release, ...]]
    source: ClassVar[str] = "files"
    class_names: ClassVar[tuple[str, ...]] = DIGITS

    def read(self, folder: Path | None) -> Raw:
        train, test = self.pairs(obtain(self.name, self.releases, folder))
        return Raw(self.name, "image", train, test, self.class_names)

    def pairs(self, files: dict[str, bytes]) -> tuple[Pair | None, Pair]:
        """The training examples, if there are any, and the test examples."""
        raise NotImplementedError


@dataclass(frozen=True)
class Mnist(_Published):
    """Grey 28x28 images of handwritten digits, 10 classes."""

    name = "mnist"
    paper = "LeCun, Bottou, Bengio & Haffner 1998"
    examples = "60,000 + 10,000 images 1x28x28"
    releases = _files(
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            _TRAIN_IMAGES: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            _TRAIN_LABELS: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            _TEST_IMAGES: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            _TEST_LABELS: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    )

    def pairs(self, files: dict[str, bytes]) -> tuple[Pair | None, Pair]:
        train = _idx_pair(files, _TRAIN_IMAGES, _TRAIN_LABELS) if _TRAIN_IMAGES in files else None
        return train, _idx_pair(files, _TEST_IMAGES, _TEST_LABELS)


@dataclass(frozen=True)
class FashionMnist(Mnist):
    """Grey 28x28 images of clothes, 10 classes."""

    name = "fashion_mnist"
    paper = "Xiao, Rasul & Vollgraf 2017, arXiv 1708.07747"
    releases = _files(
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            _TRAIN_IMAGES: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            _TRAIN_LABELS: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            _TEST_IMAGES: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            _TEST_LABELS: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    )
    class_names = (
        *("t-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )


@dataclass(frozen=True)
class NotMnist(Mnist):
    """Grey 28x28 images of the letters A to J: out-of-distribution for MNIST and Fashion-MNIST, test only."""

    name = "notmnist"
    paper = "Bulatov 2011"
    examples = "10,000 test images 1x28x28"
    releases = _files(
        "notmnist",
        "",
        {
            _TEST_IMAGES: "70ae9e06201f2827e5b0a3781a3169d735dd2efc69996b9eeaee7f10ed4044d7",
            _TEST_LABELS: "1fa03836e01c862542f8eb83463bb951bebec6fcb3efa28dad748c6b38a9021b",
        },
    )
    class_names = tuple("ABCDEFGHIJ")


def _idx_pair(files: dict[str, bytes], images: str, labels: str) -> Pair:
    pixels, classes = read_idx(files[images], images), read_idx(files[labels], labels)
    if pixels.ndim != 3 or classes.shape != pixels.shape[:1]:
        raise FileError(f"{images} has shape {pixels.shape}, {labels} {classes.shape}; they must be (n, H, W) and (n,)")
    return _tensor(pixels).unsqueeze(1), _classes(classes, labels, 10)


@dataclass(frozen=True)
class Cifar10(_Published):
    """Colour 32x32 images of animals and vehicles, 10 classes (the binary version)."""

    name = "cifar10"
    paper = "Krizhevsky 2009, Learning multiple layers of features from tiny images"
    examples = "50,000 + 10,000 images 3x32x32"
    releases = _files(
        "cifar-10-batches-bin",
        "",
        {
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        DataFile(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            f"{_TORONTO}cifar-10-binary.tar.gz",
        ),
    )
    class_names = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )

    def pairs(self, files: dict[str, bytes]) -> tuple[Pair | None, Pair]:
        train = [files[f"data_batch_{number}.bin"] for number in range(1, 6)]
        return _record_pair(train, "data_batch", labels=1), _record_pair(
            [files["test_batch.bin"]], "test_batch", labels=1
        )


@dataclass(frozen=True)
class Cifar100(_Published):
    """Colour 32x32 images of 100 kinds of things (the binary version, fine labels)."""

    name = "cifar100"
    paper = Cifar10.paper
    examples = Cifar10.examples
    releases = _files(
        "cifar-100-binary",
        "",
        {
            "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        },
        DataFile(
            "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            f"{_TORONTO}cifar-100-binary.tar.gz",
        ),
    )
    class_names = (
        *("apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl"),
        *("boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair"),
        *("chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin"),
        *("elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp"),
        *("lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain"),
        *("mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck"),
        *("pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road"),
        *("rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider"),
        *("squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger"),
        *("tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman"),
        "worm",
    )

    def pairs(self, files: dict[str, bytes]) -> tuple[Pair | None, Pair]:
        train, test = (_record_pair([files[name]], name, labels=2) for name in ("train.bin", "test.bin"))
        return train, test


def _record_pair(parts: list[bytes], owner: str, *, labels: int) -> Pair:
    """``labels`` bytes before each image, the last of which is the class (CIFAR-100: coarse, then fine)."""
    read = [read_records(part, owner, labels=labels) for part in parts]
    classes = np.concatenate([found[:, -1] for _, found in read])
    images = torch.cat([_tensor(pixels) for pixels, _ in read])
    return images, _classes(classes, owner, 10 if labels == 1 else 100)


@dataclass(frozen=True)
class Svhn(_Published):
    """Colour 32x32 images of house-number digits, 10 classes (the official crops; class 10 of the files is digit 0)."""

    name = "svhn"
    paper = "Netzer, Wang, Coates, Bissacco, Wu & Ng 2011"
    examples = "73,257 + 26,032 images 3x32x32"
    releases = _files(
        "svhn",
        "http://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        },
    )

    def pairs(self, files: dict[str, bytes]) -> tuple[Pair | None, Pair]:
        train, test = (_mat_pair(files[name], name) for name in ("train_32x32.mat", "test_32x32.mat"))
        return train, test


def _mat_pair(data: bytes, owner: str) -> Pair:
    # Imported here: scipy is needed for this format alone.
    with needs_extra("lab", f"{owner}, a MATLAB file,"):
        from scipy.io import loadmat

    try:
        found: dict[str, Any] = loadmat(io.BytesIO(data), variable_names=["X", "y"])
        images, labels = found["X"], found["y"]
    except Exception as error:  # scipy's reader raises of all kinds
        reason = " ".join(str(error).split())
        raise FileError(f"{owner}: not a MATLAB file with the arrays X and y ({reason})") from error
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[2] != 3 or labels.size != images.shape[3]:
        raise FileError(f"{owner}: X is {images.dtype} {images.shape}, y {labels.shape}; X must be uint8 (H, W, 3, n)")
    return _tensor(images.transpose(3, 2, 0, 1)), _classes(labels.reshape(-1) % 10, owner, 10)


@dataclass(frozen=True)
class SvhnOod(_Published):
    """House-number digits cropped anew from full images: out-of-distribution for CIFAR-10, test only."""

    name = "svhn_ood"
    paper = "Netzer, Wang, Coates, Bissacco, Wu & Ng 2011 (other crops: quote no SVHN accuracy from it)"
    examples = "5,000 test images 3x32x32"
    releases = _files(
        "svhn", "", {"svhn_ood_5k.npz": "9ea411c5192b3bc7728dead303ae320aaf5899e64367739068eed35154cc36e2"}
    )

    def pairs(self, files: dict[str, bytes]) -> tuple[Pair | None, Pair]:
        owner = "svhn_ood_5k.npz"
        arrays = read_npz(files[owner], owner)
        images, labels = arrays.get("x"), arrays.get("y")
        if images is None or labels is None or images.ndim != 4 or labels.shape != images.shape[:1]:
            raise FileError(f"{owner}: it must hold images x (n, H, W, 3) and labels y (n,)")
        return None, (_tensor(images.transpose(0, 3, 1, 2)), _classes(labels, owner, 10))


def _tensor(array: Array) -> Tensor:
    # A copy: the array lies in the bytes of the file, which cannot be written.
    return torch.from_numpy(np.array(array, order="C"))


def _classes(labels: Array, owner: str, count: int) -> Tensor:
    found = torch.from_numpy(labels.astype(np.int64))
    wrong = torch.nonzero((found < 0) | (found >= count))
    if len(wrong):
        place = int(wrong[0])
        raise FileError(f"{owner}: label {int(found[place])} at index {place}; labels must be 0 to {count - 1}")
    return found
