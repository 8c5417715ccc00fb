"""Dropout that can be drawn: one mask a draw, the law of dropout, and the same prediction however it is batched."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell import native
from bayeswell.lifting import DrawnDropout, with_drawn_dropout
from bayeswell.random import LEAST_COUNTED
from truths.statistics import assert_mean_close


def with_dropout() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Dropout(0.3), nn.Linear(30, 3))


def without_dropout() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(11, 4, generator=torch.Generator().manual_seed(2))


def test_a_drawn_network_is_masked_and_rescaled_alike_for_every_example(inputs: Tensor) -> None:
    model = bw.bayesian(with_drawn_dropout(with_dropout()), "delta").eval()
    hidden = torch.relu(inputs @ model.draw()["0.weight"].T + model.draw()["0.bias"])
    weights = model.draw(bw.make_generator(1))
    masked = []
    handle = model.net[2].register_forward_hook(lambda module, args, output: masked.append(output))
    model.call(weights, inputs)
    handle.remove()
    factor = masked[0] / hidden
    alive = hidden.abs().sum(0) > 0
    # Where a unit is active its factor is 0 or 1/0.7, and the same for all examples.
    for unit in torch.arange(30)[alive]:
        values = factor[hidden[:, unit] > 0, unit]
        assert torch.all((values == 0) | ((values - 1 / 0.7).abs() < 1e-5))
        assert values.max() - values.min() < 1e-5


def test_masks_keep_each_unit_with_probability_one_minus_p() -> None:
    layer = DrawnDropout(0.3)
    masks = []
    for seed in range(4000):
        layer.seed = torch.tensor(seed)
        masks.append(layer(torch.ones(1, 6, dtype=torch.float64))[0])
    assert_mean_close(torch.stack(masks), torch.ones(6, dtype=torch.float64))


def test_a_channel_mask_covers_whole_maps() -> None:
    layer = DrawnDropout(0.5, axes=1)
    layer.seed = torch.tensor(7)
    found = layer(torch.ones(2, 8, 3, 3))
    per_channel = found.flatten(2)
    assert torch.equal(per_channel.amin(-1), per_channel.amax(-1))
    assert 0 < int((per_channel[0, :, 0] == 0).sum()) < 8


@pytest.mark.parametrize("make", [with_dropout, without_dropout])
def test_predictions_do_not_depend_on_the_batch_size(make, inputs: Tensor) -> None:
    model = bw.bayesian(with_drawn_dropout(make()), "delta")
    whole = bw.predict(model, inputs, bw.Categorical(), draws=9, seed=3)
    parts = bw.predict(model, inputs, bw.Categorical(), draws=9, seed=3, batch_size=4)
    torch.testing.assert_close(whole.probabilities, parts.probabilities)
    assert float(whole.epistemic.max()) > 1e-4


def test_training_is_ordinary_dropout(inputs: Tensor) -> None:
    plain, drawn = with_dropout().train(), bw.bayesian(with_drawn_dropout(with_dropout()), "delta").train()
    torch.manual_seed(5)
    expected = plain(inputs)
    torch.manual_seed(5)
    assert torch.equal(drawn(inputs), expected)
    # Without a draw, evaluation is the plain network.
    assert torch.equal(drawn.eval()(inputs), plain.eval()(inputs))


def test_inserted_dropout_spares_the_inputs_and_the_original(inputs: Tensor) -> None:
    net = without_dropout()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    lifted = with_drawn_dropout(net, 0.2)
    places = [name for name, module in lifted.named_modules() if isinstance(module, DrawnDropout)]
    assert places == ["2.input_dropout"]
    assert list(net.state_dict()) == list(before)
    assert torch.equal(net(inputs), without_dropout()(inputs))


def test_bad_input() -> None:
    with pytest.raises(bw.SettingError, match=r"p = 1\.5"):
        DrawnDropout(1.5)
    with pytest.raises(bw.NetworkError, match="no dropout"):
        with_drawn_dropout(nn.Linear(3, 2))


def test_drawn_dropout_acts_in_transformers_too() -> None:
    """torch's fused path would skip it in evaluation mode."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    net = nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 3))
    model = bw.bayesian(with_drawn_dropout(net), "delta")
    found = bw.predict(model, torch.randn(6, 5, 8), bw.Categorical(), draws=10, seed=0)
    assert float(found.epistemic.mean()) > 1e-4


def test_the_mask_of_a_sequence_does_not_depend_on_the_batch() -> None:
    layer = DrawnDropout(0.5)
    layer.seed = torch.tensor(3)
    whole = layer(torch.ones(7, 4, 6))
    assert torch.equal(layer(torch.ones(7, 2, 6)), whole[:, :2])
    assert torch.equal(layer(torch.ones(3, 4, 6)), whole[:3])


def test_the_networks_own_chance_is_kept_unless_another_is_given() -> None:
    assert with_drawn_dropout(with_dropout())[2].p == 0.3
    assert with_drawn_dropout(with_dropout(), 0.6)[2].p == 0.6


def test_masks_and_weights_do_not_depend_on_how_many_are_drawn_together() -> None:
    """Each of the two has noise of its own: the first draws of many are the draws of few, compiled or not."""
    net = nn.Sequential(nn.Linear(4, 7000), nn.ReLU(), nn.Dropout(0.3), nn.Linear(7000, 3))
    model = bw.bayesian(with_drawn_dropout(net), bw.MeanField(initial_std=0.1))
    assert model.layout.size >= LEAST_COUNTED

    def drawn(count: int) -> list[dict[str, Tensor]]:
        return list(model.draws(count, bw.make_generator(5)))

    few, many = drawn(2), drawn(4)
    assert len({int(tensors["2.seed"]) for tensors in many}) == 4
    with native.disabled():
        plain = drawn(2)
    torch.testing.assert_close(few, many[:2], rtol=0, atol=0)
    torch.testing.assert_close(few, plain, rtol=1e-5, atol=1e-6)
