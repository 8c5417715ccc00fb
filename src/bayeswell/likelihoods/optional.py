"""Members that a likelihood may have, asked for in one place: with a sensible answer where they are missing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..types import ClassLikelihood, Likelihood


def check_targets(likelihood: Likelihood, targets: Tensor, outputs: Tensor) -> None:
    """Let the likelihood refuse targets that cannot be meant, if it knows how."""
    check = getattr(likelihood, "check", None)
    if check is not None:
        check(targets, outputs)


def for_outputs(likelihood: Any, outputs: Tensor) -> Any:
    """The likelihood, or the form of it that predicts, where only outputs can tell which that is."""
    decide = getattr(likelihood, "for_outputs", None)
    return likelihood if decide is None else decide(outputs)


def weighted_as(likelihood: Any, targets: Tensor) -> Any:
    """The likelihood for drawn targets and curvature, each place weighted as it is for the given targets.

    Where class weights or ignored labels make some places count more than others, the Hessian of the NLL depends on
    the targets through these weights alone; targets drawn from the model cannot know them.
    """
    weigh = getattr(likelihood, "weighted_as", None)
    return likelihood if weigh is None else weigh(targets)


def counted(likelihood: Any, targets: Tensor) -> Tensor | None:
    """Which places of the labels count at all, as booleans of their shape; None: all of them."""
    count = getattr(likelihood, "counted", None)
    return None if count is None else count(targets)


def labels_of(likelihood: Any, targets: Tensor) -> Tensor:
    """The targets at the places of the outputs, where they are given at others (the next token)."""
    place = getattr(likelihood, "labels", None)
    return targets if place is None else place(targets)


def most_likely(likelihood: ClassLikelihood, outputs: Tensor) -> Tensor:
    """(S, ...): the class of the highest probability; a likelihood may know it without the probabilities."""
    find = getattr(likelihood, "most_likely", None)
    if find is not None:
        found: Tensor = find(outputs)
        return found
    with torch.no_grad():
        return likelihood.class_probabilities(outputs).argmax(-1)


def can_be_widened(likelihood: Any) -> bool:
    """Whether ``likelihood.widened(factor)`` gives the same likelihood made less sure by a factor.

    Logits are divided by it, noise stds multiplied.
    """
    return callable(getattr(likelihood, "widened", None))
