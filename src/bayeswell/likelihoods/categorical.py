"""One of K classes: p(y given f) = softmax(f)_y."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import DataError, SettingError, require_positive
from ..random import random_signs
from .class_weights import WeightedPlaces, as_class_weights, safe_root, weight_tensor
from .matching import at_least_float32, first_index, require_targets, sum_per_example

# torch skips label -100 unless told otherwise; no label may be skipped in silence.
_NO_LABEL = -(2**62)


@dataclass(eq=False)
class Categorical(nn.Module):
    """Class labels 0 to K-1: p(y given f) = softmax(f)_y.

    Outputs are logits (S, K), targets integers (S,). Outputs with more axes must say which of them holds the classes:
    ``class_axis=1`` for (S, K, ...), as in ``torch.nn.functional.cross_entropy``, ``class_axis=-1`` for (S, ..., K), as
    language models have it; targets are then (S, ...), one for each place. NLL in nats, summed over all places of an
    example.

    ``class_weights``: a number for each class; the NLL of a place counts weight_y times (``class_weights.py`` says what
    that means for the posterior). ``ignore_index``: places with this label count nothing; an example with no other has
    an NLL of 0. ``temperature`` T divides the logits, softmax(f / T): above 1 less sure, the same ranking (Guo et al.
    2017); ``calibrate`` finds one.
    """

    class_weights: Sequence[float] | None = None
    ignore_index: int | None = None
    class_axis: int | None = None
    temperature: float = 1.0

    name: ClassVar[str] = "categorical"
    paper: ClassVar[str] = "Bridle 1990"

    def __post_init__(self) -> None:
        super().__init__()
        self.class_weights = as_class_weights(self.name, self.class_weights)
        require_positive(self.name, "temperature", self.temperature)
        for setting, value in (("ignore_index", self.ignore_index), ("class_axis", self.class_axis)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise SettingError(f"categorical: {setting} = {value!r}; it must be a whole number")
        if self.class_axis == 0:
            raise SettingError(
                "categorical: class_axis = 0 counts the examples; use 1 for (S, K, ...) or -1 for (S, ..., K)"
            )

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse labels that are not integers, out of range or of the wrong shape."""
        require_targets(self.name, targets, outputs)
        if targets.is_floating_point() or targets.is_complex():
            raise DataError(_no_labels(targets, outputs, self.class_axis))
        classes = outputs.shape[self._axis(outputs)]
        if self.class_weights is not None:
            weight_tensor(self.name, tuple(self.class_weights), classes, outputs)
        self._require_label_shape(targets, outputs)
        lowest, highest = targets.aminmax()
        if lowest < 0 or highest >= classes:
            labels = targets.long()
            wrong = ((labels < 0) | (labels >= classes)) & self._is_counted(labels)
            if bool(wrong.any()):
                first = int(labels[wrong][0])
                skipped = ", or be skipped: ignore_index=-100" if first == -100 else ""
                raise DataError(
                    f"categorical: label {first} at index {first_index(wrong)}; "
                    f"labels must lie in 0 to {classes - 1} ({classes} classes){skipped}"
                )

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum over places of weight_y (logsumexp(f) - f_y); 0 where y is ignored."""
        return sum_per_example(self._losses(outputs, targets, self.class_weights, self.ignore_index))

    def place_nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S, ...): the NLL of every place, without weights; no label is ignored."""
        return self._losses(outputs, targets, None, None)

    def _losses(self, outputs: Tensor, targets: Tensor, weights: Sequence[float] | None, ignored: int | None) -> Tensor:
        logits = self._logits(outputs).movedim(self._axis(outputs), 1)
        self._require_label_shape(targets, outputs)
        weight = None if weights is None else weight_tensor(self.name, tuple(weights), logits.shape[1], logits)
        ignore = _NO_LABEL if ignored is None else ignored
        return F.cross_entropy(logits, targets.long(), weight, reduction="none", ignore_index=ignore)

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Labels drawn from softmax(f), for every place (``weighted_as`` knows which count)."""
        probabilities = self.class_probabilities(outputs)
        rows = probabilities.reshape(-1, probabilities.shape[-1])
        return torch.multinomial(rows, 1, generator=generator).reshape(probabilities.shape[:-1])

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """u = sqrt(p) z - p (sqrt(p)' z), z random signs: E[u u'] = diag(p) - p p' (over T^2 at another temperature).

        The reparameterised Fisher: unlike sampled labels it can be differentiated through p. With class weights the
        Hessian depends on the label, weight_y (diag(p) - p p'); here is its expectation over labels from p,
        (sum_k weight_k p_k) (diag(p) - p p').
        """
        u = self.plain_root(outputs, generator)
        if self.class_weights is None:
            return u
        axis = self._axis(outputs)
        p = F.softmax(self._logits(outputs), dim=axis).movedim(axis, -1)
        expected = p @ weight_tensor(self.name, tuple(self.class_weights), p.shape[-1], p)
        return u * safe_root(expected).unsqueeze(axis)

    def plain_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """The root without weights."""
        axis = self._axis(outputs)
        # sqrt(p) as exp(log p / 2): the derivative of sqrt is infinite where p underflows to 0.
        root = F.log_softmax(self._logits(outputs), dim=axis).mul(0.5).exp()
        u = root * random_signs(root.shape, like=root, generator=generator)
        return (u - root.square() * u.sum(dim=axis, keepdim=True)) / self.temperature

    def class_probabilities(self, outputs: Tensor) -> Tensor:
        """(S, ..., K): softmax, with the classes moved to the last axis."""
        axis = self._axis(outputs)
        return F.softmax(self._logits(outputs), dim=axis).movedim(axis, -1)

    def most_likely(self, outputs: Tensor) -> Tensor:
        """(S, ...): argmax f, which is that of softmax(f / T) without computing it."""
        return outputs.argmax(self._axis(outputs))

    def widened(self, factor: float) -> Categorical:
        """This likelihood at a temperature so many times as high."""
        return dataclasses.replace(self, temperature=self.temperature * factor)

    def counted(self, targets: Tensor) -> Tensor | None:
        """Which places have a label that is not ignored; None: all."""
        return None if self.ignore_index is None else self._is_counted(targets)

    def weighted_as(self, targets: Tensor) -> Categorical | WeightedPlaces:
        """This likelihood for drawn labels and curvature, each place weighted as it is for these targets."""
        if self.class_weights is None and self.ignore_index is None:
            return self
        weights = self._is_counted(targets).float()
        if self.class_weights is not None:
            each = weights.new_tensor(self.class_weights)
            # An ignored label may be no class at all: it looks up class 0, and counts nothing.
            weights = weights * each[torch.where(weights > 0, targets.long(), 0)]
        return WeightedPlaces(self, weights)

    def spread(self, places: Tensor, outputs: Tensor) -> Tensor:
        """A number for each place, in a shape that multiplies outputs."""
        return places.unsqueeze(self._axis(outputs))

    def _is_counted(self, targets: Tensor) -> Tensor:
        if self.ignore_index is None:
            return torch.ones_like(targets, dtype=torch.bool)
        return targets.long() != self.ignore_index  # compared as a byte, -100 would be 156

    def _logits(self, outputs: Tensor) -> Tensor:
        """f / T; the outputs themselves at T = 1."""
        values = at_least_float32(outputs)
        return values if self.temperature == 1 else values / self.temperature

    def _axis(self, outputs: Tensor) -> int:
        """Where the classes are, counted from the first axis."""
        shape, axis = tuple(outputs.shape), self.class_axis
        if axis is None:
            if len(shape) > 2:
                raise DataError(
                    f"categorical: outputs have shape {shape}; say which axis holds the classes: class_axis=1 for "
                    "(S, K, ...), torch's convention, or class_axis=-1 for (S, ..., K)"
                )
            axis = 1
        place = axis + len(shape) if axis < 0 else axis
        if not 0 < place < max(len(shape), 2):
            raise DataError(f"categorical: outputs have shape {shape}; class_axis = {axis} is no axis of classes there")
        if len(shape) < 2 or shape[place] < 2:
            raise DataError(
                f"categorical: outputs have shape {shape}; they must be logits (S, K) of at least "
                "2 classes (for a single logit use 'bernoulli')"
            )
        return place

    def _require_label_shape(self, targets: Tensor, outputs: Tensor) -> None:
        axis = self._axis(outputs)
        wanted = (*outputs.shape[:axis], *outputs.shape[axis + 1 :])
        if tuple(targets.shape) != wanted:
            one_hot = f"; of one-hot labels give y.argmax({axis})" if targets.shape == outputs.shape else ""
            raise DataError(
                f"categorical: targets have shape {tuple(targets.shape)}; outputs of shape "
                f"{tuple(outputs.shape)} (classes on axis {axis}) ask for labels of shape {wanted}{one_hot}"
            )


def _no_labels(targets: Tensor, outputs: Tensor, class_axis: int | None) -> str:
    """Which likelihood these targets are for: real numbers, or zeros and ones, or labels that are kept as floats."""
    axis = 1 if class_axis is None else class_axis
    classes = outputs.shape[axis] if -outputs.dim() <= axis < outputs.dim() else 1
    labels = "class labels must be integers" + (f" from 0 to {classes - 1}" if classes > 1 else "")
    binary = not targets.is_complex() and bool(((targets == 0) | (targets == 1)).all())
    other = "real-valued targets give likelihood='gaussian'"
    if binary:
        other = "zeros and ones and a single logit give likelihood='bernoulli'"
    return f"categorical: targets are {targets.dtype}; for {other}; {labels}"
