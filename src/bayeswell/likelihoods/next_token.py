"""Next tokens of sequences: p(y | f) = prod_t softmax(f_t)_(y_(t+1))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.errors import DataError, SettingError
from ..core.protocols import Likelihood
from .categorical import Categorical


@dataclass(eq=False)
class NextToken(Categorical):
    """Causal language models: logits (S, T, K) at position t are about the token at position t + 1.

        NLL_n = - sum over t = 1 .. T - 1 of log softmax(f_(n, t))_(y_(n, t + 1)),      nats per sequence

    Targets (S, T) are the unshifted labels of Hugging Face: the tokens, or ``ignore_index`` where a token (padding, a
    prompt) is not learned. No position predicts the first token; the last position has no label.

    A datum is a sequence, so N is the number of sequences, and N mean NLL + KL counts the KL once. The loss of Hugging
    Face's models is a mean over tokens: KL / N added to that would count the KL as often as a sequence has tokens.
    Predictions keep the positions of the outputs: ``probabilities[:, t]`` is about the token after t.
    """

    ignore_index: int | None = -100
    class_axis: int | None = -1

    name: ClassVar[str] = "next_token"
    paper: ClassVar[str] = "Bengio et al. 2003"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ignore_index is None or self.ignore_index >= 0:
            raise SettingError(f"next_token: `ignore_index` must be an integer below 0, got {self.ignore_index!r}")
        if self.class_axis != -1:
            raise SettingError(f"next_token: `class_axis` must be -1 for logits (S, T, K), got {self.class_axis!r}")

    def aligned_targets(self, targets: Tensor) -> Tensor:
        """(S, T): the token after each position; the last position has none."""
        return F.pad(targets.long()[:, 1:], (0, 1), value=self.ignore_index)

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        if isinstance(outputs, Tensor) and (outputs.dim() != 3 or outputs.shape[1] < 2):
            shape = tuple(outputs.shape)
            raise DataError(f"next_token: outputs have shape {shape}; they must be logits (S, T, K) of T > 1 tokens")
        super().check(targets, outputs)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): summed over the tokens that count."""
        return super().nll(outputs, self.aligned_targets(targets))

    @torch.no_grad()
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """(S, T): drawn tokens; the first is ignored."""
        return F.pad(super().sample(outputs, generator)[:, :-1], (1, 0), value=self.ignore_index)

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        root = super().curvature_root(outputs, generator)
        return torch.cat([root[:, :-1], torch.zeros_like(root[:, -1:])], dim=1)

    def valid_mask(self, targets: Tensor) -> Tensor | None:
        """(S, T): the positions of the outputs whose next token counts."""
        return super().valid_mask(self.aligned_targets(targets))

    def for_sampled_targets(self, targets: Tensor) -> Likelihood:
        return super().for_sampled_targets(self.aligned_targets(targets))
