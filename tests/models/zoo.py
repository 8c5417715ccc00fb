"""The zoo in tests: full sizes with their numbers of parameters, and small forms that train in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.models import build_model, densenet, resnet
from bayeswell.random import seed_global_generator

CIFAR, MNIST, IMAGENET = (3, 32, 32), (1, 28, 28), (3, 224, 224)


@dataclass(frozen=True)
class Size:
    """A model as a paper has it: ``parameters`` in all, ``without_norm`` without those of batch normalisation."""

    name: str
    shape: tuple[int, ...]
    outputs: int
    parameters: int
    without_norm: int
    vocabulary: int | None = None


# The papers' numbers (k-tied, HWA, thesis), and those of the usual implementations of the rest. Of the LSTM, torch has
# 512 more than Keras' 2,691,713. preresnet164 and preact_resnet18: 1.7 M and 11.17 M are known; see their own tests.
SIZES = (
    Size("mlp", MNIST, 10, 478_410, 478_410),
    Size("small_mlp", (13,), 1, 751, 751),
    Size("cnn", (1, 8, 8), 10, 13_706, 13_706),
    Size("lenet5", MNIST, 10, 61_706, 61_706),
    Size("lenet5", CIFAR, 10, 62_006, 62_006),
    Size("lenet_wide", CIFAR, 100, 2_202_660, 2_202_660),
    Size("lenet_hwa", MNIST, 10, 545_546, 545_546),
    Size("vgg", CIFAR, 10, 9_416_010, 9_410_122),
    Size("resnet10", CIFAR, 10, 4_903_242, 4_897_482),
    Size("resnet18", CIFAR, 10, 11_173_962, 11_164_362),
    Size("resnet_tfp", CIFAR, 10, 4_908_490, 4_904_522),
    Size("preact_resnet18", CIFAR, 10, 11_172_170, 11_164_362),
    Size("preresnet164", CIFAR, 10, 1_703_258, 1_679_034),
    Size("wide_resnet28_10", CIFAR, 10, 36_479_194, 36_461_242),
    Size("densenet161", IMAGENET, 1000, 28_681_000, 28_461_064),
    Size("resnet152", IMAGENET, 1000, 60_192_808, 60_041_384),
    Size("lstm", (80,), 1, 2_691_713 + 512, 2_691_713 + 512, vocabulary=20_000),
)

SMALL: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "mlp": ({"hidden": (5, 4)}, (6,)),
    "small_mlp": ({}, (6,)),
    "cnn": ({"width": 2}, (1, 8, 8)),
    "lenet5": ({"width": 2}, (1, 28, 28)),
    "lenet_wide": ({"width": 2}, (3, 8, 9)),
    "lenet_hwa": ({"width": 2}, (1, 9, 8)),
    "vgg": ({"width": 2}, (3, 9, 8)),
    "resnet10": ({"width": 2}, (3, 8, 8)),
    "resnet18": ({"width": 2}, (3, 8, 8)),
    "resnet_tfp": ({"width": 2}, (3, 8, 8)),
    "preact_resnet18": ({"width": 2}, (3, 8, 8)),
    "preresnet164": ({"width": 2, "depth": 20}, (3, 8, 8)),
    "wide_resnet28_10": ({"width": 2, "depth": 10, "dropout": 0.2}, (3, 8, 8)),
    "densenet161": ({"width": 2, "stem": "small"}, (3, 8, 8)),
    "resnet152": ({"width": 2, "stem": "small"}, (3, 8, 8)),
    "lstm": ({"width": 5, "embedding": 4}, (6,)),
}
CLASSES, VOCABULARY = 3, 11


def on_meta(choice: Any, shape: tuple[int, ...], outputs: int, vocabulary: int | None = None) -> nn.Module:
    """A network without memory."""
    with torch.device("meta"):
        return build_model(choice, shape, outputs, vocabulary=vocabulary)


def small(name: str, seed: int = 0, **changed: Any) -> nn.Module:
    """A small form of a model for three classes."""
    seed_global_generator(seed)
    settings, shape = SMALL[name]
    vocabulary = VOCABULARY if name == "lstm" else None
    return build_model({"name": name, **settings, **changed}, shape, CLASSES, vocabulary=vocabulary)


@contextmanager
def few_blocks() -> Iterator[None]:
    """The two deepest with a few blocks of every kind, as the others have; at their own depth test_zoo.py has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resnet.ResNet152, "counts", (1, 2, 2, 1))
        patch.setattr(densenet, "_COUNTS", (1, 2, 2, 1))
        yield


def batch(name: str, size: int = 8, seed: int = 1) -> Tensor:
    """Inputs for the small form."""
    generator = torch.Generator().manual_seed(seed)
    shape = (size, *SMALL[name][1])
    if name == "lstm":
        return torch.randint(VOCABULARY, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def labels(size: int = 8) -> Tensor:
    """All classes, in turn."""
    return torch.arange(size) % CLASSES
