"""Means and stds with rates and schedules of their own, plateaus on held-out data, the thesis' scale of the loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import CompositionError, SettingError
from bayeswell.experiments import Experiment
from bayeswell.methods import assemble
from bayeswell.methods.grouping import rate_of
from bayeswell.optimizers import Constant, Cosine, OptimizersTogether, Plateau, PlateauState
from bayeswell.random import make_generator

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # short runs

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0.2).long()
COMMON: dict[str, Any] = {"epochs": 4, "batch_size": 15, "rate": "constant", "temperature": 0.1, "progress": False}


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def rates(method: str = "bbb", **settings: Any) -> list[dict[str, float]]:
    result = bw.fit(net(), (X, Y), method, **{**COMMON, **settings})
    return [dict(record.rates) for record in result.histories[0].epochs]


def test_the_rate_of_the_stds_may_be_given_itself() -> None:
    for lr in (0.003, 0.02):
        for found in rates(lr=lr, std_lr=0.05):
            assert found == pytest.approx({"means": lr, "stds": 0.05})
    # Also where the rate of the means is fitted to the length of the run.
    assert rates(std_lr=0.05)[0]["stds"] == pytest.approx(0.05)


def test_a_rate_that_is_a_multiple_is_the_same_run_as_the_product() -> None:
    one = bw.fit(net(), (X, Y), "bbb", lr=0.004, std_multiplier=7, **COMMON)
    other = bw.fit(net(), (X, Y), "bbb", lr=0.004, std_lr=0.028, **COMMON)
    torch.testing.assert_close(one.model.posterior.log_std, other.model.posterior.log_std, rtol=1e-4, atol=1e-5)


def test_stds_may_have_an_optimizer_of_their_own() -> None:
    """Two steps by hand: Adam for the means, SGD without momentum for the stds, from the gradients of the same loss."""
    parts = {"stepper": {"name": "adam", "lr": 0.01}, "std_stepper": {"name": "sgd", "lr": 0.3, "momentum": 0.0}}
    chosen = bw.find_method("bbb").changed(**parts, temperature=0.1, rate="constant")
    made = assemble(chosen, net(), "categorical", dataset_size=60, batches=4, epochs=2, generator=make_generator(0))
    mean, log_std = made.model.posterior.mean, made.model.posterior.log_std
    assert [group["lr"] for group in made.optimizer.param_groups] == pytest.approx([0.01, 0.3])
    copies = [nn.Parameter(one.detach().clone()) for one in (mean, log_std)]
    adam, sgd = torch.optim.Adam([copies[0]], lr=0.01), torch.optim.SGD([copies[1]], lr=0.3)
    for step in range(3):
        for parameter, copied in zip((mean, log_std), copies, strict=True):
            parameter.grad = torch.linspace(-1, 2, len(parameter)) + 0.3 * step
            copied.grad = parameter.grad.clone()
        made.optimizer.step()
        adam.step()
        sgd.step()
        if step == 1:  # a run that was cut off: another optimizer goes on from its state
            state = made.optimizer.state_dict()
            made = assemble(
                chosen, net(), "categorical", dataset_size=60, batches=4, epochs=2, generator=make_generator(0)
            )
            made.optimizer.load_state_dict(state)
            with torch.no_grad():
                made.model.posterior.mean.copy_(mean)
                made.model.posterior.log_std.copy_(log_std)
            mean, log_std = made.model.posterior.mean, made.model.posterior.log_std
    torch.testing.assert_close(mean, copies[0])
    torch.testing.assert_close(log_std, copies[1])


@pytest.mark.parametrize("other", [{"name": "torch", "optimizer": "RMSprop", "lr": 0.02}, "adagrad"])
def test_two_optimizers_train(other: Any) -> None:
    choice = {"name": "torch", "optimizer": "Adagrad", "lr": 0.02} if other == "adagrad" else other
    result = bw.fit(net(), (X, Y), "bbb", **{**COMMON, "epochs": 6, "lr": 0.02}, std_stepper=choice)
    records = result.histories[0].epochs
    assert records[-1].nll < records[0].nll
    assert records[-1].std_ratio != pytest.approx(records[0].std_ratio, rel=1e-6)
    assert records[0].rates == pytest.approx({"means": 0.02, "stds": 0.02})


def test_the_rate_of_the_stds_wins_over_that_of_their_optimizer() -> None:
    assert rates(std_stepper={"name": "sgd", "lr": 0.2}, std_lr=0.07)[0]["stds"] == pytest.approx(0.07)


def test_an_optimizer_that_keeps_more_than_state_of_parameters_steps_alone() -> None:
    one, other = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    sampler = bw.SAMPLERS.resolve("sgld").build([one], dataset_size=10, generator=make_generator(0))
    with pytest.raises(CompositionError, match=r"it keeps \['generator', 'step'\] of the whole step"):
        OptimizersTogether([sampler, torch.optim.SGD([other], lr=0.1)])


def test_stds_may_have_a_schedule_of_their_own() -> None:
    step = {"name": "step", "fractions": [0.5], "drop": 0.1}
    found = rates(lr=0.01, std_lr=0.04, std_rate=step)
    assert [one["means"] for one in found] == pytest.approx([0.01] * 4)
    assert [one["stds"] for one in found] == pytest.approx([0.04, 0.04, 0.004, 0.004])
    turned = rates(lr=0.01, std_lr=0.04, rate=step, std_rate="constant")
    assert [one["means"] for one in turned] == pytest.approx([0.01, 0.01, 0.001, 0.001])
    assert [one["stds"] for one in turned] == pytest.approx([0.04] * 4)


def test_a_schedule_and_a_plateau_of_a_group_multiply() -> None:
    falls = {"metric": "nll", "patience": 0, "factor": 0.5, "threshold": 1e9}
    step = {"name": "step", "fractions": [0.5], "drop": 0.1}
    found = rates(lr=0.01, std_lr=0.04, std_rate=step, plateau={"stds": falls})
    # The plateau has looked at epochs 0 (its best) and 1 before epoch 2.
    assert [one["stds"] / 0.04 for one in found] == pytest.approx([1, 1, 0.05, 0.025])
    assert [one["means"] for one in found] == pytest.approx([0.01] * 4)


def test_learned_noise_goes_with_the_stds() -> None:
    first, second = Constant(), Cosine()
    assert [rate_of(name, first, second) for name in ("means", "stds", "noise", "deterministic")] == [
        first, second, second, first,
    ]  # fmt: skip
    assert rate_of("stds", first, None) is first


@pytest.mark.parametrize("metric", ["validation.nll", "validation.accuracy", "validation.ece"])
def test_a_plateau_listens_to_held_out_data(metric: str) -> None:
    plateau = {"metric": metric, "patience": 0, "factor": 0.5, "threshold": 0.0}
    result = bw.fit(
        net(),
        (X, Y),
        "map",
        validation=(X[:20], torch.arange(20) % 2),  # labels by lot: scores that go up and down
        lr=0.05,
        plateau={"means": plateau},
        **{**COMMON, "epochs": 9},
    )
    records = result.histories[0].epochs
    part, state, expected = Plateau(**plateau), PlateauState(), []
    for record in records:
        expected.append(0.05 * state.factor)
        score = record.validation[metric.removeprefix("validation.")]
        state = part.update(state, -score if metric.endswith("accuracy") else score)
    assert [record.rates["means"] for record in records] == pytest.approx(expected)
    assert expected[-1] < 0.05, "a rate that never falls would show nothing"


def test_a_plateau_without_the_data_it_listens_to_is_refused() -> None:
    plateau = {"means": "validation.nll"}
    with pytest.raises(SettingError, match="looks at held-out data: give validation too"):
        rates(plateau=plateau)
    method = {"name": "bbb", "plateau": plateau}
    with pytest.raises(SettingError, match=r"'validation.nll' looks at held-out data: set validation too"):
        Experiment(method=method, data="digits")
    Experiment(method=method, data="digits", validation=0.1)
    with pytest.raises(SettingError, match=r"did you mean 'validation.nll'"):
        rates(plateau={"means": "validation.nl"})
    with pytest.raises(SettingError, match=r"plateau: metric = 'validation\.rmse'"):
        bw.fit(net(), (X, Y), "map", validation=(X, Y), plateau={"means": "validation.rmse"}, **COMMON)


def test_the_thesis_divides_the_loss_by_the_number_of_batches() -> None:
    """With plain SGD that is a rate smaller by M = 4; the records are those of the loss in nats per datum."""
    sgd = {"name": "sgd", "momentum": 0.8}
    thesis = bw.fit(net(), (X, Y), "bbb", stepper={**sgd, "lr": 0.4}, gradient_scale="1/batches", **COMMON)
    same = bw.fit(net(), (X, Y), "bbb", stepper={**sgd, "lr": 0.1}, **COMMON)
    torch.testing.assert_close(thesis.model.posterior.mean, same.model.posterior.mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(thesis.model.posterior.log_std, same.model.posterior.log_std, rtol=1e-4, atol=1e-6)
    for one, other in zip(thesis.histories[0].epochs, same.histories[0].epochs, strict=True):
        assert one.total == pytest.approx(other.total, rel=1e-4)


def test_the_scale_acts_before_clipping() -> None:
    start = torch.cat([parameter.detach().flatten() for parameter in net().parameters()])
    settings = {**COMMON, "epochs": 1, "batch_size": 30, "stepper": {"name": "sgd", "lr": 1.0, "momentum": 0.0}}
    ends = [
        bw.fit(
            net(), (X, Y), "map", clip_norm=norm, gradient_scale="1/batches", **settings
        ).model.posterior.mean.detach()
        for norm in (1e-3, 1e9)
    ]
    assert float((ends[0] - start).norm()) <= 2e-3 * (1 + 1e-4)
    assert float((ends[1] - start).norm()) > 4e-3


@pytest.mark.parametrize(
    ("method", "settings", "error", "said"),
    [
        ("bbb", {"std_lr": 0.0}, SettingError, "std_lr = 0"),
        ("bbb", {"std_rate": "cosin"}, SettingError, "did you mean 'cosine'"),
        ("bbb", {"gradient_scale": "1/batch"}, SettingError, "gradient_scale = '1/batch'; allowed: '1/batches'"),
        ("map", {"std_lr": 0.1}, SettingError, "std_lr has no use: the network has no stds"),
        ("map", {"std_rate": "cosine"}, SettingError, "std_rate has no use: the network has no stds"),
        ("ivon", {"std_lr": 0.1}, CompositionError, "'ivon' moves means and stds together"),
        ("map", {"std_stepper": "sgd"}, SettingError, "std_stepper has no use: the network has no stds"),
        ("ivon", {"std_stepper": "sgd"}, CompositionError, "std_stepper: 'ivon' moves all weights by itself"),
        ("bbb", {"std_stepper": "sgld"}, CompositionError, "std_stepper: 'sgld' moves all weights by itself"),
        ("sgld", {"gradient_scale": "1/batches"}, CompositionError, "lets 'sgld' draw from another posterior"),
        ("ivon", {"gradient_scale": "1/batches"}, CompositionError, "lets 'ivon' draw from another posterior"),
    ],
)  # fmt: skip
def test_what_has_no_sense_is_refused(method: str, settings: Any, error: type[Exception], said: str) -> None:
    def assembled() -> None:
        chosen = bw.find_method(method).changed(**settings)
        assemble(chosen, net(), "categorical", dataset_size=60, batches=4, epochs=2, generator=make_generator(0))

    with pytest.raises(error, match=said):
        assembled()


def test_a_rate_of_stds_is_refused_beside_a_sampler_that_finds_its_own() -> None:
    chosen = bw.find_method("sgld").changed(std_lr=0.1)
    with pytest.raises(CompositionError, match="which finds its rates by itself; use std_multiplier"):
        assemble(chosen, net(), "gaussian", dataset_size=60, batches=4, epochs=2, generator=make_generator(0))
