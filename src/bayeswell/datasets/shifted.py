"""Inputs made from other data: noise, and corruptions of a test set. They test; nothing is learned from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import DataError, SettingError
from ..random import make_generator
from .bundled import noise_like
from .corruptions import check_corruption, corrupt
from .data import Data, Raw


@dataclass(frozen=True)
class Noise:
    """Gaussian noise with the shape, mean and std of another set's test inputs (tokens: words drawn uniformly).

    ``seed`` None draws it by the seed of the run. A number gives all runs on the same test set the same images, in raw
    units and whatever their seeds, methods and held-out examples, as figure 1.1 of Book's thesis has them.
    """

    seed: int | None = None

    name: ClassVar[str] = "noise"
    paper: ClassVar[str] = "Hendrycks & Gimpel 2017, arXiv 1610.02136"
    examples: ClassVar[str] = "as many as the test set has"
    source: ClassVar[str] = "derived"

    def __post_init__(self) -> None:
        _check_seed(self.name, self.seed)

    def read(self, folder: Path | None) -> Raw:
        raise _only_like(self.name)

    def inputs_like(self, like: Data, seed: int) -> Tensor:
        """Noise in place of the test inputs."""
        inputs = like.test[0]
        own = seed if self.seed is None else self.seed
        if like.vocabulary is not None:
            return torch.randint(like.vocabulary, inputs.shape, generator=make_generator(own), dtype=inputs.dtype)
        if self.seed is None:
            return noise_like(inputs, seed=own)
        # Made before they are scaled: the examples that a run's seed holds out change the scale.
        return like.scaling.inputs(noise_like(like.scaling.raw_inputs(inputs), seed=own), inputs.dtype)


@dataclass(frozen=True)
class Corrupted:
    """Another image set's test images, corrupted: ``corruption``, ``severity`` 1 to 5; ``seed`` as in noise."""

    corruption: str = "gaussian_noise"
    severity: int = 3
    seed: int | None = None

    name: ClassVar[str] = "corrupted"
    paper: ClassVar[str] = "Hendrycks & Dietterich 2019, arXiv 1903.12261 (in its manner)"
    examples: ClassVar[str] = "as many as the test set has"
    source: ClassVar[str] = "derived"

    def __post_init__(self) -> None:
        check_corruption(self.corruption, self.severity)
        _check_seed(self.name, self.seed)

    def read(self, folder: Path | None) -> Raw:
        raise _only_like(self.name)

    def inputs_like(self, like: Data, seed: int) -> Tensor:
        """The test images corrupted, in the same order, so that the test targets still belong to them."""
        if len(like.input_shape) != 3:
            raise DataError(
                f"corrupted: '{like.name}' has inputs of shape {like.input_shape}; only images are corrupted"
            )
        raw = like.scaling.raw_inputs(like.test[0])
        own = seed if self.seed is None else self.seed
        return like.scaling.inputs(corrupt(raw, self.corruption, self.severity, seed=own))


def _check_seed(name: str, seed: int | None) -> None:
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise SettingError(f"{name}: seed = {seed!r}; a whole number from 0, or none: that of the run")


def _only_like(name: str) -> DataError:
    return DataError(f"'{name}' is made from another data set and holds no examples of its own; load_inputs makes it")
