"""A network that was trained elsewhere becomes a Bayesian one, without training."""

from .curvature import laplace
from .result import PostHoc
from .snapshots import swag

__all__ = ["PostHoc", "laplace", "swag"]
