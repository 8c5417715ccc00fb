"""What a prediction says: averages over draws of the posterior, and where the uncertainty comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import AbsentError, DataError, require_between, require_count
from ..random import make_generator
from .frames import class_columns, data_frame, real_columns
from .laws import TargetLaw, as_levels


class Interval(NamedTuple):
    """Two tensors with the shape of the targets; the ends belong to the interval."""

    lower: Tensor
    upper: Tensor

    def contains(self, targets: Tensor) -> Tensor:
        """Which targets lie inside: booleans of their shape."""
        truth = torch.as_tensor(targets).to(self.lower.device)
        if truth.numel() != self.lower.numel():
            raise DataError(f"targets have shape {tuple(truth.shape)}; the interval has {tuple(self.lower.shape)}")
        truth = truth.reshape(self.lower.shape)
        return (truth >= self.lower) & (truth <= self.upper)


@dataclass(frozen=True, eq=False)
class Nats:
    """Uncertainty of each example in nats: ``entropy`` = ``expected_entropy`` + ``mutual_information``.

    Of all there is to be unsure of, what the data leave open (aleatoric), and what comes from not knowing the weights
    (epistemic). Entropies of real numbers depend on their units, mutual information does not.
    """

    entropy: Tensor
    expected_entropy: Tensor
    mutual_information: Tensor

    @property
    def aleatoric(self) -> Tensor:
        """The expected entropy."""
        return self.expected_entropy

    @property
    def epistemic(self) -> Tensor:
        """The mutual information of target and weights."""
        return self.mutual_information


@dataclass(frozen=True, eq=False, repr=False)
class ClassPrediction:
    """Class probabilities averaged over draws; entropies in nats (Depeweg et al. 2018).

    ``probabilities`` (S, ..., K), the rest (S, ...): ``entropy`` H[mean_d p_d] = ``expected_entropy``
    mean_d H[p_d] (aleatoric) + ``mutual_information`` (epistemic). ``draws`` are those that were used: a bank has no
    more than its members. ``class_names`` where they are known.
    """

    probabilities: Tensor
    entropy: Tensor
    expected_entropy: Tensor
    mutual_information: Tensor
    draws: int
    kept: Tensor | None = field(default=None)
    class_names: tuple[str, ...] | None = field(default=None)

    @property
    def labels(self) -> Tensor:
        """The most probable class of each example; of tied classes the lowest."""
        return self.probabilities.argmax(-1)

    @property
    def label_names(self) -> Any:
        """The name of the most probable class, in lists of the shape (S, ...)."""
        if self.class_names is None:
            raise AbsentError("the classes have no names here; labels are numbers (`labels`)")
        return _named(self.labels.tolist(), self.class_names)

    @property
    def confidence(self) -> Tensor:
        """The probability of the most probable class."""
        return self.probabilities.amax(-1)

    @property
    def aleatoric(self) -> Tensor:
        """The part that the data themselves leave open: the expected entropy."""
        return self.expected_entropy

    @property
    def epistemic(self) -> Tensor:
        """The part that comes from not knowing the weights: the mutual information."""
        return self.mutual_information

    @property
    def samples(self) -> Tensor:
        """(D, S, ..., K): the probabilities of each draw, if they were kept."""
        return _require_kept(self.kept)

    def in_nats(self) -> Nats:
        """The three entropies in one record, as ``RealPrediction.in_nats`` gives them."""
        return Nats(self.entropy, self.expected_entropy, self.mutual_information)

    def sample_targets(self, n: int, *, seed: int = 0) -> Tensor:
        """(n, S, ...): labels drawn from the averaged probabilities, each example and place by itself."""
        require_count("sample_targets", "n", n)
        rows = self.probabilities.reshape(-1, self.probabilities.shape[-1])
        drawn = torch.multinomial(rows, n, replacement=True, generator=make_generator(seed, rows.device))
        return drawn.T.reshape(n, *self.probabilities.shape[:-1])

    def to_frame(self) -> Any:
        """A pandas DataFrame, one row an example: label, a probability for each class, and the parts in nats."""
        return data_frame(class_columns(self))

    def __repr__(self) -> str:
        several = f"{_shape(self.labels)}, {self.probabilities.shape[-1]} classes"
        mean = {name: float(part.mean()) for name, part in _parts(self).items()}
        return (
            f"ClassPrediction({several}, {_draws(self.draws)})\n"
            f"  mean confidence {float(self.confidence.mean()):.3g}; mean entropy {mean['entropy']:.3g} nats"
            f" = aleatoric {mean['aleatoric']:.3g} + epistemic {mean['epistemic']:.3g}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class RealPrediction:
    """Mean and variance of the mixture over draws, by the law of total variance.

    ``variance`` = ``aleatoric_variance`` mean_d std_d^2 + ``epistemic_variance`` Var_d[mean_d]. The latter
    divides by D: it is exact for the mixture of these draws, and (D-1)/D of the posterior's on average. ``draws`` are
    those that were used: a bank has no more than its members.

    Quantiles, intervals and drawn targets need what each draw says, ``law``: it is kept where draws x outputs are at
    most 2^24 numbers (64 MB), or with ``keep_samples``.
    """

    mean: Tensor
    epistemic_variance: Tensor
    aleatoric_variance: Tensor
    draws: int
    kept: Tensor | None = field(default=None)
    law: TargetLaw | None = field(default=None)

    @property
    def variance(self) -> Tensor:
        """Var[y] given x, noise included."""
        return self.epistemic_variance + self.aleatoric_variance

    @property
    def std(self) -> Tensor:
        """The square root of ``variance``."""
        return self.variance.sqrt()

    @property
    def epistemic_std(self) -> Tensor:
        """The std of the draws' means: what comes from not knowing the weights, in the units of the targets."""
        return self.epistemic_variance.sqrt()

    @property
    def aleatoric_std(self) -> Tensor:
        """The noise: root of the mean variance of a draw, in the units of the targets. Squares add up, stds do not."""
        return self.aleatoric_variance.sqrt()

    @property
    def aleatoric(self) -> Tensor:
        """The part that the noise of the data leaves open, as a variance."""
        return self.aleatoric_variance

    @property
    def epistemic(self) -> Tensor:
        """The part that comes from not knowing the weights, as a variance."""
        return self.epistemic_variance

    @property
    def samples(self) -> Tensor:
        """(D, S, ...): the mean under each draw, if they were kept."""
        return _require_kept(self.kept)

    def quantile(self, q: float | Sequence[float], *, seed: int = 0) -> Tensor:
        """The smallest y with P(y given x) >= q below or at it, noise included, of each output by itself.

        One level gives the shape of ``mean``; a sequence of Q gives (Q, ...). Exact for the mixture of these draws
        where the likelihood has a ``cdf``, else from 10,000 targets drawn by ``seed``.
        """
        law = self._law()
        if isinstance(q, int | float):
            return law.quantile(q, seed).to(self.mean.dtype)
        return torch.stack([law.quantile(level, seed) for level in as_levels(q)]).to(self.mean.dtype)

    def interval(self, level: float = 0.9, *, seed: int = 0) -> Interval:
        """The central interval: a share of (1 - level) / 2 of the mixture lies on each side, of counts at most so much.

        ``lower, upper = prediction.interval(0.9)``. Noise is included: it is for targets, not for the mean.
        """
        require_between("interval", "level", level, 0, 1, open_low=True, open_high=True)
        return Interval(*self.quantile([(1 - level) / 2, (1 + level) / 2], seed=seed))

    def sample_targets(self, n: int, *, seed: int = 0) -> Tensor:
        """(n, S, ...): targets drawn from the mixture, noise included. In each sample one draw speaks of all examples."""
        return self._law().sample(n, seed).to(self.mean.dtype)

    def in_nats(self, samples: int = 10, *, seed: int = 0) -> Nats:
        """The split of the uncertainty by entropies, (S,) each: of all outputs of an example together.

        By Monte Carlo over ``samples`` targets from each draw; it costs draws^2 x samples evaluations of the
        likelihood for each example.
        """
        total, own = self._law().entropies(samples, seed)
        # Never negative in exact arithmetic (Jensen).
        parts = total, own, (total - own).clamp_min(0)
        return Nats(*(part.to(self.mean.dtype) for part in parts))

    def rescaled(self, scale: Tensor | float, shift: Tensor | float = 0.0) -> RealPrediction:
        """The prediction of shift + scale y: means move and stretch, stds and the ends of intervals stretch along."""
        like = self.mean.double()
        a, b = (torch.as_tensor(value, dtype=like.dtype, device=like.device) for value in (scale, shift))

        def stretched(values: Tensor, factor: Tensor) -> Tensor:
            return (values.double() * factor).to(values.dtype)

        return replace(
            self,
            mean=(like * a + b).to(self.mean.dtype),
            epistemic_variance=stretched(self.epistemic_variance, a.square()),
            aleatoric_variance=stretched(self.aleatoric_variance, a.square()),
            kept=None if self.kept is None else (self.kept.double() * a + b).to(self.kept.dtype),
            law=None if self.law is None else self.law.rescaled(a, b),
        )

    def to_frame(self, interval: float | None = 0.9) -> Any:
        """A pandas DataFrame, one row an example: mean, std, its parts, and the ends of an interval (None: without)."""
        return data_frame(real_columns(self, interval))

    def _law(self) -> TargetLaw:
        if self.law is None:
            raise AbsentError(
                f"what each of the {self.draws} draws says was not kept, as quantiles and drawn targets need it; predict "
                "fewer examples at a time, or with keep_samples=True"
            )
        return self.law

    def __repr__(self) -> str:
        mean = {name: float(part.mean()) for name, part in _parts(self).items()}
        return (
            f"RealPrediction({_shape(self.mean)}, {_draws(self.draws)})\n"
            f"  mean std {mean['std']:.3g}, of which aleatoric {mean['aleatoric']:.3g} and epistemic"
            f" {mean['epistemic']:.3g} (squares add up)"
        )


def _parts(prediction: ClassPrediction | RealPrediction) -> dict[str, Tensor]:
    if isinstance(prediction, ClassPrediction):
        return {name: getattr(prediction, name) for name in ("entropy", "aleatoric", "epistemic")}
    stds = {"std": prediction.std, "aleatoric": prediction.aleatoric_std, "epistemic": prediction.epistemic_std}
    return {name: part.double() for name, part in stds.items()}


def _shape(values: Tensor) -> str:
    examples = f"{len(values):,} example" + ("" if len(values) == 1 else "s")
    return examples if values.dim() == 1 else f"{examples} of shape {tuple(values.shape[1:])}"


def _draws(count: int) -> str:
    return f"{count} draw" + ("" if count == 1 else "s")


def _named(labels: Any, names: Sequence[str]) -> Any:
    return [_named(label, names) for label in labels] if isinstance(labels, list) else names[labels]


def _require_kept(kept: Tensor | None) -> Tensor:
    if kept is None:
        raise AbsentError("samples were not kept; ask for them with predict(..., keep_samples=True)")
    return kept
