"""Likelihoods against scipy, autograd Hessians and the exact moments of what they draw.

Monte Carlo comparisons allow 5 standard errors: a false failure in 2 million per number compared, with fixed
seeds, so a test that passes once keeps passing.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch import Tensor

from bayeswell.errors import DataError, SettingError
from bayeswell.likelihoods import LIKELIHOODS, Bernoulli, Categorical, Gaussian
from bayeswell.random import make_generator
from bayeswell.registry import settings_of

MANY = 200_000
LOGITS = torch.tensor([0.7, -1.3, 2.1, 0.2], dtype=torch.float64)


def assert_within_errors(samples: Tensor, expected: Tensor) -> None:
    """The mean over the first axis lies within 5 standard errors of what is expected."""
    error = samples.std(0) / math.sqrt(len(samples))
    assert ((samples.mean(0) - expected).abs() <= 5 * error + 1e-12).all()


def hessian_at(loss: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    result = torch.autograd.functional.hessian(lambda f: loss(f).sum(), point)
    assert isinstance(result, Tensor)
    return result


def outer(u: Tensor) -> Tensor:
    return u[:, :, None] * u[:, None, :]


# ---------------------------------------------------------------------------------------------- registry


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "categorical", "class_weights": None, "ignore_index": None, "class_axis": None, "temperature": 1.0},
        {
            "name": "categorical",
            "class_weights": (0.5, 2.0, 1.0),
            "ignore_index": -100,
            "class_axis": -1,
            "temperature": 1.0,
        },
        {"name": "bernoulli", "class_weights": None, "temperature": 1.0},
        {"name": "bernoulli", "class_weights": (0.7, 1.9), "temperature": 1.0},
        {"name": "gaussian", "noise": "known", "std": 0.3, "outputs": None, "noise_factor": 1.0},
        {"name": "gaussian", "noise": "known", "std": (0.3, 0.7), "outputs": None, "noise_factor": 1.0},
        {"name": "gaussian", "noise": "learned", "std": 0.7, "outputs": None, "noise_factor": 1.0},
        {"name": "gaussian", "noise": "per_output", "std": 0.7, "outputs": 3, "noise_factor": 1.0},
        {"name": "gaussian", "noise": "per_input", "std": 1.0, "outputs": None, "noise_factor": 1.0},
        {"name": "student_t", "noise": "learned", "scale": 0.6, "df": 3.5, "learn_df": True, "noise_factor": 1.0},
        {"name": "poisson"},
        {"name": "negative_binomial", "noise": "known", "dispersion": 0.4},
    ],
)
def test_settings_survive_json_and_the_registry(settings: dict[str, object]) -> None:
    likelihood = LIKELIHOODS.resolve(settings)
    assert settings_of(likelihood) == settings
    assert settings_of(LIKELIHOODS.resolve(json.loads(json.dumps(settings_of(likelihood))))) == settings
    assert LIKELIHOODS.resolve(likelihood) is likelihood


def test_every_name_resolves_with_its_defaults() -> None:
    names = ["categorical", "bernoulli", "gaussian", "student_t", "poisson", "negative_binomial", "next_token"]
    assert list(LIKELIHOODS) == names
    for name in LIKELIHOODS:
        part = LIKELIHOODS.resolve(name)
        assert isinstance(part, torch.nn.Module)
        assert part.name == name


def test_learned_noise_is_a_parameter_with_state() -> None:
    trained = Gaussian(noise="learned", std=0.7)
    assert [name for name, _ in trained.named_parameters()] == ["log_std"]
    with torch.no_grad():
        trained.get_parameter("log_std").fill_(-0.4)
    rebuilt = LIKELIHOODS.resolve(settings_of(trained))
    assert isinstance(rebuilt, Gaussian)
    rebuilt.load_state_dict(trained.state_dict())
    for twin in (rebuilt, copy.deepcopy(trained)):
        _, variance = twin.mean_and_variance(torch.zeros(3))
        torch.testing.assert_close(variance, torch.full((3,), math.exp(-0.8)))
    assert not list(Gaussian(noise="known", std=0.3).parameters())
    assert not list(Gaussian(noise="per_input").parameters())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise": "leanred"}, ["'leanred'", "did you mean 'learned'", "known, learned, per_input, per_output"]),
        ({"noise": "known", "std": -0.3}, ["std = -0.3", "above 0"]),
        ({"noise": "known", "std": math.nan}, ["std = nan"]),
        ({"noise": "learned", "std": 1e-12}, ["std = 1e-12", "must start in"]),
        ({"noise": "per_input", "std": 0.3}, ["std = 0.3", "per_input"]),
        ({"sd": 0.3}, ["no setting 'sd'", "did you mean 'std'"]),
    ],
)
def test_bad_settings_are_one_line(settings: dict[str, object], words: list[str]) -> None:
    with pytest.raises(SettingError) as caught:
        LIKELIHOODS.resolve({"name": "gaussian", **settings})
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


# ----------------------------------------------------------------------------------------------- the NLL


def test_categorical_nll_against_scipy() -> None:
    outputs = torch.randn(6, 4, dtype=torch.float64, generator=make_generator(1)) * 3
    labels = torch.tensor([0, 3, 1, 1, 2, 0])
    expected = -scipy.special.log_softmax(outputs.numpy(), axis=1)[np.arange(6), labels.numpy()]
    for kind in (torch.int64, torch.int32, torch.uint8, torch.int16):
        np.testing.assert_allclose(Categorical().nll(outputs, labels.to(kind)), expected, rtol=1e-12)


def test_categorical_nll_sums_over_the_places_of_an_example() -> None:
    outputs = torch.randn(2, 3, 4, 5, dtype=torch.float64, generator=make_generator(2))
    labels = torch.randint(3, (2, 4, 5), generator=make_generator(3))
    log_p = scipy.special.log_softmax(outputs.numpy(), axis=1)
    expected = [-sum(log_p[s, labels[s, i, j], i, j] for i in range(4) for j in range(5)) for s in range(2)]
    np.testing.assert_allclose(Categorical(class_axis=1).nll(outputs, labels), expected, rtol=1e-12)


@pytest.mark.parametrize("label", [-100, -1, 4])
def test_categorical_nll_skips_no_label_even_unchecked(label: int) -> None:
    # torch's own cross_entropy counts label -100 as nothing to predict.
    with pytest.raises(IndexError):
        Categorical().nll(LOGITS[None], torch.tensor([label]))


@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 3)])
@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float32, torch.float64])
def test_bernoulli_nll_against_scipy(shape: tuple[int, ...], kind: torch.dtype) -> None:
    outputs = torch.randn(shape, dtype=torch.float64, generator=make_generator(4)) * 4
    targets = torch.randint(2, shape, generator=make_generator(5))
    p = scipy.special.expit(outputs.numpy())
    expected = -scipy.stats.bernoulli.logpmf(targets.numpy(), p).reshape(7, -1).sum(1)
    Bernoulli().check(targets.to(kind), outputs)
    np.testing.assert_allclose(Bernoulli().nll(outputs, targets.to(kind)), expected, rtol=1e-10)


@pytest.mark.parametrize("noise", ["known", "learned"])
@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 3), (5, 2, 3)])
def test_gaussian_nll_against_scipy(noise: str, shape: tuple[int, ...]) -> None:
    likelihood = Gaussian(noise=noise, std=0.3).double()
    outputs = torch.randn(shape, dtype=torch.float64, generator=make_generator(6))
    targets = torch.randn(shape, dtype=torch.float64, generator=make_generator(7))
    # A learned log_std starts as float32.
    tolerance = 1e-12 if noise == "known" else 1e-6
    density = scipy.stats.norm.logpdf(targets.numpy(), outputs.numpy(), 0.3)
    expected = -density.reshape(5, -1).sum(1)
    np.testing.assert_allclose(likelihood.nll(outputs, targets).detach(), expected, rtol=tolerance, atol=tolerance)


def test_gaussian_nll_with_noise_from_the_network() -> None:
    mean = torch.randn(5, 3, dtype=torch.float64, generator=make_generator(8))
    log_std = torch.randn(5, 3, dtype=torch.float64, generator=make_generator(9)) - 0.5
    targets = torch.randn(5, 3, dtype=torch.float64, generator=make_generator(10))
    outputs = torch.cat([mean, log_std], dim=-1)
    expected = -scipy.stats.norm.logpdf(targets.numpy(), mean.numpy(), np.exp(log_std.numpy())).sum(1)
    likelihood = Gaussian(noise="per_input")
    np.testing.assert_allclose(likelihood.nll(outputs, targets), expected, rtol=1e-12)
    got_mean, variance = likelihood.mean_and_variance(outputs)
    np.testing.assert_array_equal(got_mean, mean)
    np.testing.assert_allclose(variance, np.exp(2 * log_std.numpy()), rtol=1e-12)


def test_learned_noise_has_its_optimum_at_the_residual_std() -> None:
    targets = torch.randn(400, 2, dtype=torch.float64, generator=make_generator(11)) * 0.37
    likelihood = Gaussian(noise="learned", std=float(targets.square().mean().sqrt())).double()
    likelihood.nll(torch.zeros_like(targets), targets).mean().backward()
    gradient = likelihood.get_parameter("log_std").grad
    assert gradient is not None
    assert abs(gradient.item()) < 1e-6
    wrong = Gaussian(noise="learned", std=0.3).double()
    wrong.nll(torch.zeros_like(targets), targets).mean().backward()
    gradient = wrong.get_parameter("log_std").grad
    assert gradient is not None
    # d/dlog_std of the mean NLL of 2 outputs: 2 - sum r^2 / std^2.
    expected = 2 - float(targets.square().sum(1).mean()) / 0.3**2
    assert gradient.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("shapes", [((6,), (6, 1)), ((6, 1), (6,))])
def test_a_last_axis_of_one_is_matched_and_never_broadcast(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    outputs, targets = torch.randn(6, generator=make_generator(12)), torch.arange(6.0) % 2
    for likelihood in (Bernoulli(), Gaussian(noise="known", std=0.3)):
        likelihood.check(targets.reshape(shapes[1]), outputs.reshape(shapes[0]))
        got = likelihood.nll(outputs.reshape(shapes[0]), targets.reshape(shapes[1]))
        torch.testing.assert_close(got, likelihood.nll(outputs, targets))
        assert got.shape == (6,)
    two = torch.cat([outputs.reshape(6, 1), torch.full((6, 1), -0.7)], dim=1)
    per_input = Gaussian(noise="per_input").nll(two, targets)
    torch.testing.assert_close(per_input, Gaussian(noise="known", std=math.exp(-0.7)).nll(outputs, targets))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_outputs_are_scored_in_32_bits(dtype: torch.dtype) -> None:
    rows = torch.tensor([[0.5, -2.0], [1.5, 3.0]], dtype=dtype)
    labels, reals = torch.tensor([1, 0]), torch.tensor([[300.0, 1.0], [2.0, -400.0]])
    for likelihood, targets in ((Categorical(), labels), (Gaussian(noise="known", std=0.3), reals)):
        got = likelihood.nll(rows, targets)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, likelihood.nll(rows.float(), targets))
        assert got.isfinite().all()


def test_float64_targets_do_not_widen_a_float32_network() -> None:
    targets = torch.randn(4, 2, dtype=torch.float64, generator=make_generator(13))
    assert Gaussian(noise="known", std=0.3).nll(torch.zeros(4, 2), targets).dtype == torch.float32


@pytest.mark.parametrize("log_std", [-1e4, -50.0, 50.0, 1e4])
def test_wild_log_std_stays_finite(log_std: float) -> None:
    outputs = torch.tensor([[0.4, log_std]], requires_grad=True)
    likelihood = Gaussian(noise="per_input")
    likelihood.nll(outputs, torch.tensor([[100.0]])).sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    _, variance = likelihood.mean_and_variance(outputs)
    assert variance.isfinite().all()
    assert (variance > 0).all()
    learned = Gaussian(noise="learned", std=0.3)
    with torch.no_grad():
        learned.get_parameter("log_std").fill_(log_std)
    assert learned.nll(torch.tensor([0.4]), torch.tensor([0.4])).isfinite().all()


def test_known_std_is_taken_at_its_word() -> None:
    tiny = Gaussian(noise="known", std=1e-10)
    _, variance = tiny.mean_and_variance(torch.zeros(2, dtype=torch.float64))
    np.testing.assert_allclose(variance, 1e-20)


# ------------------------------------------------------------------------------ curvature and drawn targets


def test_categorical_curvature_is_the_hessian() -> None:
    hessian = hessian_at(lambda f: Categorical().nll(f[None], torch.tensor([2])), LOGITS)
    u = Categorical().curvature_root(LOGITS.expand(MANY, 4), make_generator(14))
    assert_within_errors(outer(u), hessian)


def test_categorical_curvature_is_independent_over_places() -> None:
    # E[u u'] over all 4 x 2 outputs of an example: the block-diagonal Hessian of the summed NLL.
    places = torch.stack([LOGITS, LOGITS.flip(0) * 0.6], dim=1)
    labels = torch.tensor([[2, 0]])
    hessian = hessian_at(lambda f: Categorical(class_axis=1).nll(f.reshape(1, 4, 2), labels), places.flatten())
    u = Categorical(class_axis=1).curvature_root(places.expand(MANY, 4, 2), make_generator(15))
    assert_within_errors(outer(u.flatten(1)), hessian)


def test_categorical_curvature_root_has_the_derivative_of_the_fisher() -> None:
    """E[d(u' A u)/df] = d tr(A C(f))/df: what sampled labels lose."""
    a = torch.randn(4, 4, dtype=torch.float64, generator=make_generator(16))
    a = a + a.T

    def trace(f: Tensor) -> Tensor:
        p = f.softmax(0)
        return (a * (torch.diag(p) - torch.outer(p, p))).sum()

    expected = torch.func.grad(trace)(LOGITS)
    assert expected.abs().max() > 0.1
    logits = LOGITS.repeat(MANY, 1).requires_grad_()
    u = Categorical().curvature_root(logits, make_generator(17))
    (gradient,) = torch.autograd.grad(torch.einsum("si,ij,sj->", u, a, u), logits)
    assert_within_errors(gradient, expected)


@pytest.mark.parametrize("likelihood", [Categorical(), Bernoulli()])
def test_curvature_root_is_differentiable_where_probabilities_underflow(
    likelihood: Categorical | Bernoulli,
) -> None:
    outputs = torch.tensor([[200.0, -200.0, 0.0], [0.0, 1000.0, -1000.0]], requires_grad=True)
    u = likelihood.curvature_root(outputs, make_generator(18))
    (gradient,) = torch.autograd.grad(u.square().sum(), outputs)
    assert u.isfinite().all()
    assert gradient.isfinite().all()


def test_bernoulli_curvature_is_the_hessian_exactly() -> None:
    # With signs the diagonal has no Monte Carlo error at all.
    targets = torch.tensor([[1, 0, 0, 1]])
    hessian = hessian_at(lambda f: Bernoulli().nll(f[None], targets), LOGITS)
    u = Bernoulli().curvature_root(LOGITS.expand(MANY, 4), make_generator(19))
    torch.testing.assert_close(u[0].square(), hessian.diagonal())
    assert_within_errors(outer(u), hessian)


@pytest.mark.parametrize("noise", ["known", "learned"])
def test_gaussian_curvature_is_the_hessian(noise: str) -> None:
    likelihood = Gaussian(noise=noise, std=0.3)
    hessian = hessian_at(lambda f: likelihood.nll(f[None], torch.ones(1, 4)), LOGITS)
    u = likelihood.curvature_root(LOGITS.expand(MANY, 4), make_generator(20))
    torch.testing.assert_close(u[0].square(), hessian.diagonal())
    assert_within_errors(outer(u).detach(), hessian.detach())
    # Learned noise is trained through the curvature as well.
    assert u.requires_grad == (noise == "learned")


def test_gaussian_curvature_with_noise_from_the_network_is_the_expected_hessian() -> None:
    likelihood = Gaussian(noise="per_input")
    outputs = torch.tensor([0.4, -0.2, -0.9, 0.3], dtype=torch.float64)
    fisher = torch.diag(torch.tensor([math.exp(1.8), math.exp(-0.6), 2.0, 2.0], dtype=torch.float64))
    u = likelihood.curvature_root(outputs.expand(MANY, 4), make_generator(21))
    torch.testing.assert_close(u[0].square(), fisher.diagonal())
    assert_within_errors(outer(u), fisher)
    # The same from scores of targets drawn from the model: E[score score'] is the Fisher by definition.
    rows = outputs.repeat(MANY, 1).requires_grad_()
    targets = likelihood.sample_targets(rows, make_generator(22))
    (score,) = torch.autograd.grad(likelihood.nll(rows, targets).sum(), rows)
    assert_within_errors(score, torch.zeros(4, dtype=torch.float64))
    assert_within_errors(outer(score), fisher)


def test_categorical_targets_have_the_model_frequencies() -> None:
    places = torch.stack([LOGITS, LOGITS.flip(0) * 0.6], dim=1)
    labels = Categorical(class_axis=1).sample_targets(places.expand(MANY, 4, 2), make_generator(23))
    assert labels.shape == (MANY, 2)
    Categorical(class_axis=1).check(labels, places.expand(MANY, 4, 2))
    for place in range(2):
        one_hot = torch.nn.functional.one_hot(labels[:, place], 4).double()
        assert_within_errors(one_hot, places[:, place].softmax(0))


def test_bernoulli_targets_have_the_model_frequencies() -> None:
    targets = Bernoulli().sample_targets(LOGITS.expand(MANY, 4), make_generator(24))
    Bernoulli().check(targets, LOGITS.expand(MANY, 4))
    assert_within_errors(targets, LOGITS.sigmoid())


def test_gaussian_targets_have_the_model_moments() -> None:
    targets = Gaussian(noise="known", std=0.3).sample_targets(LOGITS.expand(MANY, 4), make_generator(25))
    assert_within_errors(targets, LOGITS)
    assert_within_errors((targets - LOGITS).square(), torch.full((4,), 0.09, dtype=torch.float64))


@pytest.mark.parametrize("name", list(LIKELIHOODS))
def test_the_same_seed_gives_the_same_draws(name: str) -> None:
    shape = (50, 3, 4) if name == "next_token" else (50, 4)
    likelihood, outputs = LIKELIHOODS.resolve(name), torch.randn(shape, generator=make_generator(26))
    for draw in (likelihood.sample_targets, likelihood.curvature_root):
        assert torch.equal(draw(outputs, make_generator(27)), draw(outputs, make_generator(27)))
        assert not torch.equal(draw(outputs, make_generator(27)), draw(outputs, make_generator(28)))


def test_class_probabilities_put_the_classes_last() -> None:
    images = torch.randn(2, 3, 4, 5, generator=make_generator(29))
    got = Categorical(class_axis=1).class_probabilities(images)
    assert got.shape == (2, 4, 5, 3)
    torch.testing.assert_close(got[1, 2, 3], images[1, :, 2, 3].softmax(0))
    one, many = torch.tensor([0.7, -1.3]), torch.tensor([[0.7, -1.3, 2.1], [0.1, 0.2, 0.3]])
    expected = torch.tensor([[1 - scipy.special.expit(f), scipy.special.expit(f)] for f in one.tolist()])
    torch.testing.assert_close(Bernoulli().class_probabilities(one), expected.float())
    torch.testing.assert_close(Bernoulli().class_probabilities(one[:, None]), expected.float())
    assert Bernoulli().class_probabilities(many).shape == (2, 3, 2)
    torch.testing.assert_close(Bernoulli().class_probabilities(many)[0, 2, 1], many[0, 2].sigmoid())
    # Not 1 - p: a probability of 1e-20 is not rounded to 0.
    tail = Bernoulli().class_probabilities(torch.tensor([46.0]))
    assert tail[0, 0].item() == pytest.approx(math.exp(-46), rel=1e-4, abs=0)


# --------------------------------------------------------------------------------------------- bad targets

BAD = [
    (Categorical(), torch.zeros(5), torch.zeros(5, 3), ["float32", "integers from 0 to 2"]),
    (Categorical(), torch.tensor([0, 1, 3, 4, 0]), torch.zeros(5, 3), ["label 3", "index 2", "3 classes"]),
    (Categorical(), torch.tensor([0, -100, 1, 1, 0]), torch.zeros(5, 3), ["label -100", "index 1"]),
    (Categorical(class_axis=1), torch.tensor([[0, 5]]), torch.zeros(1, 3, 2), ["label 5", "index (0, 1)"]),
    (Categorical(), torch.zeros(5, 1).long(), torch.zeros(5, 3), ["(5, 1)", "(5,)"]),
    (Categorical(), torch.zeros(4).long(), torch.zeros(5, 3), ["(4,)", "(5,)"]),
    (Categorical(), torch.zeros(5).long(), torch.zeros(5, 1), ["(5, 1)", "bernoulli"]),
    (Categorical(), torch.zeros(5).long(), torch.zeros(5), ["(5,)", "at least 2 classes"]),
    (Categorical(), torch.zeros(0).long(), torch.zeros(0, 3), ["no examples"]),
    (Categorical(), np.zeros(5), torch.zeros(5, 3), ["targets are a ndarray"]),
    (Bernoulli(), torch.tensor([0.0, 0.5]), torch.zeros(2), ["target 0.5", "index 1", "0 or 1"]),
    (Bernoulli(), torch.tensor([0, 2]), torch.zeros(2, 1), ["target 2", "index 1"]),
    (Bernoulli(), torch.tensor([[0.0, math.nan]]), torch.zeros(1, 2), ["target nan", "(0, 1)"]),
    (Bernoulli(), torch.zeros(5), torch.zeros(5, 2), ["(5,)", "(5, 2)"]),
    (Bernoulli(), torch.zeros(5, 2), torch.zeros(5, 1), ["(5, 2)", "(5, 1)"]),
    (Gaussian("known", 0.3), torch.tensor([0.1, math.nan]), torch.zeros(2, 1), ["target nan", "index 1"]),
    (Gaussian("known", 0.3), torch.tensor([math.inf]), torch.zeros(1), ["target inf", "index 0"]),
    (Gaussian("known", 0.3), torch.tensor([1e39]).double() * 1e39, torch.zeros(1), ["float32"]),
    (Gaussian("known", 0.3), torch.zeros(5), torch.zeros(5, 5), ["(5,)", "(5, 5)"]),
    (Gaussian("known", 0.3), torch.zeros(1, 5), torch.zeros(5), ["(1, 5)", "(5,)"]),
    (Gaussian("per_input"), torch.zeros(5), torch.zeros(5, 3), ["(5, 3)", "even last axis"]),
    (Gaussian("per_input"), torch.zeros(5, 2), torch.zeros(5, 2), ["(5, 2)", "(5, 1)"]),
]


@pytest.mark.parametrize(("likelihood", "targets", "outputs", "words"), BAD)
def test_targets_that_cannot_be_meant_are_refused_in_one_line(
    likelihood: Categorical | Bernoulli | Gaussian, targets: Tensor, outputs: Tensor, words: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        likelihood.check(targets, outputs)
    message = str(caught.value)
    assert message.startswith(f"{likelihood.name}: ")
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize(("likelihood", "shape"), [(Bernoulli(), (5, 2)), (Gaussian("known", 0.3), (5, 5))])
def test_nll_refuses_wrong_shapes_even_unchecked(likelihood: Bernoulli | Gaussian, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError):
        likelihood.nll(torch.zeros(shape), torch.zeros(5))
    with pytest.raises(DataError):
        Categorical().nll(torch.zeros(5, 3), torch.zeros(5, 1).long())


def test_integer_targets_are_real_numbers_too() -> None:
    outputs, targets = torch.tensor([0.4, 1.1]), torch.tensor([1, -2])
    likelihood = Gaussian("known", 0.3)
    likelihood.check(targets, outputs)
    torch.testing.assert_close(likelihood.nll(outputs, targets), likelihood.nll(outputs, targets.float()))
