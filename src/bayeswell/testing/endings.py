"""Checks of what ends a run: averagers, and parts that follow training."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ..core.protocols import EMPIRICAL, POINT, Averager, Posterior, Progress
from ..core.random import make_generator
from ..nn import BayesianModule
from .problems import DOUBLE, LinearRegression, make_model, network, normal, require_draws_and_rebuilt, untouched
from .report import applies, require, require_close, require_same


class AveragerChecks:
    """An averager that sees a path of a small network, whose LayerNorm has no posterior."""

    def __init__(self, part: Any, total_steps: int = 40, batches: int = 4) -> None:
        self.part, self.total_steps, self.batches = part, total_steps, batches

    def _begin(self) -> tuple[BayesianModule, Averager]:
        model = make_model(network(3, 4, 2, norm=True), "delta" if POINT in self.part.needs else "mean_field")
        return model, self.part.build(model, self.total_steps, self.batches)

    def _show(self, averager: Averager, model: BayesianModule, steps: range, size: float = 0.1) -> None:
        for step in steps:
            with torch.no_grad():
                for place, parameter in enumerate(model.parameters()):
                    parameter.copy_(0.3 + size * normal(*parameter.shape, seed=1000 * step + place))
            progress = Progress(step, self.total_steps, step % self.batches, self.batches)
            averager.after_step(model, progress)

    def _mean(self, posterior: Posterior) -> Tensor:
        if EMPIRICAL in posterior.provides:
            networks = list(posterior.draws(posterior.num_networks or 1, None))
            return torch.stack([posterior.layout.flatten(one) for one in networks]).mean(0)
        return posterior.mean.detach()

    def check_constant_path_gives_that_constant(self) -> None:
        model, averager = self._begin()
        self._show(averager, model, range(self.total_steps), size=0.0)
        found = self._mean(averager.finalize(model))
        require_close("the mean of a constant path", found, torch.full((model.layout.size,), 0.3, dtype=DOUBLE))
        for name, tensor in averager.other_params().items():
            require_close(f"the average of '{name}'", tensor, torch.full(tensor.shape, 0.3, dtype=DOUBLE))

    def check_resumes_exactly(self) -> None:
        (whole_model, whole), (first_model, first), (second_model, second) = (self._begin() for _ in range(3))
        middle = self.total_steps * 3 // 4
        self._show(whole, whole_model, range(self.total_steps))
        self._show(first, first_model, range(middle))
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        self._show(second, second_model, range(middle, self.total_steps))
        ends = [
            {**one.finalize(model).state_dict(), **one.other_params()}
            for one, model in ((second, second_model), (whole, whole_model))
        ]
        require_same("the end of a resumed run", *ends)

    def check_result_draws_and_is_rebuilt(self) -> None:
        model, averager = self._begin()
        self._show(averager, model, range(self.total_steps))
        require_draws_and_rebuilt(averager.finalize(model), model)


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
        settings = {"dataset_size": 24, "generator": make_generator(1)}
        found: Posterior = self.part.fit(model, problem.likelihood, batches, **settings)
        return found

    def check_leaves_the_model_as_it_was(self) -> None:
        model = self._model()
        with untouched(model):
            self._fit(model)

    def check_moments_are_those_of_the_posterior(self) -> None:
        """Each std lies between that of the weight given all others (diagonal) and its marginal one, up to 1.5."""
        applies(self.exact, "exact=False was given")
        model = self._model()
        posterior = self._fit(model)
        require_close("the mean", posterior.mean, model.posterior.mean, 1e-5)
        stds = model.layout.unflatten(posterior.std().detach())
        precision = self.problem.precision()
        conditional, marginal = precision.diagonal().rsqrt(), precision.inverse().diagonal().sqrt()
        found = torch.cat([stds["0.weight"], stds["0.bias"][:, None]], dim=1)
        for name, low, high, values in zip(("w1", "w2", "w3", "bias"), conditional, marginal, found.T, strict=True):
            least, most = float(low) / FACTOR, float(high) * FACTOR
            fits = bool(((values >= least) & (values <= most)).all())
            require(fits, f"stds of {name} are {values.tolist()}, expected {least:.3g} to {most:.3g}")

    def check_result_draws_and_is_rebuilt(self) -> None:
        model = self._model()
        require_draws_and_rebuilt(self._fit(model), model)
