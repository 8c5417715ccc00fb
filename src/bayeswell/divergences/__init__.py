"""How KL(q || p) is got."""

from ..registry import Registry
from ..types import Divergence
from .analytic import Analytic
from .monte_carlo import MonteCarlo, PathDerivative, ScoreFunction

DIVERGENCES: Registry[Divergence] = Registry(
    "divergence",
    *(Analytic, MonteCarlo, PathDerivative, ScoreFunction),
    requires=("__call__",),
    protocol=Divergence,
)
"""Divergences by name: how KL(q || p) is got."""

__all__ = ["DIVERGENCES", "Analytic", "MonteCarlo", "PathDerivative", "ScoreFunction"]
