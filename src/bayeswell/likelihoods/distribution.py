"""Likelihoods from ``torch.distributions``: a function of the outputs returns p(y | outputs).

A function is enough, ``fit(net, data, likelihood=lambda f: Poisson(f.exp()))``, or an ``nn.Module`` whose ``forward``
returns the distribution and whose parameters are learned too. To save a model by name, derive a dataclass with a
``name`` from ``DistributionLikelihood`` and register it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent
from torch.distributions.constraints import is_dependent

from ..core.errors import DataError, NetworkError, SettingError
from ..core.protocols import Likelihood
from .common import as_float64, at_least_float32, check_tensors, first_wrong, match_shape, sum_per_example


class DistributionLikelihood(Likelihood):
    """-log p(y | f) and draws of y from the distribution that ``distribution(f)`` returns.

    The first batch axis of the distribution counts the examples; its other axes and its event axes belong to an
    example, and the NLL is summed over them. Targets have the shape of a draw; (S,) and (S, 1) are interchangeable.

    Predictions are class probabilities for torch's Categorical and Bernoulli, otherwise mean, variance and cdf where
    the distribution has them. Which of them ``supports`` names is known after the first call with outputs.
    """

    def __post_init__(self) -> None:
        super().__init__()

    def distribution(self, outputs: Tensor) -> Distribution:
        """Return p(y | outputs)."""
        raise NotImplementedError

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse targets of the wrong shape or outside the support of the distribution."""
        targets = check_tensors(self._owner, targets, outputs)
        found = self._find(outputs)
        self._check_parameters(_base(found))
        support: Any = found.support
        value = self._matched(found, targets)
        if value.is_floating_point() and isinstance(_base(found), Categorical):
            raise DataError(f"{self._owner}: targets are {targets.dtype}; class labels must be integers")
        wrong = ~support.check(value)
        if value.is_floating_point():
            wrong = wrong | ~torch.isfinite(value).reshape(*wrong.shape, -1).all(-1)
        if bool(wrong.any()):
            kind = type(_base(found)).__name__
            raise DataError(f"{self._owner}: {first_wrong(value, wrong)}, outside the support of {kind} ({support})")

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): -log p(y), summed over all axes but the first."""
        found = self._find(outputs)
        loss = -found.log_prob(self._matched(found, targets))
        return _like(outputs, sum_per_example(loss))

    @torch.no_grad()
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return a draw. torch's distributions use the global stream, which is seeded by ``generator`` and restored."""
        found = self._find(outputs)
        if generator is None:
            return _like(outputs, found.sample())
        seed = int(torch.randint(0, 2**62, (), generator=generator, device=generator.device))
        with torch.random.fork_rng(devices=[outputs.device] if outputs.is_cuda else []):
            torch.manual_seed(seed)
            return _like(outputs, found.sample())

    def probabilities(self, outputs: Tensor) -> Tensor:
        """(S, ..., K); for Bernoulli p(y = 0) and p(y = 1), (S, 2) if there is one label an example."""
        found: Any = _base(self._find(outputs))
        if isinstance(found, Categorical):
            return _like(outputs, found.probs)
        if not isinstance(found, Bernoulli):
            raise self._unsupported("probabilities")
        logits = found.logits.squeeze(1) if found.logits.dim() == 2 and found.logits.shape[1] == 1 else found.logits
        return _like(outputs, torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1))

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        found = self._find(outputs)
        return _like(outputs, found.mean), _like(outputs, found.variance)

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """P(y <= value) of every output; 0 and 1 beyond the ends of the support."""
        found: Any = _base(self._find(outputs))
        low = getattr(found.support, "lower_bound", -math.inf)
        high = getattr(found.support, "upper_bound", math.inf)
        values = values.to(found.mean.dtype)
        inside = (values > low) & (values < high)
        # torch refuses values outside of the support; the mean replaces them.
        known: Tensor = found.cdf(torch.where(inside, values, found.mean))
        return _like(outputs, torch.where(inside, known, (values >= high).to(known.dtype)))

    def for_outputs(self, outputs: Tensor) -> Likelihood:
        self._find(outputs)
        return self

    def supports(self, method: str) -> bool:
        generic = getattr(type(self), method, None) is getattr(DistributionLikelihood, method, None)
        if generic and method in ("probabilities", "mean_and_variance", "cdf"):
            return method in self.__dict__.get("_predictions", ())
        return super().supports(method)

    @property
    def _owner(self) -> str:
        return self.name or type(self).__name__

    def _find(self, outputs: Tensor) -> Distribution:
        values = at_least_float32(outputs)
        try:
            found = self.distribution(values)
        except ValueError as error:  # of torch: a parameter is not allowed, such as a rate below 0
            raise NetworkError(f"{self._owner}: {' '.join(str(error).split()):.250}") from error
        if not isinstance(found, Distribution):
            allowed = "a torch.distributions.Distribution (for squared errors use likelihood='gaussian')"
            raise SettingError(f"likelihood {self._owner} must return {allowed}, got a {type(found).__name__}")
        if not found.batch_shape or found.batch_shape[0] != len(values):
            shape = tuple(found.batch_shape)
            raise DataError(f"{self._owner}: batch shape {shape}; the first axis must count the {len(values)} examples")
        if "_predictions" not in self.__dict__:
            self.__dict__["_predictions"] = _predictions(found)
            self.is_discrete = bool(getattr(_base(found).support, "is_discrete", False))
        return found

    def _check_parameters(self, found: Distribution) -> None:
        # torch.compile switches off torch's own check, for the whole process.
        try:
            allowed = found.arg_constraints
        except NotImplementedError:
            return
        for name, constraint in allowed.items():
            value = vars(found).get(name)
            if isinstance(value, Tensor) and not is_dependent(constraint) and not bool(constraint.check(value).all()):
                kind = type(found).__name__
                raise NetworkError(f"{self._owner}: parameter {name} of {kind} must satisfy {constraint}")

    def _matched(self, found: Distribution, targets: Tensor) -> Tensor:
        value = match_shape(self._owner, targets, (*found.batch_shape, *found.event_shape))
        if isinstance(_base(found), Categorical):
            return value if value.is_floating_point() else value.long()
        return value if value.dtype == torch.float32 else as_float64(value)


class FunctionLikelihood(DistributionLikelihood):
    """A function or module of the outputs that returns a distribution."""

    def __init__(self, function: Callable[[Tensor], Distribution]) -> None:
        super().__init__()
        self.function = function

    @property
    def _owner(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def distribution(self, outputs: Tensor) -> Distribution:
        return self.function(outputs)


def adapt(choice: Any) -> Likelihood | None:
    """Return the likelihood of a function or module that returns a distribution; None for anything else."""
    if isinstance(choice, Distribution) or (isinstance(choice, type) and issubclass(choice, Distribution)):
        name = choice.__name__ if isinstance(choice, type) else type(choice).__name__
        raise SettingError(f"likelihood = {name} does not depend on outputs; use lambda outputs: {name}(...)")
    if isinstance(choice, type) or hasattr(choice, "nll") or not callable(choice):
        return None
    return FunctionLikelihood(choice)


def _base(found: Distribution) -> Distribution:
    while isinstance(found, Independent):
        found = found.base_dist
    return found


def _like(outputs: Tensor, values: Tensor) -> Tensor:
    return values.to(at_least_float32(outputs).dtype) if values.is_floating_point() else values


def _predictions(found: Distribution) -> frozenset[str]:
    base: Any = _base(found)
    if isinstance(base, Categorical | Bernoulli):
        return frozenset({"probabilities"})
    try:
        mean, _ = base.mean, base.variance
    except NotImplementedError:
        return frozenset()
    try:
        base.cdf(mean)
    except (NotImplementedError, ValueError):
        return frozenset({"mean_and_variance"})
    return frozenset({"mean_and_variance", "cdf"})
