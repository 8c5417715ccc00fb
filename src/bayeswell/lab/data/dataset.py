"""Data sets in memory: split, scaled, and ready for ``fit``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from ...core.errors import DataError, SettingError, check_integer
from ...core.protocols import Likelihood
from ...core.random import derive_seed, make_generator
from ...likelihoods import LIKELIHOODS
from ...prediction import Evaluation, Predictor, evaluate
from ...tables import CLASSES, REAL, Preparation, Scaling

Pair = tuple[Tensor, Tensor]
"""Inputs and targets of the same examples."""
RawPair = tuple[Any, Tensor]
"""Inputs before scaling, a tensor or a pandas DataFrame, and targets."""
Model = TypeVar("Model", bound=Predictor)


@dataclass(frozen=True, eq=False)
class Raw:
    """Examples before scaling.

    Args:
        name: of the data set.
        train: None for a set that only tests.
        test: inputs are bytes or numbers (n, C, H, W), numbers (n, features), tokens (n, length) or a DataFrame. Bytes
            stand for value / 255.
        class_names: None: targets are real numbers (n, outputs); else class numbers (n,).
        vocabulary: number of different tokens; None: inputs are no tokens.
    """

    name: str
    train: RawPair | None
    test: RawPair
    class_names: tuple[str, ...] | None = None
    vocabulary: int | None = None

    def fold(self, number: int, count: int) -> Raw:
        """Test on part ``number`` of ``count`` and train on the others.

        Train and test examples are joined first. The parts depend on the number of examples alone.
        """
        train = self.examples
        targets = torch.cat([train[1], self.test[1]])
        if not 1 <= number <= count or not 2 <= count <= len(targets):
            raise SettingError(f"fold {number}/{count}: write I/K, part I of K, with K at most {len(targets)} examples")
        order = torch.randperm(len(targets), generator=make_generator(derive_seed(count, "folds")))
        parts = order.tensor_split(count)
        test = parts[number - 1].sort().values
        rest = torch.cat([part for i, part in enumerate(parts, start=1) if i != number]).sort().values
        both = (join_rows(train[0], self.test[0]), targets)
        return dataclasses.replace(self, train=pair_rows(both, rest), test=pair_rows(both, test))

    @property
    def examples(self) -> RawPair:
        """Training examples; DataError if there are none."""
        if self.train is None:
            raise DataError(f"'{self.name}' has test examples only; use it as an out-of-distribution set")
        return self.train


class DataPart(Protocol):
    """Settings of a data set in ``DATASETS``; ``folder`` is searched for its files before the default folders."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def read(self, folder: str | None) -> Raw: ...


class _PreparedTensors(Preparation):
    """A preparation whose inputs and targets are prepared already: only predictions are restored."""

    def inputs(self, value: Any) -> Any:
        return value

    def targets(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set ready for ``fit``: scaled inputs and targets in memory.

    ``fit(net, data.train, likelihood=data.scaled_likelihood())`` takes no ``standardize``: the tensors are scaled.
    ``data.attach(result)`` then predicts raw inputs, and ``data.evaluate(result)`` scores in the user's units.

    Args:
        name: of the data set.
        train: (inputs, targets): float32 numbers or int64 tokens, and int64 classes (n,) or float32 (n, outputs).
        test: the same.
        preparation: the way from raw inputs and targets to these tensors and back.
        validation: None: nothing is held out.
        ood: out-of-distribution inputs by name, scaled as the others.
        vocabulary: number of different tokens; None: inputs are no tokens.
    """

    name: str
    train: Pair
    test: Pair
    preparation: Preparation
    validation: Pair | None = None
    ood: Mapping[str, Tensor] = field(default_factory=dict)
    vocabulary: int | None = None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return self.preparation.class_names

    @property
    def task(self) -> str:
        """ "classes" or "real"."""
        return REAL if self.class_names is None else CLASSES

    @property
    def likelihood(self) -> str:
        """Default likelihood: "categorical" or "gaussian"."""
        return "gaussian" if self.class_names is None else "categorical"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train[0].shape[1:])

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(channels, height, width); None if the inputs are no images."""
        shape = self.input_shape
        return (shape[0], shape[1], shape[2]) if len(shape) == 3 else None

    @property
    def outputs(self) -> int:
        """Number of classes, or of real targets."""
        return int(self.train[1].shape[1]) if self.class_names is None else len(self.class_names)

    def channels(self, likelihood: Any = None) -> int:
        """Number of outputs that a network needs: one logit for "bernoulli", means and log stds for "per_input"."""
        part = LIKELIHOODS.resolve(self.likelihood if likelihood is None else likelihood)
        if part.name == "bernoulli" and self.class_names is not None:
            if self.outputs != 2:
                raise SettingError(
                    f"likelihood 'bernoulli' needs two classes, but '{self.name}' has {self.outputs}; use 'categorical'"
                )
            return 1
        return 2 * self.outputs if getattr(part, "noise", None) == "per_input" else self.outputs

    def scaled_likelihood(self, choice: Any = None) -> Likelihood:
        """Return a likelihood of the scaled targets: fixed noise is in the user's units."""
        part = LIKELIHOODS.resolve(self.likelihood if choice is None else choice)
        scaling = self.preparation.target_scaling
        return part if scaling is None else part.for_scaled_targets(scaling.std.flatten().tolist())

    @property
    def prepared(self) -> Preparation:
        """Preparation for tensors of this data set: scores and predictions are in the user's units."""
        fields = {one.name: getattr(self.preparation, one.name) for one in dataclasses.fields(Preparation)}
        return _PreparedTensors(**fields)

    def attach(self, model: Model) -> Model:
        """Return a trained model that takes raw inputs, frames or arrays, and a single real target as (n,)."""
        known, found = self.preparation, model.calibration
        scaling = known.target_scaling
        if scaling is not None and self.outputs == 1:
            known = dataclasses.replace(known, target_scaling=Scaling(scaling.mean.squeeze(), scaling.std.squeeze()))
        found = None if found is None else found.shifted(known.nll_shift)
        return dataclasses.replace(model, preparation=known, calibration=found)

    def evaluate(self, model: Predictor, part: str = "test", **settings: Any) -> Evaluation:
        """Return every score on "test", "validation" or "train" in the user's units; settings as in ``evaluate``."""
        pair: Pair | None = getattr(self, part)
        if pair is None:
            raise DataError(f"'{self.name}' has no {part} examples; set `validation`")
        return evaluate(model.model, *pair, model.likelihood, preparation=self.prepared, **settings)

    def raw_inputs(self, inputs: Tensor) -> Tensor:
        """Return inputs before scaling: pixels in [0, 1], features in their units."""
        scaling = self.preparation.input_scaling
        return inputs if scaling is None else scaling.restore(inputs)


def pair_rows(pair: RawPair, index: Tensor) -> RawPair:
    """Return the examples of an index."""
    inputs, targets = pair
    chosen = inputs[index] if isinstance(inputs, Tensor) else inputs.iloc[index.numpy()].reset_index(drop=True)
    return chosen, targets[index]


def join_rows(first: Any, second: Any) -> Any:
    """Return all inputs of two sets."""
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    import pandas

    return pandas.concat([first, second], ignore_index=True)


def split_pair(pair: RawPair, count: int, rule: str, seed: int) -> tuple[RawPair, RawPair]:
    """Return the rest and ``count`` held-out examples: drawn by the seed (rule "seed"), or the last (rule "last")."""
    size = len(pair[1])
    order = torch.arange(size)
    if rule == "seed":
        order = torch.randperm(size, generator=make_generator(derive_seed(seed, "validation")))
    kept, held = order[: size - count].sort().values, order[size - count :].sort().values
    return pair_rows(pair, kept), pair_rows(pair, held)


def shuffled_split(inputs: Any, targets: Tensor, test_share: float, seed: int) -> tuple[RawPair, RawPair]:
    """Return train and test examples in an order that the seed decides."""
    size = len(targets)
    check_integer("data", "split", seed, 0)
    held = round(test_share * size)
    if not 0 < held < size:
        raise SettingError(f"`test_share` = {test_share!r} of {size} examples leaves nothing to train on or to test on")
    order = torch.randperm(size, generator=make_generator(seed))
    pair = (inputs, targets)
    return pair_rows(pair, order[: size - held]), pair_rows(pair, order[size - held :])


def share_count(setting: str, value: int | float, size: int) -> int:
    """Return a number of examples from a number or, below 1, a share; something must be left."""
    count = value * size if isinstance(value, float) and value <= 1 else value
    if not 0 < round(count) < size or (value > 1 and value % 1):
        raise SettingError(f"`{setting}` = {value!r} of {size} examples; give 1 to {size - 1}, or a share below 1")
    return round(count)
