"""A trained Bayesian network as a model of BoTorch, for acquisition functions that work on samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import MissingExtra
from ..core.random import make_generator
from ..nn import evaluation_mode
from ..prediction import Predictor, draws


class DrawnFunctions(nn.Module):
    """The mean functions of drawn networks at (..., q, features) inputs: (..., draws, q, outputs), differentiable.

    A draw is one function of all inputs, so the joint distribution over candidates is kept. Noise is left out. Inputs
    and outputs are in the user's units.
    """

    def __init__(self, predictor: Predictor, count: int = 64, seed: int = 0) -> None:
        super().__init__()
        self.predictor = predictor
        self.networks = list(draws(predictor.model, count, make_generator(seed)))

    def forward(self, X: Tensor) -> Tensor:
        model, preparation = self.predictor.model, self.predictor.preparation
        inputs = X.reshape(-1, X.shape[-1]).to(model.prior.std().dtype)
        if preparation is not None and preparation.input_scaling is not None:
            inputs = preparation.input_scaling.scale(inputs, inputs.dtype, "inputs")
        with evaluation_mode(model):
            outputs = torch.stack([self._mean(model.call(weights, inputs)) for weights in self.networks])
        if preparation is not None and preparation.target_scaling is not None:
            outputs = preparation.target_scaling.restore(outputs)
        return outputs.reshape(len(self.networks), *X.shape[:-1], -1).movedim(0, -3).to(X.dtype)

    def _mean(self, outputs: Tensor) -> Tensor:
        return self.predictor.likelihood.mean_and_variance(outputs)[0]


def botorch_model(predictor: Predictor, num_outputs: int = 1, *, count: int = 64, seed: int = 0) -> Any:
    """Return ``count`` drawn functions as an ``EnsembleModel`` of BoTorch; the draws are fixed."""
    try:
        from botorch.models.ensemble import EnsembleModel
    except ModuleNotFoundError as error:
        raise MissingExtra("botorch_model needs BoTorch: pip install botorch") from error

    class DrawnModel(EnsembleModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.functions = DrawnFunctions(predictor, count, seed)
            self._num_outputs = num_outputs

        def forward(self, X: Tensor) -> Tensor:
            found: Tensor = self.functions(X)
            return found

    return DrawnModel()
