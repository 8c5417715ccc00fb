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
    check_integer,
    check_number,
)
from ..core.protocols import (
    ENTROPY,
    FACTORIZED,
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
from ..estimators.score import LEAVE_ONE_OUT
from ..likelihoods import LIKELIHOODS
from ..ops import in_transform
from .divergences import DIVERGENCES, Analytic, MonteCarlo
from .kl_weights import KL_WEIGHTS

Choice = str | Mapping[str, Any]


class ELBO:
    """The negative evidence lower bound of one batch, in nats per datum::

        total = share * (mean NLL) + T * kl_weight * KL(q || p') / N

    It is minimal where q is nearest to the target exp(-(sum NLL - prior_weight log p(w)) / T). The KL is summed over
    all weights and divided by the number N of training examples, here and nowhere else. For a Gaussian prior,
    p' = p with stds times sqrt(T / prior_weight); other priors stay as they are. The model's prior never changes.

    ``share`` is S M / N for a batch of S examples, one of the M of an epoch (``Progress(batches=M)``). The plain
    average of the totals over an epoch is then the objective of the whole data set also if batches differ in size.

    Args:
        likelihood: p(y | outputs): a name, settings or an object.
        dataset_size: N, the number of training examples.
        estimator: of E_q[NLL].
        divergence: estimate of the KL; None: the closed form where it exists, else Monte Carlo.
        kl_weight: factor on the KL along training.
        temperature: T; 1 is Bayes' rule, below 1 a cold posterior, 0 maximum likelihood.
        prior_weight: weight of -log p(w) in the target; None: T, which tempers the whole KL.
        handles_kl: the optimizer adds prior and entropy itself (IVON): the KL is reported without a gradient.
    """

    def __init__(
        self,
        likelihood: Any,
        dataset_size: int,
        *,
        estimator: Choice | Estimator = "weight_sampling",
        divergence: Choice | Divergence | None = None,
        kl_weight: Choice | KLWeight = "uniform",
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
        self._checked: tuple[Posterior, Prior, Divergence] | None = None
        self._scaled: tuple[Prior, float, Prior] | None = None
        self._targets_checked = False

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
        terms = self.step(model, self.batch(inputs, targets, progress, generator, sample_weight))
        self._targets_checked = True
        return terms

    def batch(
        self,
        inputs: Inputs,
        targets: Tensor,
        progress: Progress | None = None,
        generator: torch.Generator | None = None,
        sample_weight: Tensor | None = None,
    ) -> BatchContext:
        """Return the record of one batch; until a call succeeds it checks the targets against the outputs."""
        if not isinstance(targets, Tensor) or targets.dim() == 0 or len(targets) == 0:
            shape = f"shape {tuple(targets.shape)}" if isinstance(targets, Tensor) else f"type {type(targets).__name__}"
            raise DataError(f"targets must be a tensor with one target for each example, got {shape}")
        kind = BatchContext if self._targets_checked else _CheckedBatch
        return kind(inputs, targets, self.likelihood, sample_weight, progress or Progress(), generator)

    def step(self, model: BayesianModel, batch: BatchContext) -> Terms:
        """Draw weights and return the terms at them."""
        weights, kl = self.draw(model, batch)
        return self.terms(model, weights, kl, batch)

    def draw(self, model: BayesianModel, batch: BatchContext) -> tuple[Tensor, Tensor]:
        """Return the weights that the estimator works at, (D, P) draws or the (P,) mean, and KL(q || p')."""
        divergence = self.divergence_for(model)
        noise = self.estimator.noise(model, batch)
        weights, kl = divergence(model.posterior, self.prior_for(model), noise)
        return (model.posterior.mean if weights is None else weights), kl

    def terms(self, model: BayesianModel, weights: Tensor, kl: Tensor, batch: BatchContext) -> Terms:
        """Return the terms at the weights and KL of ``draw``."""
        nll, outputs = self.estimator.nll(model, weights, batch)
        share, batches = batch.nll_share, batch.progress.batches
        if share is None:
            share = 1.0 if batches is None else len(batch.targets) * batches / self.dataset_size
        # The only place where the KL is scaled.
        factor = batch.kl_share * self.temperature * self.kl_weight(batch.progress) / self.dataset_size
        counted = kl.detach() if self.handles_kl else kl
        total = torch.add(nll if share == 1 else share * nll, counted, alpha=factor)
        if not in_transform() and not math.isfinite(total.item()):
            raise _not_finite(batch, outputs, nll, kl)
        return Terms(total, nll.detach(), kl.detach(), outputs)

    def prior_for(self, model: BayesianModel) -> Prior:
        """Return p', the model's prior scaled for this temperature and prior weight."""
        if self.prior_weight is None or self.prior_weight == self.temperature:
            return model.prior
        factor = self.temperature / self.prior_weight
        if self._scaled is None or self._scaled[0] is not model.prior or self._scaled[1] != factor:
            scaled = scaled_prior(model.prior, self.temperature, self.prior_weight)
            self._scaled = (model.prior, factor, scaled)
        return self._scaled[2]

    def divergence_for(self, model: BayesianModel) -> Divergence:
        """Return the chosen divergence or the one that fits; raise CompositionError for parts that do not fit."""
        known = self._checked
        if known is None or known[0] is not model.posterior or known[1] is not model.prior:
            known = (model.posterior, model.prior, self._find_divergence(model))
            self._checked = known
        return known[2]

    def _find_divergence(self, model: BayesianModel) -> Divergence:
        posterior, prior = model.posterior, model.prior
        divergence = self.divergence
        if divergence is None:
            closed = POINT in posterior.provides or prior.has_closed_form
            divergence = Analytic() if closed or WEIGHT_SAMPLE not in self.estimator.provides else MonteCarlo()
            if not closed and divergence.name == "monte_carlo":
                warnings.warn(
                    f"the KL from prior {type(prior).__name__} has no closed form: it is estimated at the weight draws "
                    "of each step (divergence 'monte_carlo')",
                    BayeswellWarning,
                    stacklevel=2,
                )
        check_parts(posterior, prior, self.likelihood, self.estimator, divergence)
        return divergence


@dataclass(frozen=True)
class _CheckedBatch(BatchContext):
    """A batch whose targets are checked against the outputs before they are used."""

    def mean_nll(self, outputs: Tensor) -> Tensor:
        self.likelihood.check(self.targets, outputs)
        return super().mean_nll(outputs)


def scaled_prior(prior: Prior, temperature: float, prior_weight: float | None) -> Prior:
    """Return p' of ``ELBO``; T = 0 has no use for a prior, which stays as it is."""
    if prior_weight is None or prior_weight == temperature or temperature == 0 or prior.gaussian is None:
        return prior
    return prior.scaled(math.sqrt(temperature / prior_weight))


_MEANING = {
    FACTORIZED: "independent Gaussian weights",
    WEIGHT_SAMPLE: "a weight vector drawn in every step",
    LOG_PROB: "a density log q(w)",
    ENTROPY: "a closed-form entropy",
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
            raise CompositionError(
                f"estimator '{estimator.name}' needs likelihood.{need}, which '{kind}' lacks; use another estimator"
            )
    divergence_label = f"divergence '{divergence.name}'"
    if WEIGHT_SAMPLE in divergence.needs and WEIGHT_SAMPLE not in estimator.provides:
        remedy = "divergence 'analytic', or estimator 'weight_sampling' or 'flipout'"
        raise _lacks(divergence_label, WEIGHT_SAMPLE, f"estimator '{estimator.name}'", remedy)
    for need in sorted(divergence.needs - {WEIGHT_SAMPLE} - posterior.provides):
        if not (point and need == ENTROPY):
            remedy = "divergence 'analytic'" if point or need == LOG_PROB else "divergence 'monte_carlo'"
            raise _lacks(divergence_label, need, f"posterior '{posterior.part.name}'", remedy)
    if ENTROPY in divergence.needs and not point and not prior.has_closed_form:
        raise CompositionError(
            f"{divergence_label} has no closed form for prior {type(prior).__name__}; use divergence 'monte_carlo' "
            "with estimator 'weight_sampling' or 'flipout'"
        )
    if getattr(divergence, "baseline", None) == LEAVE_ONE_OUT and getattr(estimator, "antithetic", False):
        raise CompositionError("baseline 'leave_one_out' needs independent draws; use it without antithetic=True")


def _lacks(owner: str, need: str, other: str, remedy: str) -> CompositionError:
    meaning = _MEANING.get(need, repr(need))
    return CompositionError(f"{owner} needs {meaning}, which {other} does not have; use {remedy}")


def _not_finite(batch: BatchContext, outputs: Any, nll: Tensor, kl: Tensor) -> Exception:
    """Return the error for a loss that is NaN or inf; bad data, and a bad start, are named."""
    begun = batch.progress.step > 0
    suspects = {"the targets": batch.targets, "the inputs": batch.inputs}
    if not begun:
        suspects["the outputs of the network, which has not been trained yet,"] = outputs
    for name, value in suspects.items():
        for tensor in tree_tensors(value):
            bad = ~tensor.isfinite()
            if bool(bad.any()):
                return DataError(f"NaN or inf in {name} first at index {tuple(bad.nonzero()[0].tolist())}")
    what = "training has diverged" if begun else "the loss is not finite at the first step"
    return DivergenceError(f"{what}: nll {nll.item():g}, kl {kl.item():g}; lower the learning rate")
