"""What training minimises."""

from .elbo import ELBO

__all__ = ["ELBO"]
