"""The networks that are timed: plain torch modules, the same for bayeswell, for its peers and for ordinary training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn

import bayeswell as bw

from .transformers import Encoder, adapted

_BATCHES = 10
"""Different batches that take turns: one alone would soon be known by heart, with gradients that underflow."""


@dataclass(frozen=True)
class Net:
    """A network with the shape of its data: what a case is built from.

    ``batches`` is the number of steps in an epoch of the data set that it stands for; ``predict_batch`` how many
    examples are predicted at once (0: none are). ``model`` is one of the zoo, or a function that makes it of the shape,
    the vocabulary and the number of outputs; ``where`` says which weights are Bayesian.
    """

    name: str
    title: str
    model: Any
    shape: tuple[int, ...]
    batch: int
    dataset_size: int
    outputs: int = 10
    vocabulary: int | None = None
    predict_batch: int = 500
    where: str = "all"

    @property
    def batches(self) -> int:
        """Steps in an epoch."""
        return math.ceil(self.dataset_size / self.batch)

    def build(self, seed: int = 0) -> nn.Module:
        """A plain torch module with fresh weights, the same for one seed."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if callable(self.model):
                made: nn.Module = self.model(self.shape, self.vocabulary, self.outputs)
                return made
            return bw.build_model(self.model, self.shape, self.outputs, vocabulary=self.vocabulary)

    def inputs(self, count: int, seed: int = 0) -> Tensor:
        """Random images, or random tokens."""
        return _inputs((count, *self.shape), self.vocabulary, seed)

    def data(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches for ever; all cases of a process share them."""
        return cycle([(self.inputs(self.batch, n), _targets(self.batch, self.outputs, n)) for n in range(_BATCHES)])


@cache
def _inputs(shape: tuple[int, ...], vocabulary: int | None, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if vocabulary is not None:
        return torch.randint(0, vocabulary, shape, generator=generator)
    return torch.randn(shape, generator=generator)


@cache
def _targets(count: int, outputs: int, seed: int) -> Tensor:
    return torch.randint(0, outputs, (count,), generator=torch.Generator().manual_seed(seed))


def encoder(width: int, layers: int, adapters: bool = False) -> Any:
    """A transformer encoder as the ``model`` of a net; with adapters these are all that is trained."""

    def build(shape: tuple[int, ...], vocabulary: int, outputs: int) -> nn.Module:
        made = Encoder(width, layers, *shape, vocabulary, outputs)
        return adapted(made) if adapters else made

    return build


_TEXT: dict[str, Any] = {
    "shape": (128,), "dataset_size": 25_000, "outputs": 2, "vocabulary": 5000, "predict_batch": 0,
}  # fmt: skip

NETS = {
    net.name: net
    for net in (
        Net("lenet", "LeNet-5, 1x28x28, batch 100", "lenet5", (1, 28, 28), 100, 60_000),
        Net("mlp", "MLP 784-400-400-10, batch 128", "mlp", (1, 28, 28), 128, 60_000),
        # Predictions of few images, to keep a round short.
        Net("resnet", "ResNet-18, 3x32x32, batch 32", "resnet18", (3, 32, 32), 32, 50_000, predict_batch=8),
        Net(
            "lstm",
            "LSTM, 80 of 5000 tokens, batch 32",
            "lstm",
            (80,),
            32,
            25_000,
            outputs=2,
            vocabulary=5000,
            predict_batch=100,
        ),
        Net("transformer", "Transformer, 6 x 256, 128 tokens, batch 16", encoder(256, 6), batch=16, **_TEXT),
        Net("lora", "its LoRA adapters of rank 8", encoder(256, 6, adapters=True), batch=16, where="lora", **_TEXT),
        Net("50m", "Transformer, 16 x 512, 128 tokens, batch 4", encoder(512, 16), batch=4, **_TEXT),
        Net("200m", "Transformer, 16 x 1024, 128 tokens, batch 4", encoder(1024, 16), batch=4, **_TEXT),
    )
}

_TINY_TEXT: dict[str, Any] = {"shape": (3,), "dataset_size": 200, "outputs": 2, "vocabulary": 5, "predict_batch": 0}
_TINY = {
    "lenet": Net("lenet", "", {"name": "lenet5", "width": 2}, (1, 28, 28), 2, 200),
    "mlp": Net("mlp", "", {"name": "mlp", "hidden": [4, 4]}, (1, 2, 2), 2, 200),
    "resnet": Net("resnet", "", {"name": "resnet18", "width": 2}, (3, 32, 32), 2, 200),
    "lstm": Net("lstm", "", {"name": "lstm", "width": 2, "embedding": 2}, (3,), 2, 200, 2, vocabulary=5),
    "lora": Net("lora", "", encoder(64, 1, adapters=True), batch=2, where="lora", **_TINY_TEXT),
    **{name: Net(name, "", encoder(64, 1), batch=2, **_TINY_TEXT) for name in ("transformer", "50m", "200m")},
}


def tiny(net: Net) -> Net:
    """The same kind of network, so small that it costs nothing: to load whatever is loaded at first use."""
    return _TINY[net.name]


def wide_mlp(width: int, batch: int = 128) -> Net:
    """784-width-width-10."""
    title = f"MLP 784-{width}-{width}-10, batch {batch}"
    return Net("mlp", title, {"name": "mlp", "hidden": [width, width]}, (1, 28, 28), batch, 60_000)


def with_dropout(net: nn.Module, chance: float = 0.1) -> nn.Module:
    """The network with dropout before every dense layer but the first layer of all; in place."""
    first = True
    for name, child in list(net.named_children()):
        if isinstance(child, nn.Linear) and not first:
            setattr(net, name, nn.Sequential(nn.Dropout(chance), child))
        elif len(list(child.children())):
            with_dropout(child, chance)
        first = first and not any(True for _ in child.parameters())
    return net


def weights(net: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)
