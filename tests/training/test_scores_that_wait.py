"""Running scores are counted some steps at a time: nobody can tell from the numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw
from bayeswell.likelihoods import LIKELIHOODS, most_likely
from bayeswell.training import fit, run
from bayeswell.training.finite_steps import _SQUARES_FIT, _magnitude


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", bw.BayeswellWarning)


def problem(examples: int = 147) -> tuple[Tensor, Tensor]:
    x = torch.randn(examples, 4, generator=torch.Generator().manual_seed(0))
    return x, x[:, :3].argmax(1)


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, outputs))


def scores(data: Any, likelihood: Any = "categorical", outputs: int = 3, **settings: Any) -> list[dict[str, float]]:
    result = fit(network(outputs), data, "bbb", likelihood=likelihood, epochs=4, progress=False, **settings)
    return [dict(record.scores) for record in result.histories[0].epochs]


@pytest.mark.parametrize("kind", ["classes", "weighted", "accumulated", "reals", "learned noise"])
def test_scores_that_waited_are_those_counted_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = problem()
    weights = torch.rand(len(x), generator=torch.Generator().manual_seed(2))
    cases: dict[str, dict[str, Any]] = {
        "classes": {"data": (x, y)},
        "weighted": {"data": (x, y, weights)},
        "accumulated": {"data": (x, y), "accumulate": 2},
        "reals": {"data": (x, x[:, :1]), "likelihood": {"name": "gaussian", "noise": "known"}, "outputs": 1},
        "learned noise": {"data": (x, x[:, :1]), "likelihood": "gaussian", "outputs": 1},
    }
    given = {"batch_size": 7, **cases[kind]}
    waited = scores(**given)
    monkeypatch.setattr(run, "_SCORED_AT_ONCE", 1)
    assert waited == scores(**given)
    assert all(record for record in waited)


def test_whoever_folds_in_the_middle_of_an_epoch_has_every_step_in_the_score() -> None:
    """A network that is right about everything has as many hits as examples after each step."""
    x, y = problem()
    seen: list[tuple[float, float]] = []

    class Looks(bw.Callback):
        def after_step(self, run: bw.Run) -> None:
            sums = run.fold()
            seen.append((sums[3], sums[4]))

    certain = nn.Linear(4, 3, bias=False)
    with torch.no_grad():
        certain.weight.copy_(1e3 * torch.eye(3, 4))
    fit(certain, (x, y), "bbb", epochs=1, batch_size=7, callbacks=[Looks()], progress=False)
    assert [examples for _, examples in seen] == [7.0 * step for step in range(1, 22)]
    assert [hits for hits, _ in seen] == pytest.approx([examples for _, examples in seen])


class OneBuffer(DataLoader[Any]):
    """Gives every batch in the same memory."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        x, y = self.dataset.tensors  # type: ignore[attr-defined]
        batch = x[:7].clone(), y[:7].clone()
        for start in range(0, len(x), 7):
            batch[0].copy_(x[start : start + 7])
            batch[1].copy_(y[start : start + 7])
            yield batch


class NewMemory(OneBuffer):
    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            yield tuple(part.clone() for part in batch)


def test_a_loader_may_write_over_the_batch_before() -> None:
    x, y = problem()
    y = y.sort().values  # batches of one class after another: those of a later one are told apart
    loaders = [kind(TensorDataset(x, y), batch_size=7) for kind in (OneBuffer, NewMemory)]
    first, second = (scores(loader) for loader in loaders)
    assert first == second


@pytest.mark.parametrize(
    ("likelihood", "shape"),
    [("categorical", (9, 4)), ({"name": "categorical", "class_axis": 1}, (9, 4, 5)),
     ({"name": "categorical", "class_axis": -1, "temperature": 2.5}, (9, 5, 4)), ("bernoulli", (9, 1)),
     ("bernoulli", (9, 3)), ("next_token", (9, 5, 4))],
)  # fmt: skip
def test_the_most_likely_class_is_that_of_the_highest_probability(likelihood: Any, shape: tuple[int, ...]) -> None:
    outputs = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    part: Any = LIKELIHOODS.resolve(likelihood)
    assert torch.equal(most_likely(part, outputs), part.class_probabilities(outputs).argmax(-1))


def test_magnitudes_of_many_gradients_are_all_counted() -> None:
    sizes = [5, 5, 3, 5, 5, 8]
    parts = [torch.full((size,), -0.5) for size in sizes]
    assert _magnitude(parts) == 0.5 * sum(sizes)
    for place in range(len(sizes)):
        for value in (float("nan"), float("inf"), -1e20):  # the last is finite, its square is not
            bad = [part.clone() for part in parts]
            bad[place][-1] = value
            assert not _magnitude(bad) < _SQUARES_FIT
