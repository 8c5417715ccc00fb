"""Checks of parts that follow training, on linear regression, whose posterior is known."""

from __future__ import annotations

from typing import Any

import torch

from ..core.protocols import POINT, Posterior
from ..core.random import make_generator
from ..nn import BayesianModule
from .problems import LinearRegression, make_model, require_draws, require_rebuilt, untouched
from .report import Omitted, require, require_close

FACTOR = 1.5


class PostHocChecks:
    """A linear model and its data."""

    def __init__(self, part: Any, exact: bool = True) -> None:
        self.part, self.exact = part, exact
        self.problem = LinearRegression(outputs=2, examples=24)

    def _model(self) -> BayesianModule:
        needs: frozenset[str] = getattr(self.part, "needs", frozenset())
        return make_model(self.problem.net, "delta" if POINT in needs else "mean_field")

    def _fit(self, model: BayesianModule) -> Posterior:
        problem = self.problem
        batches = list(zip(problem.inputs.split(12), problem.targets.split(12), strict=True))
        posterior = self.part.fit(model, problem.likelihood, batches, dataset_size=24, generator=make_generator(1))
        require(isinstance(posterior, Posterior), f"fit returns a {type(posterior).__name__}, not a Posterior")
        found: Posterior = posterior
        return found

    def _need_exact(self) -> None:
        if not self.exact:
            raise Omitted("exact=False was given")

    def check_leaves_the_model_as_it_was(self) -> None:
        model = self._model()
        with untouched(model):
            self._fit(model)

    def check_mean_stays(self) -> None:
        self._need_exact()
        model = self._model()
        require_close("the mean", self._fit(model).mean, model.posterior.mean, 1e-5)

    def check_stds_are_those_of_the_posterior(self) -> None:
        """Each std lies between that of the weight given all others (diagonal) and its marginal one, up to 1.5."""
        self._need_exact()
        model = self._model()
        stds = model.layout.unflatten(self._fit(model).std().detach())
        precision = self.problem.precision()
        conditional, marginal = precision.diagonal().rsqrt(), precision.inverse().diagonal().sqrt()
        found = torch.cat([stds["0.weight"], stds["0.bias"][:, None]], dim=1)
        for name, low, high, values in zip(("w1", "w2", "w3", "bias"), conditional, marginal, found.T, strict=True):
            least, most = float(low) / FACTOR, float(high) * FACTOR
            fits = bool(((values >= least) & (values <= most)).all())
            require(fits, f"stds of {name} are {values.tolist()}, expected {least:.3g} to {most:.3g}")

    def check_result_draws_and_is_rebuilt(self) -> None:
        model = self._model()
        posterior = self._fit(model)
        require_draws(posterior, model)
        require_rebuilt(posterior, model)
