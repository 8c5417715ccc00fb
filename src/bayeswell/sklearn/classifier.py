"""A Bayesian network that tells classes apart, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from ..errors import DataError, SettingError
from ..likelihoods import Categorical
from ..methods import Method
from ..predictive import ClassPrediction
from .estimator import BayesianEstimator
from .going_on import WhileItCanGoOn
from .measure import Array, Rows


class BayesianClassifier(ClassifierMixin, BayesianEstimator):  # type: ignore[misc]
    """Class probabilities averaged over a posterior of networks.

    Args:
        method: any name of ``bayeswell.fit`` ("auto", "bbb", "k-tied", "swag", "sghmc", ...), or a ``Method``.
        network: None (one hidden layer of 50), hidden sizes such as ``(50, 50)``, the name of a model, an ``nn.Module``
            (copied; K outputs for K classes), or a function of ``(n_features, n_outputs)`` that returns one.
        likelihood: None: categorical; else as in ``fit``.
        epochs: passes over the data; None: as many as make 500 steps, between 10 and 100.
        batch_size: None: as in ``fit``.
        temperature: of the posterior: "auto", or a number; 1 is Bayes' rule.
        draws: networks that a prediction averages over.
        standardise: inputs are brought to mean 0 and std 1, as the training data have it.
        class_weight: None, "balanced", or {class: weight}: the NLL of a label counts so many times.
        early_stopping: True, or how many epochs (True: 10) without a better held-out NLL to wait for; the weights of
            the best epoch are kept. Needs a method that is no average; "auto" then leaves out its own.
        validation_fraction: share of the different rows that early stopping holds out.
        calibrate: as in ``fit``: a temperature of the logits and a scale of the stds, by held-out NLL.
        warm_start: ``fit`` goes on where the last one ended. So does one network: members do not go on together.
        random_state: decides start, order, noise and draws. None: another one each time.
        settings: any further setting of ``fit`` by name: ``{"prior": "normal", "lr": 0.003, "where": "last_layer"}``.
        verbose: show a progress bar.

    ``result_`` is what ``fit`` returned; ``predict_distribution`` splits the uncertainty.
    """

    def __init__(
        self,
        method: str | Method = "auto",
        network: Any = None,
        *,
        likelihood: Any = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        temperature: float | str = "auto",
        draws: int = 100,
        standardise: bool = True,
        class_weight: str | Mapping[Any, float] | None = None,
        early_stopping: bool | int = False,
        validation_fraction: float = 0.1,
        calibrate: bool | int | float = False,
        warm_start: bool = False,
        random_state: Any = None,
        settings: Mapping[str, Any] | None = None,
        verbose: bool | int = False,
    ) -> None:
        super().__init__(
            method, network, likelihood=likelihood, epochs=epochs, batch_size=batch_size, temperature=temperature,
            draws=draws, standardise=standardise, early_stopping=early_stopping,
            validation_fraction=validation_fraction, calibrate=calibrate, warm_start=warm_start,
            random_state=random_state, settings=settings, verbose=verbose,
        )  # fmt: skip
        self.class_weight = class_weight

    _targets: ClassVar[Mapping[str, Any]] = {}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on (n, features) inputs and n labels of any kind; a weight of 2 is the row met twice."""
        return self._fit(X, y, sample_weight)

    @WhileItCanGoOn
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn further rows, each to be given once; the first call names all ``classes``.

        The trained posterior is the next prior (sequential Bayes) where the method's posterior is a distribution of its
        own; others (map, swag, laplace, ivon) go on training on the new rows alone. Scales are those of the first call.
        The first call trains one network, also with "auto"; of several (members, chains) there is no partial_fit.
        """
        if not hasattr(self, "result_"):
            if classes is None:
                raise SettingError("partial_fit: classes must be given in the first call: all that will ever be met")
            self._told_classes = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise SettingError(f"partial_fit: classes = {classes!r}; the first call had {self.classes_.tolist()}")
        if self.class_weight == "balanced":
            raise SettingError("partial_fit: class_weight = 'balanced' needs all data at once; give {class: weight}")
        try:
            return self._partial_fit(X, y, sample_weight)
        finally:
            self.__dict__.pop("_told_classes", None)

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
        """Probabilities with their uncertainty in nats: ``aleatoric`` + ``epistemic`` = ``entropy``."""
        found = self._predicted(X)
        if not isinstance(found, ClassPrediction):
            raise SettingError(f"likelihood = {self.likelihood!r} predicts no classes; use 'categorical'")
        return found

    def _learn_targets(self, targets: Array) -> None:
        check_classification_targets(targets)
        told = getattr(self, "_told_classes", None)
        self.classes_ = np.unique(targets) if told is None else told
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise DataError(f"{type(self).__name__} needs at least 2 classes; the data have 1 class, {only!r}")

    def _encoded(self, targets: Array) -> Array:
        known = np.isin(targets, self.classes_)
        if not known.all():
            new = np.unique(targets[~known]).tolist()
            raise DataError(f"y has classes {new} that are not among those of the first call, {self.classes_.tolist()}")
        return np.searchsorted(self.classes_, targets)

    def _likelihood_and_outputs(self, rows: Rows) -> tuple[Any, int]:
        outputs = len(self.classes_)
        if self.class_weight is None:
            return self.likelihood if self.likelihood is not None else "categorical", outputs
        if self.likelihood is not None:
            raise SettingError("class_weight and likelihood: give class_weights in the likelihood, or leave one out")
        labels = self.classes_[rows.targets]
        weights = compute_class_weight(self.class_weight, classes=self.classes_, y=labels, sample_weight=rows.weights)
        return Categorical(class_weights=tuple(map(float, weights))), outputs
