"""Corruptions: what each does to a picture of which the answer is known, and how far it goes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from bayeswell.datasets import CORRUPTIONS, corrupt, load_data
from bayeswell.errors import DataError, SettingError


@pytest.fixture(scope="module")
def digits() -> Tensor:
    return load_data("digits", standardise=False).test[0][:200]


@pytest.fixture(scope="module")
def coloured(digits: Tensor) -> Tensor:
    """28x28 colour pictures with edges: digits enlarged, each channel of another strength, on a grey ground."""
    large = torch.nn.functional.interpolate(digits[:60], (28, 28), mode="bilinear")
    return 0.2 + torch.cat([0.7 * large, 0.5 * large, 0.3 * large], dim=1)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_distance_to_the_clean_image_grows_with_severity(name: str, digits: Tensor, coloured: Tensor) -> None:
    for images in (digits, coloured):
        before = images.clone()
        results = [corrupt(images, name, severity, seed=3) for severity in (1, 2, 3, 4, 5)]
        assert torch.equal(images, before), "the images themselves must not change"
        distances = [(result - images).square().mean().sqrt().item() for result in results]
        assert distances[0] > 0.001
        assert all(low < high for low, high in pairwise(distances)), distances
        for result in results:
            assert result.shape == images.shape
            assert result.dtype == images.dtype
            assert 0 <= float(result.min()) <= float(result.max()) <= 1


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_seed_decides_and_the_global_generator_does_not(name: str, digits: Tensor) -> None:
    first = corrupt(digits, name, 3, seed=7)
    torch.manual_seed(1)
    assert torch.equal(first, corrupt(digits, name, 3, seed=7))
    drawn = name not in {"gaussian_blur", "defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg"}
    assert torch.equal(first, corrupt(digits, name, 3, seed=8)) is not drawn


def test_gaussian_and_shot_noise_have_the_std_they_say() -> None:
    # 1.2 million values: the standard error of a std is 0.07 %, the tolerance of 0.5 % is 7 of them.
    flat = torch.full((400, 3, 32, 32), 0.5)
    noisy = corrupt(flat, "gaussian_noise", 3)
    assert float((noisy - flat).std()) == pytest.approx(0.08, rel=5e-3)
    grainy = corrupt(flat, "shot_noise", 3)  # Poisson(50) / 100
    assert float((grainy - flat).std()) == pytest.approx((0.5 / 100) ** 0.5, rel=5e-3)
    assert float(grainy.mean()) == pytest.approx(0.5, rel=1e-3)


def test_impulse_noise_sets_the_share_it_says_half_to_each_end() -> None:
    flat = torch.full((400, 3, 32, 32), 0.5)
    hit = corrupt(flat, "impulse_noise", 5)
    # share 0.07 of 1.2 million: standard error 0.00023 for both ends together, 0.00017 for one.
    assert float((hit != flat).float().mean()) == pytest.approx(0.07, abs=1.5e-3)
    assert float((hit == 1).float().mean()) == pytest.approx(0.035, abs=1.2e-3)
    assert set(hit.unique().tolist()) == {0.0, 0.5, 1.0}


@pytest.mark.parametrize(
    "name",
    ["gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "contrast", "pixelate", "elastic"],
)
def test_a_picture_of_one_colour_is_left_as_it_is_by_blurs(name: str) -> None:
    flat = torch.tensor([0.2, 0.5, 0.7])[None, :, None, None].expand(5, 3, 16, 16).contiguous()
    torch.testing.assert_close(corrupt(flat, name, 5), flat, atol=1e-5, rtol=0)


def test_gaussian_blur_spreads_a_point_by_its_std() -> None:
    point = torch.zeros(1, 1, 33, 33)
    point[0, 0, 16, 16] = 1
    blurred = corrupt(point, "gaussian_blur", 5)[0, 0].double()
    place = torch.arange(33) - 16
    assert float(blurred.sum()) == pytest.approx(1, rel=1e-5)
    # std 1.4 cut at 5 pixels: the second moment of the cut kernel, by hand.
    kernel = torch.exp(-0.5 * (torch.arange(-5, 6).double() / 1.4).square())
    truth = float((kernel / kernel.sum() * torch.arange(-5, 6).square()).sum())
    assert float((blurred.sum(0) * place.square()).sum()) == pytest.approx(truth, rel=1e-4)
    assert float((blurred.sum(1) * place.square()).sum()) == pytest.approx(truth, rel=1e-4)


def test_defocus_spreads_a_point_over_a_disc() -> None:
    point = torch.zeros(1, 1, 33, 33)
    point[0, 0, 16, 16] = 1
    blurred = corrupt(point, "defocus_blur", 4)[0, 0].double()
    place = (torch.arange(33) - 16).double()
    assert float(blurred.sum()) == pytest.approx(1, rel=1e-5)
    # A disc of radius 2 has the second moment r^2 / 4 along an axis; whole pixels that it is cut into add about 1/12.
    assert float((blurred.sum(0) * place.square()).sum()) == pytest.approx(2**2 / 4 + 1 / 12, rel=0.03)
    torch.testing.assert_close(blurred, blurred.T)
    assert float(blurred[16, 19]) == float(blurred[18, 18]) == 0  # beyond the radius
    assert float(blurred[16, 18]) > 0


def test_glass_takes_what_it_shows_from_next_door() -> None:
    ramp = torch.arange(33.0).expand(20, 1, 33, 33) / 33
    shown = corrupt(ramp.contiguous(), "glass_blur", 5)
    inner = (slice(None), slice(None), slice(4, -4), slice(4, -4))
    away = ((shown - ramp) * 33)[inner]
    # Each pixel moves by -1, 0 or 1 with chance 0.3 each of 0.9; blurs of std 0.5 leave a ramp and smooth the noise.
    assert float(away.abs().max()) <= 1
    assert float(away.mean()) == pytest.approx(0, abs=0.03)  # 12,500 values of std below 0.8: 4 standard errors
    assert float(away.std()) > 0.2


def test_motion_blur_spreads_along_one_line() -> None:
    point = torch.zeros(50, 1, 33, 33)
    point[:, 0, 16, 16] = 1
    blurred = corrupt(point, "motion_blur", 5)[:, 0].double()
    place = (torch.arange(33) - 16).double()
    rows, columns = place[:, None].expand(33, 33), place.expand(33, 33)
    moments = torch.stack([(blurred * a * b).sum((1, 2)) for a in (rows, columns) for b in (rows, columns)], dim=1)
    spread = torch.linalg.eigvalsh(moments.reshape(-1, 2, 2))
    # Nine points on a path of 6 pixels: variance 6^2 * mean of (k/8 - 1/2)^2 = 3.75; bilinear reading adds at most 1/4.
    assert float((spread[:, 1] - 3.75).min()) > -0.01
    assert float((spread[:, 1] - 3.75).max()) < 0.27
    assert float(spread[:, 0].max()) < 0.27
    assert float(moments[:, 0].std()) > 0.3, "the directions must differ from image to image"


def test_contrast_keeps_the_mean_and_shrinks_the_std(coloured: Tensor) -> None:
    result = corrupt(coloured, "contrast", 2)
    torch.testing.assert_close(result.mean((2, 3)), coloured.mean((2, 3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(result.std((2, 3)), 0.5 * coloured.std((2, 3)), atol=1e-5, rtol=0)


def test_brightness_raises_the_value_and_keeps_the_hue() -> None:
    pixel = torch.tensor([0.4, 0.2, 0.1])[None, :, None, None].expand(1, 3, 8, 8).contiguous()
    result = corrupt(pixel, "brightness", 4)[0, :, 0, 0]
    torch.testing.assert_close(result, torch.tensor([0.6, 0.3, 0.15]))
    black = corrupt(torch.zeros(1, 3, 8, 8), "brightness", 4)
    torch.testing.assert_close(black, torch.full_like(black, 0.2))


def test_pixelate_has_the_blocks_it_says() -> None:
    image = torch.rand(1, 1, 30, 30, generator=torch.Generator().manual_seed(0))
    result = corrupt(image, "pixelate", 3)[0, 0]  # half as many pixels: blocks of 2 x 2
    means = image[0, 0].reshape(15, 2, 15, 2).mean((1, 3))
    torch.testing.assert_close(result, means.repeat_interleave(2, 0).repeat_interleave(2, 1))


def test_jpeg_agrees_with_the_cosine_transform_of_scipy() -> None:
    fft = pytest.importorskip("scipy.fft")
    image = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    steps = torch.tensor(
        [
            *([16, 11, 10, 16, 24, 40, 51, 61], [12, 12, 14, 19, 26, 58, 60, 55], [14, 13, 16, 24, 40, 57, 69, 56]),
            *([14, 17, 22, 29, 51, 87, 80, 62], [18, 22, 37, 56, 68, 109, 103, 77], [24, 35, 55, 64, 81, 104, 113, 92]),
            *([49, 64, 78, 87, 103, 121, 120, 101], [72, 92, 95, 98, 112, 100, 103, 99]),
        ],
        dtype=torch.float64,
    ).numpy()
    result = corrupt(image, "jpeg", 3).numpy()  # quality 50: the tables as they are printed
    for number in range(2):
        for row in (0, 8):
            for column in (0, 8):
                block = image[number, 0, row : row + 8, column : column + 8].numpy() * 255 - 128
                truth = fft.idctn((fft.dctn(block, norm="ortho") / steps).round() * steps, norm="ortho")
                found = result[number, 0, row : row + 8, column : column + 8]
                assert abs(found - ((truth + 128) / 255).clip(0, 1)).max() < 1e-9


def test_jpeg_of_a_size_that_is_no_multiple_of_eight_keeps_flat_colour() -> None:
    flat = torch.tensor([0.25, 0.5, 0.75])[None, :, None, None].expand(1, 3, 28, 30).contiguous()
    # A flat block has one coefficient, rounded to a step of 17 at most: 17 / 8 / 2 / 255 of a grey value, times 1.772.
    torch.testing.assert_close(corrupt(flat, "jpeg", 3), flat, atol=0.016, rtol=0)


def test_fog_and_snow_brighten_a_black_picture() -> None:
    dark = torch.full((20, 3, 32, 32), 0.1)
    assert float(corrupt(dark, "snow", 5).mean()) > 0.3
    mist = corrupt(torch.cat([dark, dark], dim=0), "fog", 5)
    # (0.1 + 1.5 c) * 0.1 / (0.1 + 1.5) with clouds c in [0, 1] that reach both ends.
    torch.testing.assert_close(mist.amin((1, 2, 3)), torch.full((40,), 0.1 * 0.1 / 1.6))
    torch.testing.assert_close(mist.amax((1, 2, 3)), torch.full((40,), 0.1))


def test_bad_requests_name_what_is_wrong(digits: Tensor) -> None:
    with pytest.raises(SettingError, match="did you mean 'fog'"):
        corrupt(digits, "fogg")
    for severity in (0, 6, 2.5, True):
        with pytest.raises(SettingError, match="from 1 to 5"):
            corrupt(digits, "fog", severity)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="between 0 and 16"):
        corrupt(digits * 16, "fog")
    with pytest.raises(DataError, match="must be in"):
        corrupt(digits * float("nan"), "fog")
    with pytest.raises(DataError, match=r"\(n, C, H, W\)"):
        corrupt(digits[0], "fog")
    assert corrupt(digits[:0], "fog").shape == (0, 1, 8, 8)
