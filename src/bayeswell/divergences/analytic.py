"""The closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..types import ENTROPY, Posterior, Prior


@dataclass(frozen=True)
class Analytic:
    """KL = -H[q] - E_q[log p], exactly: no noise in value or gradient. For a delta it is -log p(w)."""

    name: ClassVar[str] = "analytic"
    paper: ClassVar[str] = "Kingma & Welling 2014, appendix B"
    needs: ClassVar[frozenset[str]] = frozenset({ENTROPY})
    takes_keys: ClassVar[bool] = True

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """Draws and KL in one pass."""
        return posterior.sample_and_kl(noise, prior)
