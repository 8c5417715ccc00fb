"""What comes after training: a trained model and its data become another posterior."""

from ..registry import Registry
from .contracts import FinisherPart
from .laplace import LaplaceApproximation

FINISHERS: Registry[FinisherPart] = Registry("finisher", LaplaceApproximation)

__all__ = ["FINISHERS", "FinisherPart", "LaplaceApproximation"]
