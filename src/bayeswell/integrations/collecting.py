"""An averager (SWA, SWAG, HWA, a bank of draws) in a custom training loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..averaging import AVERAGERS
from ..core.errors import DataError, NetworkError
from ..core.protocols import AveragerPart, Inputs, Progress
from ..core.pytree import tree_map
from ..core.random import make_generator
from ..nn import BayesianModule, has_statistics
from ..training.data import Columns
from ..training.finalize import averaged_model


class Collector:
    """Collects a posterior from a Bayesian network while a custom loop trains it::

        collector = Collector(model, {"name": "swag", "start": 0.5}, total_steps=epochs * len(loader),
                              batches=len(loader))
        ...                           # after each step of the optimizer:
        collector.after_step()
        ...                           # at the end:
        predictor = Predictor(collector.finalize(loader), objective.likelihood)

    Feedback (of HWA) changes the network that is trained, in ``after_step``. With several processes each one collects,
    and all see the same weights. ``state_dict`` belongs into checkpoints.

    Args:
        model: made by ``bayesian``, or a module around it (DDP, a LightningModule).
        averaging: a name, settings with a name, or a part.
        total_steps: steps of the optimizer in the whole training.
        batches: steps of the optimizer in an epoch.
    """

    def __init__(
        self, model: nn.Module, averaging: str | Mapping[str, Any] | AveragerPart, *, total_steps: int, batches: int
    ) -> None:
        self.model = find_model(model)
        self.total_steps, self.batches = total_steps, batches
        self.step = 0
        self._averager = AVERAGERS.resolve(averaging).build(self.model, total_steps, batches)

    def after_step(self) -> None:
        """Call it after each step of the optimizer."""
        progress = Progress(self.step, self.total_steps, self.step % self.batches, self.batches)
        self._averager.after_step(self.model, progress)
        self.step += 1

    def finalize(self, data: Iterable[Any] | None = None, *, seed: int = 0) -> BayesianModule:
        """Return a copy of the network under the collected posterior; the trained network stays as it is.

        Args:
            data: batches of the training loader. Needed by networks with BatchNorm, whose statistics are estimated
                again: once for an average, or once for each of 30 draws of a posterior that was fitted to the path.
            seed: of these draws.
        """
        model = self.model
        if data is None and has_statistics(model.net):
            raise DataError("the network has BatchNorm statistics: give the training batches, as finalize(loader)")
        device = model.posterior.mean.device
        return averaged_model(model, self._averager, lambda: _inputs(data, model, device), make_generator(seed, device))

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "averager": self._averager.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of the same network, averager and plan."""
        self._averager.load_state_dict(state["averager"])
        self.step = int(state["step"])


def find_model(module: nn.Module) -> BayesianModule:
    """Return the only Bayesian network in a module."""
    found = [part for part in module.modules() if isinstance(part, BayesianModule)]
    if len(found) != 1:
        count = f"{len(found)} Bayesian networks" if found else "no Bayesian network (bayeswell.bayesian makes one)"
        raise NetworkError(f"{type(module).__name__} has {count}, but must have exactly one")
    return found[0]


def _inputs(data: Iterable[Any] | None, model: BayesianModule, device: torch.device) -> Iterator[Inputs]:
    columns = Columns(model.net)
    for batch in () if data is None else data:
        inputs = columns.split(batch)[0] if isinstance(batch, Mapping) else batch[0]
        yield tree_map(lambda tensor: tensor.to(device), inputs)
