"""Any network becomes a Bayesian one."""

from .calibrated import uncalibrated, with_scaled_stds
from .continuing import Trained, continued
from .description import Description, Row
from .dropout import DrawnDropout, put_in_dropout, with_drawn_dropout
from .freezing import moving_statistics
from .lift import STARTS, bayesian
from .module import BayesianModule
from .redrawing import looks_trained
from .saving import Saved, load, save, save_adapter
from .where import FROZEN, TRAINED, Where, require_rest

__all__ = [
    "FROZEN",
    "STARTS",
    "TRAINED",
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
    "moving_statistics",
    "put_in_dropout",
    "require_rest",
    "save",
    "save_adapter",
    "uncalibrated",
    "with_drawn_dropout",
    "with_scaled_stds",
]
