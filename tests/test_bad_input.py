"""Bad input: one line of our own that names the thing, its value and what is allowed; nothing half-changed."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.registry import Registry
from nets import lift, make

REGISTRIES: dict[str, Registry[Any]] = {
    "posterior": bw.POSTERIORS,
    "prior": bw.PRIORS,
    "estimator": bw.ESTIMATORS,
    "divergence": bw.DIVERGENCES,
    "likelihood": bw.LIKELIHOODS,
    "KL weight": bw.KL_WEIGHTS,
}


def refusal(action: Callable[[], Any], kind: type[bw.BayeswellError], *named: str) -> str:
    """The message of an error of this kind: a single line that has all of these in it."""
    with pytest.raises(bw.BayeswellError) as caught:
        action()
    assert type(caught.value) is kind, f"{type(caught.value).__name__}: {caught.value}"
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) > 10
    for word in named:
        assert word in message, f"'{word}' is not in: {message}"
    # Nothing below us shows through as the cause of a message that should stand alone.
    assert caught.value.__cause__ is None
    return message


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


X = torch.linspace(-2, 2, 20).view(5, 4)
Y = torch.tensor([0, 2, 1, 1, 0])


# ---------------------------------------------------------------------------------------------------------
# Names.


@pytest.mark.parametrize("axis", REGISTRIES)
def test_a_misspelt_name_gets_the_nearest_one_and_the_whole_list(axis: str) -> None:
    registry = REGISTRIES[axis]
    for name in registry:
        misspelt = name[:-2] + name[-1] + "x"
        message = refusal(lambda misspelt=misspelt: registry.resolve(misspelt), bw.SettingError, axis, f"'{misspelt}'")
        assert f"did you mean '{name}'?" in message
        assert all(other in message for other in registry)
        assert registry.resolve(name.replace("_", "-")).name == name


@pytest.mark.parametrize("axis", REGISTRIES)
def test_a_name_like_no_other_gets_the_list(axis: str) -> None:
    message = refusal(lambda: REGISTRIES[axis].resolve("qqqq"), bw.SettingError, "'qqqq'", "allowed: ")
    assert "did you mean" not in message


@pytest.mark.parametrize("choice", [None, 3, 2.5, ["normal"], object, {"std": 1.0}, {}, {"name": 3}, {"name": None}])
@pytest.mark.parametrize("axis", REGISTRIES)
def test_what_is_no_choice_at_all_is_refused(axis: str, choice: Any) -> None:
    refusal(lambda: REGISTRIES[axis].resolve(choice), bw.SettingError, axis)


@pytest.mark.parametrize("axis", REGISTRIES)
def test_a_misspelt_setting_gets_the_nearest_one(axis: str) -> None:
    for name, registered in ((name, REGISTRIES[axis][name]) for name in REGISTRIES[axis]):
        fields = [field.name for field in dataclasses.fields(registered)]
        message = refusal(
            lambda name=name: REGISTRIES[axis].resolve({"name": name, "zzz": 1}), bw.SettingError, f"'{name}'", "'zzz'"
        )
        assert all(field in message for field in fields)
        for field in fields:
            wrong = f"{field}s"
            message = refusal(
                lambda name=name, wrong=wrong: REGISTRIES[axis].resolve({"name": name, wrong: 1}),
                bw.SettingError,
                f"'{wrong}'",
            )
            assert f"did you mean '{field}'?" in message


def test_a_part_of_another_axis_is_refused() -> None:
    refusal(lambda: bw.bayesian(mlp(), bw.Normal()), bw.SettingError, "posterior", "Normal")
    refusal(lambda: bw.bayesian(mlp(), prior=bw.MeanField()), bw.SettingError, "prior", "MeanField")
    refusal(lambda: bw.bayesian(mlp(), bw.MeanField), bw.SettingError, "posterior")
    refusal(lambda: bw.bayesian(mlp(), prior=bw.Normal), bw.SettingError, "prior")


NONSENSE = ["nonsense", -1, 0, -0.5, 1.5, math.nan, math.inf, -math.inf, None, [], object(), 10**9]


@pytest.mark.parametrize("axis", REGISTRIES)
def test_no_value_of_any_setting_ends_in_anothers_error(axis: str) -> None:
    """Every setting of every registered part, given nonsense: taken for good, or refused in one line that names it."""
    faults: list[str] = []
    for name in REGISTRIES[axis]:
        for field in dataclasses.fields(REGISTRIES[axis][name]):
            for value in NONSENSE:
                choice = {"name": name, field.name: value}
                try:
                    part = REGISTRIES[axis].resolve(choice)
                    if axis in ("posterior", "prior", "estimator") and name not in ("empirical", "mixture"):
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore", bw.BayeswellWarning)
                            bw.bayesian(nn.Linear(4, 3), **{axis: part})
                except bw.BayeswellError as refused:
                    if "\n" in str(refused) or field.name not in str(refused):
                        faults.append(f"{choice}: {refused}")
                except Exception as other:
                    faults.append(f"{choice}: {type(other).__name__}: {other}")
    assert not faults, "; ".join(faults)


def lambda_where(name: str, module: nn.Module, parameter: Tensor) -> bool:
    return False


# What is wrong -> (the call, the kind of error, what the line must have).
SETTINGS: dict[str, tuple[Callable[[], Any], type[bw.BayeswellError], tuple[str, ...]]] = {
    "negative prior std": (lambda: bw.Normal(-0.3), bw.SettingError, ("normal", "std", "-0.3", "above 0")),
    "zero prior std": (lambda: bw.Normal(0.0), bw.SettingError, ("std", "0.0", "above 0")),
    "NaN prior std": (lambda: bw.Normal(math.nan), bw.SettingError, ("std", "nan")),
    "negative initial std": (
        lambda: bw.bayesian(mlp(), {"name": "mean_field", "initial_std": -1e-3}),
        bw.SettingError,
        ("mean_field", "initial_std", "-0.001", "above 0"),
    ),
    "negative initial std of a low-rank posterior": (
        lambda: bw.LowRank(2, initial_std=-2.0),
        bw.SettingError,
        ("low_rank", "initial_std", "-2.0"),
    ),
    "std as text": (lambda: bw.Normal("wide"), bw.SettingError, ("std", "'wide'")),  # type: ignore[arg-type]
    "rank 0": (lambda: bw.KTied(0), bw.SettingError, ("k_tied", "rank = 0", "at least 1")),
    "rank 0 of a low-rank posterior": (lambda: bw.LowRank(0), bw.SettingError, ("low_rank", "rank = 0")),
    "negative rank": (lambda: bw.KTied(-2), bw.SettingError, ("rank = -2",)),
    "rank 1.5": (lambda: bw.KTied(1.5), bw.SettingError, ("rank = 1.5", "whole number")),  # type: ignore[arg-type]
    "tie that fits nothing": (
        lambda: bw.bayesian(mlp(), bw.KTied(tie="nothing*")),
        bw.SettingError,
        ("k_tied", "tie = 'nothing*'"),
    ),
    "rank above the number of weights": (
        lambda: bw.bayesian(nn.Linear(2, 2), bw.LowRank(7)),
        bw.SettingError,
        ("low_rank", "rank = 7", "(6)"),
    ),
    "a tie that fits nothing": (
        lambda: bw.bayesian(mlp(), bw.KTied(1, tie="conv*")),
        bw.SettingError,
        ("k_tied", "'conv*'", "0.weight", "2.weight"),
    ),
    "too many weights for a full covariance": (
        lambda: bw.bayesian(mlp(), bw.Full(max_weights=20)),
        bw.SettingError,
        ("full", "43", "max_weights = 20", "low_rank"),
    ),
    "too large a matrix for a matrix normal": (
        lambda: bw.bayesian(mlp(), bw.MatrixNormal(max_side=4)),
        bw.SettingError,
        ("matrix_normal", "'0.weight'", "5x4", "max_side = 4"),
    ),
    "a matrix normal without a matrix": (
        lambda: bw.bayesian(mlp(), "matrix_normal", where="*.bias"),
        bw.SettingError,
        ("matrix_normal", "no Bayesian weight matrix"),
    ),
    "a mixture with a share of 1": (lambda: bw.ScaleMixture(1.0), bw.SettingError, ("wide_share = 1.0", "(0, 1)")),
    "an odd number of antithetic draws": (
        lambda: bw.WeightSampling(draws=3, antithetic=True),
        bw.SettingError,
        ("draws = 3", "even"),
    ),
    "no draws": (lambda: bw.Flipout(draws=0), bw.SettingError, ("flipout", "draws = 0")),
    "an unknown curvature": (
        lambda: bw.VariationalLaplace(curvature="fisher_label"),
        bw.SettingError,
        ("fisher_label'", "did you mean 'fisher_labels'?"),
    ),
    "a fraction of 0": (lambda: bw.VariationalLaplace(fraction=0.0), bw.SettingError, ("fraction = 0.0", "(0, 1]")),
    "an unknown state of mean-field": (
        lambda: bw.MeanField(parameter="log_sd"),
        bw.SettingError,
        ("'log_sd'", "did you mean 'log_std'?"),
    ),
    "an unknown start": (
        lambda: bw.bayesian(mlp(), means="prio"),
        bw.SettingError,
        ("means", "'prio'", "did you mean 'prior'?"),
    ),
    "a prior pattern that fits nothing": (
        lambda: bw.bayesian(mlp(), prior={"conv*": "normal", "*": "normal"}),
        bw.SettingError,
        ("'conv*'", "0.weight"),
    ),
    "a parameter without a prior": (
        lambda: bw.bayesian(mlp(), prior={"*.weight": "normal"}),
        bw.SettingError,
        ("'0.bias'", "'*'"),
    ),
    "a misspelt prior behind a pattern": (
        lambda: bw.bayesian(mlp(), prior={"*": "norml"}),
        bw.SettingError,
        ("'norml'", "did you mean 'normal'?"),
    ),
    "an empty data set": (lambda: bw.ELBO("categorical", 0), bw.SettingError, ("dataset_size = 0", "at least 1")),
    "a negative temperature": (
        lambda: bw.ELBO("categorical", 5, temperature=-0.1),
        bw.SettingError,
        ("temperature = -0.1", "at least 0"),
    ),
    "a temperature as text": (
        lambda: bw.ELBO("categorical", 5, temperature="cold"),  # type: ignore[arg-type]
        bw.SettingError,
        ("temperature", "'cold'"),
    ),
    "no network": (lambda: bw.bayesian("net"), bw.NetworkError, ("nn.Module", "str")),  # type: ignore[arg-type]
    "a class instead of a network": (lambda: bw.bayesian(nn.Linear), bw.NetworkError, ("nn.Module",)),  # type: ignore[arg-type]
    "a network without parameters": (
        lambda: bw.bayesian(nn.Sequential(nn.ReLU(), nn.Flatten())),
        bw.NetworkError,
        ("Sequential", "no parameters"),
    ),
    "a network with frozen parameters only": (
        lambda: bw.bayesian(mlp().requires_grad_(False)),
        bw.SettingError,
        ("'all'", "frozen"),
    ),
    "a network with normalisation only": (
        lambda: bw.bayesian(nn.BatchNorm1d(3)),
        bw.SettingError,
        ("'all'", "normalisation"),
    ),
    "where: a pattern that matches nothing": (
        lambda: bw.bayesian(mlp(), where="0.wieght"),
        bw.SettingError,
        ("where", "'0.wieght'", "did you mean '0.weight'?"),
    ),
    "where: one of two patterns matches nothing": (
        lambda: bw.bayesian(mlp(), where=["0.*", "head.*"]),
        bw.SettingError,
        ("where", "'head.*'", "2.weight"),
    ),
    "where: no pattern": (lambda: bw.bayesian(mlp(), where=[]), bw.SettingError, ("where", "[]")),
    "where: a type that is not there": (
        lambda: bw.bayesian(mlp(), where=nn.Conv2d),
        bw.SettingError,
        ("where", "Conv2d"),
    ),
    "where: a function that takes nothing": (
        lambda: bw.bayesian(mlp(), where=lambda_where),
        bw.SettingError,
        ("where", "lambda_where"),
    ),
    "where: a number": (lambda: bw.bayesian(mlp(), where=2), bw.SettingError, ("where", "2", "last_layer")),  # type: ignore[arg-type]
    "where: types and names mixed": (
        lambda: bw.bayesian(mlp(), where=(nn.Linear, "2.*")),  # type: ignore[arg-type]
        bw.SettingError,
        ("where", "2.*", "allowed"),
    ),
    "where: a misspelt choice": (
        lambda: bw.bayesian(mlp(), where="lastlayer"),
        bw.SettingError,
        ("where", "'lastlayer'", "did you mean 'last_layer'?"),
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings(case: str) -> None:
    action, kind, named = SETTINGS[case]
    refusal(action, kind, *named)


def test_weights_that_are_not_finite_are_refused_and_a_fresh_start_is_not() -> None:
    net = mlp()
    with torch.no_grad():
        net[0].weight[1, 2] = math.nan
    refusal(lambda: bw.bayesian(net), bw.NetworkError, "NaN or inf", "means='prior'")
    assert bool(bw.bayesian(net, means="prior")(X).isfinite().all())


def test_parameters_of_two_precisions_are_refused() -> None:
    net = mlp()
    net[2].double()
    refusal(lambda: bw.bayesian(net), bw.NetworkError, "torch.float32", "torch.float64")
    assert bw.bayesian(net, where="2").layout.size == 18


# ---------------------------------------------------------------------------------------------------------
# Data.

ESTIMATORS = ["weight_sampling", "local_reparameterization", "flipout", "variational_laplace"]


def at(value: float, place: tuple[int, int] = (1, 2)) -> Tensor:
    x = X.clone()
    x[place] = value
    return x


DATA: dict[str, tuple[Tensor, Any, tuple[str, ...]]] = {
    "label too large": (X, torch.tensor([0, 1, 2, 3, 0]), ("label 3", "index 3", "0 to 2")),
    "negative label": (X, torch.tensor([0, -1, 2, 1, 0]), ("label -1", "index 1", "0 to 2")),
    "torch's own skipped label": (X, torch.tensor([0, -100, 2, 1, 0]), ("label -100", "0 to 2")),
    "labels as floats": (X, Y.float(), ("torch.float32", "integers", "0 to 2")),
    "one-hot labels": (X, nn.functional.one_hot(Y, 3), ("(5, 3)", "(5,)")),
    "labels for another batch": (X, Y[:4], ("(4,)", "(5,)")),
    "a single label": (X, torch.tensor(1), ("shape ()",)),
    "labels in a list": (X, [0, 1, 2, 1, 0], ("list", "tensor")),
    "no labels at all": (X, None, ("NoneType", "tensor")),
    "an empty batch": (X[:0], Y[:0], ("empty",)),
    "NaN in the inputs": (at(math.nan), Y, ("NaN or inf in the inputs", "(1, 2)")),
    "inf in the inputs": (at(math.inf), Y, ("NaN or inf in the inputs", "(1, 2)")),
    "-inf in the inputs": (at(-math.inf), Y, ("NaN or inf in the inputs", "(1, 2)")),
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("case", DATA)
def test_data(case: str, estimator: str) -> None:
    """The tanh network turns an infinite input into a finite loss, whose gradient is NaN: that must not pass."""
    x, y, named = DATA[case]
    net, _ = make("mlp")
    model = lift(net, estimator=estimator)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    refusal(lambda: bw.ELBO("categorical", 23)(model, x, y), bw.DataError, *named)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any("forward" in vars(module) for module in model.modules())
    # The model is none the worse for it.
    bw.ELBO("categorical", 23)(model, X, Y).total.backward()


REAL_DATA: dict[str, tuple[Any, Tensor, Any, tuple[str, ...]]] = {
    "NaN target": ({"name": "gaussian"}, X, at(math.nan)[:, :3], ("gaussian", "nan", "(1, 2)")),
    "infinite target": ({"name": "gaussian"}, X, at(math.inf)[:, :3], ("gaussian", "inf", "(1, 2)")),
    "targets that would broadcast": ("gaussian", X, torch.zeros(5), ("(5,)", "(5, 3)")),
    "too few outputs for noise per input": (
        {"name": "gaussian", "noise": "per_input"},
        X,
        torch.zeros(5, 1),
        ("(5, 3)", "even"),
    ),
    "no yes or no": ("bernoulli", X, torch.full((5, 3), 0.5), ("bernoulli", "0.5", "0 or 1")),
    "NaN for yes or no": ("bernoulli", X, torch.full((5, 3), math.nan), ("bernoulli", "nan")),
}


@pytest.mark.parametrize("case", REAL_DATA)
def test_other_likelihoods(case: str) -> None:
    likelihood, x, y, named = REAL_DATA[case]
    refusal(lambda: bw.ELBO(likelihood, 23)(lift(mlp()), x, y), bw.DataError, *named)


def test_a_class_likelihood_with_one_output_points_to_bernoulli() -> None:
    refusal(lambda: bw.ELBO("categorical", 23)(lift(nn.Linear(4, 1)), X, Y * 0), bw.DataError, "(5, 1)", "'bernoulli'")


def test_a_network_that_returns_no_tensor_is_told_so() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.layer(x), self.layer(-x)

    for estimator in ESTIMATORS:
        model = lift(Two(), estimator=estimator)
        refusal(lambda model=model: bw.ELBO("categorical", 23)(model, X, Y), bw.DataError, "outputs", "tuple")


def test_nan_in_one_of_several_inputs_is_found() -> None:
    net, (left, right) = make("two inputs by position")
    right[3, 1] = math.nan
    for inputs in ((left, right), {"left": left, "right": right}):
        message = refusal(
            lambda inputs=inputs: bw.ELBO("categorical", 23)(lift(net), inputs, Y), bw.DataError, "inputs"
        )
        assert "NaN or inf" in message


def test_a_loss_that_overflows_is_reported_with_its_parts() -> None:
    """Finite data and outputs, infinite loss; and no warning of torch's on the way to the message."""
    model = lift(nn.Linear(4, 3))
    with torch.no_grad():
        model.posterior.mean.fill_(1e30)
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        message = refusal(
            lambda: bw.ELBO("gaussian", 23)(model, X, torch.zeros(5, 3)), bw.DivergenceError, "not finite"
        )
    finally:
        torch.set_warn_always(always)
    assert re.search(r"nll inf.*kl", message)


def test_checks_can_be_switched_off() -> None:
    """For speed, at one's own risk: the loss is then what the data make it."""
    terms = bw.ELBO("categorical", 23, check=False)(lift(mlp()), at(math.nan), Y)
    assert not bool(terms.total.isfinite())


def test_a_step_that_a_schedule_or_estimator_cannot_place_is_refused() -> None:
    model = lift(mlp(), estimator={"name": "variational_laplace", "every": 3})
    refusal(lambda: bw.ELBO("categorical", 23)(model, X, Y), bw.SettingError, "every", "Progress(step=...)")
    for weight, needed in (("geometric", "batches"), ("linear_anneal", "total_steps")):
        elbo = bw.ELBO("categorical", 23, kl_weight=weight)
        refusal(lambda elbo=elbo: elbo(lift(mlp()), X, Y), bw.SettingError, weight, f"Progress({needed}=...)")


# ---------------------------------------------------------------------------------------------------------
# Nothing half-changed.


def test_a_refused_lift_leaves_the_network_as_it_was() -> None:
    net, inputs = make("normalised")
    values = {name: value.clone() for name, value in net.state_dict().items()}
    random_state = torch.get_rng_state()
    objects = [id(parameter) for parameter in net.parameters()]
    attempts: list[dict[str, Any]] = [
        {"posterior": bw.KTied(tie="nothing")},
        {"posterior": bw.LowRank(10_000)},
        {"posterior": bw.Full(max_weights=1)},
        {"posterior": bw.MatrixNormal(max_side=1)},
        {"prior": {"nothing": "normal"}},
        {"where": "nothing"},
        {"posterior": "full", "estimator": "flipout"},
        {"means": "elsewhere"},
    ]
    for settings in attempts:
        with pytest.raises(bw.BayeswellError):
            bw.bayesian(net, **settings)
    assert torch.equal(torch.get_rng_state(), random_state), "a corrected call gives what it would have given"
    assert [id(parameter) for parameter in net.parameters()] == objects
    assert all(torch.equal(values[name], value) for name, value in net.state_dict().items())
    net(inputs)


def test_every_error_is_ours_and_also_a_common_kind() -> None:
    """Users may catch all of them at once, or as the usual ValueError."""
    for kind in (bw.SettingError, bw.CompositionError, bw.DataError, bw.NetworkError):
        assert issubclass(kind, bw.BayeswellError)
        assert issubclass(kind, ValueError)
    assert issubclass(bw.FileError, OSError)
