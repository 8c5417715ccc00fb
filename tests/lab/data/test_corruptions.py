"""Corruptions of images, and the reader of CIFAR-10-C."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

from bayeswell.core.errors import DataError, FileError, SettingError
from bayeswell.lab.data import corrupt, corrupted_test, load_data
from bayeswell.lab.data.corruptions import STRENGTHS

GENERATOR = torch.Generator().manual_seed(2)
IMAGES = torch.rand(3, 2, 11, 11, generator=GENERATOR)


def test_noise_has_its_std() -> None:
    gray = torch.full((20, 1, 32, 32), 0.5)
    for severity, std in enumerate(STRENGTHS["noise"], start=1):
        found = corrupt(gray, "noise", severity) - gray
        # Relative standard error of a std from 20,480 numbers: 0.5 %.
        assert float(found.std()) == pytest.approx(std, rel=0.03)


def test_blur_matches_scipy() -> None:
    found = corrupt(IMAGES, "blur", 3)
    expected = ndimage.gaussian_filter(IMAGES.double().numpy(), (0, 0, 0.8, 0.8), mode="nearest", radius=(0, 0, 3, 3))
    torch.testing.assert_close(found.double(), torch.from_numpy(expected), atol=1e-5, rtol=0)


def test_contrast_scales_the_differences_from_the_mean() -> None:
    found = corrupt(IMAGES, "contrast", 2)
    torch.testing.assert_close(found.std((2, 3)), IMAGES.std((2, 3)) * 0.5)
    torch.testing.assert_close(found.mean((2, 3)), IMAGES.mean((2, 3)))


def test_rotation_matches_scipy_up_to_its_direction() -> None:
    smooth = torch.from_numpy(ndimage.gaussian_filter(IMAGES.numpy(), (0, 0, 2, 2)))
    found = corrupt(smooth, "rotation", 2)
    for image, turned in zip(smooth, found, strict=True):
        both = [ndimage.rotate(image.numpy(), sign * 30, axes=(2, 1), reshape=False, order=1) for sign in (1, -1)]
        errors = [float(np.abs(one - turned.numpy())[:, 3:8, 3:8].max()) for one in both]
        assert min(errors) < 1e-4 < max(errors)


def test_rotation_keeps_the_proportions_of_wide_images() -> None:
    image = torch.zeros(1, 1, 21, 41)
    image[0, 0, 10, 26] = 1
    found = corrupt(image, "rotation", 2)[0, 0]
    row, column = divmod(int(found.argmax()), 41)
    # A point 6 pixels from the center stays at that distance.
    assert np.hypot(row - 10, column - 20) == pytest.approx(6, abs=0.8)


def test_the_seed_decides_and_pixels_stay_between_0_and_1() -> None:
    for name in STRENGTHS:
        one, two = (corrupt(IMAGES, name, 5, seed=4) for _ in range(2))
        assert torch.equal(one, two)
        assert 0 <= float(one.min()) <= float(one.max()) <= 1


def test_wrong_choices_are_refused() -> None:
    with pytest.raises(SettingError, match="'blurr'; did you mean 'blur'"):
        corrupt(IMAGES, "blurr")
    with pytest.raises(DataError, match="must be 1 to 5, got 6"):
        corrupt(IMAGES, "blur", 6)
    with pytest.raises(DataError, match=r"give images \(n, C, H, W\)"):
        corrupt(IMAGES[0], "blur")


def test_corrupted_test_images_are_scaled_like_the_data() -> None:
    data = load_data("digits", ood={"name": "corrupted", "corruption": "contrast", "severity": 5})
    inputs, targets = corrupted_test(data, "contrast", 5)
    assert torch.equal(targets, data.test[1])
    assert torch.equal(data.ood["corrupted corruption=contrast severity=5"], inputs)
    raw = data.raw_inputs(data.test[0])
    torch.testing.assert_close(data.raw_inputs(inputs), corrupt(raw, "contrast", 5), atol=1e-6, rtol=0)


def test_published_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (20, 6, 6, 3), np.uint8)
    np.save(tmp_path / "fog.npy", pixels)
    np.save(tmp_path / "labels.npy", np.tile([0, 1, 1, 0], 5))
    data = load_data((rng.random((30, 3, 6, 6)), np.arange(30) % 2), standardize=False)
    inputs, targets = corrupted_test(data, "fog", 3, path=str(tmp_path))
    torch.testing.assert_close(inputs.numpy(), pixels[8:12].transpose(0, 3, 1, 2) / np.float32(255))
    assert targets.tolist() == [0, 1, 1, 0]
    with pytest.raises(SettingError, match="'frog'; did you mean 'fog'"):
        corrupted_test(data, "frog", 1, path=str(tmp_path))
    with pytest.raises(DataError, match=r"shape \(3, 6, 6\), but 'digits'"):
        corrupted_test(load_data("digits"), "fog", 1, path=str(tmp_path))
    (tmp_path / "labels.npy").unlink()
    with pytest.raises(FileError, match=r"labels\.npy: there is no such file"):
        corrupted_test(data, "fog", 1, path=str(tmp_path))
