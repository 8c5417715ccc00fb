"""Bayesian networks as scikit-learn estimators: pipelines, grid search, calibration, conformal prediction."""

from __future__ import annotations

from ..core.errors import MissingExtra

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("bayeswell.sklearn needs scikit-learn: pip install 'bayeswell[sklearn]'") from error

from .classifier import BayesianClassifier
from .regressor import BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianRegressor"]
