"""One step and all epochs: exact gradients, exact resume, divergence."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import DataError, DivergenceError
from bayeswell.methods import find_method
from bayeswell.training.data import Columns, as_data
from bayeswell.training.devices import Devices, Engine
from bayeswell.training.loop import Callback, Run, StepOptions, train_step
from small_runs import METHODS, X, Y, network, plan, run, same, weights

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")  # runs are short


class Gradients(Callback):
    """Keeps the gradient of every step."""

    def __init__(self) -> None:
        self.found: list[Tensor] = []

    def after_step(self, run: Run) -> None:
        self.found.append(run.state.model.posterior.mean.grad.clone())


def gradients(**settings: Any) -> Tensor:
    keep = Gradients()
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    torch.manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    run(plan("map", net=net, epochs=1, callbacks=[keep], **{"changes": {"lr": 1e-12}, **settings}))
    return torch.stack(keep.found)


def test_ragged_batches_average_to_the_full_gradient() -> None:
    data = (X.double(), Y)
    full = gradients(data=as_data(data, Columns(), batch_size=46))
    ragged = gradients(data=as_data(data, Columns(), batch_size=7))
    assert len(ragged) == 7
    assert torch.allclose(ragged.mean(0), full[0], atol=1e-9)


def test_accumulation_gives_the_same_gradient() -> None:
    data = as_data((X.double(), Y), Columns(), batch_size=13)
    whole = gradients(data=data)
    for count in (2, 3, 5):
        assert torch.allclose(gradients(data=data, changes={"accumulate": count, "lr": 1e-12}), whole, atol=1e-9)


def test_a_weight_is_a_repeated_example() -> None:
    x = X.double()
    weight = torch.ones(46)
    weight[3], weight[7] = 2, 0
    keep = [i for i in range(46) if i != 7] + [3]
    weighted = gradients(data=as_data((x, Y, weight), Columns(), batch_size=46))
    repeated = gradients(data=as_data((x[keep], Y[keep]), Columns(), batch_size=46))
    assert torch.allclose(weighted, repeated, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_result(method: str) -> None:
    before = torch.get_rng_state()
    first = run(plan(method))[0]
    assert torch.equal(torch.get_rng_state(), before), "the caller's global stream moved"
    assert same(weights(first), weights(run(plan(method))[0]))
    if method != "map":
        assert not same(weights(first), weights(run(plan(method, seed=1))[0]))


def test_the_network_and_the_data_of_the_user_do_not_change() -> None:
    net, x = network(), X.clone()
    before = copy.deepcopy(net.state_dict())
    run(plan("hwa", net=net, data=as_data((x, Y), Columns())))
    assert torch.equal(x, X)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


@pytest.mark.slow
def test_members_in_processes_are_the_same() -> None:
    one = plan("deep-ensemble", changes={"members": 3}, epochs=2)
    for serial, parallel in zip(run(one), run(one, workers=2), strict=True):
        assert same(weights(serial), weights(parallel))
        assert [r.nll for r in serial.history.epochs] == [r.nll for r in parallel.history.epochs]


def test_members_differ() -> None:
    first, second = run(plan("deep-ensemble", changes={"members": 2}, epochs=1))
    assert not same(weights(first), weights(second))


def test_callbacks_see_every_step_and_epoch() -> None:
    class Counts(Callback):
        seen: list[str] = []  # noqa: RUF012

        def start(self, run: Run) -> None:
            self.seen.append("start")

        def after_step(self, run: Run) -> None:
            self.seen.append("s")

        def after_epoch(self, run: Run, record: Any) -> None:
            self.seen.append(f"e{record.epoch}")
            if record.epoch == 1:
                run.stop("enough")

        def end(self, run: Run) -> None:
            self.seen.append("end")

    member = run(plan(callbacks=[Counts()]))[0]
    assert "".join(Counts.seen) == "start" + "sssss" + "e0" + "sssss" + "e1" + "end"
    assert member.history.stopped == "enough"
    assert len(member.history.epochs) == 2


def test_record_of_an_epoch() -> None:
    record = run(plan("map", epochs=1, changes={"lr": 1e-12}, net=nn.Linear(3, 2)))[0].history.epochs[0]
    assert (record.epoch, record.step) == (0, 5)
    assert record.total == pytest.approx(record.nll + 0.1 * record.kl / 46, rel=1e-5)
    assert record.rates["means"] > 0
    assert 0.2 < record.nll < 3
    assert record.seconds > 0
    assert set(record.values()) >= {"total", "nll", "kl", "lr.means"}


def test_divergence_stops_before_the_step() -> None:
    class Breaks(Callback):
        def after_step(self, run: Run) -> None:
            if run.state.progress.step == 3:
                with torch.no_grad():
                    run.state.model.posterior.mean.mul_(1e30)

    with pytest.raises(DivergenceError, match=r"step 3: .*lower the learning rate"):
        run(plan(callbacks=[Breaks()], net=nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 2))))


def test_bad_gradients_are_named() -> None:
    class Root(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * float("nan")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return Root.apply(self.layer(x))

    with pytest.raises(DivergenceError, match=r"step 0: the gradient of 'posterior.mean' is not finite"):
        run(plan(net=Net()))


def test_batch_norm_with_single_examples() -> None:
    with pytest.raises(DataError, match="BatchNorm"):
        run(plan(data=as_data((X, Y), Columns(), batch_size=1)))
    run(plan(epochs=1, changes={"accumulate": 10}))


def test_a_step_of_a_custom_loop() -> None:
    from bayeswell.core.random import make_generator
    from bayeswell.methods import build

    state = build(
        find_method("bbb"), network(), "categorical", dataset_size=46, batches=1, epochs=30, generator=make_generator(0)
    )
    losses = [float(train_step(state, (X, Y)).total) for _ in range(30)]  # type: ignore[union-attr]
    assert losses[-1] < losses[0]
    assert state.progress.step == 30
    assert StepOptions(Engine(Devices("cpu"))).accumulate == 1
