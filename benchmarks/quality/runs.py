"""One run: a method on a problem at a seed, measured."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import bayeswell as bw
from bayeswell.metrics import accuracy, auroc, ece, nll, rmse
from bayeswell.predictive import predictive_nll
from bayeswell.training import fit

from .kept import Kept
from .problems import Loaded, load

__all__ = ["DRAWS", "ORDINARY", "Kept", "class_scores", "run"]

DRAWS = 100
ORDINARY = 3.0
"""Forward passes that a step of ordinary training is worth: one forwards, two backwards."""


def run(
    problem: str, method: Any, seed: int, settings: Mapping[str, Any] | None = None, development: bool = False
) -> dict[str, Any]:
    """Train and measure. Regression scores are in the target's own units.

    ``passes`` is the cost of training in passes through the network, relative to ordinary training for the problem's
    epochs; ``seconds`` is the time of ``fit`` alone.
    """
    torch.set_num_threads(1)
    at = load(problem, seed, development)
    given = {"epochs": at.problem.epochs, "batch_size": at.problem.batch_size, **(settings or {})}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", bw.BayeswellWarning)
        began = time.perf_counter()
        try:
            result = fit(at.net(), at.train, method, at.likelihood, seed=seed, progress=False, **given)
        except bw.BayeswellError as error:
            return {"error": str(error)}
        seconds = time.perf_counter() - began
        scores = _scores(result, at)
    notes = sorted({str(one.message) for one in caught if issubclass(one.category, bw.BayeswellWarning)})
    last = result.histories[0].epochs[-1]
    return {
        **scores, "train_nll": last.nll, "std_ratio": result.std_ratio, "passes": _passes(result, at),
        "seconds": seconds, "picked": result.method.name, "warnings": notes,
    }  # fmt: skip


def _passes(result: Any, at: Loaded) -> float:
    """Of all members, in the epochs that they were really trained."""
    trained = sum(len(history.epochs) for history in result.histories) / len(result.histories)
    return float(result.method.cost / ORDINARY * trained / at.problem.epochs)


def _scores(result: Any, at: Loaded) -> dict[str, float]:
    if at.likelihood == "categorical":
        return class_scores(lambda inputs: result.predict(inputs, draws=DRAWS).probabilities, at)
    inputs, targets = at.test
    assert at.scaling.target_scale is not None
    scale = float(at.scaling.target_scale)
    density = predictive_nll(result.model, inputs, targets, result.likelihood, draws=DRAWS, seed=0)
    error = float(rmse(result.predict(inputs, draws=DRAWS).mean, targets)) * scale
    return {"nll": float(density.mean() + torch.tensor(scale).log()), "rmse": error}


def class_scores(probabilities: Callable[[Tensor], Tensor], at: Loaded) -> dict[str, float]:
    """Of predicted probabilities: on the test examples, on the corrupted ones, and how far foreign ones stand out."""
    inputs, targets = at.test
    found = probabilities(inputs)
    scores = {"nll": nll(found, targets), "accuracy": accuracy(found, targets), "ece": ece(found, targets)}
    if at.ood is not None:
        scores["auroc"] = auroc(_entropy(found), _entropy(probabilities(at.ood)))
    if at.shifted is not None:
        changed = probabilities(at.shifted[0])
        scores["shifted_nll"] = nll(changed, at.shifted[1])
        scores["shifted_accuracy"] = accuracy(changed, at.shifted[1])
        scores["shifted_ece"] = ece(changed, at.shifted[1])
    return {name: float(value) for name, value in scores.items()}


def _entropy(probabilities: Tensor) -> Tensor:
    return torch.special.entr(probabilities).sum(-1)
