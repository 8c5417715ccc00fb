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
from .draws import Model
from .inputs import as_inputs, as_targets, like_of, with_targets
from .mixture import PredictiveMixture
from .outputs import stacked_outputs
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
    source = make_source(model, generator, seed, draws, batch_size)
    ready, part = as_inputs(model, inputs), LIKELIHOODS.resolve(likelihood)
    fold = PredictionFold(part, draws, keep_samples)
    joint = keep_samples or not part.supports("probabilities")
    for stack in stacked_outputs(model, ready, draws, source, batch_size, prediction=prediction, joint=joint):
        fold.update(stack)
    return fold.result()


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
    source = make_source(model, generator, seed, draws, batch_size)
    inputs, targets = with_targets(inputs, targets)
    ready, part = as_inputs(model, inputs), LIKELIHOODS.resolve(likelihood)
    truth = as_targets(targets, num_examples(ready))
    rows: list[Tensor] = []
    for stack in stacked_outputs(model, ready, draws, source, batch_size, prediction=prediction):
        if not rows:
            part.check(truth.to(stack.device), stack[0])
        rows.append(nll_by_draw(part, stack, truth))
    return torch.cat(rows)


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


@torch.no_grad()
def nll_by_draw(likelihood: Likelihood, stack: Tensor, targets: Tensor) -> Tensor:
    """(D, S) float64: -log p(y | f_d) for outputs (D, S, ...)."""
    repeated = targets.to(stack.device).expand(len(stack), *targets.shape).flatten(0, 1)
    losses = likelihood.nll(stack.flatten(0, 1).double(), repeated).double().cpu()
    return losses.reshape(len(stack), -1)


def make_source(
    model: Model, generator: torch.Generator | None, seed: int | None, draws: int, batch_size: int | None
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
    """Running means in float64: of probabilities and entropies, or of means and variances."""

    def __init__(self, likelihood: Likelihood, draws: int, keep_samples: bool) -> None:
        self.likelihood, self.draws, self.keep_samples = likelihood, draws, keep_samples
        self.count, self.dtype = 0, torch.float32
        self._samples: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._keeps_outputs = self._classes = False
        self._mean = self._squares = self._own = torch.zeros(())

    @torch.no_grad()
    def update(self, stack: Tensor) -> None:
        """Take in the outputs (D, S, ...) of some draws."""
        exact = stack.double()
        if self.count == 0:
            self._start(exact[0], stack.dtype)
        if self._classes:
            means = self.likelihood.probabilities(exact.flatten(0, 1))
            own = torch.special.entr(means).sum(-1)
        else:
            means, own = self.likelihood.mean_and_variance(exact.flatten(0, 1))
        count = len(stack)
        means, own = means.unflatten(0, (count, -1)), own.unflatten(0, (count, -1))
        # Squared deviations of two groups of draws are joined as by Chan, Golub & LeVeque (1979).
        total, mean = self.count + count, means.mean(0)
        step = mean - self._mean
        self._squares = self._squares + (means - mean).square().sum(0) + step.square() * (self.count * count / total)
        self._mean = self._mean + step * (count / total)
        self._own = self._own + (own.mean(0) - self._own) * (count / total)
        self.count = total
        if self.keep_samples:
            self._samples.append(means)
        if self._keeps_outputs:
            self._outputs.append(stack)

    def _start(self, outputs: Tensor, dtype: torch.dtype) -> None:
        self.dtype = torch.promote_types(dtype, torch.float32)
        self.likelihood = part = self.likelihood.for_outputs(outputs)
        self._classes = part.supports("probabilities")
        if not self._classes and not part.supports("mean_and_variance"):
            raise Unsupported(
                f"likelihood {part.name or type(part).__name__} has neither `probabilities` nor `mean_and_variance`; "
                "a prediction needs one of them"
            )
        small = self.draws * outputs.numel() <= MOST_KEPT
        self._keeps_outputs = not self._classes and (self.keep_samples or small)

    def result(self) -> ClassPrediction | RealPrediction:
        """Return the averaged prediction, in the dtype of the outputs."""
        wrong = ~self._mean.isfinite().reshape(len(self._mean), -1).all(1)
        if bool(wrong.any()):
            raise NetworkError(
                f"the prediction for example {int(wrong.nonzero()[0])} is not finite: the outputs of at least one "
                "drawn network are NaN or infinite"
            )
        dtype, spread = self.dtype, self._squares / self.count
        samples = torch.cat(self._samples).to(dtype) if self._samples else None
        if self._classes:
            total = torch.special.entr(self._mean).sum(-1)
            expected = torch.minimum(self._own, total)
            mean, std, entropy, own = (one.to(dtype) for one in (self._mean, spread.sqrt(), total, expected))
            return ClassPrediction(mean, std, entropy, own, self.count, samples)
        # Copied: the noise of the likelihood may be trained further.
        kept = torch.cat(self._outputs).to(dtype) if self._outputs else None
        mixture = None if kept is None else PredictiveMixture(kept, copy.deepcopy(self.likelihood))
        return RealPrediction(self._mean.to(dtype), spread.to(dtype), self._own.to(dtype), self.count, samples, mixture)
