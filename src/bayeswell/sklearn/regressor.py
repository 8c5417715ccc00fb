"""A Bayesian network for real numbers, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if

from ..core.errors import DataError, SettingError
from ..likelihoods import LIKELIHOODS, Gaussian
from ..prediction import RealPrediction
from .estimator import BayesianEstimator, has_one_network
from .rows import Array


class BayesianRegressor(RegressorMixin, BayesianEstimator):  # type: ignore[misc]
    """Means and stds of a posterior of networks, noise included.

    The parameters are those of ``BayesianClassifier`` without ``class_weight``. ``likelihood=None`` is Gaussian noise
    with a learned std for each target; others are ``{"name": "gaussian", "noise": "per_input"}``, "poisson",
    ... ``standardize`` scales real targets too: predictions and a known noise std are in the units of y.
    """

    _target_checks: ClassVar[Mapping[str, Any]] = {"y_numeric": True, "multi_output": True}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on (n, features) inputs and (n,) or (n, outputs) targets; a weight of 2 is the row twice."""
        return self._fit(X, y, sample_weight)

    @available_if(has_one_network)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn further rows, each to be given once, as in ``BayesianClassifier.partial_fit``."""
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the mean, of the shape of y; with ``return_std`` also the std, noise included."""
        found = self.predict_distribution(X)
        mean = self._shaped(found.mean)
        return (mean, self._shaped(found.std)) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return the ends of the central interval for y, noise included, each of the shape of y."""
        lower, upper = self.predict_distribution(X).interval(coverage, seed=self._seed)
        return self._shaped(lower), self._shaped(upper)

    def predict_distribution(self, X: Any) -> RealPrediction:
        """Return mean and variance in the units of y: ``aleatoric`` + ``epistemic`` = ``variance``."""
        found = self._predict(X)
        if not isinstance(found, RealPrediction):
            raise SettingError(f"likelihood = {self.likelihood!r} predicts no real numbers; use 'gaussian'")
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _shaped(self, numbers: torch.Tensor) -> Array:
        return numbers.reshape(-1, *self._target_shape).detach().numpy()

    def _learn_targets(self, targets: Array) -> None:
        self._target_shape = targets.shape[1:]

    def _encode(self, targets: Array) -> Array:
        if targets.shape[1:] != self._target_shape:
            raise DataError(f"y has targets of shape {targets.shape[1:]}; the first call had {self._target_shape}")
        return np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)

    def _likelihood_and_outputs(self, targets: Array) -> tuple[Any, int]:
        outputs = targets.shape[1]
        if self.likelihood is None:
            return (Gaussian("per_output", outputs=outputs) if outputs > 1 else Gaussian()), outputs
        part = LIKELIHOODS.resolve(self.likelihood)
        return self.likelihood, 2 * outputs if getattr(part, "noise", None) == "per_input" else outputs
