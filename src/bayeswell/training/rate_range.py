"""The learning-rate range test: raise the rate step by step and see where the loss falls and where it breaks.

It is an ordinary run of ``train`` with a rate that grows and a callback that ends it.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from ..batches import Columns
from ..errors import DataError, DivergenceError, SettingError, require_count
from ..lifting import Where
from ..methods import Method, assemble, find_method, resolve
from ..random import derive_seed, make_generator
from ..types import Progress, Rate
from .checking import Trial
from .data import as_batches
from .engine import Devices, Engine
from .examples import dtype_of
from .loop import train
from .records import EpochRecord
from .run import Callback, Run
from .streams import Streams, own_global_stream

_SMOOTHING = 0.9
_BREAK = 4.0


@dataclass(frozen=True)
class RateRange:
    """Rates tried (of the means; stds move with them), the smoothed objective at each, and what they suggest.

    ``suggestion`` is a tenth of the rate at which the smoothed objective was lowest: smoothing lags behind, so by then
    the rate may already be too high to stay at. ``broke_at`` is the rate at which the objective left the range it had
    fallen through, or None.
    """

    rates: tuple[float, ...]
    objectives: tuple[float, ...]
    suggestion: float
    broke_at: float | None


@dataclass(frozen=True)
class _Growing(Rate):
    """rate(t) = lowest (highest / lowest)^(t / (steps - 1)), as a factor on the rate ``base``."""

    lowest: float
    highest: float
    steps: int
    base: float = 1.0

    name: ClassVar[str] = "growing"

    def rate(self, step: int) -> float:
        """Of the means in this step."""
        return float(self.lowest * (self.highest / self.lowest) ** (step / max(1, self.steps - 1)))

    def factor(self, at: Progress) -> float:
        """What the initial learning rate is multiplied by in this step."""
        return self.rate(at.step) / self.base


class _Watch(Callback):
    """Notes the smoothed objective after each step, and stops when it has broken or all steps are done."""

    def __init__(self, growing: _Growing) -> None:
        self.growing = growing
        self.rates: list[float] = []
        self.smoothed: list[float] = []
        self.broke_at: float | None = None
        self._average, self._before = 0.0, 0.0

    def after_step(self, run: Run) -> None:
        rate, sum_so_far = self.growing.rate(run.step - 1), run.fold()[0]
        total, self._before = sum_so_far - self._before, sum_so_far
        if run.engine.ranks > 1:
            total = float(run.engine.summed(torch.tensor(total, dtype=torch.float64))) / run.engine.ranks
        self._average = _SMOOTHING * self._average + (1 - _SMOOTHING) * total
        self.rates.append(rate)
        self.smoothed.append(self._average / (1 - _SMOOTHING**run.step))
        lowest, first = min(self.smoothed), self.smoothed[0]
        if self.smoothed[-1] > lowest + _BREAK * max(first - lowest, abs(first) * 0.01):
            self.broke_at = rate
            run.stop("the objective has left the range that it fell through", at_once=True)
        elif run.step == self.growing.steps:
            run.stop("every rate was tried", at_once=True)

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        self._before = 0.0  # the run's sums begin anew


def rate_range(
    net: nn.Module,
    data: Any,
    method: str | Method = "bbb",
    likelihood: Any = "categorical",
    *,
    lowest: float = 1e-5,
    highest: float | None = None,
    steps: int = 100,
    batch_size: int | None = None,
    seed: int = 0,
    where: Where = "all",
    devices: Devices | int = 1,
    **settings: Any,
) -> RateRange:
    """Train for ``steps`` steps while the rate grows geometrically from ``lowest`` to ``highest`` (Smith 2017).

    ``highest`` None is 1, or a hundred times the method's own rate where that is more: rates of IVON, whose steps are
    in units of its first curvature, and of samplers reach above 1. An optimizer that tunes its rate itself is refused.

    The objective is smoothed by a debiased moving average; the test ends when it has risen to four times the range it
    fell through, or is no longer finite. The network is copied, not changed. Collectors, plateaus and
    alternation of the method are left out; ``devices`` as in ``fit``.
    """
    require_count("rate_range", "steps", steps)
    chosen = find_method(method).changed(**settings)
    stepper = resolve(chosen).stepper
    if getattr(stepper, "tunes_rate", False):
        raise SettingError(
            f"rate_range: optimizer '{stepper.name}' tunes its rate itself, its lr is the first step's alone: there is "
            "none to find; train with it as it is (a rate schedule scales what it finds), or use another stepper"
        )
    highest = max(1.0, 100 * (stepper.lr or 0.0)) if highest is None else highest
    if not 0 < lowest < highest < math.inf:
        raise SettingError(f"rate_range: lowest = {lowest!r}, highest = {highest!r}; need 0 < lowest < highest")
    if stepper.lr is None and stepper.samples:
        chosen = chosen.changed(lr=1.0)  # it would fit itself; here the rate is what is tried
    collector = "bank" if stepper.samples else None
    plain = {"rate": "constant", "std_rate": None, "plateau": None, "alternate": None, "post_hoc": None, "members": 1}
    chosen = chosen.changed(**plain, collector=collector)
    batches = as_batches(data, batch_size, dtype_of(net), columns=Columns(net))
    Trial(net, likelihood, None).look_at(batches)
    epochs = math.ceil(steps / batches.count)
    engine = Engine(Devices(devices=devices) if isinstance(devices, int) else devices)
    with own_global_stream():
        streams = Streams(seed, engine.rank, engine.device)
        streams.begin()
        if engine.ranks == 1:  # one stream is enough; ranks must share that of the stepper and not that of the noise
            streams.noise = streams.stepper = make_generator(derive_seed(seed, "noise"), engine.device)
        assembly = assemble(
            chosen, net if engine.device.type == "cpu" else copy.deepcopy(net).to(engine.device), likelihood,
            dataset_size=batches.examples, batches=batches.count, epochs=epochs, where=where, generator=streams.stepper,
        )  # fmt: skip
        if engine.ranks > 1:
            streams.part()
        growing = _Growing(lowest, highest, steps, assembly.optimizer.param_groups[0]["base_lr"])
        watch = _Watch(growing)
        # A sampler asks for a collector, but no draw of this run is kept.
        assembly = dataclasses.replace(
            assembly, rate=growing, collector=None, tempering=None, fixed_temperature=assembly.temperature
        )
        run = Run(assembly, batches, epochs, streams, engine, [watch])
        try:
            with engine.watched():
                train(run)
        except (DataError, DivergenceError):
            if run.step == 0:
                raise
            watch.broke_at = growing.rate(run.step)
    best = watch.rates[min(range(len(watch.smoothed)), key=watch.smoothed.__getitem__)]
    return RateRange(tuple(watch.rates), tuple(watch.smoothed), best / 10, watch.broke_at)
