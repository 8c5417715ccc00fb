"""The rest of a network, frozen: nothing of it moves, nothing is spent on it, and what trains sees its features."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.optimizers import parameter_groups

X, Y = torch.randn(60, 1, 8, 8, generator=bw.make_generator(0)), torch.randint(3, (60,), generator=bw.make_generator(1))
# Runs this short say so.
pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
SHORT = {"epochs": 2, "batch_size": 20, "progress": False}


def network() -> nn.Sequential:
    """A convolutional network with BatchNorm and dropout whose statistics have met data of another kind."""
    torch.manual_seed(4)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.4), nn.Flatten(), nn.Linear(144, 6), nn.ReLU(),
        nn.Linear(6, 3),
    )  # fmt: skip
    with torch.no_grad():
        for _ in range(5):
            net(3 * torch.randn(30, 1, 8, 8) + 1)
    return net


def body_of(model: bw.BayesianModule) -> dict[str, Tensor]:
    return dict(model.net.state_dict())


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "bbb"},
        {"method": "map", "stepper": {"name": "adamw", "weight_decay": 0.3}},
        {"method": "swag", "collector": {"start": 0.1, "cycle": 1}},
        {"method": "hwa", "collector": {"start": 0.1, "cycle": 1}},
        {"method": "sghmc", "stepper": {"lr": 1e-3}},
        {"method": "ivon"},
        {"method": "laplace"},
        {"method": "f-bbb"},
        {"method": "mc-dropout"},
    ],
    ids=lambda settings: settings["method"],
)
def test_nothing_of_it_moves(settings: dict[str, Any]) -> None:
    net = network()
    before = copy.deepcopy(net.state_dict())
    result = bw.fit(net, (X, Y), where="last_layer", rest="frozen", **SHORT, **settings)
    after = body_of(result.model)
    assert {name for name in before if not name.startswith("7.")} == after.keys()
    for name, value in after.items():
        assert torch.equal(value, before[name]), name
    for extra in result.model.posterior.extra_names:  # of each draw of a bank
        for member in range(result.model.posterior.members):
            assert torch.equal(result.model.posterior.member(member)[extra], before[extra]), extra
    assert not torch.equal(
        result.model.posterior.mean_vector(), torch.cat([before["7.weight"].flatten(), before["7.bias"]])
    )
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())


def test_trained_is_the_other_word_and_moves_it() -> None:
    net = network()
    result = bw.fit(net, (X, Y), "bbb", where="last_layer", rest="trained", **SHORT)
    after, before = body_of(result.model), net.state_dict()
    assert not any(torch.equal(after[name], before[name]) for name in after if after[name].dim())


@pytest.mark.parametrize("method", ["bbb", "map"])
def test_training_is_that_of_the_last_layer_on_features(method: str) -> None:
    """The same steps, noise and order: the same posterior."""
    net = network().double()
    x = X.double()
    features = copy.deepcopy(net[:-1]).eval()(x).detach()
    settings: dict[str, Any] = {**SHORT, "lr": 0.02, "temperature": 0.7}
    whole = bw.fit(net, (x, Y), method, where="last_layer", rest="frozen", **settings)
    alone = bw.fit(nn.Sequential(copy.deepcopy(net[-1])), (features, Y), method, **settings)
    for name, value in alone.model.posterior.state_dict().items():
        torch.testing.assert_close(whole.model.posterior.state_dict()[name], value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(whole.predict(x).probabilities, alone.predict(features).probabilities)


def test_it_has_no_gradient_no_place_in_the_optimizer_and_no_backward_pass() -> None:
    model = bw.bayesian(network(), where="last_layer", rest="frozen")
    (means, stds) = parameter_groups(model, 0.1)
    assert [id(p) for p in means["params"]] == [id(model.posterior.mean)]
    assert [id(p) for p in stds["params"]] == [id(model.posterior.log_std)]
    met: list[bool] = []
    model.net[6].register_forward_hook(lambda module, inputs, outputs: met.append(outputs.requires_grad))
    bw.ELBO("categorical", 60)(model, X, Y).total.backward()
    assert met == [False]  # there is no graph of anything before the last layer
    assert all(p.grad is None for p in model.net.parameters())
    assert model.posterior.mean.grad is not None


def test_in_a_loop_of_ones_own_statistics_stay_in_every_mode() -> None:
    """Before any call of ``train``, after it, and after predictions in between."""
    net = network()
    before = copy.deepcopy(net[1].state_dict())
    model = bw.bayesian(net, where="last_layer", rest="frozen")
    for change in (
        lambda: None,
        model.train,
        model.eval,
        model.train,
        lambda: bw.predict(model, X, "categorical", draws=2),
    ):
        change()
        model(X)
        model.with_posterior(model.posterior_part, model.posterior)(X)
        assert all(torch.equal(model.net[1].state_dict()[name], value) for name, value in before.items())
    assert model.training
    assert not model.net[3].training  # its dropout is off


def test_members_share_it_and_differ_in_the_last_layer() -> None:
    net = network()
    before = copy.deepcopy(net.state_dict())
    for method in ("deep-ensemble", "bbb"):
        result = bw.fit(net, (X, Y), method, members=2, where="last_layer", rest="frozen", **SHORT)
        assert result.model.posterior.extra_names == ()
        assert all(torch.equal(value, before[name]) for name, value in body_of(result.model).items())
        draws = list(result.model.draws(2, bw.make_generator(0)))
        assert not torch.allclose(draws[0]["7.weight"], draws[1]["7.weight"], atol=0.05)


def test_it_is_said_saved_and_kept_when_training_goes_on(tmp_path: Path) -> None:
    net = network()
    result = bw.fit(net, (X, Y), "bbb", where="last_layer", rest="frozen", rate="constant", temperature=0.5, **SHORT)
    text = str(result.model.describe())
    assert text.endswith("918 deterministic, which are frozen")
    assert "not chosen by where, frozen with the rest" in text
    assert str(bw.bayesian(net, where="last_layer").describe()).endswith("918 deterministic, which are trained")
    result.save(tmp_path / "model")
    loaded = bw.load(tmp_path / "model")
    assert str(loaded.model.describe()) == text
    for start in (result, loaded):
        longer = bw.fit(start, (X, Y), "bbb", epochs=1, batch_size=20, progress=False)
        assert all(torch.equal(v, net.state_dict()[name]) for name, v in body_of(longer.model).items())
    with pytest.raises(SettingError, match="rest has no use here"):
        bw.fit(result, (X, Y), rest="frozen", epochs=1)


def test_another_word_is_refused_before_any_work() -> None:
    for call in (
        lambda: bw.bayesian(network(), rest="froze"),
        lambda: bw.fit(network(), (X, Y), "bbb", rest="froze"),
    ):
        with pytest.raises(SettingError, match="rest = 'froze'; did you mean 'frozen'"):
            call()


def test_a_body_frozen_by_hand_is_told_that_its_statistics_move() -> None:
    net = network()
    net[:-1].requires_grad_(False)
    with pytest.warns(bw.BayeswellWarning, match=r"1 BatchNorm layers \('1' first\).*rest='frozen' keeps both"):
        bw.fit(net, (X, Y), "bbb", epochs=1, batch_size=20, progress=False)
