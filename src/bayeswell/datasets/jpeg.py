"""What JPEG does to a picture: the cosine coefficients of its blocks are rounded. No file is written."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def quantised(images: Tensor, quality: int) -> Tensor:
    """The cosine coefficients of 8x8 blocks rounded to the steps of JPEG's tables at a quality from 1 to 99."""
    factor = 50 / quality if quality < 50 else 2 - quality / 50
    height, width = images.shape[2:]
    padded = functional.pad(images, (0, -width % 8, 0, -height % 8), mode="replicate")
    planes = _to_luma(padded) if images.shape[1] == 3 else padded
    planes = planes * 255 - 128
    cosines = _cosines(images)
    blocks = planes.unfold(2, 8, 8).unfold(3, 8, 8)  # (n, C, rows, columns, 8, 8)
    tables = images.new_tensor([_LUMA_STEPS, _CHROMA_STEPS, _CHROMA_STEPS][: images.shape[1]]).reshape(-1, 1, 1, 8, 8)
    steps = (tables * factor).round().clamp(1, 255)
    rounded = torch.round(cosines @ blocks @ cosines.T / steps) * steps
    planes = (cosines.T @ rounded @ cosines).transpose(3, 4).reshape(padded.shape)
    planes = (planes + 128) / 255
    result = _from_luma(planes) if images.shape[1] == 3 else planes
    return result[:, :, :height, :width]


def _cosines(like: Tensor) -> Tensor:
    """The orthonormal 8-point discrete cosine transform."""
    place = torch.arange(8, dtype=torch.float64)
    rows = torch.cos(math.pi / 8 * (place + 0.5) * place[:, None]) / 2
    rows[0] /= math.sqrt(2)
    return rows.to(like.device, like.dtype)


def _to_luma(images: Tensor) -> Tensor:
    """RGB in [0, 1] to JPEG's Y, Cb, Cr, also in [0, 1]."""
    red, green, blue = images.unbind(dim=1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return torch.stack([luma, 0.5 + (blue - luma) / 1.772, 0.5 + (red - luma) / 1.402], dim=1)


def _from_luma(planes: Tensor) -> Tensor:
    luma, blue_part, red_part = planes.unbind(dim=1)
    red = luma + 1.402 * (red_part - 0.5)
    blue = luma + 1.772 * (blue_part - 0.5)
    return torch.stack([red, (luma - 0.299 * red - 0.114 * blue) / 0.587, blue], dim=1)


_LUMA_STEPS = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA_STEPS = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)
"""The quantisation steps of annex K of the JPEG standard (ITU-T T.81)."""
