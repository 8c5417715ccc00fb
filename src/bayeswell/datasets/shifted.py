"""Inputs made from other data: noise, and corruptions of a test set. They test; nothing is learned from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import DataError
from ..random import make_generator
from .bundled import noise_like
from .corruptions import check_corruption, corrupt
from .data import Data, Raw


@dataclass(frozen=True)
class Noise:
    """Gaussian noise with the shape, mean and std of another set's test inputs (tokens: words drawn uniformly)."""

    name: ClassVar[str] = "noise"
    paper: ClassVar[str] = "Hendrycks & Gimpel 2017, arXiv 1610.02136"
    examples: ClassVar[str] = "as many as the test set has"
    source: ClassVar[str] = "derived"

    def read(self, folder: Path | None) -> Raw:
        raise _only_like(self.name)

    def inputs_like(self, like: Data, seed: int) -> Tensor:
        """Noise in place of the test inputs."""
        inputs = like.test[0]
        if like.vocabulary is not None:
            return torch.randint(like.vocabulary, inputs.shape, generator=make_generator(seed), dtype=inputs.dtype)
        return noise_like(inputs, seed=seed)


@dataclass(frozen=True)
class Corrupted:
    """Another image set's test images, corrupted: ``corruption`` and ``severity`` 1 to 5 choose."""

    corruption: str = "gaussian_noise"
    severity: int = 3

    name: ClassVar[str] = "corrupted"
    paper: ClassVar[str] = "Hendrycks & Dietterich 2019, arXiv 1903.12261 (in its manner)"
    examples: ClassVar[str] = "as many as the test set has"
    source: ClassVar[str] = "derived"

    def __post_init__(self) -> None:
        check_corruption(self.corruption, self.severity)

    def read(self, folder: Path | None) -> Raw:
        raise _only_like(self.name)

    def inputs_like(self, like: Data, seed: int) -> Tensor:
        """The test images corrupted, in the same order, so that the test targets still belong to them."""
        if len(like.input_shape) != 3:
            raise DataError(
                f"corrupted: '{like.name}' has inputs of shape {like.input_shape}; only images are corrupted"
            )
        raw = like.scaling.raw_inputs(like.test[0])
        return like.scaling.inputs(corrupt(raw, self.corruption, self.severity, seed=seed))


def _only_like(name: str) -> DataError:
    return DataError(f"'{name}' is made from another data set and holds no examples of its own; load_inputs makes it")
