"""A lifted network as estimators and objectives see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from ..tree import Layout, Site
from .posterior import Posterior, Prior
from .records import ExpectedNLL, Inputs, Progress, Step, Terms


class PosteriorPart(Protocol):
    """The settings of a posterior family; ``build`` makes its trainable state."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""

    @property
    def provides(self) -> frozenset[str]:
        """What the family can do: words of ``types.words``."""
        ...

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


class Estimator(Protocol):
    """How E_q[-log p(y given x, w)] is got. A class derived from this one inherits all but ``expected_nll``.

    ``needs`` are words of ``types.words`` that the posterior must provide, ``provides`` those that a divergence may ask
    for; ``likelihood_needs`` names what it calls of the likelihood besides ``nll``.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    provides: ClassVar[frozenset[str]] = frozenset()

    @property
    def likelihood_needs(self) -> frozenset[str]:
        """Methods of the likelihood that this estimator calls, besides ``nll``."""
        return frozenset()

    @property
    def shares_draws(self) -> bool:
        """Whether the network is run at exactly the weights that ``noise`` draws, one vector for the whole batch."""
        return False

    @property
    def differentiates_weights(self) -> bool:
        """Whether the gradient of ``expected_nll`` goes through the weights that the network is run at."""
        return True

    @property
    def draws_one_vector(self) -> bool:
        """Whether ``noise`` is one row of standard normal numbers, and the weights are read by ``unflatten`` alone."""
        return False

    def noise(self, model: BayesianModel, step: Step) -> Tensor | None:
        """The standard normal noise of this step's weight draws, (D, noise_size); None if it draws none."""
        return None

    def forward(self, model: BayesianModel, weights: Tensor | None, step: Step) -> Any:
        """One stochastic pass with one weight draw (P,); without one the network at the posterior's mean."""
        drawn = model.posterior.mean_vector() if weights is None else weights
        return model.call(model.layout.unflatten(drawn), step.inputs)

    def expected_nll(self, model: BayesianModel, weights: Tensor | None, step: Step) -> ExpectedNLL:
        """The batch mean of E_q[NLL], from the (D, P) draws that ``noise`` asked for."""
        ...

    def explain(self, model: BayesianModel, site: Site) -> str:
        """Which estimator this site really gets, for ``describe()``."""
        return self.name

    def cautions(self, net: nn.Module) -> list[str]:
        """What a user should know before training this network with it; a NetworkError refuses the network."""
        return []

    @property
    def passes(self) -> int:
        """How many calls of ``forward``, each with a row of the draws, ``expected_nll`` is the mean NLL of.

        1 if it cannot be split in this way.
        """
        return 1

    @property
    def cost(self) -> float:
        """Of one step, in forward passes; a backward pass counts two, so ordinary training costs 3."""
        return 3.0


class Objective(nn.Module):
    """What training minimises. A kind of objective writes ``terms`` and ``nll``; it may have parameters of its own."""

    def forward(
        self,
        model: BayesianModel,
        inputs: Inputs,
        targets: Tensor,
        *,
        at: Progress | None = None,
        generator: torch.Generator | None = None,
        weights: Tensor | None = None,
    ) -> Terms:
        """The terms of one batch; differentiate ``total``. ``weights`` (S,): how often each example counts."""
        return self.terms(model, Step(inputs, targets, None, generator, at, weights))

    def expected_nll(
        self,
        model: BayesianModel,
        inputs: Inputs,
        targets: Tensor,
        *,
        at: Progress | None = None,
        generator: torch.Generator | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The batch mean of E_q[NLL] alone, differentiable, from the same noise that a call would draw."""
        return self.nll(model, Step(inputs, targets, None, generator, at, weights))

    def terms(self, model: BayesianModel, step: Step) -> Terms:
        """What a call gives, of one step."""
        raise NotImplementedError

    def nll(self, model: BayesianModel, step: Step) -> Tensor:
        """What ``expected_nll`` gives, of one step."""
        raise NotImplementedError
