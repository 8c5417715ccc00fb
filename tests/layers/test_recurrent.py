"""The LSTM that is differentiated twice quickly: what torch's own gives, and its first and second derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import bayeswell as bw
from bayeswell.estimators import variational_laplace
from bayeswell.layers import is_plain_lstm, lstm_layers
from bayeswell.types import Step
from nets import lift

LENGTH, BATCH, INPUTS, WIDTH = 5, 6, 3, 4

States = tuple[Tensor, Tensor]
Forward = Callable[[Tensor, States | None], tuple[Tensor, States]]


def derivatives(forward: Forward, inputs: Tensor, states: States | None, parameters: list[Tensor]) -> list[Tensor]:
    """Outputs, gradients of a generic function of all of them, and gradients of a generic penalty on those."""
    output, (hidden, cells) = forward(inputs, states)
    given = [inputs, *(states or ()), *parameters]
    loss = output.sin().sum() + (1.3 * hidden).cos().sum() + cells.square().sum()
    first = torch.autograd.grad(loss, given, create_graph=True)
    penalty = sum((number + 0.7) * gradient.square().sum() for number, gradient in enumerate(first))
    second = torch.autograd.grad(penalty + output.square().sum(), given)
    return [output, hidden, cells, *first, *second]


@pytest.mark.parametrize(
    ("layers", "bidirectional", "batch_first", "bias"), list(itertools.product((1, 2), *[(False, True)] * 3))
)
@pytest.mark.parametrize("given", ["states", "none", "unbatched"])
def test_outputs_and_two_derivatives(
    layers: int, bidirectional: bool, batch_first: bool, bias: bool, given: str
) -> None:
    torch.manual_seed(3)
    how = {"num_layers": layers, "bidirectional": bidirectional, "batch_first": batch_first, "bias": bias}
    module = nn.LSTM(INPUTS, WIDTH, **how).double()
    shape = (LENGTH, INPUTS) if given == "unbatched" else (LENGTH, BATCH, INPUTS)
    inputs = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    states = None
    if given != "none":
        examples = [] if given == "unbatched" else [LENGTH if batch_first else BATCH]
        size = (layers * (2 if bidirectional else 1), *examples, WIDTH)
        one, other = (torch.randn(size, dtype=torch.float64, requires_grad=True) for _ in range(2))
        states = (one, other)
    parameters = list(module.parameters())
    expected = derivatives(module, inputs, states, parameters)
    found = derivatives(lambda x, s: lstm_layers(module, x, s), inputs, states, parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_only_the_last_states_or_only_the_inputs_matter() -> None:
    """Gradients that are not asked for, or not there, in every combination that a network may have."""
    torch.manual_seed(4)
    module = nn.LSTM(INPUTS, WIDTH).double()
    inputs = torch.randn(LENGTH, BATCH, INPUTS, dtype=torch.float64, requires_grad=True)
    for use, wanted in itertools.product(range(3), ([inputs], [module.weight_hh_l0], [inputs, module.bias_hh_l0])):
        results = []
        for forward in (module, lambda x: lstm_layers(module, x)):
            output, (hidden, cells) = forward(inputs)
            first = torch.autograd.grad((output[-2], hidden, cells)[use].exp().sum(), wanted, create_graph=True)
            penalty = sum(gradient.square().sum() for gradient in first)
            results.append([*first, *torch.autograd.grad(penalty, wanted)])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_dropout_between_layers_has_the_same_masks() -> None:
    module = nn.LSTM(INPUTS, WIDTH, num_layers=3, dropout=0.4)
    inputs = torch.randn(LENGTH, BATCH, INPUTS)
    results = []
    for forward in (module, lambda x: lstm_layers(module, x)):
        torch.manual_seed(5)
        results.append(forward(inputs)[0])
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
    module.eval()
    torch.testing.assert_close(module(inputs)[0], lstm_layers(module, inputs)[0], rtol=1e-5, atol=1e-6)


def test_which_layers_are_plain() -> None:
    class Own(nn.LSTM):
        def forward(self, *given: Any) -> Any:
            return super().forward(*given)

    assert is_plain_lstm(nn.LSTM(3, 4, 2, bidirectional=True))
    for other in (nn.LSTM(3, 4, proj_size=2), nn.GRU(3, 4), nn.Linear(3, 4), Own(3, 4)):
        assert not is_plain_lstm(other)


class Tagger(nn.Module):
    """An LSTM on sequences, packed or not, and a dense layer on its last state."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.packed = packed
        self.cells = nn.LSTM(INPUTS, WIDTH, batch_first=True)
        self.dense = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.full((len(x),), x.shape[1])
        _, (hidden, _) = self.cells(pack_padded_sequence(x, lengths, batch_first=True) if self.packed else x)
        result: Tensor = self.dense(hidden[0])
        return result


def penalised(packed: bool, curvature: str) -> tuple[Tensor, ...]:
    """The expected NLL of variational Laplace and its gradients."""
    torch.manual_seed(6)
    estimator = bw.VariationalLaplace(curvature=curvature)
    model = lift(Tagger(packed), {"name": "mean_field", "initial_std": 0.3}, estimator=estimator).double()
    x, y = torch.randn(7, LENGTH, INPUTS, dtype=torch.float64), torch.arange(7) % 2
    step = Step(x, y, bw.Categorical(), bw.make_generator(8))
    nll = model.estimator.expected_nll(model, None, step).nll
    return nll, *torch.autograd.grad(nll, list(model.posterior.parameters()))


@pytest.mark.parametrize("curvature", ["fisher_labels", "fisher_reparameterised", "hessian"])
def test_the_penalty_is_that_of_torchs_own_layer(curvature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    own = variational_laplace.lstm_layers
    noted = lambda *given: called.append("lstm") or own(*given)  # noqa: E731
    monkeypatch.setattr(variational_laplace, "lstm_layers", noted)
    found = penalised(False, curvature)
    assert bool(called) == (curvature != "hessian")
    monkeypatch.setattr(variational_laplace, "is_plain_lstm", lambda module: False)
    for one, other in zip(found, penalised(False, curvature), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_packed_sequences_are_torchs_own_with_a_word() -> None:
    expected = penalised(False, "fisher_labels")
    with pytest.warns(bw.BayeswellWarning, match="'cells' was given a packed sequence.*padded sequences"):
        found = penalised(True, "fisher_labels")
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
