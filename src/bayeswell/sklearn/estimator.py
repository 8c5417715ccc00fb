"""What classifier and regressor share: from validated arrays to ``fit``, and from its result to predictions."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..errors import SettingError, require_between, require_count
from ..likelihoods import LIKELIHOODS
from ..methods import Method, find_method
from ..predictive import ClassPrediction, RealPrediction
from ..tables import Columns, Preparation, Scaling, Table, is_frame, table_of
from ..training import Result, fit
from ..training.data import batch_count, usual_batch_size
from ..training.examples import dtype_of
from ..training.preparing import with_preparation
from .going_on import updated
from .measure import Array, Rows, counted, merged, repetitions, written_out
from .networks import network_for

_REAL = (np.float64, np.float32)
STEPS, LEAST_EPOCHS, MOST_EPOCHS = 500, 10, 100
"""``epochs=None``: as many as make so many steps, within these limits."""

PATIENCE = 10
_PREDICTED_AT_ONCE = 10_000


class BayesianEstimator(BaseEstimator):  # type: ignore[misc]
    """The parameters are said in ``BayesianClassifier`` and ``BayesianRegressor``."""

    _seed: int
    result_: Result

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

    _targets: ClassVar[Mapping[str, Any]]
    """How scikit-learn checks the targets."""

    def _learn_targets(self, targets: Array) -> None:
        """Remember what is fixed once of the targets: classes, number of outputs."""
        raise NotImplementedError

    def _encoded(self, targets: Array) -> Array:
        """Targets as numbers, (n,) or (n, outputs)."""
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

    def _learn(self, X: Any, y: Any, sample_weight: Any, *, goes_on: bool, one_network: bool, sequential: bool) -> None:
        self._require_settings()
        rows, given = self._rows(X, y, sample_weight, goes_on=goes_on)
        if not goes_on:
            self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        rows, held_out = self._split(rows, self._seed, given)
        likelihood, outputs = self._likelihood_and_outputs(rows)
        start: Any = replace(self.result_, preparation=None) if goes_on else None
        if start is None:
            dtype = torch.float32 if rows.inputs.dtype == np.float32 else torch.float64
            start = network_for(self.network, rows.inputs.shape[1], outputs, dtype, self._seed)
            likelihood = self._prepare(rows, likelihood, dtype_of(start) or dtype)
        settings: dict[str, Any] = {
            "method": self.method,
            "likelihood": None if goes_on else likelihood,
            "epochs": self._epochs(len(rows)),
            "batch_size": self.batch_size,
            "seed": self._seed,
            "progress": bool(self.verbose),
            "calibrate": self.calibrate,
            **self._method_settings(one_network),
        }
        if held_out is not None:
            settings |= {"validation": self._scaled(held_out)[:2], "early_stopping": self._patience}
        train = updated if sequential else fit
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = train(start, self._scaled(rows), **settings)
        self.result_ = with_preparation(result, self._preparation)
        self.n_iter_ = max(len(history.epochs) for history in self.result_.histories)
        # Each once, at the caller's line, where the result cannot be lost by a filter that makes errors of them.
        for category, line in dict.fromkeys((warning.category, str(warning.message)) for warning in said):
            warnings.warn(line, category, stacklevel=4)

    def _rows(self, X: Any, y: Any, sample_weight: Any, *, goes_on: bool) -> tuple[Rows, int]:
        """The rows that count, merged, and how many were given; what is fixed once of them is learned here."""
        inputs, targets = self._checked(X, y, reset=not goes_on)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, targets, dtype=np.float64, ensure_non_negative=True)
        given, chosen = len(targets), counted(weights, len(targets))
        targets = targets[chosen]
        if not goes_on:
            self.__dict__.pop("result_", None)  # from here on it is another one, or none
            self._learn_targets(targets)
            self._learn_columns(inputs, weights)
        numbers = (inputs if self._columns is None else self._columns.matrix(inputs))[chosen]
        return merged(Rows(numbers, self._encoded(targets), None if weights is None else weights[chosen])), given

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        """Inputs as a table or an array of real numbers, and targets, by scikit-learn's own rules."""
        table = self._table(X, reset=reset)
        if table is None:
            return validate_data(  # type: ignore[no-any-return]
                self, X, y, dtype=_REAL, reset=reset, **self._targets
            )
        _, targets = check_X_y(np.zeros((len(table), 1)), y, estimator=self, **self._targets)
        return table, targets

    def _table(self, X: Any, *, reset: bool) -> Table | None:
        """A data frame with texts or missing cells; what is learned on one stays one."""
        known = None if reset else self._columns
        if not is_frame(X) or (known is None and not reset):
            return None
        table = table_of(X)
        if known is None and not any(_is_text_or_missing(cells) for cells in table.columns.values()):
            return None
        validate_data(self, X, skip_check_array=True, reset=reset)  # the names of columns
        return table

    def _learn_columns(self, inputs: Table | Array, weights: Array | None) -> None:
        """How texts and missing cells become numbers: from the rows that count, whole weights being repetitions."""
        self._columns: Columns | None = None
        if isinstance(inputs, Table):
            places = repetitions(weights, len(inputs))
            chosen = np.flatnonzero(counted(weights, len(inputs))) if places is None else places
            self._columns = Columns.learn(inputs[torch.from_numpy(chosen)])

    def _prepare(self, rows: Rows, likelihood: Any, dtype: torch.dtype) -> Any:
        """Learn scales, each row counting as often as its weight says; the likelihood in scaled units."""
        scaling: dict[str, torch.Tensor] = {}
        if self.standardise:
            scale = StandardScaler().fit(rows.inputs, sample_weight=rows.weights)
            if self._columns is not None:  # 0 and 1 that texts and missing cells became stay
                scale.mean_[self._columns.made], scale.scale_[self._columns.made] = 0, 1
            scaling |= {"input_shift": _tensor(scale.mean_), "input_scale": _tensor(scale.scale_)}
        part: Any = LIKELIHOODS.resolve(likelihood)
        if self.standardise and hasattr(part, "for_scaled_targets"):
            scale = StandardScaler().fit(rows.targets, sample_weight=rows.weights)
            scaling |= {"target_shift": _tensor(scale.mean_), "target_scale": _tensor(scale.scale_)}
            part = part.for_scaled_targets(scale.scale_.tolist())
        names = tuple(map(str, self.classes_.tolist())) if hasattr(self, "classes_") else None
        self._preparation = Preparation(self._columns, Scaling(**scaling), names, dtype=dtype)
        return copy.deepcopy(part)  # what it learns is not the user's parameter

    def _scaled(self, rows: Rows) -> tuple[Any, ...]:
        """As ``fit`` takes them."""
        scaling, dtype = self._preparation.scaling, self._preparation.dtype
        inputs, targets = (torch.from_numpy(numbers) for numbers in (rows.inputs, rows.targets))
        if targets.is_floating_point():
            targets = scaling.targets(targets, dtype)
        weights = () if rows.weights is None else (rows.weights,)
        return (scaling.inputs(inputs, dtype), targets, *weights)

    def _require_settings(self) -> None:
        name = type(self).__name__
        if self.epochs is not None:
            require_count(name, "epochs", self.epochs)
        require_count(name, "draws", self.draws)
        if self.early_stopping:
            require_between(name, "validation_fraction", self.validation_fraction, 0, 1, open_low=True, open_high=True)
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

    # Predicting.

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")

    def _predicted(self, X: Any) -> ClassPrediction | RealPrediction:
        """The prediction in the user's units; the same draws each time."""
        check_is_fitted(self)
        inputs: Any = self._table(X, reset=False)
        if inputs is None:
            inputs = validate_data(self, X, dtype=_REAL, reset=False)
            inputs = np.require(inputs, requirements="W")  # torch holds no array that is read only
        return self.result_.predict(inputs, draws=self.draws, batch_size=_PREDICTED_AT_ONCE, seed=self._seed)


def _is_text_or_missing(cells: Array) -> bool:
    return cells.dtype.kind == "O" or (cells.dtype.kind == "f" and bool(np.isnan(cells).any()))


def _tensor(numbers: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(numbers, dtype=np.float64))
