"""A transformer encoder in plain torch, as people write it, and low-rank adapters for it."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_RANK = 8


class Attention(nn.Module):
    """Self-attention with a layer for each projection, which adapters can be put beside."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """(S, T, width) -> the same."""
        split = [
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        ]
        return cast(Tensor, self.out(F.scaled_dot_product_attention(*split).transpose(1, 2).flatten(-2)))


class Block(nn.Module):
    """Attention and a hidden layer of four times the width, each with its norm before it and a way around it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(S, T, width) -> the same."""
        x = x + self.attention(self.first(x))
        return cast(Tensor, x + self.down(F.gelu(self.up(self.second(x)))))


class Encoder(nn.Module):
    """Tokens and their places, blocks, and the mean over tokens to the outputs."""

    def __init__(self, width: int, layers: int, tokens: int, vocabulary: int, outputs: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Parameter(0.02 * torch.randn(tokens, width))
        self.blocks = nn.Sequential(*(Block(width, width // 64) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """(S, T) whole numbers -> (S, outputs)."""
        found = self.norm(self.blocks(self.words(tokens) + self.places)).mean(1)
        return cast(Tensor, self.head(found))


class Adapted(nn.Module):
    """W x + 2 B A x with W frozen (Hu et al. 2021)."""

    def __init__(self, base: nn.Linear, rank: int = _RANK) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        """As the layer, and the adapter."""
        return cast(Tensor, self.base(x) + 2.0 * self.lora_B(self.lora_A(x)))


def adapted(net: Encoder) -> Encoder:
    """The same, all of it frozen, with adapters beside the queries and values; in place."""
    net.requires_grad_(False)
    for module in list(net.modules()):
        if isinstance(module, Attention):
            module.query, module.value = Adapted(module.query), Adapted(module.value)  # type: ignore[assignment]
    return net
