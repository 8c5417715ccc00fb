"""A network that was trained elsewhere becomes a Bayesian one, without training."""

from .laplace import laplace
from .result import PostHoc
from .swag import swag

__all__ = ["PostHoc", "laplace", "swag"]
