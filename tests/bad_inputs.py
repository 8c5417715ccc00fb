"""Forty (and some) bad inputs: the call, the kind of error, and what the one line that answers must have in it.

``tools/write_bad_input_page.py`` makes docs/bad_input.md of them; ``test_forty_bad_inputs.py`` tries them.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import bayeswell as bw
from bayeswell import ELBO, bayesian, fit, predict
from bayeswell.predictive import expected_nll

nan, inf = math.nan, math.inf
_random = torch.Generator().manual_seed(5)
x = torch.randn(60, 4, generator=_random)
y = x[:, :3].argmax(1)
t = x[:, :1] + 0.1
w = torch.ones(60)
pictures = (torch.rand(60, 1, 6, 6, generator=_random) * 255).to(torch.uint8)
tokens = torch.randint(0, 20, (60, 7), generator=_random)


def put(values: Tensor, row: int, value: float) -> Tensor:
    """A copy with one wrong number in a row."""
    spoilt = values.clone()
    spoilt[row] = (
        value if spoilt.dim() == 1 else torch.where(torch.arange(spoilt[row].numel()) == 0, value, spoilt[row])
    )
    return spoilt


def net(outputs: int = 3) -> nn.Module:
    """Four numbers in."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


class Returning(nn.Module):
    """A network that returns what a function makes of its logits."""

    def __init__(self, returned: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.returned = nn.Linear(4, 3), returned

    def forward(self, inputs: Tensor) -> Any:
        return self.returned(self.layer(inputs))


class Reader(nn.Module):
    """A network of tokens, with a mask."""

    def __init__(self, places: bool = False) -> None:
        super().__init__()
        self.table, self.head, self.places = nn.Embedding(20, 5), nn.Linear(5, 3), places

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        found = self.table(input_ids)
        return self.head(found if self.places else found.mean(1))


class Rows(Dataset[Any]):
    """A data set of any rows."""

    def __init__(self, *columns: Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> Any:
        return tuple(column[index] for column in self.columns)


class Endless(IterableDataset[Any]):
    """Examples without end."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield x[0], y[0]


class Table:
    """As Hugging Face's data sets: columns by name, rows by place."""

    features: ClassVar[dict[str, Any]] = {}

    def __init__(self, **columns: list[Any]) -> None:
        self.columns, self.column_names = columns, list(columns)

    def __len__(self) -> int:
        return len(self.columns[self.column_names[0]])

    def __getitem__(self, rows: list[int]) -> dict[str, list[Any]]:
        return {name: [values[row] for row in rows] for name, values in self.columns.items()}


def loader(*columns: Tensor, **settings: Any) -> DataLoader[Any]:
    """Batches of ten."""
    return DataLoader(TensorDataset(*columns), **{"batch_size": 10, **settings})


@functools.cache
def trained() -> bw.Result:
    """Something to predict with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(net(), (x, y), "map", epochs=1, progress=False)


@functools.cache
def model() -> bw.BayesianModule:
    """A lifted network, for a loop of one's own."""
    return bayesian(net())


Case = tuple[Callable[[], Any], type[bw.BayeswellError], tuple[str, ...]]

DATA, NETWORK, SETTING = bw.DataError, bw.NetworkError, bw.SettingError

CASES: dict[str, Case] = {
    # Numbers.
    "a missing value": (lambda: fit(net(), (put(x, 17, nan), y)), DATA, ("NaN or inf", "inputs", "row 17")),
    "an infinite value": (lambda: fit(net(), (put(x, 3, inf), y)), DATA, ("NaN or inf", "inputs", "row 3")),
    "a missing target": (
        lambda: fit(net(1), (x, put(t, 5, nan)), likelihood="gaussian"), DATA, ("NaN or inf", "targets", "row 5")),
    "a missing weight": (lambda: fit(net(), (x, y, put(w, 9, nan))), DATA, ("weight of example 9", "nan")),
    "a negative weight": (lambda: fit(net(), (x, y, put(w, 9, -1))), DATA, ("weight of example 9", "-1", "at least 0")),
    "all weights zero": (lambda: fit(net(), (x, y, 0 * w)), DATA, ("weights of all examples are 0",)),
    # Labels.
    "class 3 of 3 outputs": (lambda: fit(net(), (x, put(y, 41, 3))), DATA, ("label 3", "row 41", "0 to 2")),
    "a negative label": (lambda: fit(net(), (x, put(y, 7, -1))), DATA, ("label -1", "row 7", "0 to 2")),
    "torch's label to skip": (lambda: fit(net(), (x, put(y, 7, -100))), DATA, ("label -100", "row 7", "ignore_index")),
    "fractional labels": (lambda: fit(net(), (x, y + 0.5)), DATA, ("float32", "integers", "0 to 2")),
    "one-hot labels": (lambda: fit(net(), (x, nn.functional.one_hot(y, 3))), DATA, ("(60, 3)", "(60,)", "argmax")),
    "labels for one row less": (lambda: fit(net(), (x, y[:-1])), DATA, ("60 inputs", "59 targets")),
    "no labels": (lambda: fit(net(), (x, None)), DATA, ("NoneType",)),
    "inputs alone": (lambda: fit(net(), x), DATA, ("Tensor", "(inputs, targets)")),
    "two outputs for one target": (
        lambda: fit(net(2), (x, t), likelihood="gaussian"), DATA, ("(60, 1)", "(60, 2)")),
    "a negative count": (lambda: fit(net(1), (x, put(t.abs().round(), 8, -2)), likelihood="poisson"), DATA,
        ("-2", "row 8", "whole")),
    "a fractional count": (lambda: fit(net(1), (x, put(t.abs().round(), 8, 0.5)), likelihood="poisson"), DATA,
        ("0.5", "row 8", "whole")),
    "neither yes nor no": (lambda: fit(net(1), (x, put(y.clamp(max=1), 4, 2)), likelihood="bernoulli"), DATA,
        ("2", "row 4", "0 or 1")),
    "classes on an axis that is not named": (
        lambda: fit(Reader(places=True), (tokens, tokens % 3)), DATA, ("(60, 7, 3)", "class_axis")),
    # Inputs.
    "no rows": (lambda: fit(net(), (x[:0], y[:0])), DATA, ("empty",)),
    "objects": (lambda: fit(net(), (np.array([{}] * 60), y)), DATA, ("objects", "numbers")),
    "a column too few": (lambda: fit(net(), (x[:, :3], y)), NETWORK, ("(n, 3)", "3 and 4x8")),
    "pictures in bytes": (
        lambda: fit(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)), (pictures, y)), DATA, ("uint8", "x.float() / 255")),
    "pictures without channels": (
        lambda: fit(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 3)), (pictures[:, 0] / 255, y)),
        NETWORK, ("(n, 6, 6)",)),
    "a token outside the table": (lambda: fit(Reader(), (tokens + 10, y)), DATA, ("outside its table", "29")),
    "two inputs of unequal length": (lambda: fit(net(), ((x, x[:-1]), y)), DATA, ("59 inputs", "60 targets")),
    "an argument that the network does not take": (
        lambda: fit(Reader(), ({"input_ids": tokens, "mask": tokens}, y)), NETWORK, ("'mask'",)),
    # Loaders, data sets, columns.
    "a missing value in a data set": (
        lambda: fit(net(), Rows(put(x, 23, nan), y), batch_size=60), DATA, ("NaN or inf", "example 23")),
    "a label out of range in a loader": (
        lambda: fit(net(), loader(x, put(y, 23, 9), batch_size=60, shuffle=True)), DATA, ("label 9", "example 23")),
    "a loader that drops everything": (
        lambda: fit(net(), loader(x, y, batch_size=100, drop_last=True)), DATA, ("shows no batch",)),
    "a data set without end": (lambda: fit(net(), DataLoader(Endless())), DATA, ("IterableDataset", "__len__")),
    "batches without targets": (lambda: fit(net(), loader(x)), DATA, ("without targets", "(inputs, targets)")),
    "columns without a target": (
        lambda: fit(Reader(), {"input_ids": tokens, "diagnosis": y}), DATA, ("diagnosis", "target=")),
    "a misspelt target": (
        lambda: fit(Reader(), {"input_ids": tokens, "labels": y}, target="lables"), DATA, ("'lables'", "'labels'")),
    "two columns that could be the target": (
        lambda: fit(Reader(), {"input_ids": tokens, "labels": y, "y": y}), DATA, ("labels", "y", "target=")),
    "several splits": (lambda: fit(Reader(), {"train": Table(y=[1]), "test": Table(y=[1])}), DATA, ("train", "test")),
    "sentences of unequal length": (
        lambda: fit(Reader(), Table(input_ids=[[1, 2], [3]], labels=[0, 1])), DATA, ("input_ids", "1 to 2", "pad")),
    "an empty cell": (
        lambda: fit(Reader(), Table(input_ids=[[1], [2]], labels=[0, None])), DATA, ("labels", "row 1", "None")),
    # Outputs.
    "a network that returns two tensors of one shape": (
        lambda: fit(Returning(lambda f: (f, f.exp())), (x, y)), NETWORK, ("tuple", "output=")),
    "a network that returns states": (
        lambda: fit(Returning(lambda f: {"states": f}), (x, y)), NETWORK, ("'states'", "output=")),
    "an output that is no function": (lambda: fit(net(), (x, y), output="logits"), SETTING, ("output = 'logits'",)),
    "an output that gives no tensor": (
        lambda: fit(net(), (x, y), output=lambda found: [found]), NETWORK, ("output", "list", "tensor")),
    # Held-out data.
    "a label out of range in validation": (
        lambda: fit(net(), (x, y), validation=(x, put(y, 30, 3))), DATA, ("validation", "label 3", "row 30")),
    "a missing value in validation": (
        lambda: fit(net(), (x, y), validation=(put(x, 6, nan), y)), DATA, ("validation", "inputs", "row 6")),
    "validation of other columns": (
        lambda: fit(net(), (x, y), validation=(x[:, :2], y)), NETWORK, ("validation", "(n, 2)")),
    "early stopping without validation": (lambda: fit(net(), (x, y), early_stopping=3), SETTING, ("validation",)),
    # Settings.
    "a misspelt setting": (lambda: fit(net(), (x, y), epoch=3), SETTING, ("'epoch'", "did you mean 'epochs'?")),
    "a misspelt method": (lambda: fit(net(), (x, y), "k-tide"), SETTING, ("'k-tide'", "'k-tied'")),
    "a batch of none": (lambda: fit(net(), (x, y), batch_size=0), SETTING, ("batch_size = 0", "at least 1")),
    "no network": (lambda: fit("net", (x, y)), NETWORK, ("str", "nn.Module")),  # type: ignore[arg-type]
    "a lazy layer": (lambda: fit(nn.LazyLinear(3), (x, y)), NETWORK, ("lazy", "once")),
    # Predictions.
    "a missing value in a prediction": (lambda: trained().predict(put(x, 12, nan)), DATA, ("nan", "row 12")),
    "a prediction for other columns": (lambda: trained().predict(x[:, :2]), NETWORK, ("(60, 2)",)),
    "a prediction for nothing": (lambda: trained().predict(x[:0]), DATA, ("no examples",)),
    "a prediction for a list": (lambda: trained().predict([1.0, 2.0]), DATA, ("list", "tensor")),
    "a prediction from a shuffling loader": (
        lambda: trained().predict(loader(x, y, shuffle=True)), DATA, ("shuffles", "shuffle=False")),
    "scores without targets": (
        lambda: expected_nll(model(), x, None, "categorical"), DATA, ("targets", "None")),
    "scores for labels out of range": (
        lambda: expected_nll(model(), x, put(y, 50, 3), "categorical"), DATA, ("label 3", "50", "0 to 2")),
    "no draws": (lambda: predict(model(), x, "categorical", draws=0), SETTING, ("draws = 0",)),
    "calibration without targets": (lambda: trained().calibrate(x), DATA, ("targets", "None")),
    # A loop of one's own.
    "a network lifted twice": (lambda: bayesian(model()), NETWORK, ("Bayesian network already",)),
    "whole numbers for a Linear": (
        lambda: ELBO("categorical", 60)(model(), x.long(), y), NETWORK, ("int64", "x.float()")),
    "other columns in a loop": (lambda: ELBO("categorical", 60)(model(), x[:, :2], y), NETWORK, ("(60, 2)",)),
    "labels in a list": (lambda: ELBO("categorical", 60)(model(), x, y.tolist()), DATA, ("list", "tensor")),
}  # fmt: skip
