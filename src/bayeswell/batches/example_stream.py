"""Random numbers of examples that are read: a stream of their own, apart from that of the run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..fingerprint import sha256_of


class ExampleStream:
    """What examples draw at random while they are read: torch's, numpy's and Python's global generators, seeded."""

    def __init__(self, seed: int) -> None:
        self._torch = torch.Generator().manual_seed(seed).get_state()
        self._numpy: Any = np.random.RandomState(seed % 2**32).get_state()
        self._python: Any = random.Random(seed).getstate()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let the global generators be this stream, which goes on; afterwards they are as they were."""
        kept = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
        self._set(self._torch, self._numpy, self._python)
        try:
            yield
        finally:
            self._torch, self._numpy, self._python = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
            self._set(*kept)

    @staticmethod
    def _set(of_torch: Tensor, of_numpy: Any, of_python: Any) -> None:
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)  # noqa: NPY002
        random.setstate(of_python)


def sample_sha256(dataset: Any, examples: int) -> str:
    """SHA-256 of the length and of three examples."""
    with ExampleStream(0).entered():  # examples that change at random do so alike each time
        indices = sorted({0, examples // 2, examples - 1})
        some = [dataset[index] for index in indices] if hasattr(dataset, "__getitem__") else []
    return sha256_of((examples, some))
