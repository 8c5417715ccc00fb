"""Class labels: p(y | f) = softmax(f)_y."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.errors import DataError, DataWarning, SettingError, check_number
from ..core.protocols import Likelihood
from ..core.random import random_signs
from .common import (
    as_class_weights,
    at_least_float32,
    check_tensors,
    first_wrong,
    safe_sqrt,
    sum_per_example,
    weighted_copy,
    with_settings,
)

# torch skips label -100 by default; here only `ignore_index` is skipped.
_NO_LABEL = -(2**62)


@dataclass(eq=False)
class Categorical(Likelihood):
    """Class labels 0 to K-1: p(y | f) = softmax(f / T)_y.

    Outputs are logits (S, K), targets integers (S,). NLL in nats, summed over all positions of an example.

    Args:
        class_weights: one number a class; the NLL of a position counts weight_y times. It is not divided by the sum of
            the weights: a weight of 2 is the label met twice, and the posterior is that of p(y | f)^weight_y. Weights
            that average to 1 over the data keep the balance of data and prior.
        ignore_index: positions with this label do not count.
        class_axis: axis of the classes if outputs have more than two axes: 1 for (S, K, ...), as in
            ``torch.nn.functional.cross_entropy``, or -1 for (S, ..., K). Targets are then (S, ...).
        temperature: T divides the logits; above 1 the probabilities are less sure (Guo et al. 2017).
    """

    class_weights: Sequence[float] | None = None
    ignore_index: int | None = None
    class_axis: int | None = None
    temperature: float = 1.0

    name: ClassVar[str] = "categorical"
    paper: ClassVar[str] = "Bridle 1990"

    def __post_init__(self) -> None:
        super().__init__()
        self._position_roots: Tensor | None = None
        self.class_weights = as_class_weights(self.name, self.class_weights)
        check_number(self.name, "temperature", self.temperature, 0, above=True)
        if self.class_axis == 0:
            raise SettingError(f"{self.name}: `class_axis` must be 1 for (S, K, ...) or -1 for (S, ..., K), got 0")

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse labels that are not integers, out of range or of the wrong shape; warn about softmax outputs."""
        targets = check_tensors(self.name, targets, outputs)
        axis = self._axis(outputs)
        classes = outputs.shape[axis]
        if targets.is_floating_point() and targets.shape != outputs.shape:
            what = "the targets are real numbers and the likelihood is 'categorical', the default"
            raise DataError(f"{what}: give integers from 0 to {classes - 1}, or likelihood='gaussian'")
        self._weights(outputs, classes)
        wanted = (*outputs.shape[:axis], *outputs.shape[axis + 1 :])
        if tuple(targets.shape) != wanted:
            one_hot = f"; convert one-hot labels by y.argmax({axis})" if targets.shape == outputs.shape else ""
            raise DataError(f"{self.name}: targets have shape {tuple(targets.shape)}, not {wanted}{one_hot}")
        labels = targets.long()
        wrong = ((labels < 0) | (labels >= classes)) & self._is_valid(labels)
        if bool(wrong.any()):
            hint = "; to skip it set ignore_index=-100" if int(labels[wrong][0]) == -100 else ""
            raise DataError(f"{self.name}: {first_wrong(labels, wrong)}; labels must be 0 to {classes - 1}{hint}")
        values = at_least_float32(outputs.detach())
        if bool((values >= 0).all() & ((values.sum(axis) - 1).abs() < 1e-2).all()):
            message = (
                "the outputs are probabilities; the likelihood applies softmax itself, so remove it from the network"
            )
            warnings.warn(f"{self.name}: {message}", DataWarning, stacklevel=2)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum over positions of weight_y (logsumexp(f) - f_y); 0 where y is ignored."""
        logits = self._logits(outputs).movedim(self._axis(outputs), 1)
        weights = None if self.class_weights is None else self._weights(logits, logits.shape[1])
        ignore = _NO_LABEL if self.ignore_index is None else self.ignore_index
        losses = F.cross_entropy(logits, targets.long(), weights, reduction="none", ignore_index=ignore)
        return sum_per_example(losses if self._position_roots is None else losses * self._position_roots)

    @torch.no_grad()
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return labels drawn from softmax(f) at every position, ignored or not."""
        probabilities = self.probabilities(outputs)
        rows = probabilities.reshape(-1, probabilities.shape[-1])
        return torch.multinomial(rows, 1, generator=generator).reshape(probabilities.shape[:-1])

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """u = sqrt(p) z - p (sqrt(p)' z) with random signs z: E[u u'] = diag(p) - p p' (over T^2).

        This is the reparameterized Fisher: unlike sampled labels it can be differentiated through p. With class weights
        the Hessian depends on the label; here is its expectation over labels, (sum_k weight_k p_k) (diag(p) - p p').
        """
        axis = self._axis(outputs)
        # sqrt(p) as exp(log p / 2): the derivative of sqrt is infinite where p underflows to 0.
        root = F.log_softmax(self._logits(outputs), dim=axis).mul(0.5).exp()
        u = root * random_signs(root.shape, like=root, generator=generator)
        u = (u - root.square() * u.sum(dim=axis, keepdim=True)) / self.temperature
        if self._position_roots is not None:
            return u * self._position_roots.to(u.dtype).unsqueeze(axis)
        weights = self._weights(u, u.shape[axis])
        return u if weights is None else u * safe_sqrt(self.probabilities(outputs) @ weights).unsqueeze(axis)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """(S, ..., K): softmax, with the classes moved to the last axis."""
        axis = self._axis(outputs)
        return F.softmax(self._logits(outputs), dim=axis).movedim(axis, -1)

    def tempered(self, factor: float) -> Categorical:
        return with_settings(self, temperature=self.temperature * factor)

    def valid_mask(self, targets: Tensor) -> Tensor | None:
        return None if self.ignore_index is None else self._is_valid(targets)

    def for_sampled_targets(self, targets: Tensor) -> Likelihood:
        """Return a likelihood whose positions keep the weights of these targets.

        The Hessian H of a position's NLL does not depend on the label. With square roots of weights in the NLL, sampled
        labels have scores s with E[s s'] = weight H: the Hessian of the weighted NLL at the observed labels.
        """
        if self.class_weights is None and self.ignore_index is None:
            return self
        valid = self._is_valid(targets)
        weights = valid.float()
        if self.class_weights is not None:
            by_class = weights.new_tensor(self.class_weights)
            # An ignored label may be no class at all: it looks up class 0 and has weight 0.
            weights = weights * by_class[torch.where(valid, targets.long(), 0)]
        return weighted_copy(self, weights)

    def _weights(self, like: Tensor, classes: int) -> Tensor | None:
        if self.class_weights is None:
            return None
        count = len(self.class_weights)
        if count != classes:
            raise DataError(f"{self.name}: `class_weights` has {count} numbers, but there are {classes} classes")
        return torch.tensor(self.class_weights, dtype=like.dtype, device=like.device)

    def _is_valid(self, targets: Tensor) -> Tensor:
        labels = targets.long()  # in a byte, -100 would be 156
        return torch.ones_like(labels, dtype=torch.bool) if self.ignore_index is None else labels != self.ignore_index

    def _logits(self, outputs: Tensor) -> Tensor:
        values = at_least_float32(outputs)
        return values if self.temperature == 1 else values / self.temperature

    def _axis(self, outputs: Tensor) -> int:
        shape = tuple(outputs.shape)
        if self.class_axis is None and len(shape) > 2:
            allowed = "class_axis=1 for (S, K, ...) as in torch, or class_axis=-1 for (S, ..., K)"
            raise DataError(f"{self.name}: outputs have shape {shape}; set {allowed}")
        axis = 1 if self.class_axis is None else self.class_axis
        axis = axis + len(shape) if axis < 0 else axis
        if not 0 < axis < len(shape) or shape[axis] < 2:
            allowed = "logits (S, K) of at least 2 classes (a single logit needs likelihood='bernoulli')"
            raise DataError(f"{self.name}: outputs have shape {shape}; they must be {allowed}")
        return axis
