"""The base of classifier and regressor: from validated arrays to ``fit``, and from its result to predictions."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..core.errors import SettingError, check_integer
from ..core.protocols import EMPIRICAL, LOG_PROB, MIXTURE, POINT
from ..methods import Method, find_method
from ..prediction import ClassPrediction, RealPrediction
from ..tables import Preparation, is_frame
from ..tables.columns import read_table
from ..training import Result, fit
from ..training.data import default_batch_size
from .networks import make_network
from .rows import Array, Rows, canonical_order, chosen_rows

STEPS, LEAST_EPOCHS, MOST_EPOCHS = 500, 10, 100
"""``epochs=None``: as many as make so many steps, within these limits."""
PATIENCE = 10
PREDICTED_AT_ONCE = 10_000
_REAL = (np.float64, np.float32)


class BayesianEstimator(BaseEstimator):  # type: ignore[misc]
    """Parameters are explained in ``BayesianClassifier`` and ``BayesianRegressor``."""

    _target_checks: ClassVar[Mapping[str, Any]] = {}
    """How scikit-learn checks the targets."""
    _seed: int
    _is_table: bool
    result_: Result

    def __init__(
        self,
        method: str | Method = "auto",
        network: Any = None,
        *,
        likelihood: Any = None,
        epochs: int | None = None,
        draws: int = 100,
        standardize: bool = True,
        early_stopping: bool | int = False,
        validation_fraction: float = 0.1,
        warm_start: bool = False,
        random_state: Any = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.network = network
        self.likelihood = likelihood
        self.epochs = epochs
        self.draws = draws
        self.standardize = standardize
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.settings = settings

    def _learn_targets(self, targets: Array) -> None:
        raise NotImplementedError

    def _encode(self, targets: Array) -> Array:
        raise NotImplementedError

    def _likelihood_and_outputs(self, targets: Array) -> tuple[Any, int]:
        raise NotImplementedError

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        continues = bool(self.warm_start) and hasattr(self, "result_")
        return self._train(X, y, sample_weight, continues=continues, one_network=bool(self.warm_start))

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        continues = hasattr(self, "result_")
        more = {"prior": "posterior"} if continues and _is_sequential(self.result_) else {}
        return self._train(X, y, sample_weight, continues=continues, one_network=True, **more)

    def _train(self, X: Any, y: Any, sample_weight: Any, *, continues: bool, one_network: bool, **more: Any) -> Self:
        settings = self._fit_settings(one_network)
        rows = self._rows(X, y, sample_weight, reset=not continues)
        if continues:
            start: tuple[Any, Any] = (_without_names(self.result_), None)
        else:
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            start = self._start(rows)
            settings["standardize"] = self.standardize
        if self.early_stopping:
            rows, held_out = self._split(rows)
            patience = PATIENCE if self.early_stopping is True else int(self.early_stopping)
            settings |= {"validation": held_out[:2], "early_stopping": patience}
        data = rows[:2] if rows.weights is None else tuple(rows)
        settings |= {"epochs": self._epochs(len(rows.targets)), "seed": self._seed, **more}
        result = fit(start[0], data, self.method, start[1], **settings)
        self.result_ = self._with_names(result)
        self.n_iter_ = max(len(history.epochs) for history in result.histories)
        return self

    def _rows(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> Rows:
        inputs, targets = self._checked(X, y, reset=reset)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, targets, dtype=np.float64, ensure_non_negative=True)
        places, weights = chosen_rows(weights, len(targets))
        if reset:
            self.__dict__.pop("result_", None)
            self._learn_targets(targets[places])
        targets = self._encode(targets[places])
        rows = Rows(_safe_indexing(inputs, places), targets, weights)
        return rows if self._is_table else rows.taken(canonical_order(rows))

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        """Return inputs and targets checked by scikit-learn; data frames with texts or missing cells stay frames."""
        if reset:
            self._is_table = is_frame(X) and any(_needs_columns(cells) for cells in read_table(X).values())
        if not self._is_table:
            inputs, targets = validate_data(self, X, y, dtype=_REAL, reset=reset, **self._target_checks)
            return inputs, targets
        validate_data(self, X, skip_check_array=True, reset=reset)
        _, targets = check_X_y(np.zeros((len(X), 1)), y, estimator=self, **self._target_checks)
        return X, targets

    def _start(self, rows: Rows) -> tuple[Any, Any]:
        likelihood, outputs = self._likelihood_and_outputs(rows.targets)
        dtype = torch.float64
        features = rows.inputs.shape[1]
        if self._is_table:
            features = len(Preparation.fit(rows.inputs).features or ())
        elif rows.inputs.dtype == np.float32:
            dtype = torch.float32
        # A likelihood may learn its noise: that of the user does not change.
        return make_network(self.network, features, outputs, dtype, self._seed), copy.deepcopy(likelihood)

    def _split(self, rows: Rows) -> tuple[Rows, Rows]:
        order = np.random.default_rng(self._seed).permutation(len(rows.targets))
        size = max(1, round(self.validation_fraction * len(order)))
        if size >= len(order):
            raise SettingError(
                f"`validation_fraction` = {self.validation_fraction} with n_samples = {len(order)} leaves no row"
            )
        return rows.taken(order[size:]), rows.taken(order[:size])

    def _epochs(self, examples: int) -> int:
        if self.epochs is not None:
            return check_integer(type(self).__name__, "epochs", self.epochs)
        size = (self.settings or {}).get("batch_size") or default_batch_size(examples)
        return min(MOST_EPOCHS, max(LEAST_EPOCHS, math.ceil(STEPS / math.ceil(examples / size))))

    def _fit_settings(self, one_network: bool) -> dict[str, Any]:
        if not isinstance(self.settings or {}, Mapping):
            raise SettingError(f"`settings` must be a mapping such as {{'lr': 0.01}}, got {self.settings!r}")
        settings = {"progress": False, **(self.settings or {})}
        method = find_method(self.method) if isinstance(self.method, str) else self.method
        if one_network and (method.budget is not None or method.members > 1):
            settings["members"] = 1  # members do not continue
        if self.early_stopping and method.name == "auto":
            settings.setdefault("averaging", None)  # the best epoch, or an average of the last ones
        return settings

    def _with_names(self, result: Result) -> Result:
        if not hasattr(self, "classes_"):
            return result
        names = tuple(map(str, self.classes_.tolist()))
        preparation = result.preparation or Preparation(dtype=result.model.prior.std().dtype)
        return replace(result, preparation=replace(preparation, class_names=names))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")

    def _predict(self, X: Any) -> ClassPrediction | RealPrediction:
        """Return the prediction in the user's units, from the same draws each time."""
        check_is_fitted(self)
        if self._is_table:
            validate_data(self, X, skip_check_array=True, reset=False)
        else:
            X = validate_data(self, X, dtype=_REAL, reset=False)
        return self.result_.predict(X, draws=self.draws, batch_size=PREDICTED_AT_ONCE, seed=self._seed)


def has_one_network(estimator: BayesianEstimator) -> bool:
    """Return whether ``partial_fit`` can continue; raise AttributeError with a remedy if not."""
    result = getattr(estimator, "result_", None)
    if result is None or (len(result.histories) == 1 and not result.model.posterior.provides & {EMPIRICAL, MIXTURE}):
        return True
    raise AttributeError(
        f"partial_fit: method '{result.method.name}' has trained several networks, which do not continue together; "
        "begin with partial_fit or warm_start=True, or use a method such as 'bbb'"
    )


def _is_sequential(result: Result) -> bool:
    method = result.method
    if method is None or method.post_hoc is not None or method.optimizer.handles_kl:
        return False
    return LOG_PROB in method.posterior.provides and not method.posterior.provides & {POINT, EMPIRICAL}


def _without_names(result: Result) -> Result:
    preparation = result.preparation
    return result if preparation is None else replace(result, preparation=replace(preparation, class_names=None))


def _needs_columns(cells: Array) -> bool:
    return cells.dtype.kind == "O" or (cells.dtype.kind == "f" and bool(np.isnan(cells).any()))
