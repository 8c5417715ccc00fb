"""A Bayesian network for real numbers, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin

from ..errors import SettingError, require_between
from ..likelihoods import LIKELIHOODS, Gaussian
from ..predictive import RealPrediction
from .estimator import BayesianEstimator
from .going_on import WhileItCanGoOn
from .measure import Array, Rows


class BayesianRegressor(RegressorMixin, BayesianEstimator):  # type: ignore[misc]
    """Means and stds of a posterior of networks, the noise included.

    Args:
        method: any name of ``bayeswell.fit`` ("auto", "bbb", "k-tied", "swag", "sghmc", ...), or a ``Method``.
        network: None (one hidden layer of 50), hidden sizes such as ``(50, 50)``, the name of a model, an ``nn.Module``
            (copied), or a function of ``(n_features, n_outputs)`` that returns one.
        likelihood: None: Gaussian noise with a learned std for each target; or ``{"name": "gaussian", "noise":
            "per_input"}``, "student_t", "poisson", ... as in ``fit``.
        epochs: passes over the data; None: as many as make 500 steps, between 10 and 100.
        batch_size: None: as in ``fit``.
        temperature: of the posterior: "auto", or a number; 1 is Bayes' rule.
        draws: networks that a prediction averages over.
        standardise: inputs and real targets are brought to mean 0 and std 1, as the training data have it; predictions
            and a known noise std are in the units of y.
        early_stopping: True, or how many epochs (True: 10) without a better held-out NLL to wait for; the weights of
            the best epoch are kept. Needs a method that is no average; "auto" then leaves out its own.
        validation_fraction: share of the different rows that early stopping holds out.
        calibrate: as in ``fit``: a factor of the noise std and a scale of the stds, by held-out NLL.
        warm_start: ``fit`` goes on where the last one ended. So does one network: members do not go on together.
        random_state: decides start, order, noise and draws. None: another one each time.
        settings: any further setting of ``fit`` by name: ``{"prior": "normal", "lr": 0.003, "where": "last_layer"}``.
        verbose: show a progress bar.

    ``result_`` is what ``fit`` returned; ``predict_distribution`` splits the uncertainty.
    """

    _targets: ClassVar[Mapping[str, Any]] = {"y_numeric": True, "multi_output": True}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on (n, features) inputs and (n,) or (n, outputs) targets; a weight of 2 is the row met twice."""
        return self._fit(X, y, sample_weight)

    @WhileItCanGoOn
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn further rows, each to be given once.

        The trained posterior is the next prior (sequential Bayes) where the method's posterior is a distribution of its
        own; others (map, swag, laplace, ivon) go on training on the new rows alone. Scales are those of the first call.
        The first call trains one network, also with "auto"; of several (members, chains) there is no partial_fit.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """The mean, of the shape of y; with ``return_std`` (as other regressors have it) also the std, with noise."""
        found = self.predict_distribution(X)
        return (self._shaped(found.mean), self._shaped(found.std)) if return_std else self._shaped(found.mean)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper ends of the central interval for y, noise included, each of the shape of y."""
        require_between("predict_interval", "coverage", coverage, 0, 1, open_low=True, open_high=True)
        lower, upper = self.predict_distribution(X).interval(coverage, seed=self._seed)
        return self._shaped(lower), self._shaped(upper)

    def predict_distribution(self, X: Any) -> RealPrediction:
        """Mean and variance in the units of y, (n, outputs): ``aleatoric`` + ``epistemic`` = ``variance``."""
        found = self._predicted(X)
        if not isinstance(found, RealPrediction):
            raise SettingError(f"likelihood = {self.likelihood!r} predicts no real numbers; use 'gaussian'")
        return found

    def _shaped(self, numbers: torch.Tensor) -> Array:
        return numbers.reshape(-1, *self._target_shape).detach().numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _learn_targets(self, targets: Array) -> None:
        self._target_shape = targets.shape[1:]

    def _encoded(self, targets: Array) -> Array:
        if targets.shape[1:] != self._target_shape:
            raise SettingError(f"y has outputs {targets.shape[1:]}; the first call had {self._target_shape}")
        return np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)

    def _likelihood_and_outputs(self, rows: Rows) -> tuple[Any, int]:
        outputs = int(np.prod(self._target_shape))
        if self.likelihood is None:
            several = outputs > 1
            return Gaussian("per_output", outputs=outputs) if several else Gaussian(), outputs
        part = LIKELIHOODS.resolve(self.likelihood)
        return self.likelihood, 2 * outputs if getattr(part, "noise", None) == "per_input" else outputs
