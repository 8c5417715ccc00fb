"""Drawn functions, and BoTorch's model around them where it is installed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import MissingExtra
from bayeswell.integrations.botorch import DrawnFunctions, botorch_model
from bayeswell.training import Result, fit

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")


@pytest.fixture
def result() -> Result:
    x = torch.linspace(-1, 1, 40)[:, None] * torch.tensor([[3.0, 200.0]])
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    return fit(net, (x, 50 + 10 * x[:, 0]), "bbb", "gaussian", epochs=5, standardize=True, progress=False)


def test_drawn_functions_average_to_the_prediction(result: Result) -> None:
    """Both means are over the same 30 draws, so they agree to rounding."""
    x = torch.randn(5, 2) * torch.tensor([1.0, 50.0])
    found = DrawnFunctions(result, 30, seed=3)(x)
    assert found.shape == (30, 5, 1)
    expected = result.predict(x, draws=30, seed=3)
    torch.testing.assert_close(found.mean(0), expected.mean.reshape(5, 1), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.std(0, correction=0), expected.epistemic_std.reshape(5, 1), rtol=1e-3, atol=1e-4)


def test_drawn_functions_have_the_batch_shape_of_botorch_and_gradients(result: Result) -> None:
    x = torch.randn(2, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    functions = DrawnFunctions(result, 7)
    found = functions(x)
    assert found.shape == (2, 3, 7, 4, 1)
    torch.testing.assert_close(found[1, 2], functions(x[1, 2]), rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad(found[..., 0, 0].sum(), x)
    assert bool((gradient[:, :, 0].abs().sum(-1) > 0).all())
    assert float(gradient[:, :, 1:].abs().max()) == 0
    step = torch.zeros_like(x)
    step[0, 0, 0, 0] = 1e-2
    difference: Tensor = (functions(x + step) - functions(x - step)).detach()[0, 0, :, 0, 0].sum() / 2e-2
    (own,) = torch.autograd.grad(functions(x)[0, 0, :, 0, 0].sum(), x)
    assert float(own[0, 0, 0, 0]) == pytest.approx(float(difference), rel=0.02)


def test_model_of_botorch(result: Result) -> None:
    try:
        import botorch  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(MissingExtra, match="pip install botorch"):
            botorch_model(result)
        return
    posterior = botorch_model(result, count=16).posterior(torch.randn(3, 2))
    assert posterior.mean.shape == (3, 1)
    assert posterior.rsample(torch.Size([4])).shape == (4, 3, 1)
