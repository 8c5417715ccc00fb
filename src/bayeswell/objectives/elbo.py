"""The evidence lower bound as a loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..composition import check_divergence
from ..divergences import DIVERGENCES
from ..errors import BayeswellWarning, DataError, DivergenceError, require_between, require_count
from ..likelihoods import LIKELIHOODS
from ..random import KeyedNoise, draw_key, is_counted
from ..refusals import explained
from ..schedules import KL_WEIGHTS
from ..types import (
    POINT,
    WEIGHT_SAMPLE,
    BayesianModel,
    Divergence,
    ExpectedNLL,
    KLWeight,
    Likelihood,
    Objective,
    Progress,
    Step,
    Terms,
)
from .checked import CheckedLikelihood, require_finite


class ELBO(Objective):
    """total = share * mean NLL over the batch + temperature * weight * KL / N, in nats per datum.

    KL is summed over all weights and divided by the number N of training examples, here and nowhere else.
    ``weight`` is M pi_i of the KL weight scheme (1 if uniform). ``share`` is 1 but for a ragged batch: given
    ``Progress(batches=M)`` it is S M / N, so that the plain average of the totals over an epoch is exactly the
    objective of the whole data set whatever the batch size.

    An optimizer that takes care of the divergence itself (ivon) wants the gradient of the NLL alone, ``temperature`` 0:
    with ``shown_temperature`` T the total still holds T weight KL / N, as a number without a gradient.

    ``divergence`` None takes, for each model, the analytic form where the prior has one and else Monte Carlo, and
    says so once.
    """

    def __init__(
        self,
        likelihood: Any,
        dataset_size: int,
        *,
        divergence: str | Mapping[str, Any] | Divergence | None = None,
        kl_weight: str | Mapping[str, Any] | KLWeight = "uniform",
        temperature: float = 1.0,
        shown_temperature: float | None = None,
        check: bool = True,
    ) -> None:
        super().__init__()
        require_count("ELBO", "dataset_size", dataset_size)
        require_between("ELBO", "temperature", temperature, 0.0, math.inf, open_high=True)
        if shown_temperature is not None:
            require_between("ELBO", "shown_temperature", shown_temperature, 0.0, math.inf, open_high=True)
        self.likelihood = LIKELIHOODS.resolve(likelihood)
        self.dataset_size = dataset_size
        self.divergence = None if divergence is None else DIVERGENCES.resolve(divergence)
        self._fitting = {name: DIVERGENCES.resolve(name) for name in ("analytic", "monte_carlo")}
        self.kl_weight = KL_WEIGHTS.resolve(kl_weight)
        self.temperature = temperature
        self.shown_temperature = shown_temperature
        self.check = check
        self._told = False

    def terms(self, model: BayesianModel, step: Step) -> Terms:
        """The terms of one batch; differentiate ``total``."""
        estimate, kl = self._evaluate(model, step)
        assert step.targets is not None
        share = self._share(step.targets, step.at)
        # One operation where a batch counts in full; the step of a small network is mostly operations started.
        total = torch.add(
            estimate.nll if share == 1 else share * estimate.nll, kl, alpha=self._factor(step.at, self.temperature)
        )
        if self.check and not math.isfinite(total.item()):
            raise self._not_finite(step, estimate, kl)
        if self.shown_temperature is not None:
            # A number without a gradient: it is read, and changes no step.
            total = total + self._factor(step.at, self.shown_temperature) * kl.detach()
        return Terms(total, estimate.nll.detach(), kl.detach(), self.dataset_size, estimate.outputs)

    def _not_finite(self, step: Step, estimate: ExpectedNLL, kl: Tensor) -> DivergenceError:
        """What to say of a loss that is NaN or inf; bad data, and a network that was so from the start, say so."""
        require_finite("the targets", step.targets)
        begun = step.at is not None and step.at.step > 0
        if not begun:
            require_finite("the network's outputs", estimate.outputs)
        ran_away = "training has diverged: " if begun else ""
        numbers = f"nll {estimate.nll.item():g}, kl {kl.item():g}"
        note = f"{ran_away}the loss is not finite ({numbers}) and no step was taken"
        return DivergenceError(f"{note}; lower the learning rate")

    def nll(self, model: BayesianModel, step: Step) -> Tensor:
        """The batch mean of E_q[NLL] alone, differentiable."""
        return self._evaluate(model, step)[0].nll

    def _evaluate(self, model: BayesianModel, step: Step) -> tuple[ExpectedNLL, Tensor]:
        targets = step.targets
        if not isinstance(targets, Tensor):
            raise DataError(f"targets of type {type(targets).__name__}; give a tensor with one target for each example")
        if targets.dim() == 0:
            raise DataError("targets have shape (); the first axis must count the examples")
        if len(targets) == 0:
            raise DataError("the batch is empty: it has no targets")
        if self.check:
            # Not only the loss: inf may vanish in a tanh and still ruin the gradients.
            require_finite("the inputs", step.inputs)
        likelihood: Likelihood = CheckedLikelihood(self.likelihood) if self.check else self.likelihood
        step = Step(step.inputs, targets, likelihood, step.generator, step.at, step.weights)
        divergence = self.divergence_for(model)
        noise = _noise(model, step, divergence)
        weights, kl = divergence(model.posterior, model.prior, noise)
        try:
            return model.estimator.expected_nll(model, weights, step), kl
        except (RuntimeError, TypeError, IndexError) as error:
            line = explained(error, step.inputs)
            if line is None:
                raise
            raise line from error

    def divergence_for(self, model: BayesianModel) -> Divergence:
        """The chosen divergence, or the one that fits; refused if it cannot work with the model's parts."""
        divergence = self.divergence
        if divergence is None:
            point = POINT in model.posterior_part.provides
            analytic = point or model.prior.analytic or WEIGHT_SAMPLE not in model.estimator.provides
            divergence = self._fitting["analytic" if analytic else "monte_carlo"]
        check_divergence(model.posterior_part, model.prior, model.estimator, divergence)
        if self.divergence is None and divergence.name == "monte_carlo" and not self._told:
            self._told = True
            note = "the prior has no closed-form KL: it is estimated at each step's weight draws (monte_carlo)"
            warnings.warn(note, BayeswellWarning, stacklevel=4)
        return divergence

    def _share(self, targets: Tensor, at: Progress | None) -> float:
        """S M / N: what a batch counts for in the average over an epoch of M batches; a piece says it itself."""
        if at is not None and at.nll_share is not None:
            return at.nll_share
        if at is None or at.batches is None:
            return 1.0
        return len(targets) * at.batches / (at.examples or self.dataset_size)

    def _factor(self, at: Progress | None, temperature: float) -> float:
        """temperature * weight / N: the only place where the KL is scaled."""
        at = at or Progress()
        return at.kl_share * temperature * self.kl_weight(at) / self.dataset_size


LEAST_STREAMED = 1 << 22
"""Weights from which on noise is known by its key alone: below, a vector of it in the caches is quicker."""


def _noise(model: BayesianModel, step: Step, divergence: Divergence) -> Any:
    """What the estimator draws; of one long vector only its key, where posterior and divergence take it."""
    posterior, estimator = model.posterior, model.estimator
    keyed = posterior.takes_keys and getattr(divergence, "takes_keys", False) and estimator.draws_one_vector
    size, least = posterior.noise_size, posterior.keys_from
    if keyed and size >= (LEAST_STREAMED if least is None else least) and is_counted(size, posterior.like()):
        return KeyedNoise(draw_key(step.generator), size)
    return estimator.noise(model, step)
