"""The temperature that a run finds by itself, and the learning rate that fits its length."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import bayeswell as bw
from bayeswell.lifting import DrawnDropout, put_in_dropout
from bayeswell.methods import assemble, find_method, resolve
from bayeswell.methods.tempering import COLD_START, DROPOUT_PER_TEMPERATURE, PRIOR_WEIGHT, SHARE, TargetSpread
from bayeswell.optimizers.standard import rate_for
from bayeswell.types import Progress

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")


def noisy(count: int = 300, noise: float = 0.5) -> tuple[Tensor, Tensor]:
    generator = bw.make_generator(3)
    x = torch.randn(count, 3, generator=generator)
    return x, (x @ torch.tensor([[1.0], [-0.7], [0.4]])) + noise * torch.randn(count, 1, generator=generator)


def net(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, outputs))


def test_the_unexplained_share_of_classes_is_nll_over_the_entropy_of_their_frequencies() -> None:
    spread = TargetSpread()
    spread.observe(torch.tensor([0, 0, 2, -100]))  # ignored labels do not count
    spread.observe(torch.tensor([0, 0, 0, 2]))
    frequencies = [5 / 7, 2 / 7]
    entropy = -sum(f * math.log(f) for f in frequencies)
    assert spread.unexplained(0.3, {}) == pytest.approx(0.3 / entropy / (7 / 8), rel=1e-12)
    assert spread.unexplained(5.0, {}) == 1.0


def test_the_unexplained_share_of_real_targets_is_squared_error_over_variance() -> None:
    spread, y = TargetSpread(), torch.randn(50, 2, generator=bw.make_generator(0), dtype=torch.float64) * 3 + 1
    for part in y.split(8):
        spread.observe(part)
    variance = float(y.var(0, correction=0).mean())
    assert spread.unexplained(-9.0, {"rmse": 0.4}) == pytest.approx(0.16 / variance, rel=1e-9)


def test_several_labels_an_example_and_whole_numbers_that_are_no_labels() -> None:
    spread = TargetSpread()
    spread.observe(torch.tensor([[0, 1, 1], [1, 1, 0]]))  # three places an example, whose NLLs are summed
    entropy = -(math.log(1 / 3) / 3 + 2 * math.log(2 / 3) / 3)
    assert spread.unexplained(0.6, {"accuracy": 0.9}) == pytest.approx(0.2 / entropy, rel=1e-9)
    counts, numbers = TargetSpread(), torch.tensor([[3], [0], [7], [2]])
    counts.observe(numbers)
    variance = float(numbers.double().var(correction=0))
    assert counts.unexplained(1.3, {"rmse": 0.5}) == pytest.approx(0.25 / variance, rel=1e-9)
    flags = TargetSpread()
    flags.observe(torch.tensor([True, False]))
    assert flags.unexplained(0.1, {}) == pytest.approx(0.1 / math.log(2), rel=1e-9)


def test_what_goes_on_keeps_the_temperature_that_was_found() -> None:
    first = bw.fit(net(), noisy(), "bbb", "gaussian", epochs=6, batch_size=30)
    longer = bw.fit(first, noisy(), epochs=6, batch_size=30)
    assert {record.temperature for record in longer.histories[0].epochs[6:]} == {first.temperature}
    later = bw.fit(first, noisy(200), prior="posterior", epochs=3, batch_size=30)
    assert later.temperature == first.temperature  # old and new data count alike


def test_zeros_and_ones_are_measured_by_their_entropy() -> None:
    spread = TargetSpread()
    spread.observe(torch.tensor([[0.0], [1.0], [1.0], [1.0]]))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert spread.unexplained(0.2, {"accuracy": 0.9}) == pytest.approx(0.2 / entropy, rel=1e-9)


@pytest.mark.parametrize("method", ["bbb", "k-tied", "flipout"])
def test_the_pull_on_the_means_is_the_same_at_every_temperature(method: str) -> None:
    """T KL under the scaled prior has the gradient of PRIOR_WEIGHT * -log p in the means; stds feel T."""
    parts = assemble(
        find_method(method), net(), "gaussian", dataset_size=300, batches=3, epochs=10, generator=bw.make_generator(0)
    )
    assert parts.tempering is not None
    posterior, before = parts.model.posterior, parts.model.prior.std_vector() / math.sqrt(COLD_START / PRIOR_WEIGHT)
    mean = dict(posterior.named_parameters())["mean"]
    for temperature in (COLD_START, 0.037, 0.5):
        parts.tempering._move_to(temperature)
        _, kl = posterior.sample_and_kl(None, parts.model.prior)
        (slope,) = torch.autograd.grad(temperature * kl, mean)
        torch.testing.assert_close(slope, PRIOR_WEIGHT * mean.detach() / before.square(), rtol=2e-5, atol=1e-6)
        assert parts.objective.temperature == temperature


def test_a_run_ends_at_its_share_of_what_is_unexplained() -> None:
    x, y = noisy()
    result = bw.fit(net(), (x, y), "bbb", "gaussian", epochs=12, batch_size=30)
    before = result.histories[0].epochs[-2]
    variance = float(y.double().var(0, correction=0))
    assert before.temperature == pytest.approx(result.histories[0].epochs[-3].scores["rmse"] ** 2 / variance * SHARE)
    assert result.temperature == pytest.approx(SHARE * before.scores["rmse"] ** 2 / variance, rel=1e-6)
    assert result.temperature == result.histories[0].epochs[-1].temperature  # nothing is said that was not trained at
    assert [record.temperature for record in result.histories[0].epochs[:3]] == [COLD_START] * 3


def test_draws_are_collected_at_one_temperature() -> None:
    result = bw.fit(net(), noisy(), "sghmc", "gaussian", epochs=20, batch_size=30)
    late = {record.temperature for record in result.histories[0].epochs[10:]}
    assert len(late) == 1
    assert late != {COLD_START}


def test_a_point_and_a_given_temperature_are_left_alone() -> None:
    for method, given, wanted in (("map", {}, PRIOR_WEIGHT), ("bbb", {"temperature": 1.0}, 1.0)):
        result = bw.fit(net(), noisy(), method, "gaussian", epochs=2, batch_size=30, **given)
        assert result.temperature == wanted
        assert float(result.model.prior.std_vector()[0]) == pytest.approx(math.sqrt(2 / 3), rel=1e-6)


def test_a_scaled_prior_comes_back_from_disk(tmp_path: Path) -> None:
    result = bw.fit(net(), noisy(), "bbb", "gaussian", epochs=6, batch_size=30)
    result.save(tmp_path / "model")
    back = bw.load(tmp_path / "model")
    assert torch.equal(back.model.prior.std_vector(), result.model.prior.std_vector())
    assert back.model.std_ratio() == result.std_ratio
    std = math.sqrt(2 / 3 * result.temperature / PRIOR_WEIGHT)
    assert float(back.model.prior.std_vector()[0]) == pytest.approx(std, rel=1e-5)
    assert f"{std:.3g}" in str(back.model.describe())


def test_another_word_is_refused() -> None:
    with pytest.raises(bw.SettingError, match="temperature = 'warm'; give a number, or 'auto'"):
        bw.fit(net(), noisy(), "bbb", "gaussian", temperature="warm")


@pytest.mark.parametrize(("steps", "rate"), [(10, 0.01), (1600, 0.01), (6400, 0.005), (160_000, 0.001)])
def test_the_rate_fits_the_length(steps: int, rate: float) -> None:
    assert rate_for(steps) == pytest.approx(rate)
    parts = assemble(
        find_method("bbb"), net(), "gaussian", dataset_size=50, batches=5, epochs=steps // 5,
        generator=bw.make_generator(0),
    )  # fmt: skip
    parts.before_step(Progress(0, steps, 0, 5))
    groups = {group["name"]: group["lr"] for group in parts.optimizer.param_groups}
    assert groups["means"] == pytest.approx(rate)
    assert groups["stds"] == pytest.approx(10 * rate)


@pytest.mark.parametrize(
    ("method", "settings", "rate"),
    [
        ("bbb", {"temperature": 1.0}, 0.0075),
        ("k-tied", {"temperature": 0.2}, 0.0075),
        ("hwa", {"temperature": 0.7}, 0.0075),
        ("bbb", {"temperature": 1.0, "stepper": {"name": "adam", "lr": 0.002}}, 0.002),
        ("bbb", {}, 0.005),
        ("bbb", {"temperature": 0.01, "prior_weight": 0.1}, 0.005),
        ("map", {"temperature": 1.0}, 0.005),
    ],
)
def test_where_a_temperature_is_given_drawn_weights_take_longer_steps(
    method: str, settings: dict[str, Any], rate: float
) -> None:
    """0.6 / sqrt(6400) = 0.0075; not for points, narrow draws, a width that is found, or a rate of one's own."""
    parts = assemble(
        find_method(method).changed(**settings), net(), "gaussian", dataset_size=50, batches=5, epochs=1280,
        generator=bw.make_generator(0),
    )  # fmt: skip
    parts.before_step(Progress(0, 6400, 0, 5))
    assert parts.optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-3)  # of a whole number of steps


def test_a_stepper_that_takes_care_of_the_divergence_keeps_its_rate() -> None:
    parts = resolve(find_method("ivon").changed(temperature=1.0))
    assert parts.planned(parts.stepper, 6400) == parts.stepper.planned(6400)


def test_dropout_that_was_put_in_follows_the_fit_and_own_dropout_does_not(tmp_path: Path) -> None:
    plain = bw.fit(net(), noisy(), "mc-dropout", "gaussian", epochs=6, batch_size=30)
    (layer,) = put_in_dropout(plain.model.net)
    assert layer.p == pytest.approx(DROPOUT_PER_TEMPERATURE * plain.temperature)
    plain.save(tmp_path / "model")
    (back,) = put_in_dropout(bw.load(tmp_path / "model").model.net)
    assert back.p == pytest.approx(layer.p)
    own = nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Dropout(0.07), nn.Linear(7, 1))
    kept = bw.fit(own, noisy(), "mc-dropout", "gaussian", epochs=6, batch_size=30)
    given = bw.fit(net(), noisy(), "mc-dropout", "gaussian", epochs=6, batch_size=30, dropout=0.05)
    for result, p in ((kept, 0.07), (given, 0.05)):
        assert {m.p for m in result.model.net.modules() if isinstance(m, DrawnDropout)} == {p}


def test_an_empty_batch_is_refused_in_the_same_words_at_every_temperature() -> None:
    empty = DataLoader(Empty(), batch_size=None)
    for temperature in ("auto", 0.1):
        with pytest.raises(bw.DataError, match="the batch is empty"):
            bw.fit(net(2), empty, "bbb", epochs=1, temperature=temperature, progress=False)


class Empty(Dataset[tuple[Tensor, Tensor]]):
    """Ready-made batches without an example."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)
