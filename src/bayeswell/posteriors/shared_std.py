"""Gaussian weights with means of their own and one std for all weights of a layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import SettingError, nearest
from ..tree import Layout, Site
from ..types import ENTROPY, FACTORISED, LOG_PROB, WEIGHT_SAMPLE, Posterior, Prior
from ..types.posterior import rows_of
from .factorised import FactorisedPosterior
from .start import check_initial_std, initial_std_vector
from .std_forms import FROM_LOG_STD

_BY = ("layer", "tensor", "all")


class SharedStdPosterior(FactorisedPosterior):
    """Trainable state: ``mean`` and ``shared_log_std``, one number for each of ``owners``."""

    std_form = FROM_LOG_STD
    can_scale_stds = True

    def __init__(self, layout: Layout, means: Tensor, stds: Tensor, by: str) -> None:
        super().__init__(layout, means)
        named = [_owner(site, by) for site in layout.sites]
        self.by, self.owners = by, tuple(dict.fromkeys(named))
        self._places = [self.owners.index(owner) for owner in named]
        logs, counts = torch.zeros(len(self.owners)), torch.zeros(len(self.owners))
        for site, place in zip(layout.sites, self._places, strict=True):
            logs[place] += float(stds[layout.slices[site.name]].double().log().sum())
            counts[place] += site.size
        self.shared_log_std = nn.Parameter((logs / counts).to(stds))

    def std_state(self) -> Tensor:
        """The log std of each weight's owner."""
        owned = zip(self.layout.sites, self._places, strict=True)
        return torch.cat([self.shared_log_std[place].expand(site.size) for site, place in owned])

    @torch.no_grad()
    def scale_stds(self, factor: float) -> None:
        """shared_log_std + log(factor)."""
        self.shared_log_std.add_(math.log(factor))

    def rows_by_site(self, name: str, parameter: Tensor) -> list[tuple[str, int, int]]:
        """Rows of ``shared_log_std`` belong to one parameter of the network each only where they are shared by it."""
        if parameter is self.shared_log_std:
            return rows_of([(owner if self.by == "tensor" else name, 1) for owner in self.owners])
        return super().rows_by_site(name, parameter)

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return f"shared_std (of '{_owner(site, self.by)}')" if self.by == "layer" else f"shared_std (by {self.by})"


def _owner(site: Site, by: str) -> str:
    return {"layer": site.name.rpartition(".")[0], "tensor": site.name, "all": ""}[by]


@dataclass(frozen=True)
class SharedStd:
    """Independent Gaussian weights, each with its own mean, and one std for all weights of a layer.

    q(w_l) = N(mean_l, std_l^2 I), as HWA's section 3.2 writes its candidates; the means must be free, or nothing could
    be learned. ``by`` says who shares: "layer" (weight and bias of a module), "tensor" (each parameter alone) or "all".
    The stds of a layer start at the geometric mean of what ``mean_field`` would start with.
    """

    by: str = "layer"
    initial_std: float | None = None

    name: ClassVar[str] = "shared_std"
    paper: ClassVar[str] = "Hyperparameters Weight Averaging (HWA), section 3.2"
    provides: ClassVar[frozenset[str]] = frozenset({FACTORISED, WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        check_initial_std(self.name, self.initial_std)
        if self.by not in _BY:
            raise SettingError(f"shared_std: by = {self.by!r}; {nearest(str(self.by), _BY)}")

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """Trainable state over the layout."""
        return SharedStdPosterior(layout, means, initial_std_vector(self.initial_std, prior), self.by)
