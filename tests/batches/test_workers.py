"""The same numbers however many processes read the data."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import bayeswell as bw
from bayeswell.datasets import Augmentation
from bayeswell.training import WorkerBatches, as_batches

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")


class Noisy(Dataset[Any]):
    """Examples that change whenever they are read, by all three global generators."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = torch.randn(4) + float(np.random.standard_normal()) + random.random()  # noqa: NPY002
        return index + 0.1 * noise, index % 3


def noisy_collate(examples: list[Any]) -> Any:
    """One that draws, too: as those that mask words do."""
    inputs = torch.stack([inputs for inputs, _ in examples])
    return inputs + 0.1 * torch.randn(inputs.shape), torch.tensor([target for _, target in examples])


def epochs(workers: int, **settings: Any) -> list[Tensor]:
    loader = DataLoader(Noisy(), batch_size=7, shuffle=True, num_workers=workers, collate_fn=noisy_collate, **settings)
    batches = as_batches(loader, None)
    return [torch.cat([inputs for inputs, _ in batches.epoch(seed)]) for seed in (4, 5)]


@pytest.mark.parametrize("stay", [False, True])
def test_a_loader_gives_the_same_batches_with_any_number_of_workers(stay: bool) -> None:
    alone, helped = epochs(0), epochs(2, persistent_workers=stay)
    for own, others in zip(alone, helped, strict=True):
        assert torch.equal(own, others)
    assert not torch.equal(
        alone[0].sort(0).values, alone[1].sort(0).values
    )  # the noise is there, and new in each epoch


def test_a_loader_is_entered_at_any_batch() -> None:
    batches = as_batches(DataLoader(Noisy(), batch_size=7, shuffle=True), None)
    whole = [inputs for inputs, _ in batches.epoch(4)]
    for start in range(5):
        for own, others in zip(whole[start:], batches.epoch(4, start), strict=True):
            assert torch.equal(own, others[0])


def test_workers_of_a_command_cut_and_augment_the_same_batches() -> None:
    x = torch.arange(23 * 16.0).view(23, 1, 4, 4)
    augment = Augmentation(pad=1, flip=True)
    alone = as_batches((x, torch.arange(23)), 5, augment=augment)
    helped = WorkerBatches(x, torch.arange(23), 5, augment, workers=2)
    for seed in (1, 2):
        for own, others in zip(alone.weighted(seed, 1), helped.weighted(seed, 1), strict=True):
            assert torch.equal(own[0], others[0])
            assert torch.equal(own[1], others[1])
    assert alone.fingerprint() == helped.fingerprint()


def test_training_is_the_same_too() -> None:
    def trained(workers: int) -> Tensor:
        torch.manual_seed(1)
        loader = DataLoader(Noisy(), batch_size=7, shuffle=True, num_workers=workers)
        net = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.2), nn.Linear(6, 3))
        return bw.fit(net, loader, "bbb", epochs=1, progress=False).model.posterior.mean_vector()

    assert torch.equal(trained(0), trained(1))
