"""Where standard deviations start."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import require_positive
from ..types import Prior

STD_TO_PRIOR_STD = math.exp(-3)
"""Variational Laplace, appendix: log std starts at log(prior std) - 3."""


def check_initial_std(owner: str, initial_std: float | None) -> None:
    """Refuse a standard deviation that is not above zero."""
    if initial_std is not None:
        require_positive(owner, "initial_std", initial_std)


def initial_std_vector(initial_std: float | None, prior: Prior) -> Tensor:
    """(P,): the given std for every weight, or exp(-3) times its prior std."""
    prior_std = prior.std_vector()
    if initial_std is None:
        return prior_std * STD_TO_PRIOR_STD
    return torch.full_like(prior_std, initial_std)
