"""A likelihood from any ``torch.distributions.Distribution``: all that is written is which one, given the outputs.

A function will do, ``fit(net, data, likelihood=lambda f: Poisson(f.exp()))``; or an ``nn.Module`` whose ``forward``
returns the distribution, and whose parameters are then learned with the weights. To save a model by name, derive a
dataclass with a ``name`` from ``DistributionLikelihood`` and register it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Distribution, Independent

from ..errors import DataError, NetworkError, SettingError
from ..native import transformed
from ..registry import kind_of, label_of
from .matching import at_least_float32, first_index, match_shape, require_targets, sum_per_example


class DistributionLikelihood(nn.Module):
    """-log p(y given f) and draws of y from the distribution that ``distribution(f)`` returns.

    The distribution's first batch axis counts the examples; its other axes and its event axes belong to an example, and
    the NLL is summed over them. Targets have the shape of a draw, (S,) and (S, 1) being interchangeable. Predictions
    are class probabilities for torch's Categorical and Bernoulli, else the distribution's mean and variance, if it has
    them. There is no ``curvature_root``: the Hessian's expectation is known for a few distributions only.
    """

    def __post_init__(self) -> None:
        """Called by a dataclass that is derived from this."""
        super().__init__()

    def distribution(self, outputs: Tensor) -> Distribution:
        """p(y given outputs)."""
        raise SettingError(f"likelihood {label_of(self)} must say its `distribution(outputs)`")

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse targets of the wrong shape, and those that the distribution never gives."""
        owner = _owner(self)
        require_targets(owner, targets, outputs)
        found, value = self._matched(outputs, targets)
        if isinstance(_base(found), Categorical) and (targets.is_floating_point() or targets.is_complex()):
            raise DataError(f"{owner}: targets are {targets.dtype}; class labels must be integers")
        try:
            support: Any = found.support
        except NotImplementedError:
            return
        wrong = ~support.check(value)
        if value.is_floating_point():
            finite = torch.isfinite(value)
            wrong = wrong | ~finite.reshape(*wrong.shape, -1).all(-1)
        if bool(wrong.any()):
            first = value[wrong][0].detach().flatten()[0].item()
            raise DataError(
                f"{owner}: target {first:g} at index {first_index(wrong)} lies outside of what "
                f"{type(_base(found)).__name__} gives ({' '.join(str(support).split())})"
            )

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): -log_prob(y), summed over everything but the first axis."""
        found, value = self._matched(outputs, targets)
        return sum_per_example(-self._asked(found.log_prob, value)).to(at_least_float32(outputs).dtype)

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """A draw from the distribution.

        torch's distributions draw from the global generator: it is lent a seed, one number of ``generator``, and left
        as it was found.
        """
        found = self._found(outputs)
        if generator is None:
            return found.sample()
        seed = int(torch.randint(0, 2**62, (), generator=generator, device=generator.device))
        device = outputs.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            return found.sample()

    def for_outputs(self, outputs: Tensor) -> Classes | Reals | DistributionLikelihood:
        """The form of this likelihood that predicts: which one depends on the distribution."""
        found = self._found(outputs)
        if isinstance(_base(found), Categorical | Bernoulli):
            return Classes(self)
        try:
            if found.mean is None or found.variance is None:
                return self
        except NotImplementedError:
            return self
        if _has_cdf(found):
            return RealsWithCDF(self)
        return Reals(self, bool(getattr(_base(found).support, "is_discrete", False)))

    def _found(self, outputs: Tensor) -> Distribution:
        """The distribution, whose first axis must count the examples."""
        values = at_least_float32(outputs)
        own = next((p.dtype for p in self.parameters() if p.is_floating_point()), values.dtype)
        found = self._asked(self.distribution, values.to(own))
        if not isinstance(found, Distribution):
            raise SettingError(
                f"likelihood {label_of(self)} returned a {type(found).__name__} for the outputs; it must return a "
                "torch.distributions.Distribution (a loss is not one: for squared errors use 'gaussian')"
            )
        self._asked(_validate, _base(found))
        if not found.batch_shape or found.batch_shape[0] != len(values):
            raise DataError(
                f"{_owner(self)}: the distribution has batch shape {tuple(found.batch_shape)} for outputs of shape "
                f"{tuple(values.shape)}; its first axis must count the examples ({len(values)})"
            )
        return found

    def _matched(self, outputs: Tensor, targets: Tensor) -> tuple[Distribution, Tensor]:
        """The distribution, and the targets in its shape and dtype."""
        found = self._found(outputs)
        value = match_shape(_owner(self), targets, (*found.batch_shape, *found.event_shape))
        return found, value if isinstance(_base(found), Categorical) else value.to(at_least_float32(outputs).dtype)

    def _asked(self, function: Callable[[Any], Any], value: Any) -> Any:
        """Torch's refusals (a rate below 0, NaN) in one line."""
        try:
            return function(value)
        except ValueError as error:
            raise NetworkError(f"{_owner(self)}: {' '.join(str(error).split()):.250}") from error


class FunctionLikelihood(DistributionLikelihood):
    """A function (or module) of the outputs that returns a distribution."""

    def __init__(self, function: Callable[[Tensor], Distribution]) -> None:
        super().__init__()
        self.function = function

    @property
    def __name__(self) -> str:
        """What messages call it."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def distribution(self, outputs: Tensor) -> Distribution:
        """What the function returns."""
        try:
            return self.function(outputs)
        except TypeError as error:
            reason = " ".join(str(error).split())
            raise SettingError(
                f"likelihood {self.__name__} cannot be called with the outputs ({reason:.150}); it must return "
                "a torch.distributions.Distribution of them (a loss does not: for squared errors use 'gaussian')"
            ) from error


class Classes:
    """The predicting form of a distribution over classes."""

    def __init__(self, likelihood: DistributionLikelihood) -> None:
        self.likelihood = likelihood
        self.nll = likelihood.nll

    def class_probabilities(self, outputs: Tensor) -> Tensor:
        """(S, ..., K): for Bernoulli p(y = 0) and p(y = 1), (S, 2) if there is one label an example."""
        found: Any = _base(self.likelihood._found(outputs))
        if isinstance(found, Categorical):
            return found.probs.to(at_least_float32(outputs).dtype)
        logits = found.logits.to(at_least_float32(outputs).dtype)
        if logits.dim() == 2 and logits.shape[1] == 1:
            logits = logits.squeeze(1)
        return torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)


class Reals:
    """The predicting form of a distribution over numbers; ``is_discrete`` if those are counts."""

    def __init__(self, likelihood: DistributionLikelihood, is_discrete: bool = False) -> None:
        self.likelihood = likelihood
        self.is_discrete = is_discrete
        self.nll = likelihood.nll

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The distribution's own."""
        found, dtype = self.likelihood._found(outputs), at_least_float32(outputs).dtype
        return found.mean.to(dtype), found.variance.to(dtype)

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """A draw from the distribution."""
        return self.likelihood.sample_targets(outputs, generator)


class RealsWithCDF(Reals):
    """... over single numbers, whose distribution function torch knows."""

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """P(y <= value) of every output; 0 and 1 beyond the ends of the support."""
        found: Any = _base(self.likelihood._found(outputs))
        low, high = _ends(found)
        value = values.to(found.mean.dtype)
        inside = (value > low) & (value < high)
        # torch refuses values outside of the support; any other will do in their place.
        known: Tensor = found.cdf(torch.where(inside, value, found.mean))
        return torch.where(inside, known, (value >= high).to(known.dtype)).to(at_least_float32(outputs).dtype)


def adapt(choice: Any) -> Any:
    """A likelihood of a function or module that returns a distribution; None for what is no such thing."""
    if isinstance(choice, Distribution) or (isinstance(choice, type) and issubclass(choice, Distribution)):
        name = kind_of(choice)
        raise SettingError(
            f"likelihood = {name}, a distribution that depends on no outputs; give a function of them, as in "
            f"lambda outputs: {name}(...)"
        )
    if isinstance(choice, type) or hasattr(choice, "nll") or not callable(choice):
        return None
    return FunctionLikelihood(choice)


def _base(found: Distribution) -> Distribution:
    while isinstance(found, Independent):
        found = found.base_dist
    return found


def _validate(found: Distribution) -> None:
    """Torch's check of parameters, unless the distribution was made without by name.

    Any ``torch.compile`` turns it off in the whole process, for good: networks gone astray would be trained on.
    """
    if not (found._validate_args or "_validate_args" in vars(found) or transformed()):
        Distribution.__init__(found, found.batch_shape, found.event_shape, validate_args=True)


def _ends(found: Any) -> tuple[float | Tensor, float | Tensor]:
    """Where the support of a distribution over single numbers begins and ends."""
    support = found.support
    return getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)


def _has_cdf(found: Distribution) -> bool:
    """Whether torch knows P(y <= value) of each number: not of vectors, and not of every law."""
    base: Any = _base(found)
    if base.event_shape or base.support.is_discrete:
        return False
    try:
        base.cdf(base.mean)
    except (NotImplementedError, ValueError):
        return False
    return True


def _owner(likelihood: DistributionLikelihood) -> str:
    """As in the messages of other likelihoods."""
    return label_of(likelihood).strip("'")
