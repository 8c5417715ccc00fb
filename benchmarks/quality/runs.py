"""One run: a method on a problem at a seed, measured; kept in a file of JSON lines, so that nothing runs twice."""

from __future__ import annotations

import fcntl
import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import bayeswell as bw
from bayeswell.metrics import accuracy, auroc, ece, nll, rmse
from bayeswell.predictive import predictive_nll
from bayeswell.training import fit

from .problems import Loaded, load

DRAWS = 100


def run(
    problem: str, method: Any, seed: int, settings: Mapping[str, Any] | None = None, development: bool = False
) -> dict[str, Any]:
    """Train and measure. Regression scores are in the target's own units."""
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
    return {**scores, "train_nll": last.nll, "std_ratio": result.std_ratio, "seconds": seconds, "warnings": notes}


def _scores(result: Any, at: Loaded) -> dict[str, float]:
    inputs, targets = at.test
    found = result.predict(inputs, draws=DRAWS)
    if isinstance(found, bw.ClassPrediction):
        probabilities = found.probabilities
        scores = {"nll": nll(probabilities, targets), "accuracy": accuracy(probabilities, targets)}
        scores["ece"] = ece(probabilities, targets)
        if at.ood is not None:
            scores["auroc"] = auroc(found.entropy, result.predict(at.ood, draws=DRAWS).entropy)
    else:
        assert at.scaling.target_scale is not None
        scale = float(at.scaling.target_scale)
        density = predictive_nll(result.model, inputs, targets, result.likelihood, draws=DRAWS, seed=0)
        scores = {"nll": density.mean() + torch.tensor(scale).log(), "rmse": float(rmse(found.mean, targets)) * scale}
    return {name: float(value) for name, value in scores.items()}


class Kept:
    """Results by key in a file of JSON lines; several processes may add to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def read(self) -> dict[str, dict[str, Any]]:
        """Every result so far."""
        if not self.path.exists():
            return {}
        lines = self.path.read_text().splitlines()
        return {line["key"]: line for line in map(json.loads, lines)}

    def add(self, key: str, **values: Any) -> None:
        """One line more, whole."""
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps({"key": key, **values}) + "\n")
