"""Do networks that were trained one by one say the same?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..likelihoods import ClassLikelihood, RealLikelihood, for_outputs
from ..types import Likelihood

LIMIT = 0.15
"""Of networks that have learned the same training examples: on these they should agree."""


@dataclass(frozen=True)
class Disagreement:
    """How far members are from their average, at training inputs and away from them.

    Of classes the mean total variation, between 0 and 1; of real numbers the std of the members' means as a share of
    the std of their prediction. Away from the data it is what an ensemble is for; at the training inputs it is training
    that has not ended, or chains that are each in a place of their own.
    """

    members: int
    at_training: float
    elsewhere: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line if they disagree where they have learned."""
        if self.at_training <= LIMIT:
            return ()
        note = f"the {self.members} members disagree on their own training inputs: {self.at_training:.2f} from their"
        return (f"{note} average (good up to {LIMIT}); train each longer, or raise lr",)


@torch.no_grad()
def disagreement_of(outputs: Tensor, likelihood: Likelihood) -> float | None:
    """Of members' outputs (members, examples, ...); None of a likelihood that does not predict."""
    form = for_outputs(likelihood, outputs[0])
    if isinstance(form, ClassLikelihood):
        said = [form.class_probabilities(own).double() for own in outputs]
        average = sum(said) / len(said)
        return sum(float((own - average).abs().sum(-1).mean()) for own in said) / (2 * len(said))
    if isinstance(form, RealLikelihood):
        pairs = [form.mean_and_variance(own) for own in outputs]
        between = torch.stack([mean.double() for mean, _ in pairs]).var(0, correction=0)
        within = torch.stack([variance.double() for _, variance in pairs]).mean(0)
        return float((between / (between + within)).sqrt().mean())
    return None
