"""A view of a lifted network whose weights are moved by a constant of its own in every pass of the estimator.

An estimator whose NLL is a mean over D passes (``Estimator.passes``) is evaluated pass by pass: draw d is moved by row
d of the offsets, and so are the means that pass d sees. What the divergence sees is not moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ..types import BayesianModel, Estimator, ExpectedNLL, Step
from .shifted import ShiftedModel, ShiftedPosterior


class _RowsPosterior(ShiftedPosterior):
    """Draws are moved by one row each; the means, of which there is no single moved one, stay."""

    def mean_vector(self) -> Tensor:
        """(P,): as before."""
        return self.base.mean_vector()


class ShiftedPasses(ShiftedModel):
    """The model with pass d moved by row d of ``offsets`` (D, P), or a probe of it (None)."""

    def __init__(self, model: BayesianModel, offsets: Tensor | None) -> None:
        super().__init__(model, offsets)
        rows = [None] * model.estimator.passes if offsets is None else offsets.unbind(0)
        self._posterior = _RowsPosterior(model.posterior, model.prior, offsets)
        self._passes = [ShiftedModel(model, row) for row in rows]
        # Everything but the mean over the passes is the estimator's own.
        self._estimator = cast(Estimator, _PassByPass(model.estimator, self._passes))

    @property
    def estimator(self) -> Estimator:
        """The model's own, its passes each at a view of their own."""
        return self._estimator

    def slopes(self, loss: Tensor) -> Tensor:
        """(D, P): the gradient of a loss with respect to the offsets of a probe, at zero."""
        drawn, seen = self._posterior.handed_out, [view.posterior.handed_out for view in self._passes]
        starts = [*drawn, *(start for of_pass in seen for start in of_pass)]
        found = iter(torch.autograd.grad(loss, starts, materialize_grads=True))
        total = loss.new_zeros(len(seen), self.layout.size)
        for _ in drawn:
            total = total + next(found)
        by_pass = [sum((next(found) for _ in of_pass), start=row) for of_pass, row in zip(seen, total, strict=True)]
        return torch.stack(by_pass)


class _PassByPass:
    """An estimator whose pass d sees view d of the model."""

    def __init__(self, base: Estimator, views: Sequence[BayesianModel]) -> None:
        self._base, self._views = base, views

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)

    def expected_nll(self, model: BayesianModel, weights: Tensor | None, step: Step) -> ExpectedNLL:
        """The mean over the passes, in their order, so that each draws the noise that it always draws."""
        count = len(self._views)
        rows: Sequence[Tensor | None] = [None] * count if weights is None else weights.unbind(0)
        losses, outputs = [], None
        for view, drawn in zip(self._views, rows, strict=True):
            outputs = self._base.forward(view, drawn, step)
            losses.append(step.nll(outputs))
        return ExpectedNLL(nll=torch.stack(losses).mean(), outputs=outputs)
