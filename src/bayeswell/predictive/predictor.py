"""A lifted network together with its likelihood: what predicts, and what comes back from disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import nn

from ..lifting import Saved, uncalibrated
from ..lifting import load as load_saved
from ..lifting import save as save_model
from ..types import Calibration, Inputs
from .calibration import HeldOut, applied, find_calibration, together
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
        prepared = inputs if self.preparation is None else self.preparation.inputs(inputs)
        found = predict(
            self.model,
            prepared,
            self.likelihood,
            draws=draws,
            batch_size=batch_size,
            seed=seed,
            keep_samples=keep_samples,
            prediction=prediction,
        )
        return found if self.preparation is None else self.preparation.restore(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to predict again to a folder; ``bayeswell.load`` brings it back."""
        save_model(path, self.model, self.likelihood, self.calibration, self.preparation)

    def calibrate(
        self,
        inputs: Inputs,
        targets: Any,
        *,
        weights: Any = None,
        draws: int = 100,
        batch_size: int = 1000,
        seed: int = 0,
    ) -> Self:
        """The same, calibrated on held-out data: neither those it was trained on, nor those that will test it.

        One scale of the posterior's stds and one temperature of the logits (or factor of the noise std) are chosen by
        the NLL of the averaged prediction, each only where the gain exceeds its standard error; ``calibration`` says
        what was found, ``predictive.calibration`` how. ``weights`` (S,) say how often each example counts. What was
        calibrated before begins anew from what it was without that, so that the same data give the same numbers (a
        scale of 0 cannot be undone: then it stays the mean network).
        """
        own = uncalibrated(self)
        if self.preparation is not None:
            inputs, targets = self.preparation.inputs(inputs), self.preparation.targets(targets)
        held_out = HeldOut(own.model, own.likelihood, inputs, targets, weights)
        found = find_calibration([held_out], draws=draws, batch_size=batch_size, seed=seed)
        found = found if self.preparation is None else found.shifted(self.preparation.nll_shift)
        result = own.calibrated(found)
        if self.calibration is None or self.calibration.std_scale != 0:
            return result
        return replace(result, calibration=replace(found, std_scale=0.0))

    def calibrated(self, calibration: Calibration) -> Self:
        """The same with these two numbers applied."""
        model, likelihood = applied(calibration, self.model, self.likelihood)
        return replace(self, model=model, likelihood=likelihood, calibration=together(self.calibration, calibration))


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
    return Predictor(saved.model, saved.likelihood, calibration=saved.calibration, preparation=saved.preparation)
