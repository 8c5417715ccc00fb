"""Files in the form of CIFAR-10-C: what is read is what was written, at its severity, and a wrong file is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bayeswell.datasets import Data, PublishedCorruptions, load_data
from bayeswell.errors import BayeswellError, FileError

IMAGES = 12
"""At each severity."""


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data("digits")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three corruptions of 8x8 images: random bytes, which differ from severity to severity and from file to file."""
    random = np.random.default_rng(3)
    for name in ("fog", "gaussian_noise", "saturate"):
        np.save(tmp_path / f"{name}.npy", random.integers(0, 256, (5 * IMAGES, 8, 8, 1), dtype=np.uint8))
    np.save(tmp_path / "labels.npy", np.tile(random.integers(0, 10, IMAGES, dtype=np.uint8), 5))
    return tmp_path


def test_a_severity_is_its_fifth_of_the_file_scaled_as_the_data(folder: Path, data: Data) -> None:
    published = PublishedCorruptions(folder)
    published.check(data)
    assert published.names == ("gaussian_noise", "fog", "saturate")
    assert published.families == {"noise": ("gaussian_noise",), "weather": ("fog",), "extra": ("saturate",)}
    stored, labels = np.load(folder / "fog.npy"), np.load(folder / "labels.npy")
    shift, scale = data.scaling.input_shift, data.scaling.input_scale
    assert shift is not None
    assert scale is not None
    for severity in range(1, 6):
        inputs, targets = published.pair("fog", severity, data)
        part = stored[(severity - 1) * IMAGES : severity * IMAGES].astype(np.float32) / 255
        expected = (torch.from_numpy(part[..., 0]).unsqueeze(1) - shift) / scale
        torch.testing.assert_close(inputs, expected, atol=1e-5, rtol=1e-5)
        assert targets.tolist() == labels[:IMAGES].tolist()
    few, classes = published.pair("fog", 2, data, images=5)
    assert len(few) == len(classes) == 5
    assert torch.equal(few, published.pair("fog", 2, data)[0][:5])


def test_channels_come_before_height_and_width(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 6, 4, 3), dtype=np.uint8)
    np.save(tmp_path / "snow.npy", pixels)
    np.save(tmp_path / "labels.npy", np.zeros(5, np.int64))
    blank = torch.zeros(2, 3, 6, 4)
    from bayeswell.datasets import Scaling

    like = Data("blank", (blank, torch.zeros(2)), None, (blank, torch.zeros(2)), (3, 6, 4), 2, "categorical",
                ("a", "b"), Scaling())  # fmt: skip
    published = PublishedCorruptions(tmp_path)
    published.check(like)
    inputs, _ = published.pair("snow", 4, like)
    assert float(inputs[0, 2, 5, 1]) == pytest.approx(float(pixels[3, 5, 1, 2]) / 255)


def _rewrite(name: str, array: Any) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / f"{name}.npy", array)


def _cut(folder: Path) -> None:
    path = folder / "fog.npy"
    path.write_bytes(path.read_bytes()[:-10])


def _longer(folder: Path) -> None:
    path = folder / "fog.npy"
    path.write_bytes(path.read_bytes() + b"more")


def _objects(folder: Path) -> None:
    np.save(folder / "fog.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)


def _archive(folder: Path) -> None:
    with (folder / "fog.npy").open("wb") as stream:
        np.savez(stream, x=np.zeros(3))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_rewrite("fog", np.zeros((5 * IMAGES, 8, 8, 1), np.float32)), r"fog\.npy: float32"),
        (_rewrite("fog", np.zeros((5 * IMAGES, 1, 8, 8), np.uint8)), r"fog\.npy: uint8 \(60, 1, 8, 8\); images are"),
        (_rewrite("fog", np.zeros((5 * IMAGES, 64), np.uint8)), r"fog\.npy: uint8 \(60, 64\)"),
        (_rewrite("fog", np.zeros((4 * IMAGES, 8, 8, 1), np.uint8)), r"48 images, but labels\.npy has 60 classes"),
        (_rewrite("labels", np.zeros(4 * IMAGES + 1, np.int64)), "n a multiple of five"),
        (_rewrite("labels", np.zeros(5 * IMAGES)), r"labels\.npy: float64"),
        (_rewrite("labels", np.arange(5 * IMAGES)), "the classes of the five severities differ"),
        (_rewrite("labels", np.full(5 * IMAGES, -1)), "the class -1"),
        (_cut, r"fog\.npy: not a readable npy file|its header says"),
        (_longer, "its header says"),
        (_objects, r"fog\.npy: not a readable npy file"),
        (_archive, r"fog\.npy: not a readable npy file"),
        (lambda folder: (folder / "fog.npy").write_bytes(b"\x80\x04nothing"), r"fog\.npy: not a readable npy file"),
        (lambda folder: (folder / "labels.npy").unlink(), r"has no labels\.npy"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line_that_names_it(
    folder: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(folder)
    with pytest.raises(FileError, match=said) as refused:
        PublishedCorruptions(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "array", "said"),
    [
        ("fog", np.zeros((5 * IMAGES, 9, 8, 1), np.uint8), r"images of shape \(1, 9, 8\), 'digits' of \(1, 8, 8\)"),
        ("labels", np.full(5 * IMAGES, 10), "the class 10; 'digits' has classes 0 to 9"),
    ],
)
def test_images_and_classes_of_another_set_are_refused(
    folder: Path, data: Data, name: str, array: Any, said: str
) -> None:
    np.save(folder / f"{name}.npy", array)
    with pytest.raises(BayeswellError, match=said):
        PublishedCorruptions(folder).check(data)


def test_a_folder_without_images_and_no_folder(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.zeros(5, np.int64))
    with pytest.raises(FileError, match="no file of images"):
        PublishedCorruptions(tmp_path)
    with pytest.raises(FileError, match="there is no folder"):
        PublishedCorruptions(tmp_path / "nowhere")
