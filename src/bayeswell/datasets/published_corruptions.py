"""Corrupted test images that others have published as files: CIFAR-10-C and its kin (Hendrycks & Dietterich 2019).

A folder holds NAME.npy for each corruption, bytes (5 n, H, W, C): all n test images at severity 1, then all at severity
2, and so on to 5, always in the same order; and labels.npy (5 n,), the n classes five times over. CIFAR-10-C has
n = 10,000. Files are mapped into memory, not read whole: CIFAR-10-C takes 2.9 GB.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..errors import DataError, FileError, nearest
from .corruptions import SEVERITIES
from .data import Data, Pair
from .load import as_real

LABELS = "labels"
EXTRA = "extra"
"""The family of files beside the benchmark's fifteen; its own four are kept for choosing settings."""
PUBLISHED_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
"""The fifteen corruptions of the benchmark by family, under the names of its files."""


class PublishedCorruptions:
    """A folder of corrupted test images, checked before anything is measured.

    ``names`` are its corruptions in the benchmark's order, ``families`` those of each family (what is not among the
    fifteen is ``extra``), ``images`` how many each severity has.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise FileError(f"corruptions: there is no folder {str(folder)!r}")
        self.folder = folder
        there = {path.stem: path for path in sorted(folder.glob("*.npy"))}
        if LABELS not in there or len(there) == 1:
            missing = f"{LABELS}.npy" if LABELS not in there else "file of images NAME.npy"
            raise FileError(f"corruptions: {str(folder)!r} has no {missing}; it must look like CIFAR-10-C")
        self._labels = _labels(there.pop(LABELS))
        self.images = len(self._labels)
        usual = [name for members in PUBLISHED_FAMILIES.values() for name in members]
        self.names = tuple(sorted(there, key=lambda name: (usual.index(name) if name in usual else len(usual), name)))
        self._maps = {name: self._mapped(there[name]) for name in self.names}
        families = {
            family: tuple(name for name in members if name in there) for family, members in PUBLISHED_FAMILIES.items()
        }
        families[EXTRA] = tuple(name for name in self.names if name not in usual)
        self.families = {family: members for family, members in families.items() if members}

    def check(self, data: Data) -> None:
        """Refuse images of another shape than ``data`` has, and classes that it does not know."""
        if data.class_names is None or len(data.input_shape) != 3:
            raise DataError(f"corruptions: '{data.name}' is not a set of images with classes")
        for name, pixels in self._maps.items():
            height, width, channels = pixels.shape[1:]
            if (channels, height, width) != data.input_shape:
                raise DataError(
                    f"{self.folder / name}.npy has images of shape {(channels, height, width)}, '{data.name}' of "
                    f"{data.input_shape}"
                )
        if int(self._labels.max()) >= data.outputs:
            raise DataError(
                f"{self.folder / LABELS}.npy has the class {int(self._labels.max())}; '{data.name}' has classes 0 to "
                f"{data.outputs - 1}"
            )

    def pair(self, name: str, severity: int, like: Data, images: int | None = None) -> Pair:
        """The first ``images`` images (None: all) at a severity from 1 to 5, scaled as ``like``, and their classes."""
        if name not in self._maps:
            raise DataError(f"corruptions: {str(self.folder)!r} has no '{name}'; {nearest(name, self.names)}")
        start = (severity - 1) * self.images
        count = self.images if images is None else min(images, self.images)
        pixels = np.array(
            self._maps[name][start : start + count].transpose(0, 3, 1, 2), order="C"
        )  # a copy: a mapped file cannot be written
        return like.scaling.inputs(as_real(torch.from_numpy(pixels))), self._labels[:count]

    def _mapped(self, path: Path) -> npt.NDArray[np.uint8]:
        found = _opened(path)
        if found.dtype != np.uint8 or found.ndim != 4 or found.shape[3] not in (1, 3) or 0 in found.shape:
            raise FileError(f"{path}: {found.dtype} {found.shape}; images are uint8 (n, H, W, 3) or (n, H, W, 1)")
        if len(found) != len(SEVERITIES) * self.images:
            raise FileError(
                f"{path}: {len(found):,} images, but {LABELS}.npy has {len(SEVERITIES) * self.images:,} classes: one "
                "for each image at each of five severities"
            )
        return found


def _labels(path: Path) -> torch.Tensor:
    """(n,): the classes of one severity, after a look whether all five have the same."""
    found = _opened(path)
    severities = len(SEVERITIES)
    if found.dtype.kind not in "iu" or found.ndim != 1 or len(found) == 0 or len(found) % severities:
        raise FileError(f"{path}: {found.dtype} {found.shape}; classes are whole numbers (n,), n a multiple of five")
    classes = torch.from_numpy(np.array(found).astype(np.int64)).reshape(severities, -1)
    if not torch.equal(classes, classes[:1].expand_as(classes)):
        raise FileError(f"{path}: the classes of the five severities differ; they must be the same in the same order")
    if int(classes.min()) < 0:
        raise FileError(f"{path}: the class {int(classes.min())}; classes are numbers from 0 on")
    return classes[0].clone()


def _opened(path: Path) -> npt.NDArray[Any]:
    """An npy file mapped into memory. Objects are refused, and a file that does not hold what its header says."""
    try:
        # What np.load does for a file to be mapped, without its readers of zip files and pickles.
        found = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError, SyntaxError, TypeError, OverflowError) as error:
        raise FileError(f"{path}: not a readable npy file ({' '.join(str(error).split()):.120})") from error
    if found.offset + found.nbytes != path.stat().st_size:
        raise FileError(f"{path}: {path.stat().st_size:,} bytes, but its header says {found.offset + found.nbytes:,}")
    return found
