"""The evidence lower bound as a loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.errors import (
    BayeswellWarning,
    CompositionError,
    DataError,
    DivergenceError,
    SettingError,
    check_integer,
    check_number,
)
from ..core.protocols import (
    ENTROPY,
    FACTORIZED,
    INDEPENDENT_DRAWS,
    LOG_PROB,
    POINT,
    WEIGHT_SAMPLE,
    BatchContext,
    BayesianModel,
    Divergence,
    Estimator,
    Inputs,
    KLWeight,
    Posterior,
    Prior,
    Progress,
    Terms,
)
from ..core.pytree import tree_tensors
from ..estimators import ESTIMATORS
from ..likelihoods import LIKELIHOODS
from ..ops import in_transform
from .divergences import DIVERGENCES, Analytic, MonteCarlo
from .kl_weights import KL_WEIGHTS

PartSpec = str | Mapping[str, Any]


class ELBO:
    """The negative evidence lower bound of one batch, in nats per datum::

        total = nll_factor * (mean NLL) + T * kl_weight * KL(q || p') / N

    It is minimal where q is nearest to the target exp(-(sum NLL - prior_weight log p(w)) / T). The KL is summed over
    all weights and divided by the number N of training examples, here and nowhere else. p' is p with stds times
    sqrt(T / prior_weight), which needs a Gaussian prior and T > 0. The model's prior never changes.

    ``nll_factor`` is S M / N for a batch of S examples, one of the M of an epoch (``Progress(batches=M)``). The plain
    average of the totals over an epoch is then the objective of the whole data set also if batches differ in size.

    Args:
        likelihood: p(y | outputs): a name, settings or an object.
        dataset_size: N, the number of training examples.
        estimator: of E_q[NLL].
        divergence: estimate of the KL; None: the closed form where it exists, else Monte Carlo.
        kl_weight: factor on the KL along training.
        temperature: T; 1 is Bayes' rule, below 1 a cold posterior, 0 maximum likelihood (without ``prior_weight``).
        prior_weight: weight of -log p(w) in the target; None: T, which tempers the whole KL.
        handles_kl: the optimizer adds prior and entropy itself (IVON): the KL is reported without a gradient.
    """

    def __init__(
        self,
        likelihood: Any,
        dataset_size: int,
        *,
        estimator: PartSpec | Estimator = "weight_sampling",
        divergence: PartSpec | Divergence | None = None,
        kl_weight: PartSpec | KLWeight = "uniform",
        temperature: float = 1.0,
        prior_weight: float | None = None,
        handles_kl: bool = False,
    ) -> None:
        self.likelihood = LIKELIHOODS.resolve(likelihood)
        self.dataset_size = check_integer("ELBO", "dataset_size", dataset_size)
        self.estimator = ESTIMATORS.resolve(estimator)
        self.divergence = None if divergence is None else DIVERGENCES.resolve(divergence)
        self.kl_weight = KL_WEIGHTS.resolve(kl_weight)
        self.temperature = check_number("ELBO", "temperature", temperature, 0)
        self.prior_weight = prior_weight
        if prior_weight is not None:
            self.prior_weight = check_number("ELBO", "prior_weight", prior_weight, 0, above=True)
        self.handles_kl = handles_kl
        self._parts: tuple[tuple[Any, ...], Divergence, Prior] | None = None
        self._has_succeeded = False

    def __call__(
        self,
        model: BayesianModel,
        inputs: Inputs,
        targets: Tensor,
        *,
        progress: Progress | None = None,
        generator: torch.Generator | None = None,
        sample_weight: Tensor | None = None,
    ) -> Terms:
        """Return the terms of one batch; differentiate ``total``.

        Args:
            model: made by ``bayesian``.
            inputs: what the network is called with.
            targets: one for each example.
            progress: position in training; ``batches`` makes ragged batches exact.
            generator: of all random numbers of the step.
            sample_weight: (S,): a weight of 2 is the example met twice.
        """
        return self.step(model, self.batch(inputs, targets, progress, generator, sample_weight))

    def batch(
        self,
        inputs: Inputs,
        targets: Tensor,
        progress: Progress | None = None,
        generator: torch.Generator | None = None,
        sample_weight: Tensor | None = None,
    ) -> BatchContext:
        """Return the record of one batch; until a step succeeds it checks the targets against the outputs."""
        if not isinstance(targets, Tensor) or targets.dim() == 0 or len(targets) == 0:
            shape = f"shape {tuple(targets.shape)}" if isinstance(targets, Tensor) else f"type {type(targets).__name__}"
            raise DataError(f"targets must be a tensor with one target for each example, got {shape}")
        batch_class = BatchContext if self._has_succeeded else _CheckedBatch
        return batch_class(inputs, targets, self.likelihood, sample_weight, progress or Progress(), generator)

    def step(self, model: BayesianModel, batch: BatchContext) -> Terms:
        """Draw weights and return the terms at them."""
        weights, kl = self.draw(model, batch)
        return self.terms(model, weights, kl, batch)

    def draw(self, model: BayesianModel, batch: BatchContext) -> tuple[Tensor, Tensor]:
        """Return the weights that the estimator works at, (D, P) draws or the (P,) mean, and KL(q || p')."""
        divergence, prior = self._parts_of(model)
        weights, kl = divergence(model.posterior, prior, self.estimator.noise(model, batch))
        return (model.posterior.mean if weights is None else weights), kl

    def terms(self, model: BayesianModel, weights: Tensor, kl: Tensor, batch: BatchContext) -> Terms:
        """Return the terms at the weights and KL of ``draw``."""
        nll, outputs = self.estimator.nll(model, weights, batch)
        nll_factor, batches = batch.nll_share, batch.progress.batches
        if nll_factor is None:
            nll_factor = 1.0 if batches is None else len(batch.targets) * batches / self.dataset_size
        # The only place where the KL is scaled.
        kl_factor = batch.kl_share * self.temperature * self.kl_weight(batch.progress) / self.dataset_size
        kl_term = kl.detach() if self.handles_kl else kl
        total = torch.add(nll if nll_factor == 1 else nll_factor * nll, kl_term, alpha=kl_factor)
        if not in_transform() and not math.isfinite(total.item()):
            # Without a plan the step is unknown, but after a success it is not the first.
            first = batch.progress.step == 0 and not (self._has_succeeded and batch.progress.total_steps is None)
            raise _not_finite(batch, outputs, nll, kl, first)
        self._has_succeeded = True
        return Terms(total, nll.detach(), kl.detach(), outputs)

    def prior_for(self, model: BayesianModel) -> Prior:
        """Return p', the model's prior scaled for this temperature and prior weight."""
        return self._parts_of(model)[1]

    def divergence_for(self, model: BayesianModel) -> Divergence:
        """Return the chosen divergence or the one that fits; raise CompositionError for parts that do not fit."""
        return self._parts_of(model)[0]

    def _parts_of(self, model: BayesianModel) -> tuple[Divergence, Prior]:
        tempering = None if self.prior_weight is None else (self.temperature, self.prior_weight)
        key = (model.posterior, model.prior, self.likelihood, self.estimator, self.divergence, tempering)
        if self._parts is None or self._parts[0] != key:
            prior = scaled_prior(model.prior, self.temperature, self.prior_weight)
            self._parts = (key, self._find_divergence(model), prior)
        return self._parts[1:]

    def _find_divergence(self, model: BayesianModel) -> Divergence:
        posterior, prior, divergence = model.posterior, model.prior, self.divergence
        if divergence is None:
            closed = POINT in posterior.provides or prior.has_closed_form
            divergence = Analytic() if closed or WEIGHT_SAMPLE not in self.estimator.provides else MonteCarlo()
            if not closed and divergence.name == "monte_carlo":
                message = f"the KL from prior {type(prior).__name__} has no closed form; 'monte_carlo' estimates it"
                warnings.warn(message, BayeswellWarning, stacklevel=2)
        check_parts(posterior, prior, self.likelihood, self.estimator, divergence)
        return divergence


@dataclass(frozen=True)
class _CheckedBatch(BatchContext):
    """A batch whose targets are checked against the outputs before they are used."""

    def mean_nll(self, outputs: Tensor) -> Tensor:
        self.likelihood.check(self.targets, outputs)
        return super().mean_nll(outputs)


def scaled_prior(prior: Prior, temperature: float, prior_weight: float | None) -> Prior:
    """Return p' of ``ELBO``; a prior that cannot be scaled is refused."""
    if prior_weight is None or prior_weight == temperature:
        return prior
    if temperature == 0:
        raise SettingError(f"`prior_weight` = {prior_weight:g} needs a temperature above 0, got 0: maximum likelihood")
    if prior.gaussian is None:
        kind = type(prior).__name__
        raise CompositionError(f"`prior_weight` = {prior_weight:g} needs a Gaussian prior such as 'normal', got {kind}")
    return prior.scaled(math.sqrt(temperature / prior_weight))


_MEANING = {
    FACTORIZED: "independent Gaussian weights",
    WEIGHT_SAMPLE: "a weight vector drawn in every step",
    INDEPENDENT_DRAWS: "independent draws",
    LOG_PROB: "a density log q(w)",
    ENTROPY: "a closed-form entropy",
}
_OF_DRAWS = {
    WEIGHT_SAMPLE: "divergence 'analytic', or estimator 'weight_sampling' or 'flipout'",
    INDEPENDENT_DRAWS: "`antithetic` = False",
}


def check_parts(
    posterior: Posterior, prior: Prior, likelihood: Any, estimator: Estimator, divergence: Divergence
) -> None:
    """Raise CompositionError if one of these parts needs what another does not provide."""
    point = POINT in posterior.provides
    for need in sorted(estimator.needs - posterior.provides):
        remedy = "estimator 'weight_sampling', or posterior 'mean_field' or 'k_tied'"
        raise _lacks(f"estimator '{estimator.name}'", need, f"posterior '{posterior.part.name}'", remedy)
    for need in sorted(estimator.likelihood_needs):
        if not likelihood.supports(need):
            kind = likelihood.name or type(likelihood).__name__
            raise _lacks(f"estimator '{estimator.name}'", f"likelihood.{need}", f"'{kind}'", "another estimator")
    divergence_label = f"divergence '{divergence.name}'"
    for need, remedy in _OF_DRAWS.items():
        if need in divergence.needs - estimator.provides:
            raise _lacks(divergence_label, need, f"estimator '{estimator.name}'", remedy)
    for need in sorted(divergence.needs - set(_OF_DRAWS) - posterior.provides):
        if not (point and need == ENTROPY):
            remedy = "divergence 'analytic'" if point or need == LOG_PROB else "divergence 'monte_carlo'"
            raise _lacks(divergence_label, need, f"posterior '{posterior.part.name}'", remedy)
    if ENTROPY in divergence.needs and not point and not prior.has_closed_form:
        raise CompositionError(
            f"{divergence_label} has no closed form for prior {type(prior).__name__}; use divergence 'monte_carlo' "
            "with estimator 'weight_sampling' or 'flipout'"
        )


def _lacks(owner: str, need: str, other: str, remedy: str) -> CompositionError:
    return CompositionError(f"{owner} needs {_MEANING.get(need, need)}, which {other} does not have; use {remedy}")


def _not_finite(batch: BatchContext, outputs: Any, nll: Tensor, kl: Tensor, first: bool) -> Exception:
    """Return the error for a loss that is NaN or inf; bad data, and a bad start, are named."""
    suspects = {"the targets": batch.targets, "the inputs": batch.inputs}
    if first:
        suspects["the outputs of the network, which has not been trained yet,"] = outputs
    for name, value in suspects.items():
        for tensor in tree_tensors(value):
            bad = ~tensor.isfinite()
            if bool(bad.any()):
                return DataError(f"NaN or inf in {name} first at index {tuple(bad.nonzero()[0].tolist())}")
    what = "the loss is not finite at the first step" if first else "training has diverged"
    return DivergenceError(f"{what}: nll {nll.item():g}, kl {kl.item():g}; lower the learning rate")
