"""A Bayesian network for classes, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from ..core.errors import DataError, SettingError
from ..likelihoods import Categorical
from ..methods import Method
from ..prediction import ClassPrediction
from .estimator import BayesianEstimator, has_one_network
from .rows import Array


class BayesianClassifier(ClassifierMixin, BayesianEstimator):  # type: ignore[misc]
    """Class probabilities averaged over a posterior of networks.

    Args:
        method: any name of ``bayeswell.fit`` ("auto", "bbb", "swag", "laplace", ...), or a ``Method``.
        network: None (one hidden layer of 50), hidden sizes such as ``(50, 50)``, an ``nn.Module`` (copied; K outputs
            for K classes), or a function of ``(features, outputs)`` that returns one.
        likelihood: None: categorical; else as in ``fit``.
        epochs: passes over the data; None: as many as make 500 steps, between 10 and 100.
        draws: networks that a prediction averages over.
        standardize: scale inputs to mean 0 and std 1 of the training rows.
        class_weight: None, "balanced", or {class: weight}: factor on the NLL of a class.
        early_stopping: True, or the epochs (True: 10) to wait for a better held-out NLL. The weights of the best epoch
            are kept, so the method must not average; "auto" then leaves out its averaging.
        validation_fraction: share of the rows that early stopping holds out.
        warm_start: ``fit`` continues where the last one ended, with one network.
        random_state: of start, order, noise and draws.
        settings: further settings of ``fit`` by name: ``{"lr": 0.003, "temperature": 1, "batch_size": 32}``.

    ``result_`` is the result of ``fit``.
    """

    def __init__(
        self,
        method: str | Method = "auto",
        network: Any = None,
        *,
        likelihood: Any = None,
        epochs: int | None = None,
        draws: int = 100,
        standardize: bool = True,
        class_weight: str | Mapping[Any, float] | None = None,
        early_stopping: bool | int = False,
        validation_fraction: float = 0.1,
        warm_start: bool = False,
        random_state: Any = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            method, network, likelihood=likelihood, epochs=epochs, draws=draws, standardize=standardize,
            early_stopping=early_stopping, validation_fraction=validation_fraction, warm_start=warm_start,
            random_state=random_state, settings=settings,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on (n, features) inputs and n labels of any kind; a weight of 2 is the row twice."""
        self._named_classes: Array | None = None
        return self._fit(X, y, sample_weight)

    @available_if(has_one_network)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn further rows, each to be given once; the first call names all ``classes``.

        The trained posterior is the next prior (sequential Bayes) where the method has a posterior of its own; others
        (map, swag, laplace, ivon) continue training on the new rows alone. Scales are those of the first call.
        """
        if self.class_weight == "balanced":
            raise SettingError("partial_fit: class_weight='balanced' needs all data at once; give {class: weight}")
        if not hasattr(self, "result_"):
            if classes is None:
                raise SettingError("partial_fit: the first call needs `classes`, all that will ever occur")
            self._named_classes = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise SettingError(f"partial_fit: `classes` = {classes!r}; the first call had {self.classes_.tolist()}")
        return self._partial_fit(X, y, sample_weight)

    def predict_proba(self, X: Any) -> Array:
        """(n, K): probabilities of ``classes_``, averaged over draws of the posterior."""
        return self.predict_distribution(X).probabilities.numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: Any) -> Array:
        """(n,): the most probable class."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(1)])

    def predict_distribution(self, X: Any) -> ClassPrediction:
        """Return probabilities with their uncertainty in nats: ``aleatoric`` + ``epistemic`` = ``entropy``."""
        found = self._predict(X)
        if not isinstance(found, ClassPrediction):
            raise SettingError(f"likelihood = {self.likelihood!r} predicts no classes; use 'categorical'")
        return found

    def _learn_targets(self, targets: Array) -> None:
        check_classification_targets(targets)
        self.classes_ = np.unique(targets) if self._named_classes is None else self._named_classes
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise DataError(f"{type(self).__name__} needs at least 2 classes; the data have 1 class, {only!r}")

    def _encode(self, targets: Array) -> Array:
        new = np.setdiff1d(targets, self.classes_).tolist()
        if new:
            raise DataError(f"y has classes {new} that are not among those of the first call, {self.classes_.tolist()}")
        return np.searchsorted(self.classes_, targets)

    def _likelihood_and_outputs(self, targets: Array) -> tuple[Any, int]:
        outputs = len(self.classes_)
        if self.class_weight is None:
            return "categorical" if self.likelihood is None else self.likelihood, outputs
        if self.likelihood is not None:
            raise SettingError(
                "`class_weight` and `likelihood` exclude each other; set class_weights in the likelihood"
            )
        weights = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[targets])
        return Categorical(class_weights=tuple(map(float, weights))), outputs
