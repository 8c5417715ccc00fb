"""Corruptions of images in the four families of CIFAR-10-C (Hendrycks & Dietterich 2019): Nguyen et al., Table 5.

Images are (n, C, H, W) in [0, 1]; ``level`` is 0 to 4. Strengths follow the published ones as far as they are defined
in pixels. Gaussian noise and blur and contrast are those of ``bayeswell.lab``. Numbers of the paper itself need the
published files: ``read_published`` of the lab.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from bayeswell.core.errors import DataError
from bayeswell.core.random import make_generator
from bayeswell.lab.data.corruptions import SEVERITIES
from bayeswell.lab.data.corruptions import corrupt as lab_corrupt

Corruption = Callable[[Tensor, int, torch.Generator], Tensor]


def shot_noise(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Poisson(rate x) / rate."""
    rate = (500, 250, 100, 75, 50)[level]
    return torch.poisson(images * rate, generator=generator) / rate


def impulse_noise(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Set a share of the values to 0 or 1."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[level]
    draw = torch.rand(images.shape, generator=generator)
    return torch.where(draw < share, (draw < share / 2).to(images.dtype), images)


def motion_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Average along a path of so many pixels, in a direction of each image."""
    length, steps = (1.5, 2.5, 3.5, 4.5, 6.0)[level], 9
    angle = 2 * math.pi * torch.rand(len(images), generator=generator)
    height, width = images.shape[2:]
    total = torch.zeros_like(images)
    for step in range(steps):
        along = length * (step / (steps - 1) - 0.5)
        shift = torch.stack([2 * along * angle.cos() / width, 2 * along * angle.sin() / height], 1)
        grid = torch.cat([torch.eye(2).expand(len(images), 2, 2), shift[:, :, None]], 2)
        places = functional.affine_grid(grid, list(images.shape), align_corners=False)
        total += functional.grid_sample(images, places, padding_mode="border", align_corners=False)
    return total / steps


def fog(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Add clouds, sums of smooth noise at several scales, and dim the image to the range it had."""
    strength = (0.2, 0.5, 0.75, 1.0, 1.5)[level]
    size = list(images.shape[2:])
    clouds = torch.zeros(len(images), 1, *size)
    for octave in range(4):
        noise = torch.rand(len(images), 1, 2 << octave, 2 << octave, generator=generator)
        clouds += functional.interpolate(noise, size, mode="bilinear", align_corners=True) / 2**octave
    top = images.amax((1, 2, 3), keepdim=True)
    return (images + strength * clouds / clouds.amax((1, 2, 3), keepdim=True)) * top / (top + strength)


def brightness(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Raise the largest channel of each pixel and keep its hue."""
    more = (0.05, 0.10, 0.15, 0.20, 0.30)[level]
    value = images.amax(1, keepdim=True)
    raised = (value + more).clamp(max=1)
    return torch.where(value > 0, images * raised / value.clamp(min=1e-12), raised)


def pixelate(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Fewer, larger pixels."""
    share = (0.80, 0.65, 0.50, 0.40, 0.30)[level]
    rows, columns = (max(1, round(share * side)) for side in images.shape[2:])
    return functional.interpolate(functional.adaptive_avg_pool2d(images, (rows, columns)), list(images.shape[2:]))


OWN: dict[str, Corruption] = {
    one.__name__: one for one in (shot_noise, impulse_noise, motion_blur, fog, brightness, pixelate)
}
FAMILIES: dict[str, tuple[str, ...]] = {
    "noise": ("noise", "shot_noise", "impulse_noise"),
    "blur": ("blur", "motion_blur"),
    "weather": ("fog", "brightness"),
    "digital": ("contrast", "pixelate"),
}
"""Corruptions by family; those without a function here are of the lab."""


def corrupted(images: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """Return corrupted copies of images in [0, 1]."""
    if not 1 <= severity <= SEVERITIES:
        raise DataError(f"corruption '{name}': `severity` must be 1 to {SEVERITIES}, got {severity}")
    if name not in OWN:
        return lab_corrupt(images, name, severity, seed=seed)
    return OWN[name](images, severity - 1, make_generator(seed)).clamp(0, 1)
