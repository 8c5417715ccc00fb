"""The contracts between rooms: protocols and plain records, no behaviour.

Shapes: P weights in one flat vector, S examples in a batch, D draws. Losses are in nats per datum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from .random import standard_normal
from .tree import Layout, Site

Inputs = Any
"""What the network is called with: a tensor, a tuple (positional) or a mapping (keywords)."""

# What a part can do, or needs of another; assembly compares these words instead of classes.
FACTORISED = "factorised"  # weights are independent Gaussians: mean and std say it all
WEIGHT_SAMPLE = "weight_sample"  # a weight vector common to the batch is drawn in each step
LOG_PROB = "log_prob"  # log q(w) can be evaluated
ENTROPY = "entropy"  # the entropy of q has a closed form
POINT = "point"  # q is one weight vector: no entropy, any log p(w) is exact

# What a prediction averages over draws.
SAMPLED = "sampled"  # networks: the outputs of each drawn weight vector
LINEARISED = "linearised"  # the network to first order around the posterior's mean
PREDICTIONS = (SAMPLED, LINEARISED)


@dataclass(frozen=True)
class Progress:
    """Where training stands; what schedules and lazy estimators may depend on.

    ``batch`` counts from 0 within the epoch of ``batches``; ``step`` from 0 over ``total_steps``. ``examples`` is how
    many an epoch shows, where that is not all of them (a loader that drops its last batch).

    A step may be cut into pieces (several ranks, gradient accumulation). ``nll_share`` is then what the piece's mean
    NLL counts for, ``kl_share`` what its KL counts for, so that the pieces together make the objective of the step.
    """

    step: int = 0
    total_steps: int | None = None
    batch: int = 0
    batches: int | None = None
    examples: int | None = None
    nll_share: float | None = None
    kl_share: float = 1.0


@dataclass(frozen=True)
class Estimate:
    """What an estimator returns: E_q[NLL] per datum, and the network outputs of its last pass."""

    nll: Tensor
    outputs: Any


@dataclass(frozen=True)
class Terms:
    """The parts of the objective for one batch.

    ``total`` is what to differentiate (nats per datum); ``nll`` is the batch mean, ``kl`` the whole sum in
    nats, both without any weight or temperature. ``outputs`` are the network's, for running metrics.
    """

    total: Tensor
    nll: Tensor
    kl: Tensor
    dataset_size: int
    outputs: Any

    @property
    def elbo(self) -> Tensor:
        """The unscaled ELBO of the whole data set in nats: -(N nll + kl)."""
        return -(self.dataset_size * self.nll + self.kl)

    @property
    def elbo_per_datum(self) -> Tensor:
        """The unscaled ELBO divided by N."""
        return self.elbo / self.dataset_size


@runtime_checkable
class Prior(Protocol):
    """p(w), laid out over the sites of one network (independent weights).

    Where it is Gaussian throughout, ``inverse_variance`` is 1/s^2 (a scalar or (P,)), ``inverse_variance_by_site`` the
    same with one number a site, and ``log_std_sum`` the sum of log s over all weights; else all are None.
    """

    inverse_variance: Tensor | None
    inverse_variance_by_site: Tensor | None
    log_std_sum: Tensor | None

    def log_prob(self, weights: Tensor) -> Tensor:
        """(D, P) -> (D,): log p(w)."""
        ...

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        """E[log p(w)] for w_i ~ N(mean_i, std_i^2): a scalar. Only if ``analytic``."""
        ...

    @property
    def analytic(self) -> bool:
        """Whether ``expected_log_prob`` has a closed form for every site."""
        ...

    def std_vector(self) -> Tensor:
        """(P,): standard deviation of each weight under the prior."""
        ...


class Posterior(nn.Module):
    """q(w), a trainable distribution over the flat weight vector. Calling it gives log q(w)."""

    layout: Layout
    noise_size: int

    def mean_vector(self) -> Tensor:
        """(P,): E[w]."""
        raise NotImplementedError

    def like(self) -> Tensor:
        """Any tensor with the dtype and device of the weights."""
        return self.mean_vector()

    def std_vector(self) -> Tensor:
        """(P,): marginal standard deviation of each weight."""
        raise NotImplementedError

    def variance_vector(self) -> Tensor:
        """(P,): marginal variances."""
        return self.std_vector().square()

    def scaled_square_sum(self, values: Tensor) -> Tensor:
        """sum_i (std_i values_i)^2 for a (P,) vector."""
        return (self.std_vector() * values).square().sum()

    def sample(self, noise: Tensor) -> Tensor:
        """(D, noise_size) standard normal noise -> (D, P) reparameterised draws."""
        raise NotImplementedError

    def forward(self, weights: Tensor) -> Tensor:
        """(D, P) -> (D,): log q(w)."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Differential entropy in nats."""
        raise NotImplementedError

    def sample_and_kl(self, noise: Tensor | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """Draws (None without noise) and the analytic KL(q || p) = -H[q] - E_q[log p], in one call."""
        weights = None if noise is None else self.sample(noise)
        kl = -self.entropy() - prior.expected_log_prob(self.mean_vector(), self.std_vector())
        return weights, kl

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """Networks drawn from q, one at a time: tensors by parameter name, without gradient."""
        like = self.mean_vector()
        for _ in range(count):
            with torch.no_grad():
                noise = standard_normal((1, self.noise_size), like=like, generator=generator)
                tensors = self.layout.unflatten(self.sample(noise)[0])
            del noise
            yield tensors
            del tensors

    def explain(self, site: Site) -> str:
        """How this site is represented, for ``describe()``."""
        raise NotImplementedError


class PosteriorPart(Protocol):
    """The settings of a posterior family; ``build`` makes its trainable state."""

    name: ClassVar[str]
    paper: ClassVar[str]
    provides: ClassVar[frozenset[str]]

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """Trainable q over the layout that starts at the given flat means."""
        ...


@dataclass(frozen=True)
class LinearLayer:
    """A layer whose output is linear in its weight, given its input: ``op(x, weight, bias)``.

    ``spatial_dims`` counts the axes behind the channel axis (0 for a dense layer).
    """

    name: str
    module: nn.Module
    op: Callable[..., Tensor]
    weight: str
    bias: str | None
    spatial_dims: int


class BayesianModel(Protocol):
    """What estimators may know of a lifted network."""

    @property
    def net(self) -> nn.Module:
        """The network, with empty slots where its Bayesian parameters were."""
        ...

    @property
    def posterior(self) -> Posterior:
        """q(w)."""
        ...

    @property
    def posterior_part(self) -> PosteriorPart:
        """The settings that q was built from."""
        ...

    @property
    def prior(self) -> Prior:
        """p(w)."""
        ...

    @property
    def estimator(self) -> Estimator:
        """How the expected log-likelihood is got."""
        ...

    @property
    def layout(self) -> Layout:
        """The sites of the flat weight vector."""
        ...

    @property
    def linear_layers(self) -> Mapping[str, LinearLayer]:
        """The layers that are linear in a Bayesian weight of their own, by name."""
        ...

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Any:
        """The network's outputs with these tensors in place of its Bayesian parameters."""
        ...


class Likelihood(Protocol):
    """p(y given network outputs); every method works example by example along the first axis."""

    name: ClassVar[str]

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse targets that cannot be meant (wrong type, label out of range, wrong shape)."""
        ...

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): -log p(y given outputs), summed over everything but the first axis."""
        ...

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Targets drawn from the model itself."""
        ...

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Random u, differentiable in the outputs, with E[u u'] = Hessian of the NLL in the outputs."""
        ...


class Estimator(Protocol):
    """How E_q[-log p(y given x, w)] is got."""

    name: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    provides: ClassVar[frozenset[str]]

    def noise(self, model: BayesianModel, generator: torch.Generator | None) -> Tensor | None:
        """The standard normal noise of this step's weight draws, (D, noise_size); None if it draws none."""
        ...

    def forward(
        self,
        model: BayesianModel,
        weights: Tensor | None,
        inputs: Inputs,
        generator: torch.Generator | None,
        examples: int | None = None,
    ) -> Any:
        """One stochastic pass with one weight draw (P,); ``examples``: how many there are, where that is known."""
        ...

    def expected_nll(
        self,
        model: BayesianModel,
        weights: Tensor | None,
        inputs: Inputs,
        targets: Tensor,
        likelihood: Likelihood,
        generator: torch.Generator | None,
        at: Progress | None,
    ) -> Estimate:
        """The batch mean of E_q[NLL], from the (D, P) draws that ``noise`` asked for."""
        ...

    def explain(self, model: BayesianModel, site: Site) -> str:
        """Which estimator this site really gets, for ``describe()``."""
        ...

    def cautions(self, net: nn.Module) -> list[str]:
        """What a user should know before training this network with it."""
        ...

    @property
    def cost(self) -> float:
        """Of one step, in forward passes; a backward pass counts two, so ordinary training costs 3."""
        ...


class Divergence(Protocol):
    """How KL(q || p) is got, together with the draws that it shares with the estimator."""

    name: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[frozenset[str]]

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """(D, P) draws or None, and the KL estimate in nats."""
        ...


class Objective(Protocol):
    """What training minimises. It may have parameters of its own (learned noise): it is an ``nn.Module``."""

    def __call__(
        self,
        model: BayesianModel,
        inputs: Inputs,
        targets: Tensor,
        *,
        at: Progress | None = None,
        generator: torch.Generator | None = None,
    ) -> Terms:
        """The terms of one batch; differentiate ``total``."""
        ...

    def expected_nll(
        self,
        model: BayesianModel,
        inputs: Inputs,
        targets: Tensor,
        *,
        at: Progress | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The batch mean of E_q[NLL] alone, differentiable, from the same noise that a call would draw."""
        ...


class Collector(Protocol):
    """Watches the path of training and ends it with a posterior: averages, moments, or a bank of draws."""

    def observe(self, model: BayesianModel, at: Progress) -> None:
        """Look at the model after step ``at.step``; take a snapshot if one is due."""
        ...

    def result(self) -> tuple[PosteriorPart, Posterior]:
        """The posterior that the snapshots make, with the settings that describe it."""
        ...

    def deterministic(self) -> Mapping[str, Tensor]:
        """Where the network's trained parameters without a posterior end, by name; empty if they stay as they are."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, tensors and plain data."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        """The inverse of ``state_dict``."""
        ...


class CollectorPart(Protocol):
    """The settings of a collector; ``build`` makes its state for one model and one plan of training."""

    name: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[frozenset[str]]

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Collector:
        """The collector's state; settings that cannot work in so many steps are refused here."""
        ...
