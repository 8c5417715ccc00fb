"""Pad, crop and flip against shifting by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bayeswell.datasets import Augmentation
from bayeswell.errors import DataError, SettingError
from bayeswell.random import make_generator


def test_every_image_is_one_of_the_allowed_shifts_all_equally_often() -> None:
    picture = torch.rand(2, 5, 6, generator=make_generator(0)) + 0.1
    count = 5000
    result = Augmentation(pad=1)(picture.expand(count, 2, 5, 6), make_generator(1))
    padded = functional.pad(picture, (1, 1, 1, 1))
    found = torch.zeros(count, dtype=torch.long)
    for flipped in (False, True):
        for row in range(3):
            for column in range(3):
                cut = padded[:, row : row + 5, column : column + 6]
                allowed = cut.flip(-1) if flipped else cut
                same = (result == allowed).all(dim=(1, 2, 3))
                found += same
                # 5000 / 18 = 278 expected with std 16.2; 5 std either side: 6e-7 for each, 1e-5 for all 18.
                assert 196 < int(same.sum()) < 360
    assert bool((found == 1).all())


def test_without_flip_and_pad_nothing_changes() -> None:
    images = torch.rand(7, 3, 8, 8)
    assert torch.equal(Augmentation(pad=0, flip=False)(images, make_generator(0)), images)


def test_the_generator_decides() -> None:
    images = torch.rand(40, 1, 8, 8)
    act = Augmentation()
    assert torch.equal(act(images, make_generator(3)), act(images, make_generator(3)))
    assert not torch.equal(act(images, make_generator(3)), act(images, make_generator(4)))


def test_bad_requests_are_refused() -> None:
    for pad in (-1, 1.5, True):
        with pytest.raises(SettingError, match="pad"):
            Augmentation(pad=pad)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"\(n, C, H, W\)"):
        Augmentation()(torch.rand(3, 8, 8))
