"""Networks for sequences of tokens that are padded in front by token 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ...core.errors import SettingError
from .parts import Shape, check_settings


class MeanEmbedding(nn.Module):
    """Mean of the embeddings of all words, and a dense layer."""

    def __init__(self, vocabulary: int, embedding: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.dense = nn.Linear(embedding, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.dense(masked_mean(self.embedding(tokens), tokens))
        return result


class LastState(nn.Module):
    """Embedding, LSTM, and a dense layer on the last state."""

    def __init__(self, vocabulary: int, embedding: int, width: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, width, batch_first=True)
        self.dense = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        result: Tensor = self.dense(states[:, -1])
        return result


class Encoder(nn.Module):
    """Embeddings with learned positions, encoder layers, and a dense layer on the mean of all words."""

    def __init__(self, part: Transformer, length: int, vocabulary: int, outputs: int) -> None:
        super().__init__()
        width = part.embedding
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, part.heads, 2 * width, part.dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, part.layers, enable_nested_tensor=False)
        self.dense = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        padded = tokens == 0
        # A review without any word still attends to its last place.
        padded = padded & (torch.arange(tokens.shape[1], device=tokens.device) < tokens.shape[1] - 1)
        states = self.encoder(self.embedding(tokens) + self.positions(places), src_key_padding_mask=padded)
        result: Tensor = self.dense(masked_mean(states, tokens))
        return result


def masked_mean(states: Tensor, tokens: Tensor) -> Tensor:
    """Return the mean over all places that are not padding; 0 if all are."""
    words = (tokens != 0).unsqueeze(-1).to(states.dtype)
    return (states * words).sum(1) / words.sum(1).clamp(min=1)


@dataclass(frozen=True)
class Embedding:
    """Mean of word embeddings and a dense layer.

    Args:
        embedding: numbers of a word.
    """

    embedding: int = 64

    name: ClassVar[str] = "embedding"
    summary: ClassVar[str] = "mean of word embeddings, for text"
    takes_tokens: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def build(self, input_shape: Shape, outputs: int, vocabulary: int | None = None) -> nn.Module:
        return MeanEmbedding(vocabulary or 0, self.embedding, outputs)


@dataclass(frozen=True)
class LSTM:
    """Embedding, LSTM and a dense layer, as in the IMDB example of Keras (Swiatkowski et al. 2020).

    The LSTM of torch has a second bias of 4 ``width`` numbers, which are added to the first.

    Args:
        width: numbers of the state.
        embedding: numbers of a word.
    """

    width: int = 128
    embedding: int = 128

    name: ClassVar[str] = "lstm"
    summary: ClassVar[str] = "embedding and LSTM, for text"
    takes_tokens: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)

    def build(self, input_shape: Shape, outputs: int, vocabulary: int | None = None) -> nn.Module:
        return LastState(vocabulary or 0, self.embedding, self.width, outputs)


@dataclass(frozen=True)
class Transformer:
    """A small transformer encoder.

    Args:
        embedding: numbers of a word, a multiple of ``heads``.
        heads: of the attention.
        layers: of the encoder.
        dropout: probability in the encoder.
    """

    embedding: int = 64
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1

    name: ClassVar[str] = "transformer"
    summary: ClassVar[str] = "small transformer encoder, for text"
    takes_tokens: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self)
        if self.embedding % self.heads:
            raise SettingError(f"transformer: `embedding` = {self.embedding} is no multiple of `heads` = {self.heads}")

    def build(self, input_shape: Shape, outputs: int, vocabulary: int | None = None) -> nn.Module:
        return Encoder(self, input_shape[0], vocabulary or 0, outputs)
