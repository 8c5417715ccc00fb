"""A trained model with its likelihood: it predicts, is scored, calibrated, saved and loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from ..core.protocols import Likelihood
from ..io import load_model, save_adapter, save_model
from ..methods import Method
from ..nn import BayesianModule
from ..tables import Preparation
from .calibration import Calibration, HeldOut, apply_calibration, find_calibration
from .evaluate import Evaluation, evaluate
from .inputs import with_targets
from .predict import predict
from .predictions import ClassPrediction, RealPrediction


@dataclass(frozen=True, repr=False)
class Predictor:
    """A Bayesian network and its likelihood.

    Args:
        model: the network with its posterior.
        likelihood: with its learned noise.
        preparation: of the user's data; None if nothing is done to them.
        calibration: what ``calibrate`` changed.
        method: the settings of its training.
    """

    model: BayesianModule
    likelihood: Likelihood
    preparation: Preparation | None = None
    calibration: Calibration | None = None
    method: Method | None = None

    def predict(
        self,
        inputs: Any,
        *,
        draws: int = 30,
        batch_size: int | None = None,
        seed: int = 0,
        keep_samples: bool = False,
        prediction: str | None = None,
    ) -> ClassPrediction | RealPrediction:
        """Return the prediction averaged over draws, with its uncertainty; arguments as in ``bayeswell.predict``."""
        found = predict(
            self.model,
            self._prepared(inputs),
            self.likelihood,
            draws,
            batch_size=batch_size,
            seed=seed,
            keep_samples=keep_samples,
            prediction=prediction,
        )
        return found if self.preparation is None else self.preparation.restore(found)

    def evaluate(self, inputs: Any, targets: Any = None, **settings: Any) -> Evaluation:
        """Return every score on these data with its standard error; settings as in ``prediction.evaluate``.

        Real targets are scored in their own units. A DataLoader or Dataset may bring the targets.
        """
        return evaluate(self.model, inputs, targets, self.likelihood, preparation=self.preparation, **settings)

    def calibrate(
        self,
        inputs: Any,
        targets: Any = None,
        *,
        sample_weight: Any = None,
        draws: int = 100,
        batch_size: int = 1000,
        seed: int = 0,
    ) -> Self:
        """Return the predictor calibrated on held-out data: neither those of training nor those of a test.

        A scale of the posterior stds and a temperature of the likelihood are chosen by the NLL of the averaged
        prediction, each only if the gain exceeds its standard error. An earlier calibration is undone first (but for a
        scale of 0).

        Args:
            inputs: held-out inputs.
            targets: None: those of a DataLoader or Dataset.
            sample_weight: (S,): what each example counts.
            draws: networks for each scale that is tried.
            batch_size: examples of one pass.
            seed: of the draws, the same for all scales.
        """
        own = self._uncalibrated()
        inputs, targets = with_targets(inputs, targets)
        if self.preparation is not None:
            targets = self.preparation.targets(targets)
        held_out = HeldOut(own.model, own.likelihood, own._prepared(inputs), targets, sample_weight)
        return own.calibrated(find_calibration([held_out], draws=draws, batch_size=batch_size, seed=seed))

    def calibrated(self, calibration: Calibration) -> Self:
        """Return the predictor with the numbers of a calibration, which was found in the likelihood's units."""
        model, likelihood = apply_calibration(calibration, self.model, self.likelihood)
        shift = 0.0 if self.preparation is None else self.preparation.nll_shift
        return replace(self, model=model, likelihood=likelihood, calibration=calibration.shifted(shift))

    def save(self, path: str | Path) -> None:
        """Write a folder of safetensors and JSON that ``bayeswell.load`` reads."""
        save_model(path, self.model, self.likelihood, **self._beside())

    def save_adapter(self, path: str | Path) -> None:
        """Write the same without frozen parameters, such as LoRA adapters without their base."""
        save_adapter(path, self.model, self.likelihood, **self._beside())

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}({self.model!r}", f"  likelihood: {describe_likelihood(self.likelihood)}"]
        lines += [] if self.calibration is None else [f"  calibration: {self.calibration}"]
        return "\n".join(lines) + ")"

    def _prepared(self, inputs: Any) -> Any:
        return inputs if self.preparation is None else self.preparation.inputs(inputs)

    def _uncalibrated(self) -> Self:
        found = self.calibration
        if found is None or not found.changes:
            return self
        scale = 1.0 if found.std_scale == 0 else 1 / found.std_scale
        undo = replace(found, std_scale=scale, temperature=1 / found.temperature)
        model, likelihood = apply_calibration(undo, self.model, self.likelihood)
        return replace(self, model=model, likelihood=likelihood, calibration=None)

    def _beside(self) -> dict[str, Any]:
        calibration = None if self.calibration is None else dataclasses.asdict(self.calibration)
        return {"preparation": self.preparation, "method": self.method, "extra": {"calibration": calibration}}


def load(
    path: str | Path,
    net: nn.Module | None = None,
    *,
    parts: Sequence[Any] = (),
    output: Any = None,
    device: str | torch.device = "cpu",
) -> Predictor:
    """Return the predictor that ``save`` wrote; it predicts as before. Nothing that is loaded runs code.

    Args:
        path: the folder.
        net: a network of the same class, unless it was made of torch.nn layers in ``nn.Sequential``; its weights do not
            matter (but for adapters).
        parts: classes of custom parts that are not registered, and a custom likelihood.
        output: the function of the network's outputs, if the model was made with one.
        device: of the loaded model.
    """
    saved = load_model(path, net, parts=parts, output=output, device=device)
    calibration = saved.extra.get("calibration")
    return Predictor(
        saved.model,
        saved.likelihood,
        saved.preparation,
        None if calibration is None else Calibration(**calibration),
        saved.method,
    )


def describe_likelihood(likelihood: Likelihood) -> str:
    """Return the name with the numbers that were learned."""
    learned = []
    for name, parameter in likelihood.named_parameters():
        values = parameter.detach().exp() if name.startswith("log_") else parameter.detach()
        shown = [f"{value:.3g}" for value in values.reshape(-1)[:4].tolist()]
        more = ", ..." if values.numel() > 4 else ""
        learned.append(f"learned {name.removeprefix('log_')} {', '.join(shown)}{more}")
    return ", ".join([likelihood.name or type(likelihood).__name__, *learned])
