"""Predictions averaged over draws of the posterior, and the parts of their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.errors import DataError, MissingExtra, SettingError, Unsupported, check_number
from .mixture import PredictiveMixture


class Interval(NamedTuple):
    """Lower and upper ends, with the shape of the targets; the ends belong to the interval."""

    lower: Tensor
    upper: Tensor

    def contains(self, targets: Any) -> Tensor:
        """Return booleans with the shape of the targets."""
        values = _with_shape_of(self.lower, torch.as_tensor(targets, device=self.lower.device))
        return (values >= self.lower) & (values <= self.upper)


@dataclass(frozen=True, eq=False, repr=False)
class ClassPrediction:
    """Class probabilities averaged over draws, with entropies in nats (Depeweg et al. 2018).

    ``entropy`` H[mean_d p_d] = ``expected_entropy`` mean_d H[p_d] (aleatoric) + ``mutual_information`` (epistemic).

    Args:
        probabilities: (S, ..., K).
        probability_std: (S, ..., K): std of the probabilities over the draws.
        entropy: (S, ...).
        expected_entropy: (S, ...).
        draws: the number of networks; a set of networks has no more than its members.
        samples: (D, S, ..., K) with ``keep_samples=True``, else None.
        class_names: where they are known.
    """

    probabilities: Tensor
    probability_std: Tensor
    entropy: Tensor
    expected_entropy: Tensor
    draws: int
    samples: Tensor | None = None
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def mutual_information(self) -> Tensor:
        """I[y; w | x], at least 0 (Jensen)."""
        return (self.entropy - self.expected_entropy).clamp_min(0)

    @property
    def labels(self) -> Tensor:
        """The most probable class of each example; of tied classes the lowest."""
        return self.probabilities.argmax(-1)

    @property
    def label_names(self) -> Any:
        """Names of the most probable classes, in lists of the shape (S, ...)."""
        if self.class_names is None:
            raise Unsupported("the classes have no names; use `labels`")
        return _names(self.labels.tolist(), self.class_names)

    @property
    def confidence(self) -> Tensor:
        return self.probabilities.amax(-1)

    @property
    def aleatoric(self) -> Tensor:
        return self.expected_entropy

    @property
    def epistemic(self) -> Tensor:
        return self.mutual_information

    def frame(self) -> Any:
        """Return a pandas DataFrame: label, a probability for each class, and the entropies; one row per example."""
        names = self.class_names or tuple(str(k) for k in range(self.probabilities.shape[-1]))
        columns = {"label": self.labels if self.class_names is None else self.labels.cpu()}
        columns |= {f"p_{name}": self.probabilities[..., k] for k, name in enumerate(names)}
        columns |= {"entropy": self.entropy, "epistemic": self.epistemic, "aleatoric": self.aleatoric}
        found = by_output(columns)
        if self.class_names is not None:
            labels = {key: values for key, values in found.items() if key.startswith("label")}
            found |= {key: _names(values, self.class_names) for key, values in labels.items()}
        return data_frame(found)

    def __repr__(self) -> str:
        return (
            f"ClassPrediction({len(self):,} examples, {self.probabilities.shape[-1]} classes, {self.draws} draws)\n"
            f"  mean confidence {float(self.confidence.mean()):.3g}; mean entropy {float(self.entropy.mean()):.3g} nats"
            f" = aleatoric {float(self.aleatoric.mean()):.3g} + epistemic {float(self.epistemic.mean()):.3g}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class RealPrediction:
    """Mean and variance of the mixture over draws (law of total variance).

    ``variance`` = ``aleatoric_variance`` mean_d Var_d[y] + ``epistemic_variance`` Var_d[mean_d], which divides by D: it
    is exact for the mixture of these draws, and (D - 1) / D of the posterior's on average.

    Args:
        mean: (S, ...).
        epistemic_variance: (S, ...).
        aleatoric_variance: (S, ...); infinite for heavy tails.
        draws: the number of networks; a set of networks has no more than its members.
        samples: (D, S, ...): the mean of each draw, with ``keep_samples=True``, else None.
        mixture: for quantiles and drawn targets; None if draws x outputs exceed 2^24 numbers and samples are not kept.
    """

    mean: Tensor
    epistemic_variance: Tensor
    aleatoric_variance: Tensor
    draws: int
    samples: Tensor | None = None
    mixture: PredictiveMixture | None = None

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def variance(self) -> Tensor:
        """Var[y | x], noise included."""
        return self.epistemic_variance + self.aleatoric_variance

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def epistemic_std(self) -> Tensor:
        """Std of the draws' means, in the units of the targets."""
        return self.epistemic_variance.sqrt()

    @property
    def aleatoric_std(self) -> Tensor:
        """Std of the noise, in the units of the targets. Variances add up, stds do not."""
        return self.aleatoric_variance.sqrt()

    @property
    def epistemic(self) -> Tensor:
        return self.epistemic_variance

    @property
    def aleatoric(self) -> Tensor:
        return self.aleatoric_variance

    def quantile(self, q: float | Sequence[float], *, seed: int = 0) -> Tensor:
        """Return the smallest y with P(y | x) >= q below or at it, noise included, for each output by itself.

        One level gives the shape of ``mean``, a sequence of Q levels (Q, ...). Exact for the mixture of these draws if
        the likelihood has a ``cdf``, else from 10,000 targets drawn with ``seed``.
        """
        mixture = self._mixture()
        if isinstance(q, int | float):
            return mixture.quantile(float(q), seed).to(self.mean.dtype)
        return torch.stack([mixture.quantile(float(level), seed) for level in q]).to(self.mean.dtype)

    def interval(self, level: float = 0.9, *, seed: int = 0) -> Interval:
        """Return the central interval of targets: (1 - level) / 2 of the mixture lie on each side (counts: at most)."""
        level = check_number("interval", "level", level, 0, 1 - 1e-9, above=True)
        return Interval(*self.quantile([(1 - level) / 2, (1 + level) / 2], seed=seed))

    def cdf(self, values: Any) -> Tensor:
        """P(y <= values) for each output; the values have the shape of ``mean``, or are broadcast to it."""
        values = torch.as_tensor(values, device=self.mean.device, dtype=torch.float64)
        return self._mixture().cdf(_with_shape_of(self.mean, values))

    def sample_targets(self, n: int, *, seed: int = 0) -> Tensor:
        """(n, S, ...): targets drawn from the mixture, noise included; in a row one network speaks for all examples."""
        return self._mixture().sample(n, seed).to(self.mean.dtype)

    def rescaled(self, scale: Tensor | float, shift: Tensor | float = 0.0) -> RealPrediction:
        """Return the prediction of shift + scale y, with a scale above 0."""
        kind: dict[str, Any] = {"dtype": torch.float64, "device": self.mean.device}
        a, b = torch.as_tensor(scale, **kind), torch.as_tensor(shift, **kind)
        if not bool((a > 0).all()):
            raise SettingError(f"rescaled: `scale` must be above 0, got {float(a.min()):g}")
        dtype = self.mean.dtype
        return replace(
            self,
            mean=(self.mean.double() * a + b).to(dtype),
            epistemic_variance=(self.epistemic_variance.double() * a.square()).to(dtype),
            aleatoric_variance=(self.aleatoric_variance.double() * a.square()).to(dtype),
            samples=None if self.samples is None else (self.samples.double() * a + b).to(dtype),
            mixture=None if self.mixture is None else self.mixture.rescaled(a, b),
        )

    def frame(self, level: float | None = 0.9) -> Any:
        """Return a pandas DataFrame: mean, stds and ends of ``interval(level)`` (None: none); one row per example."""
        names = ("mean", "std", "epistemic_std", "aleatoric_std")
        columns: dict[str, Tensor] = {name: getattr(self, name) for name in names}
        if level is not None:
            columns |= self.interval(level)._asdict()
        return data_frame(by_output(columns))

    def _mixture(self) -> PredictiveMixture:
        if self.mixture is None:
            raise Unsupported(
                f"the outputs of the {self.draws} draws were not kept, as quantiles and drawn targets need them; "
                "predict fewer examples at a time, or with keep_samples=True"
            )
        return self.mixture

    def __repr__(self) -> str:
        stds = [float(part.double().mean()) for part in (self.std, self.aleatoric_std, self.epistemic_std)]
        return (
            f"RealPrediction({len(self):,} examples, {self.draws} draws)\n"
            f"  mean std {stds[0]:.3g}; aleatoric std {stds[1]:.3g}, epistemic std {stds[2]:.3g} (variances add up)"
        )


def by_output(columns: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    """Return (S, ...) tensors as one list for each output of an example, numbered where there are several."""
    flat = {name: values.detach().cpu().reshape(len(values), -1).T.tolist() for name, values in columns.items()}
    count = len(next(iter(flat.values())))
    endings = [""] if count == 1 else [f"_{number}" for number in range(1, count + 1)]
    return {f"{name}{ending}": values[at] for at, ending in enumerate(endings) for name, values in flat.items()}


def data_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("a DataFrame needs pandas; install it with: pip install pandas") from error
    return pandas.DataFrame(dict(columns))


def _with_shape_of(like: Tensor, values: Tensor) -> Tensor:
    # Axes of length 1 may be missing: (S,) for (S, 1).
    if values.squeeze().shape == like.squeeze().shape:
        return values.reshape(like.shape)
    try:
        return values.expand_as(like)
    except RuntimeError:
        raise DataError(f"values have shape {tuple(values.shape)}; predicted were {tuple(like.shape)}") from None


def _names(labels: Any, names: Sequence[str]) -> Any:
    return [_names(label, names) for label in labels] if isinstance(labels, list) else names[labels]
