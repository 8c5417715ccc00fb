"""The loss of one network on given data: mean NLL over all examples, in pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, NetworkError, require_count
from ..layers import plain_kernels
from ..lifting import BayesianModule
from ..likelihoods import check_targets
from ..modes import evaluation_mode
from ..types import Inputs, Likelihood
from .contracts import require_tensor
from .inputs import as_targets, cut_into_batches, home_of
from .precision import widened


class DataLoss:
    """L(w) = -(1/n) sum log p(y given x, w) in nats per datum, with every layer (BatchNorm too) in evaluation mode.

    Only the Bayesian weights are an argument; deterministic parameters stay. ``batch_size`` (all at once if None) only
    bounds the memory.
    """

    def __init__(
        self, model: BayesianModule, likelihood: Likelihood, data: tuple[Inputs, Any], batch_size: int | None = None
    ) -> None:
        if batch_size is not None:
            require_count("loss", "batch_size", batch_size)
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise DataError(f"data of type {type(data).__name__}; give (inputs, targets)")
        self.model, self.likelihood = model, likelihood
        self.home = home_of(model)
        self.batches = cut_into_batches(data[0], batch_size, self.home)
        self.examples = self.batches[-1].stop
        self.targets = as_targets(data[1], self.examples).to(self.home.device)
        self._checked = False

    def value(self, tensors: Mapping[str, Tensor]) -> float:
        """L of one network: tensors by name, as ``draws`` gives them."""
        with torch.no_grad(), evaluation_mode(self.model):
            return sum(float(self._sum(tensors, index)) for index in range(len(self.batches))) / self.examples

    def at(self, weights: Tensor, rest: Mapping[str, Tensor]) -> float:
        """L at the flat weights (P,); ``rest`` are the drawn network's other tensors (masks, statistics)."""
        return self.value({**rest, **self.model.layout.unflatten(weights)})

    def with_gradient(self, weights: Tensor, rest: Mapping[str, Tensor]) -> tuple[float, Tensor]:
        """L and dL/dw at the flat weights (P,)."""
        leaf = weights.detach().clone().requires_grad_()
        total, gradient = 0.0, torch.zeros_like(leaf)
        # cuDNN's recurrent layers have no backward pass in evaluation mode.
        with torch.enable_grad(), evaluation_mode(self.model), plain_kernels(self.model):
            for index in range(len(self.batches)):
                loss = self._sum({**rest, **self.model.layout.unflatten(leaf)}, index)
                (piece,) = torch.autograd.grad(loss, leaf)
                total += float(loss.detach())
                gradient += piece
        return total / self.examples, gradient / self.examples

    def _sum(self, tensors: Mapping[str, Tensor], index: int) -> Tensor:
        batch = self.batches[index]
        outputs = require_tensor(self.model.call(tensors, batch.on(self.home.device)))
        targets = self.targets[batch.start : batch.stop]
        if not self._checked:
            check_targets(self.likelihood, targets, outputs)
            self._checked = True
        total = self.likelihood.nll(widened(outputs), targets).sum()
        if not bool(total.isfinite()):
            raise NetworkError(f"the loss of examples {batch.start} to {batch.stop - 1} is {float(total):g}")
        return total
