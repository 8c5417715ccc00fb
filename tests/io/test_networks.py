from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from bayeswell.core.errors import FileError
from bayeswell.io import build_network, describe_network

LAYERS = [
    nn.Linear(3, 4, bias=False),
    nn.Conv2d(2, 6, 3, stride=2, padding="valid", dilation=2, groups=2, padding_mode="zeros"),
    nn.Conv1d(2, 4, 3, padding="same"),
    nn.ConvTranspose2d(2, 3, 3, output_padding=1, stride=2),
    nn.BatchNorm2d(3, eps=1e-3, momentum=None, affine=False),
    nn.LayerNorm((4, 2), elementwise_affine=False),
    nn.GroupNorm(2, 4),
    nn.InstanceNorm1d(3, affine=True),
    nn.ReLU(inplace=True),
    nn.GELU(approximate="tanh"),
    nn.LeakyReLU(0.3),
    nn.PReLU(3),
    nn.Softmax(dim=-1),
    nn.Tanh(),
    nn.SiLU(),
    nn.Identity(),
    nn.MaxPool2d(2, stride=1, ceil_mode=True),
    nn.AvgPool2d(2, count_include_pad=False),
    nn.AdaptiveAvgPool2d((1, None)),
    nn.Dropout2d(0.3),
    nn.Flatten(start_dim=2),
    nn.Embedding(5, 3, padding_idx=1),
    nn.LSTM(3, 4, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True, proj_size=2),
    nn.GRU(3, 4, bias=False),
    nn.RNN(3, 4, nonlinearity="relu"),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_layer_is_rebuilt(layer):
    rebuilt = build_network(json.loads(json.dumps(describe_network(layer))))
    assert type(rebuilt) is type(layer)
    assert repr(rebuilt) == repr(layer)
    rebuilt.load_state_dict(layer.state_dict())


def test_nested_network_computes_the_same():
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()), nn.Flatten(), nn.Linear(48, 2))
    rebuilt = build_network(json.loads(json.dumps(describe_network(net))))
    rebuilt.load_state_dict(net.state_dict())
    inputs = torch.randn(5, 1, 6, 6)
    assert torch.equal(rebuilt.eval()(inputs), net.eval()(inputs))


class Custom(nn.Linear):
    pass


def hooked():
    net = nn.Linear(2, 2)
    net.register_forward_hook(lambda module, inputs, output: output * 2)
    return net


@pytest.mark.parametrize(
    "net",
    [
        Custom(2, 2),
        nn.Sequential(Custom(2, 2)),
        nn.Sequential(hooked()),
        nn.MultiheadAttention(4, 2),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), nn.ModuleList([nn.ReLU()])),
    ],
    ids=["class", "nested", "hook", "attention", "parametrized", "list"],
)
def test_other_networks_are_not_described(net):
    assert describe_network(net) is None


@pytest.mark.parametrize(
    "described",
    [
        {"layer": "Module"},
        {"layer": "functional", "settings": {}},
        {"layer": "os.system", "settings": {"command": "true"}},
        {"layer": "Linear", "settings": {"in_features": -1, "out_features": 2}},
        {"layer": "Linear", "settings": {"in": 1}},
        {},
    ],
)
def test_forged_descriptions_are_refused(described):
    with pytest.raises(FileError, match="description"):
        build_network(described)
