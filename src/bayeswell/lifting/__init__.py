"""Any network becomes a Bayesian one."""

from .description import Description, Row
from .module import BayesianModule, bayesian
from .saving import Saved, load, save
from .where import Where

__all__ = ["BayesianModule", "Description", "Row", "Saved", "Where", "bayesian", "load", "save"]
