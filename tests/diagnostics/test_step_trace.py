"""-ELBO of training every so many steps, against the closed form of linear regression."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.diagnostics import StepTrace
from bayeswell.training.looks import Looks
from bayeswell.training.scores import validation_on
from linear_models import SigmaPoints
from truths.linear_regression import LinearRegression

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")

NOISE, PRIOR, STD, TEMPERATURE = 0.6, 1.4, 0.3, 0.4
DATA = LinearRegression.make(4, count=24, dimension=3, noise_std=NOISE, prior_std=PRIOR).tensors()
LIKELIHOOD = bw.Gaussian("known", NOISE)


def fit(trace: StepTrace, *others: bw.Callback, **settings: Any) -> bw.Result:
    """Four batches of six in an epoch; the draws of a step have exactly the moments of q."""
    torch.manual_seed(3)
    net = nn.Linear(3, 1, bias=False).double()
    settings = {"epochs": 3, "stepper": {"name": "sgd", "lr": 1e-13}, "rate": "constant", **settings}
    posterior = {"name": "mean_field", "initial_std": STD}
    return bw.fit(
        net, DATA, "bbb", LIKELIHOOD, batch_size=6, posterior=posterior, estimator=SigmaPoints(),
        prior={"name": "normal", "std": PRIOR}, temperature=TEMPERATURE, callbacks=[trace, *others], **settings,
    )  # fmt: skip


def truth(result: bw.Result) -> tuple[float, float]:
    """E_q[nll] per datum over all data, and KL(q, p)."""
    posterior = result.model.posterior
    means, stds = posterior.mean_vector().detach(), posterior.std_vector().detach()
    inputs, targets = DATA
    squares = (targets - inputs @ means).square() + inputs.square() @ stds.square()
    nll = float((0.5 * math.log(2 * math.pi * NOISE**2) + squares / (2 * NOISE**2)).mean())
    prior = torch.distributions.Normal(0.0, torch.tensor(PRIOR, dtype=torch.float64))
    return nll, float(torch.distributions.kl_divergence(torch.distributions.Normal(means, stds), prior).sum())


def test_the_training_bound_of_a_posterior_that_stands_still_is_the_closed_form() -> None:
    """With a KL weight that changes: the objective follows it, the bound does not."""
    trace = StepTrace(4)
    nll, kl = truth(fit(trace, kl_weight="geometric"))
    assert [(row["step"], row["steps"]) for row in trace.rows] == [(4, 4), (8, 4), (12, 4)]
    for row in trace.rows:
        assert row["nll"] == pytest.approx(nll, rel=1e-6)
        assert row["kl"] == pytest.approx(kl, rel=1e-6)
        assert row["minus_elbo"] == pytest.approx(nll + kl / 24, rel=1e-6)
        assert row["minus_elbo_tempered"] == pytest.approx(nll + TEMPERATURE * kl / 24, rel=1e-6)


def test_windows_across_epochs_and_a_last_one_that_is_shorter() -> None:
    trace, single = StepTrace(5), StepTrace(1)
    epochs = fit(trace).histories[0].epochs
    fit(single)
    assert [(row["step"], row["steps"]) for row in trace.rows] == [(5, 5), (10, 5), (12, 2)]
    assert [row["step"] for row in single.rows] == list(range(1, 13))
    nlls = [row["nll"] for row in single.rows]
    assert len({round(nll, 6) for nll in nlls}) > 4  # batches differ
    for row, part in zip(trace.rows, (nlls[:5], nlls[5:10], nlls[10:]), strict=True):
        assert row["nll"] == pytest.approx(sum(part) / len(part), rel=1e-9)
    for epoch in range(3):
        assert sum(nlls[4 * epoch : 4 * epoch + 4]) / 4 == pytest.approx(epochs[epoch].nll, rel=1e-9)
    squares = [row["rmse"] ** 2 for row in single.rows[:5]]
    assert trace.rows[0]["rmse"] == pytest.approx((sum(squares) / 5) ** 0.5, rel=1e-9)


def test_other_data_are_looked_at_and_training_goes_on_as_if_they_were_not() -> None:
    looks = Looks(validation_on(*DATA, draws=5), validation_on(DATA[0], -DATA[1], draws=5))
    moving: dict[str, Any] = {"stepper": {"name": "adam", "lr": 0.05}}
    with_looks, without = StepTrace(3, looks), StepTrace(3)
    seen, plain = fit(with_looks, **moving), fit(without, **moving)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, seen.model.state_dict()[name])
    last = with_looks.rows[-1]
    assert {name: last[name] for name in without.rows[-1]} == without.rows[-1]
    final = validation_on(*DATA, draws=5).with_bound(seen.model, LIKELIHOOD, 24, TEMPERATURE)
    assert {name: last[f"validation.{name}"] for name in final} == pytest.approx(final, rel=1e-9)
    assert last["test.nll"] != last["validation.nll"]


def test_a_point_has_no_bound_and_bad_input_is_refused() -> None:
    trace = StepTrace(2)
    bw.fit(nn.Linear(3, 1).double(), DATA, "map", LIKELIHOOD, epochs=1, batch_size=6, callbacks=[trace])
    assert {"nll", "total", "kl", "step"} <= trace.rows[0].keys()
    assert not [name for name in trace.rows[0] if "elbo" in name]
    with pytest.raises(bw.SettingError, match="every = 0"):
        StepTrace(0)


def test_a_state_goes_on_in_the_middle_of_a_window() -> None:
    whole = StepTrace(5)
    fit(whole)
    halves = StepTrace(5)

    class Cut(bw.Callback):
        def after_step(self, run: bw.Run) -> None:
            if run.step == 7:  # in the middle of a window and of an epoch
                again = StepTrace(5)
                again.load_state_dict(halves.state_dict())
                halves.__dict__ |= again.__dict__

    fit(halves, Cut())
    assert halves.rows == whole.rows
