"""The stored references: they meet their definition, belong together, and are bayeswell's own model."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bayeswell as bw
from make_references import (
    FOLDER,
    PROBES,
    PROBLEMS,
    Problem,
    Reference,
    faults,
    lag_1,
    read_reference,
    sample,
    write_reference,
)
from methods.known_posteriors import network


@pytest.fixture(scope="module", params=list(PROBLEMS))
def reference(request: pytest.FixtureRequest) -> Reference:
    return read_reference(request.param)


def test_data_come_from_their_seed(reference: Reference) -> None:
    again = PROBLEMS[reference.problem.name]()
    for field in dataclasses.fields(Problem):
        stored, made = getattr(reference.problem, field.name), getattr(again, field.name)
        if isinstance(stored, np.ndarray):
            assert stored.dtype == made.dtype
            np.testing.assert_allclose(stored, made, rtol=1e-6)
        else:
            assert stored == made


def test_the_run_meets_the_definition(reference: Reference) -> None:
    run = reference.run
    assert faults(run) == []
    assert run["temperature"] == 1.0
    assert run["chains"] >= 4
    assert run["kept_draws"] >= 2_000
    assert run["max_r_hat"] == reference.r_hat.max() < 1.01
    assert run["min_ess"] == reference.ess.min() > 100 * run["chains"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_r_hat": 1.011}, "R-hat 1.0110"),
        ({"max_r_hat": math.nan}, "R-hat nan"),
        ({"max_abs_lag_1": 0.06}, "lag-1 autocorrelation 0.060"),
        ({"min_e_fmi": 0.19}, "E-FMI 0.190"),
        ({"divergences": 3}, "3 divergent"),
    ],
)
def test_a_bad_run_is_not_a_reference(change: dict[str, Any], says: str) -> None:
    run = {"max_r_hat": 1.003, "max_abs_lag_1": 0.02, "min_e_fmi": 0.9, "divergences": 0}
    assert faults(run) == []
    (fault,) = faults(run | change)
    assert says in fault


def test_stored_numbers_belong_together(reference: Reference) -> None:
    run, problem = reference.run, reference.problem
    shape = (len(problem.test_inputs),) if problem.widths[-1] == 1 else (len(problem.test_inputs), problem.widths[-1])
    for name in ("mean", "std", "mcse", "r_hat", "ess"):
        values = getattr(reference, name)
        assert values.shape == shape
        assert np.isfinite(values).all()
    chains, each = run["chains"], run["kept_draws"] // run["chains"]
    assert reference.chain_mean.shape == reference.chain_variance.shape == (chains, *shape)
    np.testing.assert_allclose(reference.chain_mean.mean(0), reference.mean, rtol=1e-9)
    within, between = reference.chain_variance.mean(0), reference.chain_mean.var(0, ddof=1)
    total = ((each - 1) * chains * within + each * (chains - 1) * between) / (chains * each - 1)
    np.testing.assert_allclose(np.sqrt(total), reference.std, rtol=1e-9)
    np.testing.assert_allclose(reference.std / np.sqrt(reference.ess), reference.mcse, rtol=1e-9)
    # R-hat without ranks, from what the chains say on their own.
    assert np.sqrt((each - 1) / each + between / within).max() < 1.01
    if len(shape) == 2:
        np.testing.assert_allclose(reference.mean.sum(-1), 1, rtol=1e-9)
        assert reference.mean.min() > 0


def test_chains_differ_by_their_standard_error(reference: Reference) -> None:
    """The mean over quantities of chi-square / degrees is 1 if the standard errors are right.

    Quantities share their draws, so no exact law; chains that disagree, or an ESS that is twice too large, would
    give 2 and more.
    """
    chains = reference.run["chains"]
    squares = reference.chain_mean.var(0, ddof=1) / (chains * reference.mcse**2)
    assert 0.5 < squares.mean() < 1.6


def test_files_are_few_and_small() -> None:
    files = list(FOLDER.iterdir())
    names = {f"{name}{end}" for name in PROBLEMS for end in (".npz", ".json")}
    assert {file.name for file in files} == {"README.md"} | names
    assert max(file.stat().st_size for file in files) < 300_000


def test_writing_and_reading(reference: Reference, tmp_path: Path) -> None:
    write_reference(reference, tmp_path)
    again = read_reference(reference.problem.name, tmp_path)
    np.testing.assert_array_equal(again.problem.train_targets, reference.problem.train_targets)
    for field in dataclasses.fields(Reference):
        if isinstance(getattr(reference, field.name), np.ndarray):
            np.testing.assert_array_equal(getattr(again, field.name), getattr(reference, field.name))
    assert again.run == reference.run
    assert again.problem.widths == reference.problem.widths


def test_bayeswell_has_the_same_model(reference: Reference) -> None:
    """At draws of NUTS the network has the same outputs, and N x total is -log p(y, w): rounding only.

    This ties prior, likelihood, data, the order of the weights and the scale of the objective to those of the run.
    """
    problem = reference.problem
    model = bw.bayesian(network(problem).double(), "delta", problem.prior)
    stds = [np.full(math.prod(shape), problem.prior_stds[name]) for name, shape in problem.shapes.items()]
    np.testing.assert_allclose(model.prior.std_vector().numpy(), np.concatenate(stds), rtol=1e-12)
    elbo = bw.ELBO(problem.likelihood, dataset_size=len(problem.train_targets))
    inputs, targets = torch.from_numpy(problem.train_inputs), torch.from_numpy(problem.train_targets)
    assert len(reference.probe_weights) == PROBES
    for weights, outputs, log_joint in zip(
        reference.probe_weights, reference.probe_outputs, reference.probe_log_joint, strict=True
    ):
        with torch.no_grad():
            model.posterior.mean_vector().copy_(torch.from_numpy(weights))
            model.eval()
            np.testing.assert_allclose(model(torch.from_numpy(problem.test_inputs)), outputs, atol=1e-9)
            model.train()
            total = elbo(model, inputs, targets).total.item()
        assert -len(targets) * total == pytest.approx(log_joint, abs=1e-8)


def test_the_diagnostics_of_the_script() -> None:
    """Lag 1 agrees with an AR(1); R-hat and ESS are those of ``metrics.chains``, whose tests have slow formulas."""
    noise = np.random.default_rng(5).standard_normal((4, 500, 3))
    values = noise.copy()
    for step in range(1, 500):
        values[:, step] = 0.6 * values[:, step - 1] + 0.8 * noise[:, step]
    # Of four chains of 500 an autocorrelation has a standard error of 0.02.
    np.testing.assert_allclose(lag_1(values), 0.6, atol=0.1)


@pytest.mark.slow
def test_a_short_run_repeats_the_reference() -> None:
    """Another seed, fewer draws: z-scores of 61 strongly dependent numbers, all below 5."""
    stored = read_reference("regression")
    again = sample(PROBLEMS["regression"](), seed=2, chains=2, warm_up=500, draws=500, thinning=1)
    assert np.abs((again.mean - stored.mean) / np.hypot(again.mcse, stored.mcse)).max() < 5
    np.testing.assert_allclose(again.std, stored.std, rtol=0.25)
