"""Checks of what comes after training: on linear regression, whose posterior is known."""

from __future__ import annotations

from typing import Any

import torch

from ..lifting import BayesianModule
from ..posteriors import POSTERIORS
from ..random import make_generator
from ..types import POINT, Posterior, PosteriorPart
from .problems import LinearRegression, Untouched, lifted, require_draws, shapes_of
from .report import Omitted, PartError, Suite, require, require_close, require_same

_FACTOR = 1.5


class Case:
    """A linear model and its data; the Laplace approximation is its posterior."""

    def __init__(self, part: Any, exact: bool = True) -> None:
        self.part, self.exact = part, exact
        self.problem = LinearRegression(outputs=2, examples=24)

    def model(self) -> BayesianModule:
        """As training leaves it."""
        model = lifted(self.problem.net, "delta" if POINT in self.part.needs else "mean_field")
        self.part.check(model)
        return model

    def finish(self, model: BayesianModule) -> tuple[PosteriorPart, Posterior]:
        """The new posterior, from two batches."""
        pairs = zip(self.problem.inputs.split(12), self.problem.targets.split(12), strict=True)
        part, posterior = self.part.finish(
            model, self.problem.likelihood, list(pairs), len(self.problem.inputs), make_generator(1)
        )
        if not isinstance(posterior, Posterior):
            raise PartError(f"finish gives a {type(posterior).__name__} where a Posterior belongs")
        return part, posterior


def leaves_the_model_as_it_was(case: Case) -> None:
    """Numbers, modes and methods are afterwards what they were."""
    model = case.model()
    with Untouched(model):
        case.finish(model)


def the_mean_stays(case: Case) -> None:
    """The new posterior is centred where training ended."""
    if not case.exact:
        raise Omitted("exact = False was given")
    model = case.model()
    _, posterior = case.finish(model)
    require_close("the mean", posterior.mean_vector(), model.posterior.mean_vector(), 1e-5)


def stds_are_those_of_the_posterior(case: Case) -> None:
    """For linear regression each std lies between that of the weight given all others and that of the weight alone.

    A diagonal approximation has the first, the exact posterior the second; structures between them, and those that mix
    the prior in by approximation, are given a factor of 1.5.
    """
    if not case.exact:
        raise Omitted("exact = False was given")
    model = case.model()
    _, posterior = case.finish(model)
    stds = model.layout.unflatten(posterior.std_vector().detach())
    precision = case.problem.precision()
    given_others, alone = precision.diagonal().rsqrt(), precision.inverse().diagonal().sqrt()
    found = torch.cat([stds["0.weight"], stds["0.bias"][:, None]], dim=1)
    for name, low, high, values in zip(("w1", "w2", "w3", "bias"), given_others, alone, found.T, strict=True):
        least, most = float(low) / _FACTOR, float(high) * _FACTOR
        fits = bool(((values >= least) & (values <= most)).all())
        require(fits, f"stds of {name} are {values.tolist()}, expected from {least:.3g} to {most:.3g}")


def the_result_draws_and_is_rebuilt(case: Case) -> None:
    """The posterior draws every parameter by name, and the settings beside it build it again: files rely on it."""
    model = case.model()
    part, posterior = case.finish(model)
    require_draws(posterior, shapes_of(model))
    rebuilt = POSTERIORS.resolve(part).build(model.layout, model.prior, posterior.mean_vector().detach())
    rebuilt.load_state_dict(posterior.state_dict())
    drawn = [dict(next(iter(q.draws(1, make_generator(3))))) for q in (rebuilt, posterior)]
    require_same("a draw of the posterior that is built again", drawn[0], drawn[1])


_CHECKS = (
    leaves_the_model_as_it_was,
    the_mean_stays,
    stds_are_those_of_the_posterior,
    the_result_draws_and_is_rebuilt,
)
SUITE = Suite(Case, _CHECKS, ("exact",))
