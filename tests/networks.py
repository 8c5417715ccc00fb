"""Small networks of each kind, with inputs for five examples of three classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    """An LSTM over embedded tokens, read out at its last step."""

    def __init__(self, cell: Callable[..., nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 3)
        self.cells = cell(3, 4, num_layers=2, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.cells(self.embedding(tokens))[0][:, -1])


class Transformer(nn.Module):
    """Two encoder layers and a mean over positions."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.encoder(x).mean(1))


class Tied(nn.Module):
    """Embedding and decoder share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 4)
        self.middle = nn.Linear(4, 4)
        self.decoder = nn.Linear(4, 3, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(torch.tanh(self.middle(self.embedding(tokens).mean(1))))


class Repeated(nn.Module):
    """One layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Normalized(nn.Module):
    """A convolution with batch, group and layer normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, padding=1)
        self.batch_norm = nn.BatchNorm2d(4)
        self.group_norm = nn.GroupNorm(2, 4)
        self.layer_norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.group_norm(self.batch_norm(self.convolution(x))))
        return self.out(self.layer_norm(x.mean((2, 3))))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "mlp": (mlp, lambda: torch.randn(5, 4)),
    "cnn": (cnn, lambda: torch.randn(5, 2, 8, 8)),
    "lstm": (Recurrent, lambda: torch.randint(0, 11, (5, 4))),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randint(0, 11, (5, 4))),
    "transformer": (Transformer, lambda: torch.randn(5, 6, 8)),
    "tied": (Tied, lambda: torch.randint(0, 3, (5, 4))),
    "repeated": (Repeated, lambda: torch.randn(5, 4)),
    "normalized": (Normalized, lambda: torch.randn(5, 2, 6, 6)),
}


def make(name: str) -> tuple[nn.Module, Any]:
    """Return a network in evaluation mode and its inputs."""
    network, inputs = NETWORKS[name]
    return network().eval(), inputs()
