"""Augmentation by shifts and mirroring."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bayeswell.core.errors import DataError
from bayeswell.core.random import make_generator
from bayeswell.lab.data import Augmentation


def test_each_image_is_a_shift_or_a_mirrored_shift() -> None:
    images = torch.rand(40, 2, 6, 5, generator=make_generator(0))
    found = Augmentation(pad=1)(images, make_generator(1))
    seen = set()
    for image, result in zip(images, found, strict=True):
        padded = functional.pad(image, (1,) * 4)
        windows = {
            (row, column, flip): (window.flip(2) if flip else window)
            for row in range(3)
            for column in range(3)
            for flip in (False, True)
            for window in [padded[:, row : row + 6, column : column + 5]]
        }
        matches = [key for key, window in windows.items() if torch.equal(window, result)]
        assert len(matches) == 1
        seen.update(matches)
    assert len(seen) > 10


def test_without_padding_and_flip_nothing_changes() -> None:
    images = torch.rand(3, 1, 4, 4)
    assert torch.equal(Augmentation(pad=0, flip=False)(images, make_generator(0)), images)


def test_tables_are_refused() -> None:
    with pytest.raises(DataError, match=r"only images \(n, C, H, W\)"):
        Augmentation()(torch.rand(3, 4), make_generator(0))
