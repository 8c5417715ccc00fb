"""Every registered part of every axis goes through the checks that parts from outside go through."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.methods.registering import REGISTRIES
from bayeswell.posteriors import Empirical
from bayeswell.samplers import PSGLD, SGHMC, SGLD, CyclicalSGLD
from bayeswell.testing import Report, check_part
from bayeswell.testing.axes import AXES, axis_of, registries

NAMES = [(axis, name) for axis in AXES for registry in registries(axis) for name in registry]


@pytest.mark.parametrize(("axis", "name"), NAMES, ids=lambda value: str(value))
def test_every_registered_part_passes(axis: str, name: str) -> None:
    report = check_part(name, axis)
    assert {"resolves", "deep_copies", "pickles", "settings_round_trip", "has_a_summary"} <= set(report.passed)
    assert len(report.passed) >= 7
    assert all(report.left_out.values()), "a check that is left out says why"


def test_every_axis_of_a_method_is_checked() -> None:
    """A new registry gets a suite (models are no parts: they are networks)."""
    assert set(AXES) == (set(REGISTRIES) - {"model"}) | {"stepper"}


@pytest.mark.parametrize(
    ("axis", "part"),
    [
        ("likelihood", {"name": "gaussian", "noise": "per_input"}),
        ("likelihood", {"name": "gaussian", "noise": "known", "std": 0.4}),
        ("likelihood", {"name": "student_t", "df": 7.0, "learn_df": True}),
        ("likelihood", {"name": "categorical", "class_weights": (1.0, 2.0, 0.5)}),
        ("likelihood", {"name": "negative_binomial", "dispersion": 0.3}),
        ("posterior", bw.MeanField(parameter="rho")),
        ("posterior", bw.KTied(rank=3)),
        ("posterior", Empirical(count=4)),
        ("estimator", bw.WeightSampling(draws=4, antithetic=True)),
        ("estimator", bw.VariationalLaplace("fisher_reparameterised")),
        ("estimator", bw.VariationalLaplace("hessian")),
        ("post_hoc", {"name": "laplace", "structure": "full"}),
        ("post_hoc", {"name": "laplace", "structure": "diagonal"}),
        ("stepper", SGLD(lr=0.004)),
        ("stepper", SGHMC(lr=0.02)),
        ("stepper", PSGLD(lr=0.02, damping=0.5, decay=0.9, adapt_steps=20)),
        ("stepper", CyclicalSGLD(lr=0.02, exploration=0.0)),
        ("stepper", torch.optim.RMSprop),
        ("prior", torch.distributions.Cauchy(0.0, 0.3)),
        ("prior", bw.Normal(0.2, centre="network")),
        ("kl_weight", bw.Geometric(2.0)),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value)[:40],
)
def test_other_settings_pass(axis: str, part: Any) -> None:
    check_part(part, axis)


def test_targets_of_several_numbers_are_checked_too() -> None:
    part, outputs = bw.Gaussian("per_output", (0.3, 0.7)), torch.randn(5, 2)
    report = check_part(part, outputs=outputs)
    assert {"likelihood_ratios_of_drawn_targets_average_to_one", "predictions_agree_with_the_nll"} <= set(report.passed)
    assert "2 numbers" in report.left_out["nll_is_normalised"]
    report = check_part("bernoulli", "likelihood", outputs=torch.randn(5, 4))
    assert "curvature_root_is_one" in report.passed


def test_the_axis_follows_from_the_members_or_the_name() -> None:
    found = {
        "flipout": "estimator", "gaussian": "likelihood", "kaiming": "prior", "adam": "stepper", "sgld": "stepper",
        "hwa": "collector", "k_tied": "posterior", "cosine": "rate", "geometric": "kl_weight",
    }  # fmt: skip
    for name, axis in found.items():
        made = next(registry for registry in registries(axis) if registry.knows(name)).resolve(name)
        if axis not in ("estimator", "stepper"):  # the slower ones
            assert check_part(name).axis == axis
        if axis != "kl_weight":
            assert axis_of(made, None) == axis


def test_what_cannot_be_meant_is_refused_in_one_line() -> None:
    for call, words in [
        (lambda: check_part("kaimin"), "did you mean 'kaiming'"),
        (lambda: check_part("laplace"), "prior or post_hoc"),
        (lambda: check_part(lambda at: 1.0), "kl_weight, rate or likelihood"),
        (lambda: check_part(3.0), "say axis"),
        (lambda: check_part("normal", "priors"), "did you mean 'prior'"),
        (lambda: check_part("normal", "prior", exact=False), "no hint 'exact'"),
    ]:
        with pytest.raises(SettingError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_the_report_lists_what_was_done_and_the_global_stream_is_left_alone() -> None:
    before = torch.get_rng_state()
    report = check_part("poisson")
    assert torch.equal(before, torch.get_rng_state())
    assert isinstance(report, Report)
    assert "nll_is_normalised" in report.passed
    assert "nll_is_normalised" in str(report)
