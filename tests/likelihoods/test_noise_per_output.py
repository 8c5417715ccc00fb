"""Gaussian noise of one std for each output, known or learned."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from bayeswell.errors import DataError, SettingError
from bayeswell.likelihoods import LIKELIHOODS, Gaussian
from bayeswell.random import make_generator
from truths.statistics import assert_mean_close, assert_variance_close

STDS = (0.3, 1.7, 0.8)
MANY = 100_000


@pytest.mark.parametrize("noise", ["known", "per_output"])
@pytest.mark.parametrize("shape", [(5, 3), (5, 2, 3)])
def test_nll_against_scipy(noise: str, shape: tuple[int, ...]) -> None:
    outputs = torch.randn(shape, dtype=torch.float64, generator=make_generator(1))
    targets = torch.randn(shape, dtype=torch.float64, generator=make_generator(2))
    expected = -scipy.stats.norm.logpdf(targets.numpy(), outputs.numpy(), np.array(STDS)).reshape(5, -1).sum(1)
    found = Gaussian(noise, STDS).nll(outputs, targets).detach()
    # A learned log_std starts as float32.
    np.testing.assert_allclose(found, expected, rtol=1e-12 if noise == "known" else 1e-6)
    assert Gaussian(noise, STDS).nll(outputs.float(), targets).dtype == torch.float32


def test_draws_variance_and_curvature() -> None:
    likelihood = Gaussian("known", STDS)
    rows = torch.tensor([0.4, -0.2, 1.1], dtype=torch.float64).expand(MANY, 3)
    drawn = likelihood.sample_targets(rows, make_generator(3))
    assert_mean_close(drawn, rows[0])
    assert_variance_close(drawn, np.square(STDS))
    np.testing.assert_allclose(likelihood.mean_and_variance(rows)[1][0], np.square(STDS), rtol=1e-12)
    np.testing.assert_allclose(likelihood.curvature_root(rows, None).square()[0], 1 / np.square(STDS), rtol=1e-12)
    np.testing.assert_allclose(likelihood.curvature_diagonal(rows)[0], 1 / np.square(STDS), rtol=1e-12)


def test_each_output_learns_its_own() -> None:
    generator = make_generator(4)
    targets = torch.randn(400, 3, dtype=torch.float64, generator=generator) * torch.tensor(STDS, dtype=torch.float64)
    likelihood = Gaussian("per_output", outputs=3)
    assert {name: tuple(p.shape) for name, p in likelihood.named_parameters()} == {"log_std": (3,)}
    optimizer = torch.optim.LBFGS(likelihood.parameters(), line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = likelihood.nll(torch.zeros_like(targets), targets).mean()
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)
    found = likelihood.get_parameter("log_std").detach().exp()
    np.testing.assert_allclose(found, targets.square().mean(0).sqrt(), rtol=1e-4)


@pytest.mark.parametrize("shape", [(5, 2), (5, 3, 2), (3,)])
def test_another_number_of_outputs_is_refused(shape: tuple[int, ...]) -> None:
    for likelihood in (Gaussian("known", STDS), Gaussian("per_output", outputs=3)):
        for ask in (likelihood.check, lambda y, f, one=likelihood: one.nll(f, y)):
            with pytest.raises(DataError, match="noise std for 3") as caught:
                ask(torch.zeros(shape), torch.zeros(shape))
            assert "\n" not in str(caught.value)


def test_one_output_may_lack_its_axis() -> None:
    outputs, targets = torch.randn(6, generator=make_generator(5)), torch.randn(6, generator=make_generator(6))
    expected = Gaussian("known", 0.3).nll(outputs, targets)
    torch.testing.assert_close(Gaussian("known", (0.3,)).nll(outputs, targets), expected)
    torch.testing.assert_close(Gaussian("known", (0.3,)).nll(outputs[:, None], targets), expected)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise": "per_output"}, ["per_output", "outputs = 3"]),
        ({"noise": "per_output", "outputs": 0}, ["outputs = 0"]),
        ({"noise": "per_output", "outputs": 2, "std": [0.3, 0.4, 0.5]}, ["std has 3 numbers", "outputs = 2"]),
        ({"noise": "known", "std": [0.3, -0.4]}, ["std = -0.4"]),
        ({"noise": "known", "std": []}, ["std = ()"]),
        ({"noise": "learned", "std": [0.3, 0.4]}, ["per_output", "known"]),
        ({"noise": "learned", "outputs": 2}, ["outputs = 2", "per_output"]),
        ({"noise": "per_output", "std": [0.3, 1e-12]}, ["must start in"]),
    ],
)
def test_bad_settings_are_one_line(settings: dict[str, object], words: list[str]) -> None:
    with pytest.raises(SettingError) as caught:
        LIKELIHOODS.resolve({"name": "gaussian", **settings})
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)
