"""Whole numbers, booleans, bytes, float16 and float64, in inputs and targets."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")

X = torch.randint(-3, 4, (30, 4), generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)


def net(outputs: int = 3) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, outputs))


def trained(data: Any, likelihood: Any = None, outputs: int = 3) -> bw.Result:
    return bw.fit(net(outputs), data, "bbb", likelihood, epochs=2, batch_size=10, progress=False)


@functools.cache
def plainly_trained(form: str = "tensors") -> tuple[bw.Result, Tensor]:
    """What float32 inputs and int64 labels give, and its predictions: what other types are compared with."""
    result = trained((X.float(), Y) if form == "tensors" else loader(X.float()))
    return result, result.predict(X.float()).probabilities


def loader(inputs: Tensor) -> DataLoader[Any]:
    return DataLoader(TensorDataset(inputs, Y), batch_size=10)


def same(found: bw.Result, wanted: bw.Result) -> bool:
    return torch.equal(found.model.posterior.mean_vector(), wanted.model.posterior.mean_vector())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.float64, torch.float16])
@pytest.mark.parametrize("form", ["tensors", "loader"])
def test_numbers_of_any_kind_are_those_numbers(dtype: torch.dtype, form: str) -> None:
    """Small whole numbers are exact in all of these: the same training, and the same predictions."""
    x = X.to(dtype)
    found, (wanted, probabilities) = trained((x, Y) if form == "tensors" else loader(x)), plainly_trained(form)
    assert same(found, wanted)
    for given in (x, x.numpy()):
        assert torch.equal(found.predict(given).probabilities, probabilities)


def test_booleans_are_zeros_and_ones() -> None:
    found, wanted = trained((X > 0, Y)), trained(((X > 0).float(), Y))
    assert same(found, wanted)
    assert torch.equal(found.predict(X > 0).probabilities, wanted.predict((X > 0).float()).probabilities)


def test_bytes_are_refused_with_the_remedy() -> None:
    pixels = (X.abs() * 50).to(torch.uint8)
    for action in (lambda: trained((pixels, Y)), lambda: trained((X.float(), Y)).predict(pixels)):
        with pytest.raises(bw.DataError, match=r"uint8.*x\.float\(\) / 255"):
            action()
    trained((pixels.float() / 255, Y))


def test_tokens_stay_whole_beside_numbers_that_do_not() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.table, self.layer = nn.Embedding(7, 5), nn.Linear(9, 3)

        def forward(self, token: Tensor, counts: Tensor) -> Tensor:
            out: Tensor = self.layer(torch.cat([self.table(token), counts], 1))
            return out

    def both(counts: Tensor) -> bw.Result:
        # Integers and floats would be joined to floats by torch itself, and then multiplied.
        return bw.fit(Both(), ((X[:, 0] + 3, counts), Y), "bbb", epochs=1, progress=False)

    assert same(both(X), both(X.float()))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int8])
def test_labels_of_any_whole_type(dtype: torch.dtype) -> None:
    wanted, _ = plainly_trained()
    assert same(trained((X.float(), Y.to(dtype))), wanted)
    assert same(trained((X.float().numpy(), Y.to(dtype).numpy())), wanted)


TARGETS: dict[str, tuple[Any, Tensor]] = {
    "gaussian": ("gaussian", X[:, :1]),
    "student_t": ("student_t", X[:, :1]),
    "poisson": ("poisson", X[:, :1].abs()),
    "negative_binomial": ("negative_binomial", X[:, :1].abs()),
    "bernoulli": ("bernoulli", (X[:, :1] > 0).long()),
}


@functools.cache
def trained_on_real_targets(case: str) -> bw.Result:
    likelihood, y = TARGETS[case]
    return trained((X.float(), y.float()), likelihood, 1)


@pytest.mark.parametrize("case", TARGETS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float16])
def test_targets_of_any_type_for_each_likelihood(case: str, dtype: torch.dtype) -> None:
    likelihood, y = TARGETS[case]
    x = X.float()
    assert same(trained((x, y.to(dtype)), likelihood, 1), trained_on_real_targets(case))  # a column of one target each
    trained((x, y.to(dtype).view(30)), likelihood, 1)


def test_places_of_sequences_with_classes_last() -> None:
    tokens = torch.randint(0, 9, (20, 3), generator=torch.Generator().manual_seed(2))
    net = nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 3))  # as many places as classes
    with pytest.raises(bw.DataError, match="class_axis"):
        bw.fit(net, (tokens, tokens % 3), "map", epochs=1)
    last = {"name": "categorical", "class_axis": -1}
    result = bw.fit(net, (tokens, tokens % 3), "map", last, epochs=60, batch_size=20, lr=0.1, progress=False)
    guesses = result.predict(tokens).probabilities.argmax(-1)
    assert float((guesses == tokens % 3).float().mean()) > 0.95


def test_a_network_of_half_precision_is_refused_with_the_remedy() -> None:
    with pytest.raises(bw.NetworkError, match=r"float16.*net\.float\(\)"):
        bw.fit(net().half(), (X.float(), Y), "map", epochs=1, progress=False)
    model = bw.bayesian(net().half(), "delta")  # predictions are another matter
    assert bw.predict(model, X, "categorical").probabilities.dtype == torch.float32
