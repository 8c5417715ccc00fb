"""Networks by name, for the shape of a data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import NetworkError, SettingError
from bayeswell.io import build_network, describe_network
from bayeswell.lab.data import DataSet, load_data
from bayeswell.lab.models import MODELS, build_model, default_model
from bayeswell.lab.settings import Code
from bayeswell.prediction import predict
from bayeswell.tables import Preparation
from bayeswell.training import fit

TEXT = ("embedding", "lstm", "transformer")
SMALL = {
    "mlp": {"hidden": [8]},
    "cnn": {"width": 2},
    "lenet5": {"width": 2},
    "resnet18": {"width": 2},
    "embedding": {"embedding": 4},
    "lstm": {"embedding": 4, "width": 3},
    "transformer": {"embedding": 4, "heads": 2, "layers": 1},
}


def images(side: int = 16, count: int = 24) -> DataSet:
    x = np.random.default_rng(0).random((count, 2, side, side))
    return load_data((x, np.arange(count) % 3, x, np.arange(count) % 3))


def reviews(count: int = 24) -> DataSet:
    tokens = torch.randint(2, 11, (count, 6), generator=torch.Generator().manual_seed(0))
    tokens[:, 0] = 0
    pair = (tokens, torch.arange(count) % 2)
    return DataSet("reviews", pair, pair, Preparation(class_names=("no", "yes")), vocabulary=11)


def data_for(name: str) -> DataSet:
    return reviews() if name in TEXT else images()


@pytest.mark.parametrize("name", list(MODELS))
def test_every_network_trains_and_predicts(name: str) -> None:
    data = data_for(name)
    net = build_model(name, data, **SMALL.get(name, {}))
    result = fit(net, data.train, "bbb", data.likelihood, epochs=1, progress=False)
    found = predict(result.model, data.test[0], result.likelihood, draws=3)
    assert found.probabilities.shape == (24, data.outputs)


@pytest.mark.parametrize("name", ["linear", "mlp", "cnn", "lenet5"])
def test_networks_of_torch_layers_are_saved_without_their_class(name: str) -> None:
    net = build_model(name, images())
    described = describe_network(net)
    assert described is not None
    assert repr(build_network(described)) == repr(net)


def test_the_seed_decides_the_weights_and_leaves_the_global_stream_alone() -> None:
    data = load_data("wine")
    torch.manual_seed(3)
    nets = [build_model("mlp", data, seed=seed) for seed in (1, 1, 2)]
    after = torch.rand(3)
    weights = [nn.utils.parameters_to_vector(net.parameters()) for net in nets]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(3))


def test_default_networks() -> None:
    assert default_model(load_data("wine")) == "mlp"
    assert default_model(load_data("digits")) == "cnn"
    assert default_model(images(28)) == "lenet5"
    assert default_model(reviews()) == "lstm"
    net = build_model({"name": "auto", "width": 5}, load_data("digits"))
    assert net.conv1.out_channels == 5


def test_the_likelihood_decides_the_number_of_outputs() -> None:
    gap = load_data("gap")
    likelihood = {"name": "gaussian", "noise": "per_input"}
    assert build_model("linear", gap, likelihood=likelihood)(gap.test[0]).shape == (300, 2)


class Wide(nn.Module):
    def __init__(self, outputs: int, units: int = 4) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(units)
        self.head = nn.Linear(units, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(x))
        return out


def test_classes_functions_and_networks_of_the_user() -> None:
    wine = load_data("wine")
    assert build_model(Wide, wine, units=6)(wine.test[0]).shape[1] == 3
    net = nn.Linear(13, 3)
    assert build_model(net, wine) is net
    made = build_model(lambda input_shape, outputs: nn.Linear(*input_shape, outputs), wine)
    assert (made.in_features, made.out_features) == (13, 3)


def test_code_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "nets.py"
    path.write_text(
        "from torch import nn\n"
        "def net(input_shape, outputs, units=7):\n"
        "    return nn.Sequential(nn.Linear(input_shape[0], units), nn.Linear(units, outputs))\n"
        "def number():\n    return 3\n"
    )
    wine = load_data("wine")
    assert build_model(Code(str(path), "net"), wine, units=5)[0].out_features == 5
    assert build_model({"name": Code(str(path), "net")}, wine)[0].out_features == 7
    with pytest.raises(SettingError, match=r"nets\.py:net has no setting 'unit'; did you mean 'units'"):
        build_model(Code(str(path), "net"), wine, unit=5)
    with pytest.raises(NetworkError, match="gives a int; it must be a torch"):
        build_model(Code(str(path), "number"), wine)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("lenet", {}, "unknown model 'lenet'; did you mean 'lenet5'"),
        ("mlp", {"width": 3}, "has no setting 'width'"),
        ("mlp", {"hidden": [0]}, "`hidden` must be an integer of at least 1, got 0"),
        ("cnn", {"pooling": "sum"}, "`pooling` = 'sum'"),
        ("cnn", {}, r"needs images of 4x4 pixels or more, but the inputs of 'wine' have shape \(13,\)"),
    ],
)
def test_wrong_choices_are_refused(name: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build_model(name, load_data("wine"), **settings)


def test_tokens_and_numbers_are_kept_apart() -> None:
    with pytest.raises(NetworkError, match="are numbers; use 'linear', 'mlp'"):
        build_model("lstm", load_data("wine"))
    with pytest.raises(NetworkError, match="are tokens; use 'embedding', 'lstm', 'transformer'"):
        build_model("mlp", reviews())
    with pytest.raises(SettingError, match="`embedding` = 5 is no multiple of `heads` = 4"):
        build_model({"name": "transformer", "embedding": 5}, reviews())
