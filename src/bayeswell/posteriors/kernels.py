"""Kernels of convolutions in a flat vector of weights, drawn with the channels of a position together in memory."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from ..tree import Layout


class ChannelsLastKernels:
    """Which sites of a layout are drawn so: ``table`` tells ``native.fresh_draws``, ``views`` finds them again."""

    def __init__(self, layout: Layout, names: Collection[str]) -> None:
        self._layout = layout
        self._sites = [site for site in layout.sites if any(name in names for name in site.names)]
        rows = [
            (layout.slices[site.name].start, site.shape[0], site.shape[1], site.shape[2] * site.shape[3])
            for site in self._sites
        ]
        self.table = torch.tensor(rows, dtype=torch.int64, device="cpu").view(-1, 4)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """All tensors by name, as ``Layout.views``, with these kernels where and how they lie in the vector."""
        tensors = self._layout.views(flat)
        for site in self._sites:
            _, channels, height, width = site.shape
            strides = (channels * height * width, 1, channels * width, channels)
            place = flat.storage_offset() + self._layout.slices[site.name].start
            tensors |= dict.fromkeys(site.names, flat.as_strided(site.shape, strides, place))
        return tensors
