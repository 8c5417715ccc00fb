"""Predictions as a fold over the outputs of drawn networks."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import torch
from torch import Tensor

from ..core.errors import FitWarning, NetworkError, SettingError, Unsupported, check_integer
from ..core.protocols import Likelihood
from ..core.pytree import num_examples
from ..core.random import make_generator
from ..likelihoods import LIKELIHOODS
from .draws import Model, has_masks
from .inputs import as_inputs, as_targets, like_of, with_targets
from .mixture import PredictiveMixture
from .outputs import grouped, outputs
from .predictions import ClassPrediction, RealPrediction

MOST_KEPT = 1 << 24
"""Outputs of all draws that a prediction of real targets keeps without being asked: 64 MB in float32."""


def predict(
    model: Model,
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
        keep_samples: keep what each draw predicts.
        prediction: "sampled", "linearized" (first order around the posterior mean) or "mean"; None: as the model says.
    """
    ready = as_inputs(model, inputs)
    part = LIKELIHOODS.resolve(likelihood)
    fold = PredictionFold(part, keep_samples)
    joint = keep_samples or not part.supports("probabilities")
    source = make_source(model, generator, seed)
    check_counts(draws, batch_size)
    for found in grouped(outputs(model, ready, draws, source, batch_size, prediction=prediction, joint=joint)):
        fold.update(found, most_draws=draws)
    result = fold.result(like_of(model).dtype)
    if fold.count > 1 and has_masks(model.net):
        _warn_of_equal_draws(result)
    return result


def nll_matrix(
    model: Model,
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
    inputs, targets = with_targets(inputs, targets)
    ready, part = as_inputs(model, inputs), LIKELIHOODS.resolve(likelihood)
    fold = NLLFold(part, as_targets(targets, num_examples(ready)))
    source = make_source(model, generator, seed)
    check_counts(draws, batch_size)
    for found in grouped(outputs(model, ready, draws, source, batch_size, prediction=prediction)):
        fold.update(found)
    return fold.matrix


def expected_nll(model: Model, inputs: Any, targets: Any, likelihood: Any, draws: int = 30, **settings: Any) -> float:
    """Return E_q[-log p(y | x, w)] in nats per datum: N times this, plus KL(q || p), is the negative ELBO.

    It is never below the NLL of the averaged prediction (Jensen). Arguments as in ``nll_matrix``.
    """
    return float(nll_matrix(model, inputs, targets, likelihood, draws, **settings).mean())


def predictive_nll(
    model: Model, inputs: Any, targets: Any, likelihood: Any, draws: int = 30, **settings: Any
) -> Tensor:
    """(S,): -log 1/D sum_d p(y | x, w_d) in nats: the NLL of the averaged prediction, for any likelihood."""
    return mixture_nll(nll_matrix(model, inputs, targets, likelihood, draws, **settings))


def mixture_nll(matrix: Tensor) -> Tensor:
    """(S,): log D - logsumexp_d(-nll_d) of a (D, S) matrix of NLLs."""
    return math.log(len(matrix)) - (-matrix).logsumexp(0)


def make_source(model: Model, generator: torch.Generator | None, seed: int | None) -> torch.Generator | None:
    if seed is None:
        return generator
    if generator is not None:
        raise SettingError("`seed` and `generator` were both given; give one of them")
    return make_generator(check_integer("predict", "seed", seed, 0), like_of(model).device)


def check_counts(draws: int, batch_size: int | None) -> None:
    check_integer("predict", "draws", draws)
    if batch_size is not None:
        check_integer("predict", "batch_size", batch_size)


class NLLFold:
    """The NLL of every example under each draw."""

    def __init__(self, likelihood: Likelihood, targets: Tensor) -> None:
        self.likelihood, self.targets = likelihood, targets
        self.rows: list[Tensor] = []

    def update(self, outputs: Tensor) -> None:
        """Take in the outputs (D, S, ...) of some draws."""
        targets = self.targets.to(outputs.device)
        if not self.rows:
            self.likelihood.check(targets, outputs[0])
        repeated = targets.expand(len(outputs), *targets.shape).flatten(0, 1)
        losses = self.likelihood.nll(outputs.flatten(0, 1), repeated)
        self.rows += losses.detach().unflatten(0, (len(outputs), -1)).cpu().unbind()

    @property
    def matrix(self) -> Tensor:
        """(D, S)."""
        return torch.stack(self.rows)


class PredictionFold:
    """Running means in float64: of probabilities and entropies, or of means and variances."""

    def __init__(self, likelihood: Likelihood, keep_samples: bool) -> None:
        self.likelihood, self.keep_samples = likelihood, keep_samples
        self.count = 0
        self._kept: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._keeps_outputs = self._classes = False
        self._mean = self._squares = self._own = torch.zeros(())

    def update(self, outputs: Tensor, most_draws: int) -> None:
        """Take in the outputs (D, S, ...) of some draws, of ``most_draws`` in all."""
        if self.count == 0:
            self._start(outputs, most_draws)
        flat = outputs.flatten(0, 1)
        with torch.no_grad():
            if self._classes:
                means = self.likelihood.probabilities(flat)
                own = torch.special.entr(means).sum(-1)
            else:
                means, own = self.likelihood.mean_and_variance(flat)
        draws = (len(outputs), -1)
        self._merge(means.unflatten(0, draws), own.unflatten(0, draws))
        if self._keeps_outputs:
            self._outputs.append(outputs)

    def _start(self, outputs: Tensor, most_draws: int) -> None:
        self.likelihood = part = self.likelihood.for_outputs(outputs[0])
        self._classes = part.supports("probabilities")
        if not self._classes and not part.supports("mean_and_variance"):
            raise Unsupported(
                f"likelihood {part.name or type(part).__name__} has neither `probabilities` nor `mean_and_variance`; "
                "a prediction needs one of them"
            )
        small = most_draws * outputs[0].numel() <= MOST_KEPT
        self._keeps_outputs = not self._classes and (self.keep_samples or small)

    def _merge(self, means: Tensor, own: Tensor) -> None:
        # Squared deviations of two groups of draws are joined as by Chan, Golub & LeVeque (1979).
        count, mean = len(means), means.mean(0)
        total, step = self.count + count, mean - self._mean
        self._squares = self._squares + (means - mean).square().sum(0) + step.square() * (self.count * count / total)
        self._mean = self._mean + step * (count / total)
        self._own = self._own + (own.mean(0) - self._own) * (count / total)
        self.count = total
        if self.keep_samples:
            self._kept.append(means)

    def result(self, dtype: torch.dtype) -> ClassPrediction | RealPrediction:
        dtype = torch.promote_types(dtype, torch.float32)
        samples = torch.cat(self._kept).to(dtype) if self._kept else None
        spread = self._squares / self.count
        _check_finite(self._mean)
        if self._classes:
            total = torch.special.entr(self._mean).sum(-1)
            return ClassPrediction(
                probabilities=self._mean.to(dtype),
                probability_std=spread.sqrt().to(dtype),
                entropy=total.to(dtype),
                expected_entropy=torch.minimum(self._own, total).to(dtype),
                draws=self.count,
                samples=samples,
            )
        mixture = None
        if self._outputs:
            # Copied: the noise of the likelihood may be trained further.
            mixture = PredictiveMixture(torch.cat(self._outputs).to(dtype), copy.deepcopy(self.likelihood))
        return RealPrediction(self._mean.to(dtype), spread.to(dtype), self._own.to(dtype), self.count, samples, mixture)


def _check_finite(mean: Tensor) -> None:
    wrong = ~mean.isfinite().reshape(len(mean), -1).all(1)
    if bool(wrong.any()):
        raise NetworkError(
            f"the prediction for example {int(wrong.nonzero()[0])} is not finite: the outputs of at least one drawn "
            "network are NaN or infinite"
        )


def _warn_of_equal_draws(result: ClassPrediction | RealPrediction) -> None:
    if isinstance(result, ClassPrediction):
        spread, size = result.probability_std, 1.0
    else:
        spread, size = result.epistemic_std, float(result.mean.abs().max())
    if float(spread.max()) <= 1e-12 * size:
        warnings.warn(
            f"all {result.draws} draws of dropout masks predict the same: the dropout probability is too small to drop "
            "anything, so the prediction has no epistemic uncertainty",
            FitWarning,
            stacklevel=3,
        )
