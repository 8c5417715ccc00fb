"""A likelihood with outputs and targets that it takes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..random import make_generator
from .laws import Law, law_of
from .problems import DOUBLE, normal
from .report import Omitted, PartError

_EXAMPLES = 6
COPIES = 8000
"""How many targets are drawn for each example."""


class Case:
    """A likelihood with outputs and targets that it takes."""

    def __init__(
        self, part: Any, outputs: Tensor | None = None, targets: Tensor | None = None, normalised: bool = True
    ) -> None:
        self.part = copy.deepcopy(part)
        if isinstance(self.part, nn.Module):
            self.part = self.part.to(DOUBLE)
        self.normalised = normalised and getattr(part, "class_weights", None) is None
        self.outputs, self.targets = self._found(outputs, targets)

    def _found(self, outputs: Tensor | None, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """The given ones, or the first of some usual kinds that the likelihood takes."""
        shapes: list[tuple[int, ...]] = [
            (_EXAMPLES, 1),
            (_EXAMPLES, 3),
            (_EXAMPLES, 2),
            (_EXAMPLES,),
            (_EXAMPLES, 3, 2),
        ]
        tried = [0.7 * normal(*shape, seed=1) for shape in shapes] if outputs is None else [outputs]
        refusal = ""
        for candidate in tried:
            candidate = candidate.detach().to(DOUBLE) if candidate.is_floating_point() else candidate
            try:
                values = [targets] if targets is not None else self._targets(candidate)
            except Exception as error:
                refusal = _said(error)
                continue
            for value in values:
                try:
                    losses = self.part.nll(candidate, value)
                    if isinstance(losses, Tensor) and bool(losses.isfinite().all()) and bool(losses.any()):
                        return candidate, value
                except Exception as error:
                    if outputs is not None and targets is not None:
                        raise
                    refusal = _said(error)
        raise PartError(f"no usual outputs and targets fit it{refusal}; give outputs=... and targets=...")

    def _targets(self, outputs: Tensor) -> list[Tensor]:
        if hasattr(self.part, "sample_targets"):
            return [self.part.sample_targets(outputs, make_generator(2))]
        zeros_and_ones = torch.tensor([0.0, 1.0] * (_EXAMPLES // 2), dtype=DOUBLE)
        found = [zeros_and_ones.expand(*outputs.shape[:0:-1], -1).T, zeros_and_ones, zeros_and_ones.long()]
        return found if outputs.dim() < 2 or outputs.shape[1] == 1 else [found[2], found[0]]

    def sampled(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Every example's outputs many times over, and targets drawn for them; leaves a check out that cannot be."""
        if not hasattr(self.part, "sample_targets"):
            raise Omitted("the likelihood has no `sample_targets`")
        if not self.normalised:
            raise Omitted("exp(-nll) is no density (class weights, or normalised = False)")
        many = self.outputs.repeat_interleave(COPIES, 0)
        return many, self.part.sample_targets(many, generator)

    def law(self, example: int) -> Law:
        """The distribution of one example's target, from the NLL alone."""
        if not self.normalised:
            raise Omitted("exp(-nll) is no density (class weights, or normalised = False)")
        return law_of(self.part.nll, self.outputs[example], self.targets[example])


def _said(error: Exception) -> str:
    return f" ({type(error).__name__}: {' '.join(str(error).split()):.150})"
