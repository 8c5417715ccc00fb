"""Data that come with scikit-learn: always there, no download."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..random import make_generator, standard_normal


@dataclass(frozen=True)
class Split:
    """Training and test examples."""

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


def digits(*, test_share: float = 0.25, seed: int = 0) -> Split:
    """1,797 grey 8x8 images of handwritten digits as (n, 1, 8, 8), standardised by the training pixels."""
    # Imported here: scikit-learn takes a second, and who brings their own data does not need it.
    from sklearn.datasets import load_digits

    found = load_digits()
    inputs = torch.from_numpy(found.images).float().unsqueeze(1)
    targets = torch.from_numpy(found.target).long()
    order = torch.randperm(len(targets), generator=make_generator(seed))
    count = len(targets) - round(test_share * len(targets))
    train, test = order[:count], order[count:]
    mean, std = inputs[train].mean(), inputs[train].std()
    scaled = (inputs - mean) / std
    return Split(scaled[train], targets[train], scaled[test], targets[test])


def noise_like(inputs: Tensor, *, seed: int = 0) -> Tensor:
    """Gaussian noise with the shape, mean and std of the inputs: out-of-distribution examples."""
    noise = standard_normal(inputs.shape, like=inputs, generator=make_generator(seed))
    return noise * inputs.std() + inputs.mean()
