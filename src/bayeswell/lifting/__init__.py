"""Any network becomes a Bayesian one."""

from .description import Description, Row
from .module import BayesianModule, bayesian
from .where import Where

__all__ = ["BayesianModule", "Description", "Row", "Where", "bayesian"]
