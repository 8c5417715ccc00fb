"""Networks for sequences of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from .settings import check_settings, tokens


class LastState(nn.Module):
    """Embedding, LSTM, and a dense layer on the last output."""

    def __init__(self, vocabulary: int, embedding: int, width: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, width, batch_first=True)
        self.dense = nn.Linear(width, outputs)

    def forward(self, sequence: Tensor) -> Tensor:
        """(batch, length) tokens -> (batch, outputs)."""
        states, _ = self.lstm(self.embedding(sequence))
        result: Tensor = self.dense(states[:, -1])
        return result


@dataclass(frozen=True)
class LSTM:
    """Embedding, LSTM and a dense layer, for sequences of tokens padded in front.

    As in Keras' IMDB example, which the k-tied paper follows. torch's LSTM has a second bias, 4 * ``width`` numbers
    that are only ever added to the first.
    """

    width: int = 128
    embedding: int = 128

    name: ClassVar[str] = "lstm"
    paper: ClassVar[str] = "Hochreiter & Schmidhuber 1997; Swiatkowski et al. 2020"

    def __post_init__(self) -> None:
        check_settings(self)

    def build(self, input_shape: tuple[int, ...], outputs: int, *, vocabulary: int | None = None) -> nn.Module:
        """The network."""
        return LastState(tokens(self, input_shape, outputs, vocabulary), self.embedding, self.width, outputs)
