"""What classifier and regressor share: from validated arrays to ``fit``, and from its result to predictions."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..errors import CompositionError, SettingError, require_between, require_count
from ..methods import Method, find_method
from ..posteriors import POSTERIORS
from ..predictive import ClassPrediction, RealPrediction
from ..training import Result, fit
from ..training.data import batch_count, usual_batch_size
from ..types import BANK, LOG_PROB, POINT
from .measure import Array, Rows, counted, merged, written_out
from .networks import network_for

STEPS, LEAST_EPOCHS, MOST_EPOCHS = 500, 10, 100
"""``epochs=None``: as many as make so many steps, within these limits."""

PATIENCE = 10
_PREDICTED_AT_ONCE = 10_000


class BayesianEstimator(BaseEstimator):  # type: ignore[misc]
    """The parameters are said in ``BayesianClassifier`` and ``BayesianRegressor``."""

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
        early_stopping: bool | int = False,
        validation_fraction: float = 0.1,
        calibrate: bool | int | float = False,
        warm_start: bool = False,
        random_state: Any = None,
        settings: Mapping[str, Any] | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.method = method
        self.network = network
        self.likelihood = likelihood
        self.epochs = epochs
        self.batch_size = batch_size
        self.temperature = temperature
        self.draws = draws
        self.standardise = standardise
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.warm_start = warm_start
        self.random_state = random_state
        self.settings = settings
        self.verbose = verbose

    # What the two kinds say for themselves.

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        """Inputs as real numbers, and targets as they were given."""
        raise NotImplementedError

    def _learn_targets(self, targets: Array, weights: Array | None) -> None:
        """Remember what is fixed once of the targets: classes, number of outputs."""
        raise NotImplementedError

    def _encoded(self, targets: Array) -> Array:
        """Targets as numbers."""
        raise NotImplementedError

    def _scale_targets(self, rows: Rows) -> None:
        """Learn the scale of the targets, where they have one."""
        raise NotImplementedError

    def _targets_for_training(self, targets: Array) -> Array:
        """Encoded targets as the likelihood takes them."""
        raise NotImplementedError

    def _likelihood_and_outputs(self, rows: Rows) -> tuple[Any, int]:
        """The likelihood, and how many outputs the network has for it."""
        raise NotImplementedError

    # Learning.

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        goes_on = bool(self.warm_start) and hasattr(self, "result_")
        self._learn(X, y, sample_weight, goes_on=goes_on, one_network=bool(self.warm_start), sequential=False)
        return self

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        goes_on = hasattr(self, "result_")
        self._learn(X, y, sample_weight, goes_on=goes_on, one_network=True, sequential=goes_on)
        return self

    def _learn(
        self, X: Any, y: Any, sample_weight: Any, *, goes_on: bool, one_network: bool, sequential: bool
    ) -> None:
        self._require_settings()
        inputs, targets = self._checked(X, y, reset=not goes_on)
        given, weights = len(inputs), None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, inputs, dtype=np.float64, ensure_non_negative=True)
        chosen = counted(weights, given)
        targets, weights = targets[chosen], None if weights is None else weights[chosen]
        if not goes_on:
            self._learn_targets(targets, weights)
        rows = merged(Rows(inputs[chosen], self._encoded(targets), weights))
        seed = self._seed if goes_on else int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        rows, held_out = self._split(rows, seed, given)
        if not goes_on:
            self._learn_scales(rows)
        likelihood, outputs = self._likelihood_and_outputs(rows)
        data = self._scaled(rows)
        start: Any = self.result_ if goes_on else None
        if start is None:
            dtype = torch.float32 if data.inputs.dtype == np.float32 else torch.float64
            start = network_for(self.network, self.n_features_in_, outputs, dtype, seed)
        settings: dict[str, Any] = {
            "method": self.method,
            "likelihood": None if goes_on else copy.deepcopy(likelihood),  # what it learns is not a parameter
            "epochs": self._epochs(len(rows)),
            "batch_size": self.batch_size,
            "seed": seed,
            "progress": bool(self.verbose),
            "calibrate": self.calibrate,
            **self._method_settings(one_network),
        }
        if held_out is not None:
            settings |= {"validation": self._scaled(held_out).data()[:2], "early_stopping": self._patience}
        train = _updated if sequential else _trained
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.result_ = train(start, data, settings)
        self._seed = seed
        self.n_iter_ = max(len(history.epochs) for history in self.result_.histories)
        # Each once, at the caller's line, where the result cannot be lost by a filter that makes errors of them.
        for category, line in dict.fromkeys((warning.category, str(warning.message)) for warning in said):
            warnings.warn(line, category, stacklevel=4)

    def _require_settings(self) -> None:
        name = type(self).__name__
        if self.epochs is not None:
            require_count(name, "epochs", self.epochs)
        require_count(name, "draws", self.draws)
        if self.early_stopping:
            require_between(
                name, "validation_fraction", self.validation_fraction, 0, 1, open_low=True, open_high=True
            )
        if self.settings is not None and not isinstance(self.settings, Mapping):
            raise SettingError(f"{name}: settings = {self.settings!r}; give a mapping such as {{'prior': 'normal'}}")

    @property
    def _patience(self) -> int:
        return PATIENCE if self.early_stopping is True else int(self.early_stopping)

    def _method_settings(self, one_network: bool) -> dict[str, Any]:
        """What is asked of the method; where training is to go on, a single network, since members do not."""
        settings = {"temperature": self.temperature, **(self.settings or {})}
        method = find_method(self.method)
        if one_network and (method.budget is not None or method.members > 1):
            settings.setdefault("members", 1)
        if self.early_stopping and method.name == "auto":
            settings.setdefault("collector", None)  # the weights of the best epoch, or an average of the last ones
        return settings

    def _epochs(self, examples: int) -> int:
        if self.epochs is not None:
            return self.epochs
        steps = batch_count(examples, self.batch_size or usual_batch_size(examples))
        return min(MOST_EPOCHS, max(LEAST_EPOCHS, math.ceil(STEPS / steps)))

    def _split(self, rows: Rows, seed: int, given: int) -> tuple[Rows, Rows | None]:
        """Rows to train on, and those held out for early stopping; equal rows are never on both sides."""
        if not self.early_stopping:
            return written_out(rows, given), None
        order = np.random.default_rng(seed).permutation(len(rows))
        size = max(1, round(self.validation_fraction * len(rows)))
        if size >= len(rows):
            raise SettingError(
                f"{type(self).__name__}: early_stopping with n_samples = {len(rows)} different rows: "
                f"validation_fraction = {self.validation_fraction} leaves none to train on"
            )
        return written_out(rows.taken(order[size:]), given), written_out(rows.taken(order[:size]), given)

    def _learn_scales(self, rows: Rows) -> None:
        self._input_scale = StandardScaler().fit(rows.inputs, sample_weight=rows.weights) if self.standardise else None
        self._scale_targets(rows)

    def _scaled(self, rows: Rows) -> Rows:
        return Rows(self._scaled_inputs(rows.inputs), self._targets_for_training(rows.targets), rows.weights)

    def _scaled_inputs(self, inputs: Array) -> Array:
        return inputs if self._input_scale is None else self._input_scale.transform(inputs)

    # Predicting.

    def _predicted(self, X: Any, **how: Any) -> ClassPrediction | RealPrediction:
        """The prediction in the units that the network was trained in; the same draws each time."""
        check_is_fitted(self)
        inputs = self._scaled_inputs(validate_data(self, X, dtype=[np.float64, np.float32], reset=False))
        return self.result_.predict(
            inputs, draws=self.draws, batch_size=_PREDICTED_AT_ONCE, seed=self._seed, **how
        )


def _trained(start: Any, rows: Rows, settings: Mapping[str, Any]) -> Result:
    return fit(start, rows.data(), **settings)


def _updated(earlier: Result, rows: Rows, settings: Mapping[str, Any]) -> Result:
    """Trained on further data: by Bayes' rule, the posterior as the next prior, where the method has such a posterior.

    A point, an average of points, a Laplace approximation or a bank of networks is none: those go on from where they
    are with the new data alone.
    """
    method = earlier.method
    family = POSTERIORS.resolve(method.posterior).provides
    if LOG_PROB in family and not family & {POINT, BANK} and method.post_hoc is None:
        try:
            return _trained(earlier, rows, {**settings, "prior": "posterior"})
        except CompositionError:  # refused before any work: a stepper that knows no other centre than zero
            pass
    return _trained(earlier, rows, settings)
