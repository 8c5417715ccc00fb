"""Gaussian weights with one mean each, and one std for all weights of a layer or of the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import check_choice
from ..core.layout import Layout, Site
from ..core.protocols import ENTROPY, FACTORIZED, LOG_PROB, WEIGHT_SAMPLE, Posterior, Prior
from .factorized import FactorizedPosterior, check_initial_std, initial_stds


class SharedStdPosterior(FactorizedPosterior):
    """Trainable state: ``mean`` and ``shared_log_std``, one number for each of ``owners``."""

    def __init__(self, part: SharedStd, layout: Layout, mean: Tensor, std: Tensor) -> None:
        super().__init__(part, layout, mean)
        owner_of_site = [part.owner(site) for site in layout.sites]
        self.owners = list(dict.fromkeys(owner_of_site))
        self._indices = [self.owners.index(owner) for owner in owner_of_site]
        pieces = std.log().split(layout.sizes)
        by_owner = [
            torch.cat([piece for piece, index in zip(pieces, self._indices, strict=True) if index == owner])
            for owner in range(len(self.owners))
        ]
        self.shared_log_std = nn.Parameter(torch.stack([logs.mean() for logs in by_owner]))

    def std_or_log_std(self) -> Tensor:
        """The log std of each weight's owner."""
        return self.layout.repeat_by_site(self.shared_log_std[self._indices])


@dataclass(frozen=True)
class SharedStd:
    """Gaussian weights with one mean each, and one std for all weights of a layer: N(mean_l, std_l^2 I).

    The candidate posteriors of HWA's section 3.2. Each std starts at the geometric mean of those of ``mean_field``.

    Args:
        by: "layer" (weight and bias of a module), "tensor" (each parameter) or "all" (the network).
        initial_std: as in ``MeanField``.
    """

    by: str = "layer"
    initial_std: float | None = None

    name: ClassVar[str] = "shared_std"
    paper: ClassVar[str] = "Hyperparameters Weight Averaging (HWA), section 3.2"
    provides: ClassVar[frozenset[str]] = frozenset({FACTORIZED, WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        check_initial_std(self.name, self.initial_std)
        check_choice(self.name, "by", self.by, ("layer", "tensor", "all"))

    def owner(self, site: Site) -> str:
        """Return the name of the layer or parameter whose std this is; "" for the network."""
        return {"layer": site.name.rpartition(".")[0], "tensor": site.name, "all": ""}[self.by]

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        return SharedStdPosterior(self, layout, mean, initial_stds(self.initial_std, prior))
