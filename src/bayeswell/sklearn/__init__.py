"""Bayesian networks as scikit-learn estimators, for pipelines, grids, calibration and conformal prediction.

Any method of ``fit`` behind the interface that ``Pipeline``, ``GridSearchCV`` and their kin know. Making, cloning and
pickling an estimator costs nothing: networks are made in ``fit``. Needs the extra ``sklearn``, and nothing of the lab.
"""

from __future__ import annotations

from ..extras import needs_extra

with needs_extra("sklearn", "bayeswell.sklearn"):
    from .classifier import BayesianClassifier
    from .regressor import BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianRegressor"]
