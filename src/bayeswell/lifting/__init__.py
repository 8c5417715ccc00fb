"""Any network becomes a Bayesian one."""

from .calibrated import uncalibrated, with_scaled_stds
from .continuing import Trained, continued
from .description import Description, Row
from .dropout import DrawnDropout, put_in_dropout, with_drawn_dropout
from .lift import STARTS, bayesian
from .module import BayesianModule
from .redrawing import looks_trained
from .saving import Saved, load, save, save_adapter
from .where import Where

__all__ = [
    "STARTS",
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
    "looks_trained",
    "put_in_dropout",
    "save",
    "save_adapter",
    "uncalibrated",
    "with_drawn_dropout",
    "with_scaled_stds",
]
