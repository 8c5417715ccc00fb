"""Corruptions of test images in five severities, and the reader of CIFAR-10-C (Hendrycks & Dietterich 2019).

Strengths of noise, blur and contrast follow CIFAR-10-C as far as it is defined in pixels. Results are comparable in
kind with those on its files, not digit by digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ...core.errors import DataError, check_choice, check_integer
from ...core.random import make_generator
from .files import reading

SEVERITIES = 5


def corrupt(images: Tensor, corruption: str, severity: int = 3, *, seed: int = 0) -> Tensor:
    """Return corrupted copies of images (n, C, H, W) with pixels in [0, 1]."""
    check_choice("corruption", "corruption", corruption, CORRUPTIONS)
    check_severity(severity)
    if images.dim() != 4:
        raise DataError(f"corruption '{corruption}': inputs of shape {tuple(images.shape)}; give images (n, C, H, W)")
    strength = STRENGTHS[corruption][severity - 1]
    return CORRUPTIONS[corruption](images, strength, make_generator(seed)).clamp(0, 1)


def check_severity(severity: int) -> None:
    if check_integer("corruption", "severity", severity) > SEVERITIES:
        raise DataError(f"corruption: `severity` must be 1 to {SEVERITIES}, got {severity}")


def _noise(images: Tensor, std: float, generator: torch.Generator) -> Tensor:
    return images + std * torch.randn(images.shape, generator=generator)


def _blur(images: Tensor, std: float, generator: torch.Generator) -> Tensor:
    reach = math.ceil(3 * std)
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / std) ** 2)
    kernel = (weights / weights.sum()).to(images.dtype)
    planes = functional.pad(images.flatten(0, 1).unsqueeze(1), (reach,) * 4, mode="replicate")
    smooth = functional.conv2d(functional.conv2d(planes, kernel[None, None, :, None]), kernel[None, None, None])
    return smooth.reshape(images.shape)


def _contrast(images: Tensor, factor: float, generator: torch.Generator) -> Tensor:
    mean = images.mean((2, 3), keepdim=True)
    return mean + factor * (images - mean)


def _rotation(images: Tensor, degrees: float, generator: torch.Generator) -> Tensor:
    # Each image turns left or right.
    sign = torch.randint(0, 2, (len(images),), generator=generator) * 2 - 1
    angle = sign * math.radians(degrees)
    zero = torch.zeros(len(images))
    aspect = images.shape[2] / images.shape[3]
    turn = torch.stack([angle.cos(), -angle.sin() * aspect, zero, angle.sin() / aspect, angle.cos(), zero], 1)
    grid = functional.affine_grid(turn.view(-1, 2, 3).to(images.dtype), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


CORRUPTIONS: dict[str, Callable[[Tensor, float, torch.Generator], Tensor]] = {
    "noise": _noise,
    "blur": _blur,
    "contrast": _contrast,
    "rotation": _rotation,
}
STRENGTHS: dict[str, tuple[float, ...]] = {
    "noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "blur": (0.4, 0.6, 0.8, 1.0, 1.4),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "rotation": (15, 30, 45, 60, 75),
}
"""Std of the noise, std of the blur in pixels, factor of the contrast, degrees; for severities 1 to 5."""


def read_published(folder: str | Path, corruption: str, severity: int) -> tuple[Tensor, Tensor]:
    """Return the images, as bytes (n, C, H, W), and classes of one corruption and severity of CIFAR-10-C.

    NAME.npy holds bytes (5 n, H, W, C), all n test images at severity 1 first; labels.npy holds the classes (5 n,).
    """
    place = Path(folder).expanduser()
    names = sorted(path.stem for path in place.glob("*.npy") if path.stem != "labels")
    check_choice(f"corruptions in {folder}", "corruption", corruption, names)
    with reading(f"{place / corruption}.npy", "bytes (5 n, H, W, C) with labels.npy (5 n,)"):
        pixels = np.load(place / f"{corruption}.npy", mmap_mode="r", allow_pickle=False)
        labels = np.load(place / "labels.npy", allow_pickle=False).reshape(SEVERITIES, -1)[severity - 1]
        pixels = pixels.reshape(SEVERITIES, -1, *pixels.shape[1:])[severity - 1].transpose(0, 3, 1, 2)
    return torch.from_numpy(np.array(pixels, np.uint8, order="C")), torch.from_numpy(labels.astype(np.int64))
