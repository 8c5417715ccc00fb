"""All parts of the package pass the checks of their kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bayeswell.core.errors import SettingError
from bayeswell.core.random import make_generator
from bayeswell.testing import KINDS, check_part
from bayeswell.testing.check import _KINDS

PARTS = [(kind, name) for kind in KINDS for name in _KINDS[kind][1] if name != "mixture"]
VARIANTS = [
    ("likelihood", {"name": "categorical", "class_weights": [1.0, 2.0, 0.5]}),
    ("likelihood", {"name": "categorical", "temperature": 1.7}),
    ("likelihood", {"name": "gaussian", "noise": "per_input"}),
    ("likelihood", lambda f: torch.distributions.StudentT(5.0, f)),
    ("likelihood", lambda f: torch.distributions.Exponential(f.exp())),
    ("prior", {"name": "normal", "center": "network"}),
    ("prior", torch.distributions.StudentT(4.0)),
    ("posterior", {"name": "k_tied", "rank": 3}),
    ("posterior", {"name": "low_rank", "rank": 3}),
    ("posterior", {"name": "mixture", "components": [{"name": "mean_field"}, {"name": "low_rank", "rank": 2}]}),
    ("estimator", {"name": "weight_sampling", "draws": 2, "antithetic": True}),
    ("optimizer", torch.optim.NAdam),
    ("sampler", {"name": "sghmc", "integrator": "euler"}),
    ("post_hoc", {"name": "laplace", "structure": "full"}),
    ("post_hoc", {"name": "laplace", "structure": "diagonal"}),
    ("schedule", torch.optim.lr_scheduler.LinearLR),
    ("kl_weight", lambda progress: 2.0 - progress.fraction),
]


@pytest.mark.parametrize(("kind", "part"), PARTS + VARIANTS)
def test_parts_of_the_package_pass(kind: str, part: Any) -> None:
    state = torch.get_rng_state()
    report = check_part(kind, part)
    assert "resolves" in report.passed
    assert torch.equal(state, torch.get_rng_state())


def test_half_lines_are_found_without_the_validation_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", False)
    for function in (
        lambda f: torch.distributions.Exponential(f.exp()),
        lambda f: torch.distributions.Gamma(3.0, f.exp()),
    ):
        assert "nll_is_normalized" in check_part("likelihood", function).passed


def test_reports_say_what_was_left_out() -> None:
    report = check_part("prior", "scale_mixture")
    assert "no closed form" in report.left_out["expected_log_prob_is_the_integral"]
    assert "checks passed" in str(report)
    assert "left out: gaussian_terms_are_its_density" in str(report)


def test_outputs_and_targets_may_be_given() -> None:
    outputs = torch.randn(6, 4, generator=make_generator(0))
    check_part("likelihood", "categorical", outputs=outputs, targets=torch.arange(6) % 4)


def test_unknown_kinds_and_hints_are_refused() -> None:
    with pytest.raises(SettingError, match="did you mean 'prior'"):
        check_part("priors", "normal")
    with pytest.raises(SettingError, match="no hint 'exakt'"):
        check_part("estimator", "flipout", exakt=False)


def test_networks_are_no_parts() -> None:
    with pytest.raises(AssertionError, match="resolves"):
        check_part("prior", nn.Linear(2, 2))
