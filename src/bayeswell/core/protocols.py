"""The protocols of all parts, and the records that pass between them.

Shapes: P weights, D draws, S examples. Losses are in nats per datum.

A *part* is a frozen dataclass of settings with ``name`` and ``paper``; its ``build`` makes the trainable state.
Capabilities are words (``FACTORIZED``, ...) in ``provides`` and ``needs``; parts are combined by comparing them, never
by class. Optional members have a default here; the default of a likelihood method raises ``Unsupported``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from .errors import Unsupported
from .layout import Layout
from .random import standard_normal

# Capabilities of posteriors and estimators.
FACTORIZED = "factorized"
"""Weights are independent Gaussians: mean and std are all of q."""
WEIGHT_SAMPLE = "weight_sample"
"""A weight vector common to the batch is drawn in each step."""
INDEPENDENT_DRAWS = "independent_draws"
"""The draws of a step are independent."""
LOG_PROB = "log_prob"
"""log q(w) can be evaluated."""
ENTROPY = "entropy"
"""The entropy of q has a closed form."""
POINT = "point"
"""q is one weight vector."""
LOG_STD = "log_std"
"""The trainable state is one mean and one log std for each weight."""
EMPIRICAL = "empirical"
"""q is a set of networks, each drawn with equal probability; it has no mean network."""
MIXTURE = "mixture"
"""q is a mixture of distributions; it has no mean network."""

# What a prediction averages over draws.
SAMPLED = "sampled"
"""The outputs of drawn networks."""
LINEARIZED = "linearized"
"""The network to first order around the mean of the posterior."""
MEAN = "mean"
"""Nothing: the network at the mean of the posterior."""
PREDICTIONS = (SAMPLED, LINEARIZED, MEAN)

Inputs = Any
"""What the network is called with: a tensor, a tuple (positional) or a mapping (keywords)."""


@dataclass(frozen=True)
class Progress:
    """Position in training. ``batch`` counts from 0 within the epoch of ``batches``, ``step`` over ``total_steps``."""

    step: int = 0
    total_steps: int | None = None
    batch: int = 0
    batches: int | None = None

    @property
    def fraction(self) -> float:
        """Share of training done before this step."""
        return self.step / self.total_steps if self.total_steps else 0.0


@dataclass(frozen=True)
class BatchContext:
    """One batch on its way through objective, sharpness and estimator.

    Args:
        sample_weight: (S,): a weight of 2 is the example met twice.
        nll_share: what the mean NLL of this batch counts for in the step (ragged batches, pieces of a batch); None:
            computed from ``progress`` by the objective.
        kl_share: what the KL counts for (1 / pieces).
        offset: what sharpness has added to the weights, in their shape; an estimator that reads ``posterior.mean``
            adds it there too.
    """

    inputs: Inputs
    targets: Tensor
    likelihood: Likelihood
    sample_weight: Tensor | None = None
    progress: Progress = field(default_factory=Progress)
    generator: torch.Generator | None = None
    nll_share: float | None = None
    kl_share: float = 1.0
    offset: Tensor | None = None

    def mean_nll(self, outputs: Tensor) -> Tensor:
        """Return 1/S sum_s weight_s nll_s."""
        losses = self.likelihood.nll(outputs, self.targets)
        return losses.mean() if self.sample_weight is None else (self.sample_weight * losses).mean()


@dataclass(frozen=True)
class Terms:
    """The objective of one batch. ``total`` is differentiated; ``nll`` (mean) and ``kl`` (sum) carry no weight."""

    total: Tensor
    nll: Tensor
    kl: Tensor
    outputs: Any = None


@dataclass(frozen=True)
class GaussianTerms:
    """A factorized Gaussian prior as the compiled formulas take it.

    Args:
        inverse_variances: one number a site, or (P,) if ``by_site`` is False.
        by_site: whether the numbers are by site.
        log_std_sum: sum of log s over all weights.
        center: (P,), or None for zero.
    """

    inverse_variances: Tensor
    by_site: bool
    log_std_sum: Tensor
    center: Tensor | None = None


class Prior(nn.Module):
    """p(w) of independent weights over the sites of one network."""

    layout: Layout
    parts: tuple[PriorPart, ...] = ()
    """The settings of each site."""

    @property
    def gaussian(self) -> GaussianTerms | None:
        """The terms of a Gaussian prior, else None."""
        return None

    @property
    def has_closed_form(self) -> bool:
        """True if ``expected_log_prob`` works."""
        return self.gaussian is not None

    def log_prob(self, weights: Tensor) -> Tensor:
        """Return log p(w) of (D, P) weights as (D,)."""
        raise NotImplementedError

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        """Return E[log p(w)] for w_i ~ N(mean_i, std_i^2), a scalar."""
        raise Unsupported(f"prior {type(self).__name__} has no closed form of E[log p(w)]")

    def std(self) -> Tensor:
        """(P,): standard deviation of each weight."""
        raise NotImplementedError

    def center(self) -> Tensor:
        """(P,): mean of each weight."""
        raise NotImplementedError

    def scaled(self, factor: float) -> Prior:
        """Return this prior with all stds multiplied by ``factor``; the prior itself does not change."""
        raise Unsupported(f"prior {type(self).__name__} cannot be scaled; only Gaussian priors can")


class PriorPart(Protocol):
    """The settings of a prior. ``build`` lays it out over the sites; ``center`` (P,) or None for zero."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def build(self, layout: Layout, like: Tensor) -> Prior: ...


@dataclass(frozen=True)
class Covariance:
    """Cov[w] = diag(variances) + F F' + sites whose matrix is M + A E B' (``matrices``: (A, B) by site name)."""

    variances: Tensor
    factor: Tensor | None = None
    matrices: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


class Posterior(nn.Module):
    """q(w) over the flat weight vector. ``part`` holds its settings and capabilities.

    ``mean`` is a (P,) tensor (a parameter, or computed); ``NoMean`` is raised by empirical posteriors and mixtures.
    ``forward`` is ``log_prob``, so that ``torch.func.functional_call`` can evaluate log q at other parameters.
    """

    layout: Layout
    part: PosteriorPart
    mean: Tensor
    noise_size: int
    extra_names: tuple[str, ...] = ()
    """Other parameters and buffers of the network that each draw brings along, such as BatchNorm statistics."""

    @property
    def provides(self) -> frozenset[str]:
        return self.part.provides

    def std(self) -> Tensor:
        """(P,): marginal standard deviations, differentiable."""
        raise NotImplementedError

    def rsample(self, noise: Tensor) -> Tensor:
        """Return (D, P) reparameterized draws from (D, noise_size) standard normal noise."""
        raise NotImplementedError

    def log_prob(self, weights: Tensor) -> Tensor:
        """Return log q(w) of (D, P) weights as (D,)."""
        raise Unsupported(f"posterior '{self.part.name}' has no density")

    def forward(self, weights: Tensor) -> Tensor:
        return self.log_prob(weights)

    def entropy(self) -> Tensor:
        """Differential entropy in nats."""
        raise Unsupported(f"posterior '{self.part.name}' has no closed-form entropy")

    def rsample_and_kl(self, noise: Tensor | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """Return draws (None without noise) and KL(q || p) = -H[q] - E_q[log p] in nats."""
        weights = None if noise is None else self.rsample(noise)
        return weights, -self.entropy() - prior.expected_log_prob(self.mean, self.std())

    def covariance(self) -> Covariance | None:
        """The covariance of a Gaussian q, in parts; None if it is not known."""
        return None

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """Yield drawn networks one at a time: tensors by parameter name, without gradient."""
        like: Tensor | None = next(self.parameters(), None)
        like = self.mean if like is None else like
        for _ in range(count):
            with torch.no_grad():
                noise = standard_normal((1, self.noise_size), like=like, generator=generator)
                weights = self.rsample(noise)[0].detach()
            yield self.layout.unflatten(weights)

    @property
    def num_networks(self) -> int | None:
        """The number of networks of an empirical posterior, else None."""
        return None


class PosteriorPart(Protocol):
    """The settings of a posterior family."""

    name: ClassVar[str]
    paper: ClassVar[str]

    @property
    def provides(self) -> frozenset[str]: ...

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        """Return a trainable q that starts at the given (P,) mean."""
        ...


class Likelihood(nn.Module):
    """p(y | outputs). ``nll`` is enough to train; the rest is asked for by the parts that use it.

    Optional methods raise ``Unsupported``; ``supports(name)`` says whether a class overrides one.
    A likelihood that is a dataclass with a ``name`` can be saved; learned noise is an ``nn.Parameter``.
    """

    name: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    is_discrete: bool = False

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): -log p(y | outputs) in nats, summed over all axes but the first."""
        raise NotImplementedError

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Raise DataError for targets of a wrong type, range or shape. Called once, before training."""

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return targets drawn from p(y | outputs), without gradient."""
        raise self._unsupported("sample")

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return random u, differentiable in the outputs, with E[u u'] = Hessian of the NLL in the outputs."""
        raise self._unsupported("curvature_root")

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """Return that Hessian, with the shape of the outputs, where it is diagonal."""
        raise self._unsupported("curvature_diagonal")

    def probabilities(self, outputs: Tensor) -> Tensor:
        """(S, ..., K): class probabilities, classes on the last axis."""
        raise self._unsupported("probabilities")

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """E[y] and Var[y] given the outputs, with the shape of y."""
        raise self._unsupported("mean_and_variance")

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """P(y <= values) for each output of an example."""
        raise self._unsupported("cdf")

    def tempered(self, factor: float) -> Likelihood:
        """Return the same likelihood, less sure by a factor (logits divided by it, noise stds multiplied)."""
        raise self._unsupported("tempered")

    def valid_mask(self, targets: Tensor) -> Tensor | None:
        """Boolean mask of the targets that count; None: all."""
        return None

    def aligned_targets(self, targets: Tensor) -> Tensor:
        """Return the targets at the positions of the outputs (next-token shifts them)."""
        return targets

    def for_sampled_targets(self, targets: Tensor) -> Likelihood:
        """Return a likelihood for sampled targets, weighted like these targets (class weights, ignored labels)."""
        return self

    def for_scaled_targets(self, scale: Sequence[float]) -> Likelihood:
        """Return the likelihood of (y - shift) / scale, one scale for each output: fixed noise is divided by it."""
        return self

    def for_outputs(self, outputs: Tensor) -> Likelihood:
        """Return the likelihood to predict with. What ``supports`` says may depend on the outputs (of a function)."""
        return self

    def supports(self, method: str) -> bool:
        return getattr(type(self), method, None) is not getattr(Likelihood, method)

    def _unsupported(self, method: str) -> Unsupported:
        return Unsupported(f"likelihood {self.name or type(self).__name__} has no `{method}`")


@dataclass(frozen=True)
class LinearLayer:
    """A layer that is linear in its weight: ``op(x, weight, bias)``; ``spatial_dims`` is 0 for a dense layer."""

    name: str
    module: nn.Module
    op: Any
    weight: str
    bias: str | None
    spatial_dims: int


class BayesianModel(Protocol):
    """The view of a Bayesian network (``nn.BayesianModule``) that estimators, averagers and predictions use."""

    net: nn.Module
    layout: Layout
    posterior: Posterior
    prior: Prior
    prediction: str

    @property
    def linear_layers(self) -> Mapping[str, LinearLayer]: ...

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held by a thread that changes the modes or layers of the network."""
        ...

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Tensor:
        """Return the outputs (logits or means) of the network with these tensors; pure."""
        ...


class Estimator:
    """E_q[-log p(y | x, w)] of a batch. ``needs`` are capabilities of the posterior."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    provides: ClassVar[frozenset[str]] = frozenset()
    likelihood_needs: ClassVar[frozenset[str]] = frozenset()
    cost: float = 3.0
    """Of one step, in forward passes; ordinary training costs 3."""
    uses_weight_gradient: bool = True
    """Whether the gradient goes through the weights that the network runs at (sharpness needs it)."""

    def noise(self, model: BayesianModel, batch: BatchContext) -> Tensor | None:
        """(D, noise_size) noise of this step's weight draws; None: the estimator works at mean and std."""
        return None

    def nll(self, model: BayesianModel, weights: Tensor, batch: BatchContext) -> tuple[Tensor, Any]:
        """Return the batch mean of E_q[NLL] and the outputs of the last pass.

        Args:
            weights: the (D, P) draws that ``noise`` asked for, or without noise the (P,) mean of q. Sharpness hands
                them over shifted by ``batch.offset``; an estimator that reads ``posterior.mean`` adds it.
        """
        raise NotImplementedError

    def warnings_for(self, net: nn.Module) -> list[str]:
        """Return warnings about training this network; raise NetworkError to refuse it."""
        return []


class Divergence(Protocol):
    """KL(q || p) with the draws that it shares with the estimator: (posterior, prior, noise) -> (draws or None, KL)."""

    name: ClassVar[str]
    paper: ClassVar[str]

    @property
    def needs(self) -> frozenset[str]: ...

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]: ...


class KLWeight(Protocol):
    """A factor on the KL of a batch."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def __call__(self, progress: Progress) -> float: ...


@dataclass(frozen=True)
class OptimizerContext:
    """Facts of a run that an optimizer may need besides its parameter groups."""

    dataset_size: int
    total_steps: int
    batches: int
    generator: torch.Generator | None = None
    prior: Prior | None = None
    temperature: float = 1.0


class OptimizerPart:
    """The settings of an optimizer or sampler.

    Groups are dicts with "params", "name" ("means", "stds", "noise" or "other"), "lr", and for samplers "noise":
    False for groups that are moved without noise.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    samples: ClassVar[bool] = False
    """The iterates are draws from the posterior."""
    handles_kl: ClassVar[bool] = False
    """The update contains prior and entropy (IVON); the objective is the NLL alone."""
    step_bound: ClassVar[float | None] = None
    """How far one step moves a number at most, in learning rates; None: it depends on the gradient."""
    lr: float | None

    def build(self, groups: Sequence[dict[str, Any]], context: OptimizerContext) -> torch.optim.Optimizer:
        raise NotImplementedError

    def planned(self, total_steps: int) -> OptimizerPart:
        """Return this part with a learning rate that suits a run of so many steps."""
        return self

    def may_sample(self, progress: Progress) -> bool:
        """Return True if the weights after this step may be kept as a draw."""
        return True


class AutoTuned(Protocol):
    """An optimizer that finds its own step size; the training loop reports each loss before the step."""

    def before_step(self, loss: float, gradient: Any) -> bool:
        """``gradient()`` evaluates the gradient again at the present weights. False: skip the step."""
        ...

    def rollback(self) -> bool:
        """Return to the last finite state after a loss that is not finite; False if that is impossible."""
        ...

    def may_sample(self, progress: Progress) -> bool: ...


class Schedule(Protocol):
    """A factor on the learning rate that depends on progress alone."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def factor(self, progress: Progress) -> float: ...


class Averager(Protocol):
    """Watches training and ends it with a posterior: averages, moments, or a set of draws."""

    def after_step(self, model: BayesianModel, progress: Progress) -> None: ...

    def finalize(self, model: BayesianModel) -> Posterior: ...

    def other_params(self) -> Mapping[str, Tensor]:
        """The average of trained parameters without a posterior, by name; empty if they stay."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class AveragerPart(Protocol):
    """The settings of an averager."""

    name: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    provides: ClassVar[frozenset[str]]

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Averager: ...


class PostHocPart(Protocol):
    """A step after training that turns a trained model and its data into another posterior (Laplace)."""

    name: ClassVar[str]
    paper: ClassVar[str]
    likelihood_needs: ClassVar[frozenset[str]]

    def fit(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        batches: Iterable[tuple[Inputs, Tensor]],
        *,
        dataset_size: int,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Posterior:
        """Return the new posterior; ``model`` does not change. ``model.prior`` is the prior to use (already scaled)."""
        ...


class NoMean(Unsupported):
    """The posterior is a set of networks or a mixture: it has no mean network."""
