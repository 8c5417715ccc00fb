"""On an accelerator the numbers of a step are looked at one step later: the same run, and nothing lost.

Tried on the CPU, which is told to be an accelerator: torch's fused optimizers leave out a step there too.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell import finite
from bayeswell.errors import DataError, DivergenceError
from bayeswell.samplers import stepping
from bayeswell.training import finite_steps
from bayeswell.training import run as runs

X = torch.randn(60, 4, generator=bw.make_generator(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
METHODS = ["bbb", "k-tied", "flipout", "map", "swag", "vl-lazy"]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU as an accelerator."""
    for module in (finite_steps, runs, stepping):
        monkeypatch.setattr(module, "looks_at_once", lambda device: False)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 3))


def trained(method: str = "bbb", net: nn.Module | None = None, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {"epochs": 8, "batch_size": 20, "progress": False, **settings}
        return bw.fit(net or network(), (X, Y), method, **given)


@pytest.mark.parametrize("method", METHODS)
def test_a_healthy_run_is_the_same(method: str, request: pytest.FixtureRequest) -> None:
    at_once = trained(method, clip_norm=5.0)
    request.getfixturevalue("later")
    reads: list[bool] = []
    read = finite.Answer.read

    def noted(answer: finite.Answer) -> bool:
        reads.append(read(answer))
        return reads[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finite.Answer, "read", noted)
        later = trained(method, clip_norm=5.0)
    assert reads == [True] * 24, "each step was looked at, once"
    for name, tensor in at_once.model.state_dict().items():
        torch.testing.assert_close(later.model.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)
    for one, other in zip(at_once.histories[0].epochs, later.histories[0].epochs, strict=True):
        assert other.nll == pytest.approx(one.nll, rel=1e-6)
        assert other.scores == pytest.approx(one.scores, rel=1e-6)


class Breaks(nn.Module):
    """Fine for some calls, then NaN, or outputs whose gradient is inf."""

    def __init__(self, after: int, gradient: bool) -> None:
        super().__init__()
        self.net, self.after, self.gradient, self.calls = network(), after, gradient, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.net(x)
        if self.training:
            self.calls += 1
            if self.calls == self.after + 1:
                return found + (found - found.detach()).sqrt() if self.gradient else found * float("nan")
        return found


@pytest.mark.parametrize("gradient", [False, True], ids=["loss", "gradient"])
def test_a_step_that_breaks_is_told_and_the_last_good_state_is_kept(
    gradient: bool, request: pytest.FixtureRequest
) -> None:
    found = []
    for _ in range(2):
        with pytest.raises(DivergenceError, match=r"step 5: .* not finite.* no step was taken") as caught:
            trained(net=Breaks(5, gradient))
        model = caught.value.model
        found.append((str(caught.value), {n: p.detach().clone() for n, p in model.named_parameters()}))
        if len(found) == 1:
            request.getfixturevalue("later")
    (said, at_once), (said_later, later) = found
    if not gradient:
        assert said_later == said
    for name, tensor in at_once.items():
        assert bool(tensor.isfinite().all())
        torch.testing.assert_close(later[name], tensor, rtol=0, atol=0)


def test_the_last_step_of_all_is_looked_at(later: None) -> None:
    with pytest.raises(DivergenceError, match=r"step 23: .*no step was taken"):
        trained(net=Breaks(23, gradient=False))


class Turns(torch.utils.data.Dataset[Any]):
    """Examples that are fine when they are first looked through, and bad when they come again."""

    def __init__(self, bad: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.bad, self.reads = bad, 0

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.reads += 1
        return self.bad if self.reads > 200 else (X[index], Y[index])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            (torch.full((4,), float("nan")), torch.tensor(0)),
            r"NaN or inf in the inputs, first at index .* no step was taken",
        ),
        ((X[0], torch.tensor(7)), "categorical: label 7 at index"),
    ],
    ids=["inputs", "labels"],
)
def test_data_are_looked_at_before_they_are_moved(bad: Any, said: str, later: None) -> None:
    with pytest.raises(DataError, match=said):
        bw.fit(network(), Turns(bad), "map", epochs=12, batch_size=20, progress=False)


def test_who_cannot_leave_out_a_step_looks_at_once(later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        finite_steps.OneStepLater, "before_update", lambda *given, **named: pytest.fail("looked at later")
    )
    trained("ivon")
    with pytest.raises(DivergenceError, match=r"step \d: .*no step was taken"):
        trained("ivon", net=Breaks(5, gradient=False))


@pytest.mark.parametrize("lr", [None, 0.01])
def test_samplers(lr: float | None, request: pytest.FixtureRequest) -> None:
    settings = {} if lr is None else {"lr": lr}
    at_once = trained("sgld", **settings)
    request.getfixturevalue("later")
    later = trained("sgld", **settings)
    for name, tensor in at_once.model.state_dict().items():
        torch.testing.assert_close(later.model.state_dict()[name], tensor)
