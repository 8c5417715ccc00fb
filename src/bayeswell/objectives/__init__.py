"""What training minimises."""

from .elbo import ELBO
from .loss import Loss

__all__ = ["ELBO", "Loss"]
