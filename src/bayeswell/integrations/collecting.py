"""A collector (SWA, SWAG, HWA, a bank of draws) in a loop that is not ours."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from ..averaging import AVERAGING
from ..batches import Columns, parts_of
from ..errors import DataError, NetworkError
from ..lifting import BayesianModule
from ..lifting.statistics import has_statistics
from ..nested import map_tensors
from ..random import make_generator
from ..training.finalize import collected_model
from ..types import CollectorPart, Inputs, Progress


class Collecting:
    """Watches a lifted network while somebody trains it, and ends with the posterior of what was seen.

        swag = {"name": "swag", "start": 0.5}
        collecting = Collecting(model, swag, total_steps=epochs * len(loader), batches=len(loader))
        ...                           # after each step of the optimizer:
        collecting.after_step()
        ...                           # at the end:
        result = Predictor(collecting.finished(loader), objective.likelihood)

    ``model`` may be wrapped (DDP, ``Loss``, a LightningModule). ``total_steps`` and ``batches`` count steps of the
    optimizer, in all and in an epoch: when snapshots are taken is known before the first. Feedback (HWA's) changes the
    network that is trained, in ``after_step``. Over several processes every one collects, and all see the same weights.
    ``state_dict`` is what a checkpoint needs.
    """

    def __init__(
        self, model: nn.Module, collector: str | Mapping[str, Any] | CollectorPart, *, total_steps: int, batches: int
    ) -> None:
        self.model = lifted_in(model)
        self.total_steps, self.batches = total_steps, batches
        self.step = 0
        self._collector = AVERAGING.resolve(collector).build(self.model, total_steps, batches)

    def after_step(self) -> None:
        """After every step of the optimizer."""
        at = Progress(self.step, self.total_steps, self.step % self.batches, self.batches)
        self._collector.observe(self.model, at)
        self.step += 1

    def finished(self, batches: Iterable[Any] | None = None, *, seed: int = 0) -> BayesianModule:
        """A copy of the network under the collected posterior; other trained parameters end at their averages too.

        Frozen weights are shared, not copied; the network that was trained stays as it is.

        ``batches`` (a loader, as it was trained on) are needed where the network has BatchNorm statistics: these are
        estimated anew, once for an averaged posterior, or once for each of 30 draws of one fitted to a path (SWAG).
        """
        if batches is None and has_statistics(self.model.net):
            raise DataError(
                "the network has BatchNorm statistics, which belong to the weights they were gathered with: give the "
                "training batches, as finished(loader)"
            )
        device = self.model.posterior.mean_vector().device
        columns = Columns(self.model)

        def inputs() -> Iterator[Inputs]:
            for batch in () if batches is None else batches:
                yield map_tensors(parts_of(batch, columns).inputs, lambda tensor: tensor.to(device))

        frozen = {id(p): p for p in self.model.net.parameters() if not p.requires_grad}
        own = copy.deepcopy(self.model, frozen)
        return collected_model(own, self._collector, inputs, self.batches, make_generator(seed, device))

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data."""
        return {"step": self.step, "collector": self._collector.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``, for the same network, collector and plan."""
        self._collector.load_state_dict(state["collector"])
        self.step = int(state["step"])


def lifted_in(module: nn.Module) -> BayesianModule:
    """The one Bayesian network in a module that may be wrapped around it."""
    found = [part for part in module.modules() if isinstance(part, BayesianModule)]
    if len(found) != 1:
        count = f"{len(found)} Bayesian networks" if found else "no Bayesian network (bayeswell.bayesian makes one)"
        raise NetworkError(f"{type(module).__name__} has {count}; a collector watches one")
    return found[0]
