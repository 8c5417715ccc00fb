"""What a prediction says: averages over draws of the posterior, and where the uncertainty comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..errors import AbsentError


@dataclass(frozen=True, eq=False, repr=False)
class ClassPrediction:
    """Class probabilities averaged over draws; entropies in nats (Depeweg et al. 2018).

    ``probabilities`` (S, ..., K), the rest (S, ...): ``entropy`` H[mean_d p_d] = ``expected_entropy``
    mean_d H[p_d] (aleatoric) + ``mutual_information`` (epistemic).
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
    def label_names(self) -> list[str]:
        """The names of ``labels``, of a model that was trained on named classes."""
        if self.class_names is None:
            raise AbsentError("the classes have no names: the model was trained on their numbers")
        return [self.class_names[label] for label in self.labels.tolist()]

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

    def __repr__(self) -> str:
        return f"ClassPrediction(probabilities={tuple(self.probabilities.shape)}, draws={self.draws})"


@dataclass(frozen=True, eq=False, repr=False)
class RealPrediction:
    """Mean and variance of the mixture over draws, by the law of total variance.

    ``variance`` = ``aleatoric_variance`` mean_d std_d^2 + ``epistemic_variance`` Var_d[mean_d]. The latter
    divides by D: it is exact for the mixture of these draws, and (D-1)/D of the posterior's on average.
    """

    mean: Tensor
    epistemic_variance: Tensor
    aleatoric_variance: Tensor
    draws: int
    kept: Tensor | None = field(default=None)

    def rescaled(self, scale: Tensor | float, shift: Tensor | float = 0.0) -> RealPrediction:
        """The prediction of shift + scale y: means move and stretch, stds stretch along."""
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
        )

    @property
    def variance(self) -> Tensor:
        """Var[y] given x, noise included."""
        return self.epistemic_variance + self.aleatoric_variance

    @property
    def std(self) -> Tensor:
        """The square root of ``variance``."""
        return self.variance.sqrt()

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

    def __repr__(self) -> str:
        return f"RealPrediction(mean={tuple(self.mean.shape)}, draws={self.draws})"


def _require_kept(kept: Tensor | None) -> Tensor:
    if kept is None:
        raise AbsentError("samples were not kept; ask for them with predict(..., keep_samples=True)")
    return kept
