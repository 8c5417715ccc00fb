"""BatchNorm with both derivatives written out: torch's outputs, statistics and derivatives, and where it is used."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.estimators import variational_laplace
from bayeswell.layers import batch_norm, is_plain_batch_norm, normalises_by_batch
from bayeswell.types import Step
from nets import lift

CHANNELS = 3
SHAPES = {nn.BatchNorm1d: [(7, CHANNELS), (4, CHANNELS, 5)], nn.BatchNorm2d: [(4, CHANNELS, 3, 5)],
          nn.BatchNorm3d: [(3, CHANNELS, 2, 3, 2)]}  # fmt: skip
CASES = [(kind, shape) for kind, shapes in SHAPES.items() for shape in shapes]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"affine": False},
    {"momentum": None},
    {"track_running_stats": False},
    {"eps": 0.3, "momentum": 0.7},
]


def generic(kind: type[nn.Module], settings: dict[str, Any]) -> Any:
    """A layer in float64 with numbers of no special value."""
    torch.manual_seed(1)
    module = kind(CHANNELS, **settings).double()
    for tensor in module.parameters():
        nn.init.normal_(tensor)
    if module.running_mean is not None:
        module.running_mean.normal_()
        module.running_var.uniform_(0.5, 2)
    return module


def derivatives(forward: Callable[[Tensor], Tensor], x: Tensor, given: list[Tensor]) -> list[Tensor]:
    """Outputs, gradients of a generic function, and gradients of a generic penalty on those."""
    y = forward(x)
    first = torch.autograd.grad((1.7 * y).sin().sum() + y.exp().sum(), given, create_graph=True)
    penalty = sum((number + 0.7) * (gradient + 0.2).square().sum() for number, gradient in enumerate(first))
    return [y, *first, *torch.autograd.grad(penalty + y.square().sum(), given)]


def same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_outputs_two_derivatives_and_running_statistics(
    kind: type[nn.Module], shape: tuple[int, ...], settings: dict[str, Any]
) -> None:
    expected, found = generic(kind, settings), generic(kind, settings)
    for _ in range(2):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        own = derivatives(expected, x, [x, *expected.parameters()])
        same(derivatives(lambda x: batch_norm(found, x), x, [x, *found.parameters()]), own)
        for one, other in zip(found.buffers(), expected.buffers(), strict=True):
            assert torch.equal(one, other)


def test_each_gradient_by_itself() -> None:
    """A penalty on only some of the gradients, of which only some are wanted."""
    module = generic(nn.BatchNorm2d, {})
    x = torch.randn(4, CHANNELS, 3, 5, dtype=torch.float64, requires_grad=True)
    every = [x, module.weight, module.bias]
    for chosen in range(1, 8):
        penalised = [one for bit, one in enumerate(every) if chosen >> bit & 1]
        for wanted in every:
            results = []
            for forward in (module, lambda x: batch_norm(module, x)):
                first = torch.autograd.grad(forward(x).exp().sum(), penalised, create_graph=True)
                penalty = sum(gradient.square().sum() for gradient in first)
                results.append([*first, *torch.autograd.grad(penalty, [wanted], allow_unused=True)])
            same(*results)


def test_gradcheck_of_both_derivatives() -> None:
    module = generic(nn.BatchNorm1d, {"track_running_stats": False})
    x = torch.randn(5, CHANNELS, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: batch_norm(module, x), [x])
    assert torch.autograd.gradgradcheck(lambda x: batch_norm(module, x), [x])


def test_a_batch_of_one_number_is_refused_in_torchs_words() -> None:
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        batch_norm(nn.BatchNorm1d(CHANNELS), torch.randn(1, CHANNELS))
    with pytest.raises(ValueError, match="expected 4D input"):
        batch_norm(nn.BatchNorm2d(CHANNELS), torch.randn(4, CHANNELS))


def test_which_layers_are_plain() -> None:
    class Own(nn.BatchNorm2d):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) + 1

    for kind in SHAPES:
        assert is_plain_batch_norm(kind(3))
    for other in (nn.SyncBatchNorm(3), nn.InstanceNorm2d(3), nn.Linear(3, 3), Own(3)):
        assert not is_plain_batch_norm(other)
    assert normalises_by_batch(nn.BatchNorm1d(3))
    assert not normalises_by_batch(nn.BatchNorm1d(3).eval())
    assert normalises_by_batch(nn.BatchNorm1d(3, track_running_stats=False).eval())


NET = nn.Sequential(nn.Conv2d(2, CHANNELS, 3), nn.BatchNorm2d(CHANNELS), nn.Softplus(), nn.Flatten(), nn.Linear(27, 3))


def penalised(curvature: str, training: bool, where: str) -> list[Tensor]:
    """The expected NLL of variational Laplace, its gradients, and the running statistics after it."""
    torch.manual_seed(6)
    estimator = bw.VariationalLaplace(curvature=curvature)
    prior = {"name": "mean_field", "initial_std": 0.3}
    model = lift(deepcopy(NET), prior, estimator=estimator, **({"where": where} if where else {})).double()
    model.train(training)
    x, y = torch.randn(7, 2, 5, 5, dtype=torch.float64), torch.arange(7) % 3
    nll = model.estimator.expected_nll(model, None, Step(x, y, bw.Categorical(), bw.make_generator(8))).nll
    wanted = [one for one in model.parameters() if one.requires_grad]
    found = torch.autograd.grad(nll, wanted, allow_unused=True)
    return [nll, *(one for one in found if one is not None), *model.net.buffers()]


@pytest.mark.parametrize("where", ["", "*"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("curvature", ["fisher_labels", "fisher_reparameterised", "hessian"])
@pytest.mark.filterwarnings("ignore:variational_laplace with curvature 'hessian'")
def test_the_penalty_is_that_of_torchs_own_layer(
    curvature: str, training: bool, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    noted = lambda *given: called.append("norm") or batch_norm(*given)  # noqa: E731
    monkeypatch.setattr(variational_laplace, "batch_norm", noted)
    found = penalised(curvature, training, where)
    assert bool(called) == (training and curvature != "hessian")
    monkeypatch.setattr(variational_laplace, "is_plain_batch_norm", lambda module: False)
    same(found, penalised(curvature, training, where))
