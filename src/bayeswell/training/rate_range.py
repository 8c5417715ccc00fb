"""The learning-rate range test: raise the learning rate step by step and watch the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ..core.errors import DivergenceError, SettingError, check_integer
from ..core.protocols import Progress
from ..core.random import derive_seed, make_generator
from ..methods import Method, TrainState, build, find_method
from .check import check_before_training, check_grad_mode
from .data import Data
from .devices import Devices, Engine
from .fit import EXTRA, make_plan
from .loop import StepOptions, least_examples, train_step

SMOOTHING, BREAK = 0.9, 4.0


@dataclass(frozen=True)
class RateRange:
    """Result of a range test.

    Args:
        rates: learning rates of the means that were tried; stds move with them.
        losses: the objective at each, smoothed by a debiased moving average.
        suggestion: a tenth of the rate with the lowest smoothed objective, which lags behind.
        broke_at: the rate at which the objective left the range it had fallen through; None if it did not.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggestion: float
    broke_at: float | None


@dataclass(frozen=True)
class _Growing:
    """rate(t) = lowest (highest / lowest)^(t / (steps - 1)), as a factor on ``base``."""

    lowest: float
    highest: float
    steps: int
    base: float

    name: ClassVar[str] = "growing"
    paper: ClassVar[str] = "Smith 2017"

    def rate(self, step: int) -> float:
        return float(self.lowest * (self.highest / self.lowest) ** (step / max(1, self.steps - 1)))

    def factor(self, progress: Progress) -> float:
        return self.rate(progress.step) / self.base


def rate_range(
    net: Any,
    data: Any,
    method: str | Method = "bbb",
    likelihood: Any = "categorical",
    *,
    lowest: float = 1e-5,
    highest: float | None = None,
    steps: int = 100,
    batch_size: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> RateRange:
    """Train while the learning rate grows geometrically (Smith 2017); the network is copied.

    The test ends when the smoothed objective has risen to four times the range it fell through, or is not finite.
    Averaging, plateaus and alternation of the method are left out.

    Args:
        net: network, data, method, likelihood, batch_size and settings are those of ``fit``.
        lowest: first learning rate.
        highest: last one; None: 1, or 100 times the method's own if that is more.
        steps: number of steps.
    """
    check_grad_mode()
    steps = check_integer("rate_range", "steps", steps)
    extra = {name: settings.pop(name) for name in EXTRA if name in settings}
    plain = _plain(find_method(method).changed(**settings))
    base = plain.optimizer.lr
    highest = max(1.0, 100 * base) if highest is None else highest
    if not 0 < lowest < highest < math.inf:
        raise SettingError(f"rate_range: `lowest` = {lowest} and `highest` = {highest}; need 0 < lowest < highest")
    growing = _Growing(lowest, highest, steps, base)
    plan = make_plan(net, data, plain.changed(schedule=growing), likelihood, extra, batch_size=batch_size, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "global"))
        state = build(
            plan.method,
            plan.net,
            plan.likelihood,
            dataset_size=plan.data.examples,
            batches=plan.data.batches,
            epochs=math.ceil(steps / plan.data.batches),
            generator=make_generator(derive_seed(seed, "noise")),
            output=plan.output,
        )
        check_before_training(state, plan.data, None)
        return _run(state, growing, plan.data, seed)


def _plain(method: Method) -> Method:
    """Return the method with nothing but steps at one rate."""
    if getattr(method.optimizer, "tunes_lr", False):
        raise SettingError(f"rate_range: optimizer '{method.optimizer.name}' finds its learning rate itself")
    method = method.changed(lr=1.0) if method.optimizer.lr is None else method
    averaging = method.averaging if method.optimizer.samples else None
    return method.changed(
        std_schedule=None, plateau=None, alternate=None, post_hoc=None, averaging=averaging, members=1
    )


def _run(state: TrainState, growing: _Growing, data: Data, seed: int) -> RateRange:
    state.averager = None
    state.model.train()
    share, least = data.batches / data.shown, least_examples(state.model.net)
    options = StepOptions(Engine(Devices("cpu")), state.method.accumulate, least, share)
    rates: list[float] = []
    losses: list[float] = []
    average, broke_at = 0.0, None
    epochs = range(math.ceil(growing.steps / data.batches))
    batches = (batch for epoch in epochs for batch in data.epoch(derive_seed(seed, "order", epoch)))
    for step, batch in zip(range(growing.steps), batches, strict=False):
        try:
            terms = train_step(state, batch, options)
        except DivergenceError:
            if step == 0:
                raise
            broke_at = growing.rate(step)
            break
        average = SMOOTHING * average + (1 - SMOOTHING) * (math.nan if terms is None else float(terms.total))
        rates.append(growing.rate(step))
        losses.append(average / (1 - SMOOTHING ** (step + 1)))
        # At least a quarter of the first loss: batches differ.
        fallen = max(losses[0] - min(losses), 0.25 * abs(losses[0]))
        if not losses[-1] <= min(losses) + BREAK * fallen:
            broke_at = rates[-1]
            break
    best = rates[min(range(len(losses)), key=losses.__getitem__)]
    return RateRange(tuple(rates), tuple(losses), best / 10, broke_at)
