"""One of K classes: p(y given f) = softmax(f)_y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import DataError
from ..random import random_signs
from .matching import at_least_float32, first_index, require_targets, sum_per_example

# torch skips label -100 unless told otherwise; no label may be skipped in silence.
_NO_LABEL = -(2**62)


@dataclass(eq=False)
class Categorical(nn.Module):
    """Class labels 0 to K-1: p(y given f) = softmax(f)_y.

    Outputs are logits (S, K) or (S, K, ...) with the classes on axis 1, targets integers (S,) or (S, ...),
    as in ``torch.nn.functional.cross_entropy``. NLL in nats, summed over all places of an example.
    """

    name: ClassVar[str] = "categorical"
    paper: ClassVar[str] = "Bridle 1990"

    def __post_init__(self) -> None:
        super().__init__()

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse labels that are not integers, out of range or of the wrong shape."""
        require_targets(self.name, targets, outputs)
        classes = _count_classes(outputs)
        if targets.is_floating_point() or targets.is_complex():
            raise DataError(
                f"categorical: targets are {targets.dtype}; class labels must be integers from 0 to {classes - 1}"
            )
        _require_label_shape(targets, outputs)
        lowest, highest = targets.aminmax()
        if lowest < 0 or highest >= classes:
            labels = targets.long()
            wrong = (labels < 0) | (labels >= classes)
            raise DataError(
                f"categorical: label {labels[wrong][0].item()} at index {first_index(wrong)}; "
                f"labels must lie in 0 to {classes - 1} ({classes} classes)"
            )

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): logsumexp(f) - f_y."""
        _count_classes(outputs)
        _require_label_shape(targets, outputs)
        logits = at_least_float32(outputs)
        losses = F.cross_entropy(logits, targets.long(), reduction="none", ignore_index=_NO_LABEL)
        return sum_per_example(losses)

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Labels drawn from softmax(f)."""
        probabilities = self.class_probabilities(outputs)
        rows = probabilities.reshape(-1, probabilities.shape[-1])
        return torch.multinomial(rows, 1, generator=generator).reshape(probabilities.shape[:-1])

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """u = sqrt(p) z - p (sqrt(p)' z), z random signs: E[u u'] = diag(p) - p p'.

        The reparameterised Fisher: unlike sampled labels it can be differentiated through p.
        """
        _count_classes(outputs)
        # sqrt(p) as exp(log p / 2): the derivative of sqrt is infinite where p underflows to 0.
        root = F.log_softmax(at_least_float32(outputs), dim=1).mul(0.5).exp()
        u = root * random_signs(root.shape, like=root, generator=generator)
        return u - root.square() * u.sum(dim=1, keepdim=True)

    def class_probabilities(self, outputs: Tensor) -> Tensor:
        """(S, ..., K): softmax, with the classes moved from axis 1 to the last."""
        _count_classes(outputs)
        return F.softmax(at_least_float32(outputs), dim=1).movedim(1, -1)


def _count_classes(outputs: Tensor) -> int:
    if outputs.dim() < 2 or outputs.shape[1] < 2:
        raise DataError(
            f"categorical: outputs have shape {tuple(outputs.shape)}; they must be logits (S, K) of at least "
            "2 classes (for a single logit use 'bernoulli')"
        )
    return outputs.shape[1]


def _require_label_shape(targets: Tensor, outputs: Tensor) -> None:
    wanted = (outputs.shape[0], *outputs.shape[2:])
    if tuple(targets.shape) != wanted:
        raise DataError(
            f"categorical: targets have shape {tuple(targets.shape)}; outputs of shape "
            f"{tuple(outputs.shape)} (classes on axis 1) ask for labels of shape {wanted}"
        )
