"""Scores on validation data after each epoch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.protocols import LINEARIZED, MEAN, POINT, Likelihood
from ..core.random import derive_seed, make_generator
from ..methods import TrainState
from ..prediction import outputs
from .data import Data
from .devices import Engine, device_of

DRAWS = 10


def validation_scores(state: TrainState, data: Data, engine: Engine, seed: int) -> dict[str, float]:
    """Return "nll" and "expected_nll", with "accuracy" or "rmse", of the present state."""
    noise, model = derive_seed(seed, "validation"), state.model
    sums: dict[str, float] = {}
    size = 0
    # A point estimate has nothing to linearize yet (method laplace, before its end).
    point = POINT in model.posterior.provides and model.prediction == LINEARIZED
    for batch in data.epoch(noise):
        inputs, targets = engine.place((batch.inputs, batch.targets))
        generator = make_generator(noise, device_of(model))
        found = list(outputs(model, inputs, DRAWS, generator, prediction=MEAN if point else None))
        for name, value in _batch_scores(state.likelihood, found, targets).items():
            sums[name] = sums.get(name, 0.0) + value
        size += len(targets)
    means = {name: value / size for name, value in sums.items()}
    if "mse" in means:
        means["rmse"] = math.sqrt(means.pop("mse"))
    return means


@torch.no_grad()
def _batch_scores(likelihood: Likelihood, found: list[Tensor], targets: Tensor) -> dict[str, float]:
    # Sums over the examples, of the prediction averaged over draws.
    losses = torch.stack([likelihood.nll(out, targets).double() for out in found])
    mixed = math.log(len(found)) - (-losses).logsumexp(0)
    scores = {"nll": float(mixed.sum()), "expected_nll": float(losses.mean(0).sum())}
    if likelihood.supports("probabilities"):
        mean = torch.stack([likelihood.probabilities(out) for out in found]).mean(0)
        hits = mean.argmax(-1) == likelihood.aligned_targets(targets)
        mask = likelihood.valid_mask(targets)
        if hits.shape == mean.shape[:-1]:
            scores["accuracy"] = float((hits if mask is None else hits[mask]).double().mean()) * len(targets)
    elif likelihood.supports("mean_and_variance"):
        mean = torch.stack([likelihood.mean_and_variance(out)[0] for out in found]).mean(0)
        errors = (mean - targets.reshape(mean.shape).to(mean)).double().square()
        scores["mse"] = float(errors.reshape(len(targets), -1).mean(1).sum())
    return scores
