"""Predictions as a fold over the outputs of drawn networks."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from ..core.errors import NetworkError, SettingError, Unsupported, check_integer
from ..core.protocols import Likelihood
from ..core.pytree import num_examples
from ..core.random import make_generator
from ..likelihoods import LIKELIHOODS
from ..nn import BayesianModule
from .inputs import as_inputs, as_targets, like_of, with_targets
from .mixture import PredictiveMixture
from .outputs import stacked_outputs
from .predictions import ClassPrediction, RealPrediction

MOST_KEPT = 1 << 24
"""Outputs of all draws that a prediction of real targets keeps without being asked: 64 MB in float32."""


def predict(
    model: BayesianModule,
    inputs: Any,
    likelihood: Any,
    draws: int = 30,
    *,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    keep_samples: bool = False,
    prediction: str | None = None,
) -> ClassPrediction | RealPrediction:
    """Return the prediction averaged over draws of the posterior, with the parts of its uncertainty.

    Gradients are not recorded; the mode of the model and the inputs do not change. Several threads may predict at once.

    Args:
        model: a ``BayesianModule``.
        inputs: a tensor, an array, a tuple (positional) or mapping (keywords) of them, or a DataLoader or Dataset.
        likelihood: an object (with its learned noise), a name, or a mapping; it decides which record comes back.
        draws: the number of drawn networks.
        batch_size: examples of one pass; None: all.
        generator: draws the networks; None: one with ``seed``, or torch's global generator.
        seed: of a new generator.
        keep_samples: keep what each draw predicts. Linearized predictions of classes then use networks common to all
            examples, which changes the noise.
        prediction: "sampled", "linearized" (first order around the posterior mean) or "mean"; None: as the model says.
    """
    source = make_source(model, generator, seed, draws, batch_size)
    inputs, likelihood = as_inputs(model, inputs), LIKELIHOODS.resolve(likelihood)
    fold = PredictionFold(likelihood, draws, keep_samples=keep_samples)
    joint = keep_samples or not likelihood.supports("probabilities")
    for stack in stacked_outputs(model, inputs, draws, source, batch_size, prediction=prediction, joint=joint):
        fold.update(stack)
    return fold.result()


def nll_matrix(
    model: BayesianModule,
    inputs: Any,
    targets: Any,
    likelihood: Any,
    draws: int = 30,
    *,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    prediction: str | None = None,
) -> Tensor:
    """(D, S): -log p(y | x, w_d) of every example under each draw, in nats; arguments as in ``predict``."""
    source = make_source(model, generator, seed, draws, batch_size)
    inputs, targets = with_targets(inputs, targets)
    inputs, likelihood = as_inputs(model, inputs), LIKELIHOODS.resolve(likelihood)
    targets = as_targets(targets, num_examples(inputs))
    rows: list[Tensor] = []
    for stack in stacked_outputs(model, inputs, draws, source, batch_size, prediction=prediction):
        if not rows:
            likelihood.check(targets.to(stack.device), stack[0])
        rows.append(nll_by_draw(likelihood, stack, targets))
    return torch.cat(rows)


def expected_nll(
    model: BayesianModule, inputs: Any, targets: Any, likelihood: Any, draws: int = 30, **settings: Any
) -> float:
    """Return E_q[-log p(y | x, w)] in nats per datum: N times this, plus KL(q || p), is the negative ELBO.

    It is never below the NLL of the averaged prediction (Jensen). Arguments as in ``nll_matrix``.
    """
    return float(nll_matrix(model, inputs, targets, likelihood, draws, **settings).mean())


def predictive_nll(
    model: BayesianModule, inputs: Any, targets: Any, likelihood: Any, draws: int = 30, **settings: Any
) -> Tensor:
    """(S,): -log 1/D sum_d p(y | x, w_d) in nats: the NLL of the averaged prediction, for any likelihood."""
    return mixture_nll(nll_matrix(model, inputs, targets, likelihood, draws, **settings))


def mixture_nll(matrix: Tensor) -> Tensor:
    """(S,): log D - logsumexp_d(-nll_d) of a (D, S) matrix of NLLs."""
    return math.log(len(matrix)) - (-matrix).logsumexp(0)


@torch.no_grad()
def nll_by_draw(likelihood: Likelihood, stack: Tensor, targets: Tensor) -> Tensor:
    """(D, S) float64: -log p(y | f_d) for outputs (D, S, ...)."""
    repeated = targets.to(stack.device).expand(len(stack), *targets.shape).flatten(0, 1)
    losses = likelihood.nll(stack.flatten(0, 1).double(), repeated).double().cpu()
    return losses.reshape(len(stack), -1)


def make_source(
    model: BayesianModule, generator: torch.Generator | None, seed: int | None, draws: int, batch_size: int | None
) -> torch.Generator | None:
    """Return the generator of the draws; the numbers that were given are checked."""
    check_integer("predict", "draws", draws)
    if batch_size is not None:
        check_integer("predict", "batch_size", batch_size)
    if seed is None:
        return generator
    if generator is not None:
        raise SettingError("`seed` and `generator` were both given; give one of them")
    return make_generator(check_integer("predict", "seed", seed, 0), like_of(model).device)


class PredictionFold:
    """Running means in float64: of probabilities and entropies, or of means and variances.

    ``keep_outputs`` keeps more than ``MOST_KEPT`` outputs too, for a ``PredictiveMixture``.
    """

    def __init__(
        self, likelihood: Likelihood, draws: int, *, keep_samples: bool = False, keep_outputs: bool = False
    ) -> None:
        self.likelihood, self.draws = likelihood, draws
        self.keep_samples, self.keep_outputs = keep_samples, keep_samples or keep_outputs
        self.count, self.dtype, self.is_class = 0, torch.float32, False
        self._samples: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._mean = self._sum_sq_dev = self._mean_within = torch.zeros(())

    @torch.no_grad()
    def update(self, stack: Tensor) -> Tensor:
        """Take in the outputs (D, S, ...) of some draws; return the probabilities or the mean of each."""
        outputs = stack.double()
        if self.count == 0:
            self._start(outputs[0], stack.dtype)
        if self.is_class:
            means = self.likelihood.probabilities(outputs.flatten(0, 1))
            within = torch.special.entr(means).sum(-1)
        else:
            means, within = self.likelihood.mean_and_variance(outputs.flatten(0, 1))
        count = len(stack)
        means, within = means.unflatten(0, (count, -1)), within.unflatten(0, (count, -1))
        # Squared deviations of two groups of draws are joined as by Chan, Golub & LeVeque (1979).
        total, mean = self.count + count, means.mean(0)
        step = mean - self._mean
        between = step.square() * (self.count * count / total)
        self._sum_sq_dev = self._sum_sq_dev + (means - mean).square().sum(0) + between
        self._mean = self._mean + step * (count / total)
        self._mean_within = self._mean_within + (within.mean(0) - self._mean_within) * (count / total)
        self.count = total
        if self.keep_samples:
            self._samples.append(means)
        if self.keep_outputs:
            self._outputs.append(stack)
        by_draw: Tensor = means
        return by_draw

    def _start(self, outputs: Tensor, dtype: torch.dtype) -> None:
        self.dtype = torch.promote_types(dtype, torch.float32)
        self.likelihood = likelihood = self.likelihood.for_outputs(outputs)
        self.is_class = likelihood.supports("probabilities")
        if not self.is_class and not likelihood.supports("mean_and_variance"):
            raise Unsupported(
                f"likelihood {likelihood.name or type(likelihood).__name__} has neither `probabilities` nor "
                "`mean_and_variance`; a prediction needs one of them"
            )
        is_small = self.draws * outputs.numel() <= MOST_KEPT
        self.keep_outputs = not self.is_class and (self.keep_outputs or is_small)

    def result(self) -> ClassPrediction | RealPrediction:
        """Return the averaged prediction, in the dtype of the outputs."""
        wrong = ~self._mean.isfinite().reshape(len(self._mean), -1).all(1)
        if bool(wrong.any()):
            raise NetworkError(
                f"the prediction for example {int(wrong.nonzero()[0])} is not finite: the outputs of at least one "
                "drawn network are NaN or infinite"
            )
        mean, variance = self._mean.to(self.dtype), self._sum_sq_dev / self.count
        samples = torch.cat(self._samples).to(self.dtype) if self._samples else None
        if self.is_class:
            entropy = torch.special.entr(self._mean).sum(-1)
            expected_entropy = torch.minimum(self._mean_within, entropy).to(self.dtype)
            std = variance.sqrt().to(self.dtype)
            return ClassPrediction(mean, std, entropy.to(self.dtype), expected_entropy, self.count, samples)
        mixture = None
        if self._outputs:
            # Copied: the noise of the likelihood may be trained further.
            mixture = PredictiveMixture(torch.cat(self._outputs).to(self.dtype), copy.deepcopy(self.likelihood))
        aleatoric = self._mean_within.to(self.dtype)
        return RealPrediction(mean, variance.to(self.dtype), aleatoric, self.count, samples, mixture)
