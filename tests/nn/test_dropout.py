"""Drawn dropout: one mask for each draw, the distribution of dropout, and independence of the batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import NetworkError, SettingError
from bayeswell.nn import BayesianModule, DrawnDropout, added_dropout, bayesian, draw_masks, drawn_dropout
from helpers import assert_mean_close
from networks import Transformer


def with_dropout() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Dropout(0.3), nn.Linear(30, 3))


def without_dropout() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))


def outputs(model: BayesianModule, inputs: Tensor, seed: int) -> Tensor:
    masks = draw_masks(model.net, torch.Generator().manual_seed(seed))
    weights = model.layout.unflatten(model.posterior.mean.detach())
    return model.call({**weights, **masks}, inputs)


def mask_of(layer: DrawnDropout, seed: int, x: Tensor) -> Tensor:
    layer.seed = torch.tensor(seed)
    return layer(x)


def test_every_example_of_a_draw_has_the_same_mask() -> None:
    net = with_dropout()
    model, inputs = bayesian(drawn_dropout(net), "delta").eval(), torch.randn(11, 4)
    model.net[3].register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()))
    seen: list[Tensor] = []
    outputs(model, inputs, 1)
    hidden = torch.relu(net[0](inputs)).detach()
    for unit in range(30):
        factors = (seen[0] / hidden)[hidden[:, unit] > 0, unit]
        assert bool(((factors == 0) | ((factors - 1 / 0.7).abs() < 1e-5)).all())
        assert len(factors) == 0 or float(factors.max() - factors.min()) < 1e-5


def test_units_are_kept_with_probability_one_minus_p() -> None:
    layer = DrawnDropout(0.3)
    masks = torch.stack([mask_of(layer, seed, torch.ones(1, 6, dtype=torch.float64))[0] for seed in range(4000)])
    assert_mean_close(masks, torch.ones(6, dtype=torch.float64))
    assert_mean_close((masks == 0).double(), torch.full((6,), 0.3, dtype=torch.float64))


def test_channel_masks_cover_whole_maps() -> None:
    found = mask_of(DrawnDropout(0.5, channels=True), 7, torch.ones(2, 8, 3, 3)).flatten(2)
    assert torch.equal(found.amin(-1), found.amax(-1))
    assert 0 < int((found[0, :, 0] == 0).sum()) < 8


def test_masks_of_sequences_do_not_depend_on_batch_or_position() -> None:
    layer = DrawnDropout(0.5)
    whole = mask_of(layer, 3, torch.ones(7, 4, 6))
    assert torch.equal(layer(torch.ones(7, 2, 6)), whole[:, :2])
    assert torch.equal(layer(torch.ones(3, 4, 6)), whole[:3])


@pytest.mark.parametrize("make", [with_dropout, without_dropout])
def test_masks_are_a_function_of_the_generator(make: Callable[[], nn.Module]) -> None:
    model, inputs = bayesian(drawn_dropout(make()), "delta").eval(), torch.randn(11, 4)
    first = outputs(model, inputs, 5)
    torch.manual_seed(9)
    torch.testing.assert_close(torch.cat([outputs(model, inputs[:4], 5), outputs(model, inputs[4:], 5)]), first)
    assert not torch.allclose(outputs(model, inputs, 6), first)


def test_training_is_ordinary_dropout() -> None:
    plain, model, inputs = with_dropout().train(), bayesian(drawn_dropout(with_dropout()), "delta"), torch.randn(11, 4)
    torch.manual_seed(5)
    expected = plain(inputs)
    torch.manual_seed(5)
    torch.testing.assert_close(model(inputs), expected)
    torch.testing.assert_close(model.eval()(inputs), plain.eval()(inputs))


def test_drawn_dropout_acts_inside_transformers() -> None:
    """torch's fused path in evaluation mode would skip it."""
    model, inputs = bayesian(drawn_dropout(Transformer(), 0.3), "delta").eval(), torch.randn(6, 5, 8)
    with torch.no_grad():
        assert not torch.allclose(outputs(model, inputs, 1), outputs(model, inputs, 2))
        assert torch.equal(outputs(model, inputs, 1), outputs(model, inputs, 1))


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_drawn_dropout_acts_on_padded_sequences() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.3, batch_first=True)
    net, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True), torch.randn(4, 6, 8)
    padded = torch.arange(6).expand(4, 6) > 3
    model = bayesian(drawn_dropout(net), "delta", output=lambda outputs: outputs[:, :4]).eval()
    weights = model.layout.unflatten(model.posterior.mean.detach())
    inputs = {"src": x, "src_key_padding_mask": padded}
    with torch.no_grad():
        torch.testing.assert_close(model.call(weights, inputs), net.eval()(**inputs)[:, :4])
        masks = draw_masks(model.net, torch.Generator().manual_seed(1))
        assert not torch.allclose(model.call({**weights, **masks}, inputs), model.call(weights, inputs))


def test_dropout_is_added_before_all_linear_layers_but_the_first() -> None:
    net = without_dropout()
    names = list(net.state_dict())
    dropped = drawn_dropout(net, 0.2)
    assert [name for name, module in dropped.named_modules() if isinstance(module, DrawnDropout)] == ["2.input_dropout"]
    assert [layer.p for layer in added_dropout(dropped)] == [0.2]
    assert list(net.state_dict()) == list(dropped.state_dict()) == names
    assert not added_dropout(drawn_dropout(with_dropout()))


def test_own_probability_stays_unless_another_is_given() -> None:
    assert drawn_dropout(with_dropout())[2].p == 0.3
    assert drawn_dropout(with_dropout(), 0.6)[2].p == 0.6


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match=r"1\.5"):
        DrawnDropout(1.5)
    with pytest.raises(NetworkError, match="no dropout"):
        drawn_dropout(nn.Linear(3, 2))
