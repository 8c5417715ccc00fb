from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from bayeswell.core.errors import FileError, SettingError
from bayeswell.core.random import make_generator
from bayeswell.io import load_folder, load_model, save_adapter, save_model
from bayeswell.likelihoods import LIKELIHOODS, Categorical, Gaussian
from bayeswell.methods import find_method
from bayeswell.nn import bayesian, draw_masks, drawn_dropout
from bayeswell.posteriors import Empirical, MeanField, Mixture, gaussian_posterior
from bayeswell.priors import PosteriorPrior
from bayeswell.tables import Preparation

INPUTS = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2, bias=False)).to(dtype)


def moved(model):
    """Change all numbers of a model, as training does."""
    generator = make_generator(3)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=generator).to(tensor))
    return model


def predictions(model, inputs=INPUTS, draws=3):
    model.eval()
    generator = make_generator(0)
    with torch.no_grad():
        return torch.stack([model.call(weights, inputs) for weights in model.posterior.draws(draws, generator)])


def assert_same(model, loaded, inputs=INPUTS):
    assert torch.equal(predictions(model, inputs), predictions(loaded, inputs))
    state = loaded.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert loaded.prediction == model.prediction


@pytest.mark.parametrize(
    "posterior",
    [
        *("delta", "mean_field", "shared_std", "matrix_normal", "full"),
        {"name": "mean_field", "parameter": "rho"},
        {"name": "k_tied", "rank": 3},
        {"name": "low_rank", "rank": 3},
    ],
    ids=str,
)
def test_posteriors_round_trip(tmp_path, posterior):
    model = moved(bayesian(net(), posterior, generator=make_generator(0)))
    save_model(tmp_path / "m", model, Categorical())
    loaded = load_model(tmp_path / "m").model
    assert loaded.posterior.part == model.posterior.part
    assert_same(model, loaded)


@pytest.mark.parametrize(
    "prior",
    [
        *("normal", "xavier", "scale_mixture", "laplace"),
        {"name": "normal", "std": 0.3, "center": "network"},
        {"0.*": {"name": "normal", "std": 2.0}, "*": "laplace"},
        lambda site: {"name": "normal", "std": 1.0 if site.name.endswith("bias") else 0.5},
    ],
    ids=["normal", "xavier", "mixture", "laplace", "center", "pattern", "function"],
)
def test_priors_round_trip(tmp_path, prior):
    model = bayesian(net(), prior=prior)
    save_model(tmp_path / "m", model, Categorical())
    loaded = load_model(tmp_path / "m").model
    assert_same(model, loaded)
    weights = torch.randn(2, model.layout.size)
    assert torch.equal(loaded.prior.log_prob(weights), model.prior.log_prob(weights))


def test_trained_posterior_as_prior_round_trips(tmp_path):
    earlier = moved(bayesian(net(), "k_tied"))
    model = moved(bayesian(net(), "mean_field").with_prior(PosteriorPrior(earlier.posterior)))
    save_model(tmp_path / "m", model, Categorical())
    loaded = load_model(tmp_path / "m").model
    weights = torch.randn(2, model.layout.size)
    assert torch.equal(loaded.prior.log_prob(weights), model.prior.log_prob(weights))
    assert_same(model, loaded)


def test_sets_of_networks_round_trip(tmp_path):
    model = bayesian(net(), "delta")
    size = model.layout.size
    statistics = {"1.running_mean": torch.rand(4, 4), "1.num_batches_tracked": torch.arange(4)}
    bank = Empirical(model.layout, torch.randn(4, size), statistics)
    parts = [gaussian_posterior(model.layout, torch.randn(size), torch.rand(size)) for _ in range(2)]
    factor = gaussian_posterior(model.layout, torch.randn(size), torch.rand(size), torch.randn(size, 3))
    for posterior in (bank, Mixture(parts), factor):
        other = model.with_posterior(posterior)
        save_model(tmp_path / posterior.part.name, other, Categorical())
        assert_same(other, load_model(tmp_path / posterior.part.name).model)


def test_everything_beside_the_model_round_trips(tmp_path):
    model = bayesian(net(torch.float64), "delta", prediction="mean", other_params="frozen")
    likelihood = Gaussian("learned")
    with torch.no_grad():
        for parameter in likelihood.parameters():
            parameter.fill_(-1.25)
    preparation = Preparation.fit(INPUTS, torch.randn(5, 2), standardize=True)
    method = find_method("f-swag").changed(lr=0.01)
    save_model(
        tmp_path / "m",
        model,
        likelihood,
        preparation=preparation,
        method=method,
        extra={"calibration": {"factor": 1.5}},
    )
    loaded = load_model(tmp_path / "m")
    assert loaded.extra == {"calibration": {"factor": 1.5}}
    assert loaded.method == method
    assert torch.equal(loaded.preparation.inputs(INPUTS), preparation.inputs(INPUTS))
    for old, new in zip(likelihood.parameters(), loaded.likelihood.parameters(), strict=True):
        assert torch.equal(old, new)
    assert loaded.model.selection.other_params == "frozen"
    assert_same(model, loaded.model, INPUTS.double())


@pytest.mark.parametrize("network", [net(), nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 2))], ids=str)
def test_drawn_dropout_round_trips(tmp_path, network):
    model = bayesian(drawn_dropout(network, 0.2), "delta")
    save_model(tmp_path / "m", model, Categorical())
    loaded = (
        load_model(tmp_path / "m", network).model if "Dropout" not in str(network) else load_model(tmp_path / "m").model
    )
    weights = model.layout.unflatten(model.posterior.mean.detach())
    first, second = (
        each.eval().call({**weights, **draw_masks(each.net, make_generator(1))}, INPUTS) for each in (model, loaded)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, model.call(weights, INPUTS))


def test_convolutions_with_pooling_are_rebuilt(tmp_path):
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2))
    model = moved(bayesian(network, where="last_layer"))
    save_model(tmp_path / "m", model, Categorical())
    assert_same(model, load_model(tmp_path / "m").model, torch.randn(3, 1, 6, 6))


class Custom(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.first, self.last = nn.Linear(3, width), nn.Linear(width, 2)

    def forward(self, x):
        return {"hidden": (hidden := self.first(x).relu()), "out": self.last(hidden)}


def test_custom_networks_are_given_again(tmp_path):
    output = lambda returned: returned["out"]  # noqa: E731
    model = moved(bayesian(Custom(), output=output))
    save_model(tmp_path / "m", model, Categorical())
    assert_same(model, load_model(tmp_path / "m", Custom(), output=output).model)
    with pytest.raises(FileError, match=r"load it with output=\.\.\."):
        load_model(tmp_path / "m", Custom())
    with pytest.raises(FileError, match=r"Custom.*net=Custom\(\.\.\.\)"):
        load_model(tmp_path / "m", output=output)
    with pytest.raises(FileError, match=r"'first.weight' was saved with shape \[4, 3\], `net` has \[5, 3\]"):
        load_model(tmp_path / "m", Custom(5), output=output)


@dataclass(frozen=True)
class Narrow(MeanField):
    scale: float = 0.5

    name: ClassVar[str] = "narrow"


def laplace_noise(outputs):
    return torch.distributions.Laplace(outputs, 1.0)


def test_custom_parts_are_given_again(tmp_path):
    model = moved(bayesian(net(), Narrow(scale=0.1)))
    save_model(tmp_path / "m", model, LIKELIHOODS.resolve(laplace_noise))
    loaded = load_model(tmp_path / "m", parts=[Narrow, laplace_noise])
    assert loaded.model.posterior.part == Narrow(scale=0.1)
    assert_same(model, loaded.model)
    outputs, targets = torch.randn(5, 2), torch.randn(5, 2)
    expected = -laplace_noise(outputs).log_prob(targets).sum(1)
    torch.testing.assert_close(loaded.likelihood.nll(outputs, targets), expected)
    for parts in ([], [Narrow], [laplace_noise]):
        with pytest.raises(FileError, match=r"parts=\[\.\.\.\]"):
            load_model(tmp_path / "m", parts=parts)


def adapted():
    network = net()
    for parameter in network[0].parameters():
        parameter.requires_grad_(False)
    return network


def test_adapters_leave_out_the_frozen_base(tmp_path):
    model = moved(bayesian(adapted(), where=["3.weight"]))
    with torch.no_grad():
        for name, parameter in adapted()[0].named_parameters():
            model.net[0].get_parameter(name).copy_(parameter)
    save_adapter(tmp_path / "m", model, Categorical())
    assert not any(name.startswith("model.net.0.") for name in load_folder(tmp_path / "m")[0])
    assert_same(model, load_model(tmp_path / "m", adapted()).model)
    other = adapted()
    with torch.no_grad():
        other[0].weight[0, 0] += 1e-3
    with pytest.raises(FileError, match="frozen parameters"):
        load_model(tmp_path / "m", other)
    with pytest.raises(SettingError, match="no frozen parameters"):
        save_adapter(tmp_path / "n", bayesian(net()), Categorical())


def test_other_folders_are_no_models(tmp_path):
    from bayeswell.io import save_folder

    save_folder(tmp_path / "m", {}, {"something": 1})
    with pytest.raises(FileError, match="not a saved model"):
        load_model(tmp_path / "m")


def test_folders_without_a_model_are_named(tmp_path):
    save_model(tmp_path / "run" / "model", bayesian(net()), Categorical())
    with pytest.raises(FileError, match=r"run' is the folder of a run; its model is '.*run/model'"):
        load_model(tmp_path / "run")
    with pytest.raises(FileError, match="nope': there is no such folder"):
        load_model(tmp_path / "nope")
