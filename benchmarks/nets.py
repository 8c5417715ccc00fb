"""The networks that are timed: plain torch modules, the same for all libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor, nn

BATCHES = 10


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)
    )


def lenet() -> nn.Module:
    """LeNet-5 as the variational literature has it: 431,080 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


class Transformer(nn.Module):
    """Six encoder layers of width 256 over 128 tokens, and the mean of the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5000, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(256, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


@dataclass(frozen=True)
class Net:
    """A network with the shape of its data."""

    name: str
    title: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    dataset_size: int
    outputs: int = 10
    vocabulary: int | None = None
    predict_batch: int = 500

    @property
    def batches(self) -> int:
        return math.ceil(self.dataset_size / self.batch)

    def build(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.make()

    def inputs(self, count: int, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        if self.vocabulary is not None:
            return torch.randint(0, self.vocabulary, (count, *self.shape), generator=generator)
        return torch.randn(count, *self.shape, generator=generator)

    def data(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the same batches forever."""
        generator = torch.Generator().manual_seed(1)
        targets = [torch.randint(0, self.outputs, (self.batch,), generator=generator) for _ in range(BATCHES)]
        return cycle([(self.inputs(self.batch, seed), target) for seed, target in enumerate(targets)])


NETS = {
    net.name: net
    for net in (
        Net("lenet", "LeNet-5, 1x28x28, batch 100", lenet, (1, 28, 28), 100, 60_000),
        Net("mlp", "MLP 784-400-400-10, batch 128", mlp, (1, 28, 28), 128, 60_000),
        Net("transformer", "Transformer, 6 x 256, 128 tokens, batch 16", Transformer, (128,), 16, 25_000, 2, 5000, 0),
    )
}
