"""A lifted network together with its likelihood: what predicts, and what comes back from disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..lifting import Saved
from ..lifting import load as load_saved
from ..lifting import save as save_model
from ..types import Inputs
from .evaluate import predict
from .predictions import ClassPrediction, RealPrediction


@dataclass(frozen=True)
class Predictor(Saved):
    """A lifted network and its likelihood, which predicts and can be saved."""

    def predict(
        self,
        inputs: Inputs,
        *,
        draws: int = 100,
        batch_size: int | None = None,
        seed: int = 0,
        keep_samples: bool = False,
        prediction: str | None = None,
    ) -> ClassPrediction | RealPrediction:
        """The prediction averaged over posterior draws, with its uncertainty; arguments as in ``bayeswell.predict``."""
        return predict(
            self.model,
            inputs,
            self.likelihood,
            draws=draws,
            batch_size=batch_size,
            seed=seed,
            keep_samples=keep_samples,
            prediction=prediction,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to predict again to a folder; ``bayeswell.load`` brings it back."""
        save_model(path, self.model, self.likelihood)


def load(
    path: str | os.PathLike[str],
    net: nn.Module | None = None,
    *,
    device: str | torch.device = "cpu",
    parts: Sequence[Any] = (),
) -> Predictor:
    """Bring back what ``save`` wrote; it predicts as it did.

    A network of a class of one's own is passed as ``net``: it supplies the code and the structure, its weights do not
    matter. ``parts`` are the classes (or functions) of parts of one's own that are not registered with
    ``bayeswell.register``. Nothing that is loaded is run.
    """
    saved = load_saved(path, net, device=device, parts=parts)
    return Predictor(saved.model, saved.likelihood)
