"""Batches: order by seed, entry in the middle, loaders untouched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from bayeswell.core.errors import DataError, DataWarning, SettingError
from bayeswell.training.data import (
    Batch,
    Columns,
    LoaderData,
    as_data,
    batch_order,
    held_out,
    pieces,
    seeded_streams,
)


def data_of(data: Any, **settings: Any) -> Any:
    return as_data(data, Columns(settings.pop("net", None), settings.pop("target", None)), torch.float32, **settings)


def rows_of(data: Any, seed: int, start: int = 0) -> list[list[float]]:
    return [batch.targets.tolist() for batch in data.epoch(seed, start)]


X, Y = torch.arange(21.0)[:, None], torch.arange(21.0)


def noisy(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + torch.randn(x.shape, generator=generator)


class Noisy(Dataset[Any]):
    """Examples that draw from torch's and numpy's global streams."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, row: int) -> tuple[Tensor, float]:
        return torch.rand(1) + float(np.random.rand()), float(row)  # noqa: NPY002


@pytest.mark.parametrize(
    "make",
    [
        lambda: data_of((X, Y), batch_size=4),
        lambda: data_of(TensorDataset(X, Y), batch_size=4),
        lambda: data_of(DataLoader(TensorDataset(X, Y), 4, shuffle=True)),
        lambda: data_of(DataLoader(TensorDataset(X, Y), 4, sampler=WeightedRandomSampler([1.0] * 21, 21))),
    ],
)
def test_epoch_is_a_function_of_its_seed_and_can_be_entered(make: Any) -> None:
    data = make()
    whole = rows_of(data, 5)
    torch.manual_seed(99)
    assert rows_of(make(), 5) == whole
    assert rows_of(data, 5, 3) == whole[3:]
    assert rows_of(data, 6) != whole
    assert len(whole) == data.batches
    assert sum(map(len, whole)) == data.shown == 21


def test_single_last_example_joins_the_batch_before() -> None:
    data = data_of((X, Y), batch_size=4)
    assert [len(rows) for rows in rows_of(data, 0)] == [4, 4, 4, 4, 5]
    assert sorted(row for rows in rows_of(data, 0) for row in rows) == Y.tolist()
    for examples in range(1, 30):
        for size in range(1, 10):
            order = batch_order(examples, size, 1)
            assert min(map(len, order)) > 1 or size == 1 or examples == 1
            assert sorted(torch.cat(order).tolist()) == list(range(examples))


def test_augmentation_does_not_depend_on_the_start() -> None:
    data = data_of((X, Y), batch_size=4, augment=noisy)
    first = [batch.inputs for batch in data.epoch(3)]
    later = [batch.inputs for batch in data.epoch(3, 2)]
    assert all(torch.equal(a, b) for a, b in zip(first[2:], later, strict=True))
    assert not torch.equal(first[0].round(), first[0])
    with pytest.raises(SettingError, match="augment"):
        next(data_of((X, Y), augment=lambda x, g: None).epoch(0))


@pytest.mark.parametrize("workers", [0, 2])
def test_random_examples_do_not_depend_on_workers_or_start(workers: int) -> None:
    reference = [b.inputs for b in data_of(DataLoader(Noisy(), 4, shuffle=True)).epoch(1)]
    data = data_of(DataLoader(Noisy(), 4, shuffle=True, num_workers=workers))
    list(data.epoch(0))
    assert all(torch.equal(a, b.inputs) for a, b in zip(reference, data.epoch(1), strict=True))
    assert all(torch.equal(a, b.inputs) for a, b in zip(reference[1:], data.epoch(1, 1), strict=True))


def test_workers_live_through_epochs() -> None:
    loader = DataLoader(TensorDataset(X, Y), 4, num_workers=1)
    data = data_of(loader)
    list(data.epoch(0))
    first = data._reader._iterator
    list(data.epoch(1))
    assert data._reader._iterator is first
    assert loader._iterator is None


def test_generators_of_the_user_are_restored() -> None:
    generator = torch.Generator().manual_seed(7)
    loader = DataLoader(TensorDataset(X, Y), 4, shuffle=True, generator=generator)
    before, own, numbers = generator.get_state(), torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    rows_of(data_of(loader), 0)
    data_of(loader).describe()
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(torch.get_rng_state(), own)
    assert (np.random.get_state()[1] == numbers).all()  # noqa: NPY002


def test_loader_with_an_iterator_of_its_own_is_refused() -> None:
    class Twice(DataLoader[Any]):
        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            return ([x * 2, y] for x, y in super().__iter__())

    with pytest.raises(DataError, match="__iter__"):
        data_of(Twice(TensorDataset(X, Y), 4, shuffle=True))


def test_loader_that_drops_its_last_batch() -> None:
    data = data_of(DataLoader(TensorDataset(X, Y), 4, drop_last=True))
    assert (data.examples, data.batches, data.shown) == (21, 5, 20)


def test_single_last_example_of_a_loader_joins_the_batch_before() -> None:
    data = data_of(DataLoader(TensorDataset(X, Y), 4, shuffle=True))
    assert [len(rows) for rows in rows_of(data, 1)] == [4, 4, 4, 4, 5]
    assert sorted(row for rows in rows_of(data, 1) for row in rows) == Y.tolist()


def test_columns_of_a_mapping() -> None:
    class Net(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a + b

    with pytest.warns(DataWarning, match="'c'"):
        data = data_of({"a": X, "b": X, "c": X, "label": Y}, net=Net(), batch_size=21)
    batch = data.first()
    assert set(batch.inputs) == {"a", "b"}
    assert torch.equal(batch.targets, Y)
    with pytest.raises(DataError, match="no target"):
        data_of({"a": X, "b": X}, net=Net())
    named = data_of({"a": X, "b": X, "c": Y}, net=Net(), target="c")
    assert torch.equal(named.all.targets, Y)


def test_hugging_face_columns() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict(
        {"x": [[float(i), 1.0] for i in range(9)], "text": ["a"] * 9, "label": list(range(9))}
    )
    with pytest.warns(DataWarning, match="text"):
        batches = list(data_of(table, batch_size=3).epoch(0))
    assert sorted(torch.cat([b.targets for b in batches]).tolist()) == list(range(9))
    assert batches[0].inputs["x"].shape == (3, 2)


def test_weights_and_pieces() -> None:
    data = data_of((X, Y, np.ones(21)), batch_size=5)
    batch = next(data.epoch(0))
    assert batch.sample_weight is not None
    assert batch.sample_weight.dtype == torch.float32
    parts = list(pieces(batch, 2))
    assert [len(part.targets) for part in parts] == [2, 3]
    assert torch.equal(torch.cat([part.targets for part in parts]), batch.targets)
    assert len(list(pieces(batch, 5, least=2))) == 2
    assert next(iter(pieces(Batch(X, Y), 1))).targets is Y


def test_random_rows_of_a_loader() -> None:
    data = data_of(DataLoader(TensorDataset(X, Y), 4))
    assert len(data.some(6, 0).targets) == 8
    assert isinstance(data, LoaderData)


def test_seeded_streams_are_restored() -> None:
    before = torch.get_rng_state()
    with seeded_streams(4):
        first = torch.rand(2)
    with seeded_streams(4):
        assert torch.equal(torch.rand(2), first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((X, Y[:5]), "21 inputs but 5 targets"),
        ((X,), "1 parts"),
        (X, "type Tensor"),
        (list(zip(X, Y, strict=True)), "21 parts"),
        ((X, 3.0), "targets"),
        ((X[:0], Y[:0]), "empty"),
        ((X, Y, -torch.ones(21)), "weight of example 0"),
        ((X, Y, torch.ones(4)), "weights of shape"),
        ((X, np.ma.masked_array(np.arange(21.0), np.arange(21) > 4)), "masked"),
        ((X.to_sparse(), Y), "sparse"),
        (DataLoader(TensorDataset(X, Y), batch_size=None), "batch_size=None"),
        (DataLoader(TensorDataset(X[:3], Y[:3]), 4, drop_last=True), "no batch"),
        ({"train": TensorDataset(X, Y)}, "several data sets"),
    ],
)
def test_refused_data(data: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        data_of(data)


def test_empty_validation_is_named() -> None:
    with pytest.raises(DataError, match="validation: the data are empty"):
        held_out((X[:0], Y[:0]), Columns(), None)


def test_unusual_arrays() -> None:
    x = np.arange(12.0, dtype=">f4").reshape(6, 2)[::-1]
    y = np.arange(6, dtype=np.uint16)
    data = data_of((x, y))
    assert torch.equal(data.all.inputs, torch.tensor(x.astype(np.float32)))
    assert data.all.targets.dtype == torch.int64
