"""Checks of collectors: what they make of a path, and that they go on where they stopped."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..lifting import BayesianModule
from ..posteriors import POSTERIORS
from ..random import make_generator
from ..types import POINT, Collector, Posterior, Progress
from .problems import DOUBLE, lifted, network, normal, require_draws, shapes_of
from .report import PartError, Suite, require, require_close, require_same


class Case:
    """A collector that is shown a path of a small network, whose normalisation layer has no posterior."""

    def __init__(self, part: Any, total_steps: int = 40, batches: int = 4) -> None:
        self.part, self.total_steps, self.batches = part, total_steps, batches

    def model(self) -> BayesianModule:
        """A network that the collector can watch."""
        return lifted(network(3, 4, 2, norm=True), "delta" if POINT in self.part.needs else "mean_field")

    def build(self, model: BayesianModule) -> Collector:
        """The collector of a run."""
        collector: Collector = self.part.build(model, self.total_steps, self.batches)
        return collector

    def show(self, collector: Collector, model: BayesianModule, steps: range, step_size: float = 0.1) -> None:
        """Part of a path: numbers that depend on the step alone."""
        for step in steps:
            with torch.no_grad():
                for place, parameter in enumerate(model.parameters()):
                    away = normal(*parameter.shape, seed=1000 * step + place)
                    parameter.copy_(0.3 + 0.01 * place + step_size * away)
            collector.observe(model, Progress(step, self.total_steps, step % self.batches, self.batches))


def a_constant_path_gives_that_constant(case: Case) -> None:
    """The mean of a path that stands still is where it stands; so are the parameters without a posterior."""
    model = case.model()
    collector = case.build(model)
    case.show(collector, model, range(case.total_steps), step_size=0.0)
    _, posterior = collector.result()
    expected = torch.full((model.layout.size,), 0.3, dtype=DOUBLE)
    require_close("the mean of a path that stands still", posterior.mean_vector(), expected)
    own = dict(model.net.named_parameters())
    for name, value in collector.deterministic().items():
        require(name in own, f"deterministic() names '{name}', which the network does not have; it has {sorted(own)}")
        require_close(f"'{name}' of a path that stands still", value, own[name])


def the_mean_lies_on_the_path(case: Case) -> None:
    """The mean of a path lies between the lowest and the highest values along it."""
    model = case.model()
    collector = case.build(model)
    lowest, highest = [torch.full((model.layout.size,), far, dtype=DOUBLE) for far in (9.0, -9.0)]
    for step in range(case.total_steps):
        case.show(collector, model, range(step, step + 1))
        # As it was shown: a collector may put the model elsewhere afterwards.
        shown = 0.3 + 0.1 * normal(model.layout.size, seed=1000 * step)
        lowest, highest = torch.minimum(lowest, shown), torch.maximum(highest, shown)
    mean = collector.result()[1].mean_vector().detach()
    inside = (mean >= lowest - 1e-6) & (mean <= highest + 1e-6)
    require(bool(inside.all()), f"{int((~inside).sum())} of {len(mean)} means lie outside of the path")


def goes_on_bit_for_bit(case: Case) -> None:
    """A state saved in the middle and loaded into a new collector ends as the uninterrupted one."""
    whole_model, first_model, second_model = case.model(), case.model(), case.model()
    whole, first = case.build(whole_model), case.build(first_model)
    middle = case.total_steps * 3 // 4
    case.show(whole, whole_model, range(case.total_steps))
    case.show(first, first_model, range(middle))
    state = copy.deepcopy(first.state_dict())
    second = case.build(second_model)
    second.load_state_dict(state)
    case.show(second, second_model, range(middle, case.total_steps))
    require_same("the end of a run that was cut off", _end(second), _end(whole))


def the_result_draws_and_is_rebuilt(case: Case) -> None:
    """The posterior draws every parameter by name, and the settings beside it build it again: files rely on it."""
    model = case.model()
    collector = case.build(model)
    case.show(collector, model, range(case.total_steps))
    part, posterior = collector.result()
    if not isinstance(posterior, Posterior):
        raise PartError(
            f"result() gives a {type(posterior).__name__} where a Posterior belongs; give (part, posterior)"
        )
    require_draws(posterior, shapes_of(model))
    rebuilt = POSTERIORS.resolve(part).build(model.layout, model.prior, posterior.mean_vector().detach())
    rebuilt.load_state_dict(posterior.state_dict())
    drawn = [dict(next(iter(q.draws(1, make_generator(3))))) for q in (rebuilt, posterior)]
    require_same("a draw of the posterior that is built again", drawn[0], drawn[1])


def _end(collector: Collector) -> dict[str, Any]:
    _, posterior = collector.result()
    return {"posterior": dict(posterior.state_dict()), "deterministic": dict(collector.deterministic())}


_CHECKS = (
    a_constant_path_gives_that_constant,
    the_mean_lies_on_the_path,
    goes_on_bit_for_bit,
    the_result_draws_and_is_rebuilt,
)
SUITE = Suite(Case, _CHECKS, ("total_steps", "batches"))
