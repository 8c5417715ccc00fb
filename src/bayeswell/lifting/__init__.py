"""Any network becomes a Bayesian one."""

from .calibrated import uncalibrated, with_scaled_stds
from .continuing import Trained, continued
from .description import Description, Row
from .dropout import DrawnDropout, with_drawn_dropout
from .lift import bayesian
from .module import BayesianModule
from .saving import Saved, load, save
from .where import Where

__all__ = [
    "BayesianModule",
    "Description",
    "DrawnDropout",
    "Row",
    "Saved",
    "Trained",
    "Where",
    "bayesian",
    "continued",
    "load",
    "save",
    "uncalibrated",
    "with_drawn_dropout",
    "with_scaled_stds",
]
