"""Checks of averagers: what they make of a path of weights, and that they resume exactly."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ..core.protocols import EMPIRICAL, POINT, Averager, Posterior, Progress
from ..nn import BayesianModule
from .problems import DOUBLE, make_model, network, normal, require_draws, require_rebuilt
from .report import require, require_close, require_same


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

    def check_mean_lies_on_the_path(self) -> None:
        model, averager = self._begin()
        path = []
        for step in range(self.total_steps):
            self._show(averager, model, range(step, step + 1))
            path.append(0.3 + 0.1 * normal(model.layout.size, seed=1000 * step))
        low, high = torch.stack(path).aminmax(dim=0)
        mean = self._mean(averager.finalize(model))
        outside = int(((mean < low - 1e-6) | (mean > high + 1e-6)).sum())
        require(outside == 0, f"{outside} of {len(mean)} means lie outside of the path")

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
        posterior = averager.finalize(model)
        require(isinstance(posterior, Posterior), f"finalize returns a {type(posterior).__name__}, not a Posterior")
        require_draws(posterior, model)
        require_rebuilt(posterior, model)
