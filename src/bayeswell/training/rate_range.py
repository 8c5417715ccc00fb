"""The learning-rate range test: raise the learning rate step by step and watch the loss."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.errors import DivergenceError, SettingError, check_integer
from ..core.protocols import Terms
from ..core.random import derive_seed
from ..methods import Method, find_method
from .check import check_before_training, check_grad_mode
from .devices import Engine
from .fit import EXTRA, make_plan
from .loop import train_step
from .members import start_member, step_options

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
    rates = [float(lowest * (highest / lowest) ** (step / max(1, steps - 1))) for step in range(steps)]
    plain = plain.changed(schedule=lambda progress: rates[progress.step] / base)
    plan = make_plan(net, data, plain, likelihood, extra, batch_size=batch_size, seed=seed)
    plan = dataclasses.replace(plan, epochs=math.ceil(steps / plan.data.batches))
    engine = Engine(plan.devices)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "global"))
        state = start_member(plan, 0, seed, engine)
        state.averager = None
        check_before_training(state, plan.data, None)
        state.model.train()
        options = step_options(plan, state, seed, engine)
        orders = (derive_seed(seed, "order", epoch) for epoch in range(plan.epochs))
        batches = (batch for order in orders for batch in plan.data.epoch(order))
        return _watched(rates, (train_step(state, batch, options) for batch in batches))


def _plain(method: Method) -> Method:
    if getattr(method.optimizer, "tunes_lr", False):
        raise SettingError(f"rate_range: optimizer '{method.optimizer.name}' finds its learning rate itself")
    method = method.changed(lr=1.0) if method.optimizer.lr is None else method
    averaging = method.averaging if method.optimizer.samples else None
    return method.changed(
        std_schedule=None, plateau=None, alternate=None, post_hoc=None, averaging=averaging, members=1
    )


def _watched(rates: Sequence[float], steps: Iterator[Terms | None]) -> RateRange:
    losses: list[float] = []
    average, broke_at = 0.0, None
    for step, rate in enumerate(rates):
        try:
            terms = next(steps)
        except DivergenceError:
            if step == 0:
                raise
            broke_at = rate
            break
        average = SMOOTHING * average + (1 - SMOOTHING) * (math.nan if terms is None else float(terms.total))
        losses.append(average / (1 - SMOOTHING ** (step + 1)))
        # At least a quarter of the first loss: batches differ.
        fallen = max(losses[0] - min(losses), 0.25 * abs(losses[0]))
        if not losses[-1] <= min(losses) + BREAK * fallen:
            broke_at = rate
            break
    best = rates[min(range(len(losses)), key=losses.__getitem__)]
    return RateRange(tuple(rates[: len(losses)]), tuple(losses), best / 10, broke_at)
