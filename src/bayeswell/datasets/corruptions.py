"""Corruptions of images in five severities, in the manner of CIFAR-10-C (Hendrycks & Dietterich 2019).

Noise, blur, weather and digital damage, all in torch, on raw images (n, C, H, W) in [0, 1] with 1 or 3 channels. The
families and many strengths follow the paper's for 32x32 images; the implementation is our own, so numbers are
comparable in kind, not digit by digit. We differ: snow, fog and frost are drawn from noise of our own, blurs have their
strength in pixels, glass reads each pixel from a place nearby where the paper swaps neighbours, and JPEG is the
quantisation of 8x8 cosine blocks without subsampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import DataError, SettingError, nearest
from ..random import make_generator
from .jpeg import quantised

SEVERITIES = (1, 2, 3, 4, 5)
_CHUNK = 1000
"""Images at a time: the blurs hold a few copies of each."""


def corrupt(images: Tensor, corruption: str, severity: int = 3, *, seed: int = 0) -> Tensor:
    """The images corrupted and cut to [0, 1]; the same for the same seed, and each image drawn on its own."""
    check_corruption(corruption, severity)
    if images.ndim != 4 or images.shape[1] not in {1, 3} or not images.is_floating_point():
        raise DataError(
            f"corruption '{corruption}': images are {images.dtype} {tuple(images.shape)}; "
            "they must be real numbers (n, C, H, W) with 1 or 3 channels"
        )
    if len(images) == 0:
        return images.clone()
    low, high = float(images.min()), float(images.max())
    if not (low >= -1e-4 and high <= 1 + 1e-4):
        raise DataError(f"corruption '{corruption}': pixels are between {low:g} and {high:g}; they must be in [0, 1]")
    generator = make_generator(seed, images.device)
    act = CORRUPTIONS[corruption]
    parts = [act(part.clamp(0, 1), severity - 1, generator).clamp(0, 1) for part in images.split(_CHUNK)]
    return torch.cat(parts)


def check_corruption(corruption: str, severity: int) -> None:
    """Refuse an unknown name, and a severity other than 1 to 5."""
    if corruption not in CORRUPTIONS:
        raise SettingError(f"corruption = {corruption!r}; {nearest(str(corruption), CORRUPTIONS)}")
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise SettingError(f"corruption '{corruption}': severity = {severity!r}; it must be a whole number from 1 to 5")


def _gaussian_noise(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """x + std N(0, 1) at each value."""
    std = (0.04, 0.06, 0.08, 0.09, 0.10)[level]
    return images + std * _normal(images, generator)


def _shot_noise(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Poisson(rate x) / rate: the fewer photons, the grainier."""
    rate = (500, 250, 100, 75, 50)[level]
    return torch.poisson(images * rate, generator=generator) / rate


def _impulse_noise(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """A share of the values set to 0 or 1 with equal chance."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[level]
    draw = _uniform(images, images.shape, generator)
    return torch.where(draw < share, (draw < share / 2).to(images.dtype), images)


def _gaussian_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Smoothed by a Gaussian of so many pixels."""
    return _smooth(images, (0.4, 0.6, 0.8, 1.0, 1.4)[level])


def _defocus_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """The mean over a disc of such a radius in pixels: what a lens does that is not in focus."""
    radius = (0.8, 1.1, 1.5, 2.0, 2.6)[level]
    reach, finer = math.ceil(radius), 9
    # The share of each pixel that the disc covers, counted on a finer grid.
    place = (torch.arange((2 * reach + 1) * finer, dtype=torch.float64) + 0.5) / finer - reach - 0.5
    disc = (place.square()[:, None] + place.square() <= radius**2).double()
    kernel = functional.avg_pool2d(disc[None, None], finer)
    kernel = (kernel / kernel.sum()).to(images.device, images.dtype)
    count, channels, height, width = images.shape
    flat = images.reshape(count * channels, 1, height, width)
    padded = functional.pad(flat, (reach,) * 4, mode="replicate")
    return functional.conv2d(padded, kernel).reshape(images.shape)


def _glass_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """A share of the pixels read from a place next to them, between two slight blurs."""
    share, std = ((0.15, 0.30), (0.3, 0.35), (0.5, 0.40), (0.7, 0.45), (0.9, 0.50))[level]
    count, channels, height, width = images.shape
    rows, columns = (torch.arange(side, device=images.device) for side in (height, width))
    away = torch.randint(-1, 2, (2, count, height, width), generator=generator, device=images.device)
    away = away * (_uniform(images, (count, height, width), generator) < share)
    row, column = (rows[:, None] + away[0]).clamp(0, height - 1), (columns + away[1]).clamp(0, width - 1)
    place = (row * width + column).reshape(count, 1, -1).expand(-1, channels, -1)
    return _smooth(_smooth(images, std).flatten(2).gather(2, place).reshape(images.shape), std)


def _motion_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """The mean along a straight path of so many pixels, in a direction of each image's own."""
    length = (1.5, 2.5, 3.5, 4.5, 6.0)[level]
    return _moved(images, length, 2 * math.pi * _uniform(images, (len(images),), generator))


def _moved(images: Tensor, length: float, angle: Tensor) -> Tensor:
    steps = 9
    height, width = images.shape[2:]
    total = torch.zeros_like(images)
    for step in range(steps):
        along = length * (step / (steps - 1) - 0.5)
        # Coordinates of grid_sample run from -1 to 1 over the whole picture.
        shift = torch.stack([2 * along * angle.cos() / width, 2 * along * angle.sin() / height], dim=1)
        total += _resampled(images, torch.ones_like(angle), shift)
    return total / steps


def _zoom_blur(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """The mean of the image and of it enlarged, up to a factor."""
    most = (1.10, 1.16, 1.22, 1.28, 1.34)[level]
    steps = 7
    total = torch.zeros_like(images)
    for step in range(steps):
        zoom = images.new_full((len(images),), 1 + (most - 1) * step / (steps - 1))
        total += _resampled(images, 1 / zoom, images.new_zeros(len(images), 2))
    return total / steps


def _fog(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Cloudy light laid over the image, which is dimmed to the range it had."""
    strength = (0.2, 0.5, 0.75, 1.0, 1.5)[level]
    top = images.amax(dim=(1, 2, 3), keepdim=True)
    return (images + strength * _clouds(images, generator)) * top / (top + strength)


def _snow(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """White flakes that fall at an angle, over an image made paler."""
    share, paler = ((0.02, 0.10), (0.04, 0.15), (0.06, 0.20), (0.09, 0.25), (0.12, 0.30))[level]
    shape = (len(images), 1, *images.shape[2:])
    flakes = (_uniform(images, shape, generator) < share).to(images.dtype)
    slope = math.pi * (0.25 + 0.5 * _uniform(images, (len(images),), generator))
    flakes = (2.0 * _moved(flakes, 3.0, slope)).clamp(max=1)
    pale = images + paler * (1 - images) * 0.6
    return pale + flakes * (1 - pale)


def _frost(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Pale veins of ice over an image made darker."""
    kept, ice = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.45), (0.75, 0.55))[level]
    # Where smooth noise crosses its middle there are thin lines: the ridges.
    return kept * images + ice * (1 - (2 * _clouds(images, generator) - 1).abs())


def _brightness(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """The value (largest channel) of each pixel raised; its hue and saturation kept."""
    more = (0.05, 0.10, 0.15, 0.20, 0.30)[level]
    value = images.amax(dim=1, keepdim=True)
    raised = (value + more).clamp(max=1)
    return torch.where(value > 0, images * raised / value.clamp(min=1e-12), raised)


def _contrast(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Every channel drawn towards its mean over the image."""
    kept = (0.75, 0.50, 0.40, 0.30, 0.15)[level]
    mean = images.mean(dim=(2, 3), keepdim=True)
    return mean + kept * (images - mean)


def _pixelate(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Fewer, larger pixels: the mean over each."""
    share = (0.80, 0.65, 0.50, 0.40, 0.30)[level]
    height, width = images.shape[2:]
    return _block_means(images, height, share) @ images @ _block_means(images, width, share)


def _block_means(like: Tensor, size: int, share: float) -> Tensor:
    """(size, size): puts at each place the mean of its block, of which there are share * size."""
    # Disjoint blocks, the same for averaging and for drawing: resampling back and forth would move the image as well.
    block = torch.arange(size, device=like.device) * max(1, round(share * size)) // size
    same = (block[:, None] == block).to(like.dtype)
    return same / same.sum(dim=1, keepdim=True)


def _jpeg(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """The cosine coefficients of 8x8 blocks rounded to the steps of JPEG's tables at a quality."""
    return quantised(images, (80, 65, 50, 35, 20)[level])


def _elastic(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Every place moved by a smooth random field of so many pixels (std)."""
    std = (0.5, 0.75, 1.0, 1.3, 1.6)[level]
    height, width = images.shape[2:]
    field = _normal(images.new_empty(len(images), 2, height, width), generator)
    field = _smooth(field, 0.09 * min(height, width))
    field = std * field / field.std(dim=(1, 2, 3), keepdim=True).clamp(min=1e-12)
    identity = _affine(images.new_ones(len(images)), images.new_zeros(len(images), 2))
    still = functional.affine_grid(identity, list(images.shape), align_corners=False)
    moved = still + 2 * field.permute(0, 2, 3, 1) / images.new_tensor([width, height])
    return functional.grid_sample(images, moved, padding_mode="border", align_corners=False)


_Act = Callable[[Tensor, int, torch.Generator], Tensor]
_ACTS: Mapping[str, tuple[_Act, ...]] = {
    "noise": (_gaussian_noise, _shot_noise, _impulse_noise),
    "blur": (_gaussian_blur, _defocus_blur, _glass_blur, _motion_blur, _zoom_blur),
    "weather": (_fog, _snow, _frost, _brightness),
    "digital": (_contrast, _pixelate, _jpeg, _elastic),
}
CORRUPTIONS: Mapping[str, _Act] = {act.__name__.removeprefix("_"): act for acts in _ACTS.values() for act in acts}
"""By name: images in [0, 1], severity from 0, generator -> images that may leave [0, 1]."""
FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(act.__name__.removeprefix("_") for act in acts) for family, acts in _ACTS.items()
}
"""The corruptions of each family: noise, blur, weather, digital."""


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)


def _uniform(like: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=like.device, dtype=like.dtype)


def _smooth(images: Tensor, std: float) -> Tensor:
    """A Gaussian filter, first along rows, then along columns; the edge is repeated outside."""
    radius = max(1, math.ceil(3 * std))
    offsets = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    kernel = torch.softmax(-0.5 * (offsets / std).square(), dim=0)
    count, channels, height, width = images.shape
    flat = images.reshape(count * channels, 1, height, width)
    flat = functional.conv2d(functional.pad(flat, (radius, radius, 0, 0), mode="replicate"), kernel.view(1, 1, 1, -1))
    flat = functional.conv2d(functional.pad(flat, (0, 0, radius, radius), mode="replicate"), kernel.view(1, 1, -1, 1))
    return flat.reshape(images.shape)


def _affine(scale: Tensor, shift: Tensor) -> Tensor:
    """(n, 2, 3): the place where each output pixel is read is scale * place + shift."""
    none = torch.zeros_like(scale)
    return torch.stack(
        [torch.stack([scale, none, shift[:, 0]], dim=1), torch.stack([none, scale, shift[:, 1]], dim=1)], dim=1
    )


def _resampled(images: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    grid = functional.affine_grid(_affine(scale, shift), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _clouds(images: Tensor, generator: torch.Generator) -> Tensor:
    """Noise of several sizes, larger blobs stronger, scaled to [0, 1] in each image: (n, 1, H, W)."""
    height, width = images.shape[2:]
    total = images.new_zeros(len(images), 1, height, width)
    cells, weight = 2, 1.0
    while cells <= max(2, min(height, width)):
        coarse = _uniform(images, (len(images), 1, cells, cells), generator)
        total += weight * functional.interpolate(coarse, (height, width), mode="bilinear", align_corners=True)
        cells, weight = cells * 2, weight / 1.75
    low, high = total.amin(dim=(2, 3), keepdim=True), total.amax(dim=(2, 3), keepdim=True)
    return (total - low) / (high - low).clamp(min=1e-12)
