"""The next token of a sequence: p(y given f) = prod_t softmax(f_t)_(y_(t+1))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import DataError, SettingError
from .categorical import Categorical
from .class_weights import WeightedPlaces


@dataclass(eq=False)
class NextToken(Categorical):
    """Causal language models: logits (S, T, K) at place t are about the token at place t + 1.

        NLL_n = - sum over t = 1 .. T - 1 of log softmax(f_(n, t))_(y_(n, t + 1)),      nats per sequence

    Targets (S, T) are the labels as Hugging Face has them, not shifted: the tokens themselves, ``ignore_index`` where a
    token (padding, a prompt) is not to be learned. The first has no place that predicts it, the last place no label.

    A datum is a sequence, so N is the number of sequences, and N mean NLL + KL is the sum over all tokens of all
    sequences plus the KL, once. The loss of Hugging Face's own models is a mean over tokens: adding KL / N to that
    would count the KL as often as a sequence has tokens. Predictions keep the places of the outputs:
    ``probabilities[:, t]`` is what follows token t, the last is what follows the sequence.
    """

    ignore_index: int | None = -100
    class_axis: int | None = -1

    name: ClassVar[str] = "next_token"
    paper: ClassVar[str] = "Bengio et al. 2003"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ignore_index is None or self.ignore_index >= 0:
            raise SettingError(
                f"next_token: ignore_index = {self.ignore_index!r}; it must be a whole number below 0, as -100"
            )
        if self.class_axis != -1:
            raise SettingError(f"next_token: class_axis = {self.class_axis!r}; the logits are (S, T, K), so it is -1")

    def labels(self, targets: Tensor) -> Tensor:
        """(S, T): the label of each place of the outputs, the token behind it; the last place has none."""
        assert self.ignore_index is not None
        # Whole numbers of a byte cannot hold -100.
        return torch.nn.functional.pad(targets.long()[:, 1:], (0, 1), value=self.ignore_index)

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse what are no sequences of tokens."""
        _require_sequences(outputs)
        super().check(targets, outputs)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): summed over the tokens that count."""
        _require_sequences(outputs)
        self._require_label_shape(targets, outputs)
        return super().nll(outputs, self.labels(targets))

    def place_nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S, T): the NLL of every place, without weights; 0 for the last."""
        return self._losses(outputs, self.labels(targets), None, self.ignore_index)

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """(S, T): a token drawn for every place behind the first, which is ignored."""
        _require_sequences(outputs)
        assert self.ignore_index is not None
        drawn = super().sample_targets(outputs, generator)
        return torch.nn.functional.pad(drawn[:, :-1], (1, 0), value=self.ignore_index)

    def plain_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """As for any classes; 0 for the last place, which has no label."""
        root = super().plain_root(outputs, generator)
        return torch.cat([root[:, :-1], torch.zeros_like(root[:, -1:])], dim=1)

    def counted(self, targets: Tensor) -> Tensor | None:
        """(S, T): which places of the outputs have a label that is not ignored."""
        return super().counted(self.labels(targets))

    def weighted_as(self, targets: Tensor) -> Categorical | WeightedPlaces:
        """This likelihood for drawn tokens and curvature, with the places that count for these targets."""
        return super().weighted_as(self.labels(targets))


def _require_sequences(outputs: Tensor) -> None:
    if outputs.dim() != 3 or outputs.shape[1] < 2:
        raise DataError(
            f"next_token: outputs have shape {tuple(outputs.shape)}; they must be logits (S, T, K) of sequences of at "
            "least 2 tokens"
        )
