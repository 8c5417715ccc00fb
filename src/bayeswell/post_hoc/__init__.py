"""What comes after training: a trained model and its data become another posterior."""

from ..registry import Registry
from ..types import PostHocPart
from .laplace import LaplaceApproximation

POST_HOC: Registry[PostHocPart] = Registry("post_hoc", LaplaceApproximation, requires=("finish",), protocol=PostHocPart)
"""What makes a network Bayesian after it was trained, by name."""

__all__ = ["POST_HOC", "LaplaceApproximation", "PostHocPart"]
