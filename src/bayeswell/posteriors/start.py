"""Initial standard deviations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import check_number
from ..core.protocols import Prior

STD_OVER_PRIOR_STD = math.exp(-3)
"""Variational Laplace, appendix: log std starts at log(prior std) - 3."""


def check_initial_std(owner: str, initial_std: float | None) -> None:
    if initial_std is not None:
        check_number(owner, "initial_std", initial_std, 0, above=True)


def initial_stds(initial_std: float | None, prior: Prior) -> Tensor:
    """Return (P,) stds: ``initial_std``, or exp(-3) times the prior's."""
    prior_std = prior.std().detach()
    return prior_std * STD_OVER_PRIOR_STD if initial_std is None else torch.full_like(prior_std, initial_std)
