"""Augmentation of a whole batch at once: pad, crop and flip."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import DataError, SettingError


@dataclass(frozen=True)
class Augmentation:
    """Images shifted by up to ``pad`` pixels and, with ``flip``, mirrored left to right with probability 1/2.

    Each image is padded with zeros on every side and cut back to its size at a place of its own: every shift of
    -pad..pad in both directions is equally likely (He et al. 2016, section 4.2). On standardised images zero is the
    mean colour; papers that pad before they standardise have black there.
    """

    pad: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.pad, bool) or not isinstance(self.pad, int) or self.pad < 0:
            raise SettingError(f"augmentation: pad = {self.pad!r}; it must be a whole number of pixels from 0")

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if images.ndim != 4:
            raise DataError(f"augmentation: the batch has shape {tuple(images.shape)}; it must be (n, C, H, W)")
        count, _, height, width = images.shape
        # Drawn on the generator's own device: the same shifts wherever the images are.
        where = torch.device("cpu") if generator is None else generator.device
        shifts = torch.randint(0, 2 * self.pad + 1, (2, count, 1), generator=generator, device=where)
        mirrored = torch.randint(0, 2, (count, 1), generator=generator, device=where).bool() & self.flip
        across = torch.arange(width, device=where)
        columns = shifts[1] + torch.where(mirrored, across.flip(0), across)
        rows = shifts[0] + torch.arange(height, device=where)
        padded = functional.pad(images, (self.pad,) * 4)
        rows, columns = rows.to(images.device), columns.to(images.device)
        # One gather for the batch; the channel axis comes last where a slice stands between indices.
        each = torch.arange(count, device=images.device)[:, None, None]
        return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
