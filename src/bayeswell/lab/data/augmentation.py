"""Augmentation of a batch of images: random shifts and mirroring."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ...core.errors import DataError


@dataclass(frozen=True)
class Augmentation:
    """Shift images by up to ``pad`` pixels and mirror them with probability 1/2 (He et al. 2016, section 4.2).

    Images are padded with zeros, the mean color of standardized images, and cut back at a random place.

    Args:
        pad: largest shift in pixels, in both directions.
        flip: mirror left to right.
    """

    pad: int = 4
    flip: bool = True

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if images.dim() != 4:
            raise DataError(f"augment: inputs of shape {tuple(images.shape)}; only images (n, C, H, W) are augmented")
        count, _, height, width = images.shape
        shifts = torch.randint(0, 2 * self.pad + 1, (2, count, 1), generator=generator)
        mirrored = torch.randint(0, 2, (count, 1), generator=generator).bool() & self.flip
        across = torch.arange(width)
        columns = shifts[1] + torch.where(mirrored, across.flip(0), across)
        rows = shifts[0] + torch.arange(height)
        padded = functional.pad(images, (self.pad,) * 4)
        each = torch.arange(count)[:, None, None]
        # The channel axis comes last where a slice stands between indices.
        return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
