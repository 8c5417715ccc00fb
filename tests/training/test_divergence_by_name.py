"""Training that runs away says so; a gradient whose norm overflows while its parts are finite is clipped like any."""

from __future__ import annotations

import subprocess

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from quick_python import QUICK_PYTHON

SCALE = 3e19


class Steep(nn.Module):
    """One weight for each of two inputs, times a number whose square is beyond float32."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale, self.weight = scale, nn.Parameter(torch.tensor([0.4, -0.3]))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x @ self.weight)


class Absolute(nn.Module):
    """-log p = |f|, up to a constant: a gradient as large as the network is steep, and no larger."""

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.abs()


def small() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(200, 4, generator=generator)
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (x, (x[:, 0] > 0).long())


def test_a_norm_that_overflows_is_clipped_to_the_exact_length() -> None:
    x = torch.tensor([[3.0, 4.0]])
    start = Steep(SCALE).weight.detach().clone()
    settings = {"stepper": {"name": "sgd", "lr": 0.5}, "rate": "constant", "clip_norm": 0.2, "temperature": 1e-9}
    result = bw.fit(Steep(SCALE), (x, torch.zeros(1)), "map", Absolute(), epochs=1, **settings)
    # f = 1.2 - 1.2 = 0 at the start but for rounding: the sign of the slope is that of f there.
    sign = torch.sign(Steep(SCALE)(x))[0].detach()
    moved = result.model.posterior.mean_vector().detach() - start
    torch.testing.assert_close(moved, -0.5 * 0.2 * sign * torch.tensor([0.6, 0.8]), rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore::bayeswell.errors.ScaleWarning")
def test_parts_whose_squares_are_finite_are_no_divergence_without_clipping() -> None:
    many = torch.full((1, 400), 1e18)  # each square 1e36, their sum 4e38

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(-1e-3, 1.5e-3, 400))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight

    before = Wide().weight.detach()
    result = bw.fit(Wide(), (many, torch.zeros(1)), "map", Absolute(), epochs=1, lr=0.01, rate="constant")
    # The first step of Adam is the rate itself, against the sign of the gradient.
    moved = result.model.posterior.mean_vector().detach() - before
    torch.testing.assert_close(moved, torch.full((400,), -0.01), rtol=1e-3, atol=0)


@pytest.mark.parametrize("method", ["bbb", "sgld"])
def test_outputs_that_are_not_finite_after_steps_are_a_divergence(method: str) -> None:
    net, data = small()
    with pytest.raises(
        bw.DivergenceError, match=r"^step \d+: training has diverged: .*lower the learning rate"
    ) as told:
        bw.fit(net, data, method, epochs=3, batch_size=32, lr=1e12)
    assert "clip_norm" not in str(told.value) or method == "bbb"
    assert told.value.model is not None


def test_a_network_that_gives_nan_from_the_start_is_not_called_divergent() -> None:
    net, data = small()
    with torch.no_grad():
        net[0].weight[0, 0] = torch.nan
    with pytest.raises((bw.DataError, bw.NetworkError), match="NaN") as told:
        bw.fit(net, data, "map", epochs=1)
    assert "diverged" not in str(told.value)


def test_a_sampler_is_not_told_to_clip() -> None:
    class Blows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) + (self.second.weight.sum(1) * 0).sqrt()

    data = (torch.ones(4, 2), torch.zeros(4, dtype=torch.long))
    for method, advised in (("sgld", False), ("map", True)):
        with pytest.raises(bw.DivergenceError, match=r"'second\.weight' is not finite") as told:
            bw.fit(Blows(), data, method, epochs=8)
        assert ("clip_norm" in str(told.value)) == advised


def test_the_total_of_ivon_holds_the_kl() -> None:
    """total = nll + T KL / N in every record, the gradient that of the NLL alone: the run itself is as it was."""
    net, data = small()
    temperature, size = 0.3, 200
    result = bw.fit(net, data, "ivon", epochs=8, batch_size=50, temperature=temperature, stepper={"beta2": 0.9})
    for record in result.histories[0].epochs:
        assert record.kl > 1
        assert record.total == pytest.approx(record.nll + temperature * record.kl / size, rel=1e-5)
    model = bw.bayesian(net, bw.MeanField(), "normal")
    generator = torch.Generator()
    found = []
    for shown in (None, 0.3):
        model.zero_grad()
        terms = bw.ELBO("categorical", size, temperature=0.0, shown_temperature=shown)(
            model, *data, generator=generator.manual_seed(3)
        )
        terms.total.backward()
        found.append((terms.total.item(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    assert found[1][0] == pytest.approx(found[0][0] + 0.3 * terms.kl.item() / size, rel=1e-5)
    assert all(torch.equal(one, other) for one, other in zip(found[0][1], found[1][1], strict=True))


def test_forward_mode_leaks_no_deprecation_of_torch() -> None:
    """In a process of its own: torch warns once, as the derivatives are first loaded.

    Two outputs and one draw: no Jacobian is cheaper than forward mode, which is what loads them.
    """
    code = (
        "import sys, warnings, torch; warnings.simplefilter('error', DeprecationWarning)\n"
        "import bayeswell as bw\n"
        "from torch import nn\n"
        "derivatives = 'torch._decomp.decompositions_for_jvp'\n"
        "assert derivatives not in sys.modules\n"
        "x = torch.randn(40, 3); net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))\n"
        "bw.fit(net, (x, (x[:, 0] > 0).long()), 'laplace', epochs=1).predict(x, draws=1)\n"
        "assert derivatives in sys.modules\n"
    )
    done = subprocess.run([QUICK_PYTHON, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
