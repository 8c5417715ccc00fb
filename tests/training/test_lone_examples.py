"""A batch of one example: BatchNorm cannot normalise it, so none is made; one from outside gets a clear line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw
from bayeswell.objectives import ELBO
from bayeswell.training import RunFolder, as_batches, batch_count, fit
from bayeswell.training.engine import Engine

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")


def data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(2))
    return x, x[:, :3].argmax(1)


def normalised() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))


@pytest.mark.parametrize("form", ["tensors", "data set"])
@pytest.mark.parametrize(
    ("examples", "batch_size", "sizes"),
    [
        (21, 5, [5, 5, 5, 6]),
        (6, 5, [6]),
        (20, 5, [5, 5, 5, 5]),
        (22, 5, [5, 5, 5, 5, 2]),
        (3, 2, [3]),
        (3, 1, [1, 1, 1]),
        (1, 5, [1]),
        (4, 5, [4]),
    ],
)
def test_a_lone_last_example_goes_with_the_batch_before_it(
    form: str, examples: int, batch_size: int, sizes: list[int]
) -> None:
    x, y = torch.arange(float(examples))[:, None], torch.arange(examples)
    batches = as_batches((x, y) if form == "tensors" else TensorDataset(x, y), batch_size)
    epoch = [targets.tolist() for _, targets in batches.epoch(4)]
    assert [len(part) for part in epoch] == sizes
    assert batches.count == len(sizes) == batch_count(examples, batch_size)
    flat = [target for part in epoch for target in part]
    assert sorted(flat) == list(range(examples))
    order = torch.randperm(examples, generator=bw.make_generator(4)).tolist()
    assert flat == order  # the order of the seed is as ever
    for start in range(len(sizes)):
        assert [targets.tolist() for _, targets in batches.epoch(4, start)] == epoch[start:]


def test_the_mean_objective_of_an_epoch_is_still_that_of_all_data() -> None:
    x, y = data(21)
    model = bw.bayesian(nn.Linear(4, 3).double(), "delta", {"name": "normal", "std": 0.7})
    objective = ELBO("categorical", 21, temperature=0.37)
    batches = as_batches((x, y), 5, torch.float64)
    totals = [
        objective(model, inputs, targets, at=bw.Progress(i, 4, i, batches.count, batches.shown)).total
        for i, (inputs, targets) in enumerate(batches.epoch(3))
    ]
    expected = objective(model, x.double(), y).total
    torch.testing.assert_close(torch.stack(totals).mean(), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("method", ["map", "swag", "hwa", "vl", "f-bbb"])
def test_batchnorm_trains_on_any_number_of_examples(method: str) -> None:
    result = fit(normalised(), data(41), method, epochs=8, batch_size=10, estimator="weight_sampling")
    assert torch.isfinite(result.predict(data(5)[0]).probabilities).all()


def test_a_run_with_a_merged_batch_resumes_in_the_middle_bit_for_bit(tmp_path: Any) -> None:
    class Cut(bw.Callback):
        def after_step(self, run: Any) -> None:
            if run.step == 7:  # two steps after the checkpoint in the middle of the second epoch
                raise KeyboardInterrupt

    settings: dict[str, Any] = {"epochs": 3, "batch_size": 10, "seed": 4}
    whole = fit(normalised(), data(41), "bbb", **settings)
    folder = RunFolder(tmp_path, checkpoint_steps=5)
    with pytest.raises(KeyboardInterrupt):
        fit(normalised(), data(41), "bbb", callbacks=[Cut()], folder=folder, **settings)
    again = fit(normalised(), data(41), "bbb", folder=RunFolder(tmp_path, resume=True), **settings)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name
    assert [r.total for r in whole.histories[0].epochs] == [r.total for r in again.histories[0].epochs]


class Pretend(Engine):
    """One of several ranks, without starting any."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks

    rank = property(lambda self: self._rank)  # type: ignore[assignment]
    ranks = property(lambda self: self._ranks)  # type: ignore[assignment]
    device = property(lambda self: torch.device("cpu"))  # type: ignore[assignment]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("accumulate", [1, 3, 8])
def test_pieces_of_two_at_least_make_the_whole_objective(ranks: int, accumulate: int) -> None:
    """11 examples in batches of 4 (so 4, 4, 3): as in the ordinary cut, but no piece has a single example."""
    x, y = data(11)
    x = x.double()
    model = bw.bayesian(nn.Linear(4, 3).double(), "delta", {"name": "normal", "std": 0.7})
    objective = ELBO("categorical", 11, temperature=0.37)
    batches = as_batches((x, y), 4)

    def gradient(total: Tensor) -> Tensor:
        return torch.autograd.grad(total, model.posterior.mean)[0]

    expected = gradient(objective(model, x, y).total)
    found = torch.zeros_like(expected)
    for index, (inputs, targets) in enumerate(batches.epoch(9)):
        for rank in range(ranks):
            at = bw.Progress(index, 3, index, 3, 11)
            for piece in Pretend(rank, ranks).pieces(inputs, targets, at, batches, accumulate, least=2):
                assert len(piece.targets) >= 2
                found += gradient(objective(model, piece.inputs, piece.targets, at=piece.at).total) / ranks / 3
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_accumulation_never_cuts_batchnorm_a_single_example() -> None:
    result = fit(normalised(), data(23), "map", epochs=1, batch_size=10, accumulate=10)
    assert len(result.histories[0].epochs) == 1


def test_a_lone_example_from_a_loader_is_one_line() -> None:
    loader = DataLoader(TensorDataset(*data(21)), batch_size=5)
    with pytest.raises(
        bw.DataError, match=r"step 4: BatchNorm cannot normalise a single example.*drop_last=True"
    ) as got:
        fit(normalised(), loader, "map", epochs=1)
    assert "\n" not in str(got.value)
    assert got.value.model is not None
    fit(normalised(), DataLoader(TensorDataset(*data(21)), batch_size=5, drop_last=True), "map", epochs=1)
    with pytest.raises(bw.DataError, match="step 0: BatchNorm cannot normalise a single example"):
        fit(normalised(), data(8), "map", epochs=1, batch_size=1)


def test_another_error_of_the_network_stays_what_it_is() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("my own trouble")

    with pytest.raises(ValueError, match=r"^my own trouble$"):
        fit(Broken(), data(8), "map", epochs=1)
