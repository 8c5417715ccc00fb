"""The protocols of the other axes: what a part of one's own must have.

A part is usually a frozen dataclass whose fields are its settings, with ``name`` and ``paper`` as class attributes.
A class derived from a protocol inherits its defaults; any other object with the same members serves as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..tree import Site
from .likelihood import Likelihood
from .model import BayesianModel, PosteriorPart
from .posterior import Posterior, Prior
from .records import Inputs, Progress

ParamGroups = Sequence[Mapping[str, Any]]
"""Dicts with ``params`` and, where a group differs from the part's own settings, ``lr`` and others."""


class PriorPart(Protocol):
    """The settings of a prior: a density, and its parameters for each site.

    ``density`` has ``log_prob(weights, *parameters)`` element by element, ``std(*parameters)``, and ``analytic``:
    whether ``expected_log_prob(mean, std, *parameters)``, its mean under N(mean, std^2), is there too. ``centre``
    "network" moves it to the weights that the network came with.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""

    @property
    def density(self) -> Any:
        """The density, as above; sites with equal ones are worked on together."""
        ...

    @property
    def centre(self) -> str:
        """ "zero" or "network"."""
        return "zero"

    def parameters(self, site: Site) -> tuple[float, ...]:
        """The density's parameters for one site."""
        ...


class Divergence(Protocol):
    """How KL(q || p) is got, together with the draws that it shares with the estimator.

    One that also has ``takes_keys = True`` may get noise by its key, and hands it to the posterior's ``sample_and_kl``
    as it is.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """(D, P) draws or None, and the KL estimate in nats."""
        ...


class KLWeight(Protocol):
    """A factor on the KL term that depends on progress: M pi_i, averaging to one over the M batches of an epoch."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""

    def __call__(self, at: Progress) -> float:
        """The factor M pi_i for this batch."""
        ...


class Rate(Protocol):
    """A factor on the learning rate that depends on progress alone."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""

    def factor(self, at: Progress) -> float:
        """What the initial learning rate is multiplied by in this step."""
        ...


class Stepper(Protocol):
    """What moves the numbers: the settings of an optimizer or a sampler; ``build`` makes the torch optimizer.

    ``wants`` says which of ``dataset_size``, ``total_steps``, ``generator`` and ``prior`` it is built with (by
    keyword). ``samples``: its iterates are draws from the posterior, so it moves points and needs a collector; groups
    of parameters without a posterior then carry ``noise`` False, and are moved without noise.
    ``handles_divergence``: the prior's and the entropy's part of the objective are in its update (IVON), so the
    objective is the NLL alone. ``tunes_rate``: after the first step it finds its rate itself (YellowFin).
    ``step_bound``: how far one step moves a number at most, in learning rates; None if that depends on the gradient.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    wants: ClassVar[frozenset[str]] = frozenset()
    samples: ClassVar[bool] = False
    handles_divergence: ClassVar[bool] = False
    tunes_rate: ClassVar[bool] = False
    step_bound: ClassVar[float | None] = None

    @property
    def lr(self) -> float | None:
        """The learning rate of groups that name none; rates of groups are set relative to it.

        None: it is fitted while training, by an optimizer that is a ``FitsItself``; rates of groups are factors on it.
        """
        ...

    def planned(self, total_steps: int) -> Stepper:
        """The same for a run of so many steps: one whose rate depends on that has a number for it from here on."""
        return self

    def build(self, *param_groups: Any, **wanted: Any) -> Optimizer:
        """``build(groups, **wanted)``: an ordinary torch optimizer over ``[{"params": [...], "lr": ...}, ...]``."""
        ...

    def sampling(self, at: Progress) -> bool:
        """Whether the weights after step ``at.step`` may be kept as a draw (burn-in and thinning aside)."""
        return True

    def tempered(self, temperature: float) -> Stepper:
        """The same at the temperature of a method: one with a spread of its own multiplies its own by it."""
        return self


@runtime_checkable
class FitsItself(Protocol):
    """An optimizer that finds its own rate: the training loop tells it what it meets, before each step."""

    def observe(self, total: float, gradient: Callable[[], None]) -> bool:
        """The objective of the batch; ``gradient()`` evaluates its gradient anew, wherever the parameters then are.

        False: the step is not to be taken.
        """
        ...

    def retreat(self) -> bool:
        """The objective is not finite here: go back to where it was; False if that is impossible."""
        ...

    def collects(self, step: int) -> bool:
        """Whether the weights after this step may be kept as a draw."""
        ...

    def learning_rates(self) -> list[float]:
        """The rate of the next step in each group."""
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
    paper: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    provides: ClassVar[frozenset[str]] = frozenset()

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Collector:
        """The collector's state; settings that cannot work in so many steps are refused here."""
        ...


class PostHocPart(Protocol):
    """The settings of a step after training that turns a trained model and its data into another posterior."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    likelihood_needs: ClassVar[frozenset[str]] = frozenset()

    def check(self, model: BayesianModel) -> None:
        """Refuse a model that cannot be finished, before it is trained."""

    def tempered(self, temperature: float) -> PostHocPart:
        """The same at the temperature of a method."""
        return self

    def finish(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        batches: Iterable[tuple[Inputs, Tensor]],
        dataset_size: int,
        generator: torch.Generator | None = None,
    ) -> tuple[PosteriorPart, Posterior]:
        """The new posterior, with the settings that describe it; the model itself is left as it is."""
        ...
