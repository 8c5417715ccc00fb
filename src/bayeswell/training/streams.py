"""The random streams of one run: each rank has noise of its own, all share what moves the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..random import derive_seed, make_generator, seed_global_generator


class Streams:
    """``noise`` draws weights (its own on each rank); ``stepper`` is a sampler's noise (the same on every rank).

    The order of the data has no state: each epoch has a seed of its own. Dropout and whatever else torch draws by
    itself comes from torch's global stream, which belongs to the run inside ``own_global_stream``.
    """

    def __init__(self, seed: int, rank: int = 0, device: torch.device | str = "cpu") -> None:
        self.seed, self.rank = seed, rank
        self.noise = make_generator(derive_seed(seed, "noise", rank), device)
        self.stepper = make_generator(derive_seed(seed, "stepper"), device)

    def order_seed(self, epoch: int) -> int:
        """What decides the order of an epoch."""
        return derive_seed(self.seed, "order", epoch)

    def begin(self) -> None:
        """Starts that are drawn are the same on every rank, ..."""
        seed_global_generator(derive_seed(self.seed, "global"))

    def part(self) -> None:
        """... dropout masks are not."""
        seed_global_generator(derive_seed(self.seed, "global", self.rank))

    def state_dict(self) -> dict[str, Any]:
        """Where each stream stands."""
        state = {"noise": self.noise.get_state(), "stepper": self.stepper.get_state(), "global": torch.get_rng_state()}
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state()
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of ``state_dict``."""
        self.noise.set_state(state["noise"])
        self.stepper.set_state(state["stepper"])
        torch.set_rng_state(state["global"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def own_global_stream() -> Iterator[None]:
    """The caller's global stream is left as it was found."""
    with torch.random.fork_rng():
        yield
