"""Prediction with a toy posterior whose draws are known, against numpy."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch import Tensor, nn

from bayeswell.errors import BayeswellError, DataError, NetworkError, SettingError
from bayeswell.likelihoods import Bernoulli, Categorical, Gaussian
from bayeswell.metrics import nll
from bayeswell.predictive import (
    ClassPrediction,
    RealPrediction,
    accumulate,
    evaluation_mode,
    expected_nll,
    nll_of_draws,
    predict,
)
from bayeswell.random import make_generator


class Toy(nn.Module):
    """f(x) = x W with W ~ N(mean, std^2); remembers its draws and what it was called with."""

    def __init__(self, outputs: int = 3, std: float = 0.8, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        start = torch.randn(4, outputs, dtype=dtype, generator=make_generator(90))
        self.mean = nn.Parameter(start)
        self.std = std
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4, dtype=dtype)
        self.drawn: list[Tensor] = []
        self.sizes: list[int] = []

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[Mapping[str, Tensor]]:
        return (self.draw(generator) for _ in range(count))

    def draw(self, generator: torch.Generator | None) -> Mapping[str, Tensor]:
        noise = torch.randn(self.mean.shape, generator=generator, dtype=self.mean.dtype)
        weight = self.mean + self.std * noise
        self.drawn.append(weight)
        return {"weight": weight}

    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        self.sizes.append(len(inputs))
        return self.drop(self.norm(inputs)) @ weights["weight"]


def eval_outputs(toy: Toy, x: Tensor) -> np.ndarray:
    """(D, S, K): what every draw so far puts out in evaluation mode (fresh batch norm: x / sqrt(1 + eps))."""
    rows = x.numpy() / np.sqrt(1 + toy.norm.eps)
    return np.stack([rows @ weight.detach().numpy() for weight in toy.drawn])


@pytest.fixture
def x() -> Tensor:
    return torch.randn(11, 4, dtype=torch.float64, generator=make_generator(91))


def assert_same(a: Any, b: Any, rtol: float = 1e-10) -> None:
    assert type(a) is type(b)
    for name in ("probabilities", "entropy", "expected_entropy", "mutual_information"):
        if isinstance(a, ClassPrediction):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol, atol=1e-14)
    for name in ("mean", "variance", "epistemic_variance", "aleatoric_variance"):
        if isinstance(a, RealPrediction):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol)


# ----------------------------------------------------------------------------------------- exact averages


def test_class_prediction_is_the_exact_average(x: Tensor) -> None:
    toy = Toy()
    got = predict(toy, x, Categorical(), draws=13, seed=5, keep_samples=True)
    each = scipy.special.softmax(eval_outputs(toy, x), axis=-1)
    assert got.draws == len(each) == 13
    np.testing.assert_allclose(got.samples, each, rtol=1e-10)
    np.testing.assert_allclose(got.probabilities, each.mean(0), rtol=1e-10)
    np.testing.assert_allclose(got.entropy, scipy.stats.entropy(each.mean(0), axis=-1), rtol=1e-10)
    np.testing.assert_allclose(got.aleatoric, scipy.stats.entropy(each, axis=-1).mean(0), rtol=1e-10)
    # The mutual information as the mean divergence of the draws from their average.
    divergence = scipy.stats.entropy(each, np.broadcast_to(each.mean(0), each.shape), axis=-1).mean(0)
    assert divergence.min() > 0.01
    np.testing.assert_allclose(got.epistemic, divergence, rtol=1e-8)
    np.testing.assert_array_equal(got.labels, each.mean(0).argmax(-1))


@pytest.mark.parametrize(("outputs", "shape"), [(1, (11, 2)), (3, (11, 3, 2))])
def test_bernoulli_prediction_has_two_classes(x: Tensor, outputs: int, shape: tuple[int, ...]) -> None:
    toy = Toy(outputs)
    got = predict(toy, x, Bernoulli(), draws=9, seed=6)
    assert got.probabilities.shape == shape
    expected = scipy.special.expit(eval_outputs(toy, x)).mean(0).reshape(shape[:-1])
    np.testing.assert_allclose(got.probabilities[..., 1], expected, rtol=1e-10)
    np.testing.assert_array_equal(got.labels, expected > 0.5)
    assert got.entropy.shape == shape[:-1]


def test_real_prediction_follows_the_law_of_total_variance(x: Tensor) -> None:
    toy = Toy(2)
    got = predict(toy, x, Gaussian("known", 0.3), draws=17, seed=7, keep_samples=True)
    each = eval_outputs(toy, x)
    np.testing.assert_allclose(got.samples, each, rtol=1e-10)
    np.testing.assert_allclose(got.mean, each.mean(0), rtol=1e-10)
    np.testing.assert_allclose(got.epistemic, each.var(0), rtol=1e-10)
    np.testing.assert_allclose(got.aleatoric, np.full((11, 2), 0.09), rtol=1e-10)
    np.testing.assert_allclose(got.variance, each.var(0) + 0.09, rtol=1e-10)
    np.testing.assert_allclose(got.std, np.sqrt(each.var(0) + 0.09), rtol=1e-10)


def test_aleatoric_variance_of_noise_from_the_network_is_averaged_over_draws(x: Tensor) -> None:
    toy = Toy(4, std=0.3)
    got = predict(toy, x, Gaussian("per_input"), draws=17, seed=8)
    each = eval_outputs(toy, x)
    np.testing.assert_allclose(got.mean, each[..., :2].mean(0), rtol=1e-10)
    np.testing.assert_allclose(got.epistemic_variance, each[..., :2].var(0), rtol=1e-10)
    np.testing.assert_allclose(got.aleatoric_variance, np.exp(2 * each[..., 2:]).mean(0), rtol=1e-10)


class Offset(nn.Module):
    """f(x) = 10^6 + one of three small numbers in turn: a spread that naive sums of squares lose."""

    small = (0.001, 0.002, 0.006)

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[Mapping[str, Tensor]]:
        return (self.draw(generator) for _ in range(count))

    def draw(self, generator: torch.Generator | None) -> Mapping[str, Tensor]:
        self.calls += 1
        return {"f": torch.tensor(1e6 + self.small[(self.calls - 1) % 3], dtype=torch.float64)}

    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        return weights["f"].expand(len(inputs), 1)


def test_small_spread_around_a_large_mean_keeps_its_digits() -> None:
    got = predict(Offset(), torch.zeros(2, 1), Gaussian("known", 0.3), draws=3000)
    np.testing.assert_allclose(got.epistemic_variance, np.var(Offset.small), rtol=1e-5)


def test_draws_that_agree_leave_no_epistemic_part(x: Tensor) -> None:
    toy = Toy(std=0.0, dtype=torch.float32)
    got = predict(toy, x.float(), Categorical(), draws=50, seed=9)
    assert got.mutual_information.min() >= 0
    assert got.mutual_information.max() < 1e-12
    torch.testing.assert_close(got.entropy, got.expected_entropy)
    real = predict(toy, x.float(), Gaussian("known", 0.3), draws=50, seed=9)
    assert real.epistemic_variance.max() < 1e-12


def test_one_draw_is_that_network(x: Tensor) -> None:
    toy = Toy()
    got = predict(toy, x, Categorical(), draws=1, seed=10)
    np.testing.assert_allclose(got.probabilities, scipy.special.softmax(eval_outputs(toy, x)[0], axis=-1))
    assert got.mutual_information.max() < 1e-12


def test_float32_networks_give_float32_results(x: Tensor) -> None:
    toy = Toy(dtype=torch.float32)
    got = predict(toy, x.float(), Categorical(), draws=30, seed=11, keep_samples=True)
    each = scipy.special.softmax(eval_outputs(toy, x.float()).astype(np.float64), axis=-1)
    np.testing.assert_allclose(got.probabilities, each.mean(0), rtol=1e-5)
    assert {got.probabilities.dtype, got.entropy.dtype, got.samples.dtype} == {torch.float32}


# --------------------------------------------------------------------------------- batches, seeds, memory


@pytest.mark.parametrize("likelihood", [Categorical(), Gaussian("known", 0.3)])
@pytest.mark.parametrize("batch_size", [1, 4, 10, 11, 500])
def test_batch_size_changes_nothing(x: Tensor, likelihood: Any, batch_size: int) -> None:
    whole = predict(Toy(), x, likelihood, draws=6, seed=12, keep_samples=True)
    toy = Toy()
    parts = predict(toy, x, likelihood, draws=6, seed=12, batch_size=batch_size, keep_samples=True)
    assert_same(parts, whole)
    np.testing.assert_allclose(parts.samples, whole.samples, rtol=1e-10)
    assert max(toy.sizes) == min(batch_size, 11)
    # One draw serves all inputs.
    assert len(toy.drawn) == 6
    assert sum(toy.sizes) == 6 * 11


def test_the_same_seed_gives_the_same_draws(x: Tensor) -> None:
    first = predict(Toy(), x, Categorical(), draws=5, seed=13)
    torch.manual_seed(0)  # the global generator has no say
    assert torch.equal(first.probabilities, predict(Toy(), x, Categorical(), draws=5, seed=13).probabilities)
    explicit = predict(Toy(), x, Categorical(), draws=5, generator=make_generator(13))
    assert torch.equal(first.probabilities, explicit.probabilities)
    other = predict(Toy(), x, Categorical(), draws=5, seed=14)
    assert not torch.allclose(first.probabilities, other.probabilities)


def test_without_a_seed_the_global_generator_is_used(x: Tensor) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(15)
        first = predict(Toy(), x, Categorical(), draws=3)
        second = predict(Toy(), x, Categorical(), draws=3)
        torch.manual_seed(15)
        again = predict(Toy(), x, Categorical(), draws=3)
    assert torch.equal(first.probabilities, again.probabilities)
    assert not torch.equal(first.probabilities, second.probabilities)


class Watched(Toy):
    """Counts its own tensors alive at each call, and at the last call the bytes of all live tensors."""

    def __init__(self, calls: int) -> None:
        super().__init__(outputs=50)
        self.calls = calls
        self.alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
        self.most_alive = 0
        self.bytes_at_last = 0

    def draw(self, generator: torch.Generator | None) -> Mapping[str, Tensor]:
        weights = super().draw(generator)
        self.drawn.clear()
        self.alive.add(weights["weight"])
        return weights

    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        outputs = super().call(weights, inputs)
        self.alive.add(outputs)
        self.most_alive = max(self.most_alive, len(self.alive))
        if len(self.sizes) == self.calls:
            # What was there when all was collected is in the oldest generation, and no matter of this test.
            young = (o for generation in (0, 1) for o in gc.get_objects(generation))
            objects = (o for o in young if issubclass(type(o), Tensor))
            # Others' tests may have left tensors without a storage of their own (sparse, meta, fake).
            plain = (t for t in objects if type(t) in (Tensor, nn.Parameter))
            tensors = [t for t in plain if t.layout == torch.strided and t.device.type == "cpu"]
            sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
            self.bytes_at_last = sum(sizes.values())
        return outputs


@pytest.mark.parametrize("likelihood", [Categorical(), Gaussian("known", 0.3)])
@pytest.mark.parametrize("together", [1, 4])
def test_memory_does_not_grow_with_draws(
    x: Tensor, likelihood: Any, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two batches, of 6 and 5 examples.
    monkeypatch.setattr(accumulate, "_ALL_GROUPS", 2 * together * 6 * 50)
    monkeypatch.setattr(accumulate, "KEPT_NUMBERS", 12 * 11 * 50 - 1)  # as with more draws than may be kept

    def most(draws: int, keep_samples: bool) -> tuple[int, int]:
        toy = Watched(calls=2 * draws)
        predict(toy, x, likelihood, draws=draws, batch_size=6, seed=16, keep_samples=keep_samples)
        return toy.most_alive, toy.bytes_at_last

    gc.collect()
    alive, size = most(24, False)
    # One draw's weights and one batch's outputs (others that wait are copies); those of the batch before may be bound.
    assert alive <= 3
    assert size == most(12, False)[1]
    # The check can see growth: all draws but the last group, each of 11 x 50 float64, are held when the last is made.
    assert most(24, True)[1] - size >= (24 - together) * 11 * 50 * 8


@pytest.mark.parametrize("likelihood", [Categorical(), Gaussian("known", 0.3)])
@pytest.mark.parametrize("together", [1, 3, 7])
def test_draws_taken_in_by_groups(x: Tensor, likelihood: Any, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """7 draws one by one, in groups of 3, 3 and 1, and at once: mean, spread and entropies as of all draws together."""
    monkeypatch.setattr(accumulate, "_GROUP", together * 6 * 4)
    found = predict(Toy(outputs=4), x, likelihood, draws=7, batch_size=6, seed=18, keep_samples=True)
    samples = found.samples.double()
    assert samples.shape == (7, 11, 4)
    if isinstance(found, ClassPrediction):
        expected = scipy.special.entr(samples.numpy()).sum(-1).mean(0)
        torch.testing.assert_close(found.probabilities, samples.mean(0), rtol=1e-12, atol=0)
        torch.testing.assert_close(found.expected_entropy, torch.from_numpy(expected), rtol=1e-12, atol=0)
    else:
        torch.testing.assert_close(found.mean, samples.mean(0), rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(found.epistemic_variance, samples.var(0, correction=0), rtol=1e-12, atol=0)
        torch.testing.assert_close(found.aleatoric_variance, torch.full_like(samples[0], 0.09), rtol=1e-12, atol=0)


class Reusing(Toy):
    """Gives out a part of the same memory each time."""

    def __init__(self) -> None:
        super().__init__()
        self.room = torch.zeros(11, 5, 3, dtype=torch.float64)

    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        self.room[:, 2] = super().call(weights, inputs)
        return self.room[:, 2]


def test_a_network_may_use_the_memory_of_its_outputs_again(x: Tensor) -> None:
    found, expected = (
        predict(toy, x, Categorical(), draws=5, seed=19, keep_samples=True).samples for toy in (Reusing(), Toy())
    )
    assert torch.equal(found, expected)


class Growing(Toy):
    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        outputs = super().call(weights, inputs)
        return outputs if len(self.sizes) < 3 else torch.cat([outputs, outputs], 1)


def test_outputs_of_another_shape_are_refused(x: Tensor) -> None:
    with pytest.raises(NetworkError, match=r"shape \(11, 3\) for one draw and \(11, 6\) for another"):
        predict(Growing(), x, Categorical(), draws=5, seed=20)


def test_a_likelihood_that_refuses_the_outputs_does_so_after_the_first_draw(x: Tensor) -> None:
    toy = Toy(outputs=1)
    with pytest.raises(DataError, match=r"outputs have shape \(11, 1\)"):
        predict(toy, x, Categorical(), draws=50, seed=20)
    assert len(toy.sizes) == 1


# -------------------------------------------------------------------------------------------------- modes


def modes(module: nn.Module) -> list[bool]:
    return [child.training for child in module.modules()]


class Failing(Toy):
    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        assert not any(modes(self))
        raise RuntimeError("the network broke")


@pytest.mark.parametrize("frozen", ["", "norm", "drop"])
def test_each_submodule_gets_its_own_mode_back(x: Tensor, frozen: str) -> None:
    for toy in (Toy(), Failing()):
        if frozen:
            toy.get_submodule(frozen).eval()
        before, statistics = modes(toy), toy.norm.get_buffer("running_mean").clone()
        if isinstance(toy, Failing):
            with pytest.raises(RuntimeError, match="the network broke"):
                predict(toy, x, Categorical(), draws=2, seed=17)
            with pytest.raises(RuntimeError, match="the network broke"):
                expected_nll(toy, x, torch.zeros(11).long(), Categorical(), draws=2, seed=17)
        else:
            predict(toy, x, Categorical(), draws=2, seed=17)
        assert modes(toy) == before
        # Batch statistics are untouched by predicting.
        assert torch.equal(toy.norm.get_buffer("running_mean"), statistics)


def test_the_mode_of_a_child_survives_under_an_evaluating_parent() -> None:
    toy = Toy().eval()
    toy.drop.train()
    with evaluation_mode(toy):
        assert not any(modes(toy))
    assert [toy.training, toy.drop.training, toy.norm.training] == [False, True, False]


def test_no_gradient_is_recorded(x: Tensor) -> None:
    got = predict(Toy(), x, Gaussian("learned", 0.3), draws=2, seed=18)
    assert not got.mean.requires_grad
    assert not got.variance.requires_grad
    # An ordinary tensor, not an inference tensor: it may be used where gradients are recorded.
    (got.mean * torch.ones(1, dtype=torch.float64, requires_grad=True)).sum().backward()


# ------------------------------------------------------------------------------------------------- inputs


class TwoInputs(Toy):
    """Takes (a, b), given by position or by name, and an optional flag."""

    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        if isinstance(inputs, tuple):
            a, b, *flag = inputs
        else:
            a, b, flag = inputs["a"], inputs["b"], [inputs.get("flag", 1.0)]
        assert flag in ([], [1.0])
        return super().call(weights, a + b)


def test_inputs_by_position_by_name_and_as_arrays(x: Tensor) -> None:
    whole = predict(Toy(), x, Categorical(), draws=4, seed=19)
    half = x / 2
    for inputs in (
        (half, half),
        (half, half, 1.0),
        {"a": half, "b": half},
        {"a": half, "b": half.numpy(), "flag": 1.0},
    ):
        assert_same(predict(TwoInputs(), inputs, Categorical(), draws=4, seed=19, batch_size=3), whole)
    assert_same(predict(Toy(), x.numpy(), Categorical(), draws=4, seed=19), whole)
    # Read-only, and running backwards in memory.
    reader, backwards = x.numpy().copy(), x.numpy()[::-1].copy()[::-1]
    reader.flags.writeable = False
    for array in (reader, backwards):
        assert_same(predict(Toy(), array, Categorical(), draws=4, seed=19), whole)


def test_arrays_take_the_dtype_of_the_network(x: Tensor) -> None:
    toy = Toy(dtype=torch.float32)
    assert predict(toy, x.numpy(), Categorical(), draws=2, seed=20).probabilities.dtype == torch.float32


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (torch.zeros(0, 4), ["inputs", "(0, 4)", "no examples"]),
        (torch.tensor([[0.0, math.nan, 0, 0]]), ["nan", "(0, 1)", "finite"]),
        (np.array([[0.0, 0, 0, 0], [0, 0, -math.inf, 0]]), ["-inf", "(1, 2)"]),
        ([[0.0, 0, 0, 0]], ["inputs are a list", "a tensor"]),
        (np.array([["a"]]), ["dtype <U1", "numbers"]),
        ((torch.zeros(3, 4), torch.zeros(2, 4)), ["inputs[1] has 2 examples", "inputs[0] has 3"]),
        ({"a": torch.zeros(3, 4), "b": torch.full((3, 4), math.inf)}, ["inputs['b']", "inf", "(0, 0)"]),
        ({"flag": 1.0}, ["no tensor"]),
    ],
)
def test_bad_inputs_are_one_line_before_any_work(inputs: Any, words: list[str]) -> None:
    toy = Toy()
    with pytest.raises(DataError) as caught:
        predict(toy, inputs, Categorical(), draws=2, seed=21)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)
    assert not toy.drawn


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"draws": 0}, ["draws = 0", "at least 1"]),
        ({"draws": 2.5}, ["draws = 2.5"]),
        ({"batch_size": 0}, ["batch_size = 0"]),
        ({"seed": 1, "generator": make_generator(1)}, ["seed = 1", "both"]),
        ({"seed": 1.5}, ["seed = 1.5", "whole number"]),
    ],
)
def test_bad_settings_are_one_line(x: Tensor, settings: dict[str, Any], words: list[str]) -> None:
    for call in (
        lambda: predict(Toy(), x, Categorical(), **settings),
        lambda: expected_nll(Toy(), x, torch.zeros(11).long(), Categorical(), **settings),
    ):
        with pytest.raises(SettingError) as caught:
            call()
        assert all(word in str(caught.value) for word in words), caught.value


def test_a_name_is_a_likelihood(x: Tensor) -> None:
    assert_same(predict(Toy(), x, "categorical", draws=2, seed=21), predict(Toy(), x, Categorical(), draws=2, seed=21))
    with pytest.raises(SettingError, match="did you mean 'categorical'"):
        predict(Toy(), x, "categoric", draws=2)


def test_samples_that_were_not_kept(x: Tensor) -> None:
    for likelihood in (Categorical(), Gaussian("known", 0.3)):
        got = predict(Toy(), x, likelihood, draws=2, seed=22)
        with pytest.raises(BayeswellError, match="keep_samples=True"):
            got.samples
        assert "2 draws" in repr(got)


class Returning(Toy):
    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def call(self, weights: Mapping[str, Tensor], inputs: Any) -> Any:
        return self.change(super().call(weights, inputs))


def with_nan(outputs: Tensor) -> Tensor:
    outputs[7, 1] = math.nan
    return outputs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda outputs: {"states": outputs}, ["returned a dict", "'states'", "one tensor", "output="]),
        (lambda outputs: outputs.sum(), ["shape ()", "11 examples"]),
        (lambda outputs: outputs.T, ["(3, 11)", "11 examples"]),
        (with_nan, ["example 7", "not finite"]),
    ],
)
def test_networks_that_cannot_be_averaged(x: Tensor, change: Any, words: list[str]) -> None:
    toy = Returning(change)
    for likelihood in (Categorical(), Gaussian("known", 0.3)):
        with pytest.raises(NetworkError) as caught:
            predict(toy, x, likelihood, draws=2, seed=23)
        assert all(word in str(caught.value) for word in words), caught.value
    assert all(modes(toy))


# ------------------------------------------------------------------------------------------- expected NLL


@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_expected_nll_is_the_mean_over_draws(x: Tensor, batch_size: int | None) -> None:
    labels = torch.randint(3, (11,), generator=make_generator(92))
    toy = Toy()
    got = nll_of_draws(toy, x, labels, Categorical(), draws=8, seed=24, batch_size=batch_size)
    log_p = scipy.special.log_softmax(eval_outputs(toy, x), axis=-1)
    each = -log_p[:, np.arange(11), labels.numpy()].mean(1)
    np.testing.assert_allclose(got, each, rtol=1e-10)
    mean = expected_nll(Toy(), x, labels.numpy(), Categorical(), draws=8, seed=24, batch_size=batch_size)
    assert mean == pytest.approx(each.mean(), rel=1e-10)
    # Jensen: the averaged prediction scores better than the average draw.
    assert nll(predict(Toy(), x, Categorical(), draws=8, seed=24).probabilities, labels) < mean


def test_expected_nll_of_real_targets_is_per_example(x: Tensor) -> None:
    targets = torch.randn(11, 2, dtype=torch.float64, generator=make_generator(93))
    toy = Toy(2)
    got = expected_nll(toy, x, targets, Gaussian("known", 0.3), draws=6, seed=25, batch_size=5)
    density = scipy.stats.norm.logpdf(targets.numpy(), eval_outputs(toy, x), 0.3)
    assert got == pytest.approx(-density.sum(-1).mean(), rel=1e-10)


def test_expected_nll_refuses_bad_targets(x: Tensor) -> None:
    labels = torch.zeros(11).long()
    for targets, words in (
        (labels[:5], "(5,)"),
        (labels.double(), "float64"),
        (labels + 3, "label 3 at index 0"),
        ([0] * 11, "targets are a list"),
    ):
        with pytest.raises(DataError) as caught:
            expected_nll(Toy(), x, targets, Categorical(), draws=2, seed=26)
        assert words in str(caught.value)
    with pytest.raises(NetworkError, match="draw 0 is NaN"):
        expected_nll(Returning(with_nan), x, labels, Categorical(), draws=2, seed=27)
