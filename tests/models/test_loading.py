"""A saved model comes back without its network, bit for bit, or says why not."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell import lifting
from bayeswell.lifting import with_drawn_dropout
from bayeswell.persistence import read_bundle, write_bundle
from bayeswell.posteriors import Empirical, EmpiricalPosterior
from models.test_description import MALICIOUS, Own, random_network
from models.zoo import SMALL, batch, few_blocks, small


def shaken(model: bw.BayesianModule) -> bw.BayesianModule:
    """Every number away from its start, so that a round trip which loses one is seen."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in [*model.posterior.parameters(), *model.net.parameters(), *model.net.buffers()]:
            if value.is_floating_point():
                value += 0.01 * torch.rand(value.shape, generator=generator)
    return model


def settled(net: nn.Module, inputs: Tensor) -> nn.Module:
    """Running statistics of the inputs: without, outputs of a deep network are huge and all alike."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    for module in norms:
        module.momentum = 1.0
    net.train()(inputs)
    for module in norms:
        module.momentum = 0.1
    return net


def drawn_outputs(model: bw.BayesianModule, inputs: Tensor) -> Tensor:
    """Of two draws: unlike probabilities they do not saturate."""
    with torch.no_grad():
        return torch.stack([model.call(weights, inputs) for weights in model.draws(2, bw.make_generator(1))])


def assert_comes_back(model: bw.BayesianModule, inputs: Any, path: Path) -> bw.Predictor:
    """Saved, loaded without a network: the same predictions bitwise, which differ from draw to draw."""
    before = bw.Predictor(model, bw.Categorical()).predict(inputs, draws=3, seed=1, keep_samples=True)
    bw.save(path / "model", model, "categorical")
    loaded = bw.load(path / "model")
    after = loaded.predict(inputs, draws=3, seed=1, keep_samples=True)
    assert torch.equal(before.probabilities, after.probabilities)
    assert torch.equal(before.samples, after.samples)
    assert str(loaded.model.describe()) == str(model.describe())
    return loaded


@few_blocks()
@pytest.mark.parametrize("name", SMALL)
def test_zoo(name: str, tmp_path: Path) -> None:
    model = shaken(bw.bayesian(settled(small(name), batch(name))))
    loaded = assert_comes_back(model, batch(name), tmp_path)
    before, after = (drawn_outputs(one.eval(), batch(name)) for one in (model, loaded.model))
    assert torch.equal(before, after)
    assert bool(after.isfinite().all())
    assert not torch.allclose(after[0], after[1])


@pytest.mark.parametrize("seed", range(8))
def test_random_nests(seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    inner, features = random_network(random.Random(seed), 4, 3)
    net = nn.Sequential(inner, nn.Dropout(0.2), nn.Linear(features, 3))
    posterior = ["mean_field", "k_tied", "delta", "low_rank"][seed % 4]
    assert_comes_back(shaken(bw.bayesian(net, posterior)), torch.randn(6, 4), tmp_path)


def _dropping() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Dropout2d(0.3), nn.Sequential(nn.Flatten(), nn.Dropout(0.1)), nn.Linear(144, 3)
    )


@pytest.mark.parametrize("chance", [None, 0.4])
@pytest.mark.parametrize("kind", ["own", "conv1d", "zoo", "none", "encoder", "zoo without"])
def test_drawn_dropout(kind: str, chance: float | None, tmp_path: Path) -> None:
    """With chances of its own, with one for all, and where dropout was added to a network without any."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.2, batch_first=True)
    net, inputs = {
        "own": (_dropping(), torch.randn(5, 1, 8, 8)),
        "conv1d": (
            nn.Sequential(nn.Conv1d(2, 4, 2), nn.Dropout1d(0.3), nn.Flatten(), nn.Linear(12, 3)), torch.randn(5, 2, 4),
        ),
        "zoo": (small("wide_resnet28_10"), batch("wide_resnet28_10")),
        "none": (nn.Sequential(nn.Linear(4, 90), nn.Tanh(), nn.Sequential(nn.Linear(90, 3))), torch.randn(5, 4)),
        "encoder": (nn.Sequential(encoder, nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 3)), torch.randn(5, 2, 4)),
        "zoo without": (small("resnet10"), batch("resnet10")),
    }[kind]  # fmt: skip
    model = shaken(bw.bayesian(with_drawn_dropout(net, chance), "delta"))
    loaded = assert_comes_back(model, inputs, tmp_path)
    samples = loaded.predict(inputs, draws=3, seed=1, keep_samples=True).samples
    assert not torch.equal(samples[0], samples[1])


def test_chances_changed_by_hand_are_not_lost_unseen(tmp_path: Path) -> None:
    """Two chances in a model of the zoo that has one: that is no model of the zoo, so the network has to be passed."""
    net = small("wide_resnet28_10")
    net.get_submodule("body.0.0.body.dropout").p = 0.45
    model = bw.bayesian(with_drawn_dropout(net), "delta")
    bw.save(tmp_path / "model", model, "categorical")
    with pytest.raises(bw.FileError, match=r"bayeswell.load\(path, net\)"):
        bw.load(tmp_path / "model")
    inputs = batch("wide_resnet28_10")
    before = bw.predict(model, inputs, bw.Categorical(), draws=3, seed=1)
    assert torch.equal(
        before.probabilities, bw.load(tmp_path / "model", net).predict(inputs, draws=3, seed=1).probabilities
    )


def test_partial_bayes_frozen_parameters_shared_modules_and_padding(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shared = nn.Linear(4, 4)
    net = nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Flatten(), shared, nn.Tanh(), shared, nn.Linear(4, 3))
    net[5].bias.requires_grad_(False)
    tokens = torch.tensor([[0], [3], [6], [0], [1]])
    assert_comes_back(shaken(bw.bayesian(net)), tokens, tmp_path)
    assert_comes_back(shaken(bw.bayesian(net, where="last_layer")), tokens, tmp_path)
    loaded = assert_comes_back(shaken(bw.bayesian(net, where=["2.weight", "0"])), tokens, tmp_path)
    assert loaded.model.net[2] is loaded.model.net[4]


def test_dtype(tmp_path: Path) -> None:
    model = shaken(bw.bayesian(small("cnn").double()))
    loaded = assert_comes_back(model, batch("cnn").double(), tmp_path)
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float64}


def test_a_bank(tmp_path: Path) -> None:
    model = bw.bayesian(small("mlp"), "delta")
    weights = torch.randn(4, model.layout.size, generator=torch.Generator().manual_seed(4))
    bank = model.with_posterior(Empirical(4, ()), EmpiricalPosterior(model.layout, weights, {}))
    assert_comes_back(bank, batch("mlp"), tmp_path)


def test_learned_noise_and_saving_again(tmp_path: Path) -> None:
    likelihood = bw.Gaussian("learned", 0.7)
    with torch.no_grad():
        next(likelihood.parameters()).add_(0.31)
    first = bw.Predictor(shaken(bw.bayesian(small("mlp"))), likelihood)
    first.save(tmp_path / "one")
    bw.load(tmp_path / "one").save(tmp_path / "two")
    last = bw.load(tmp_path / "two")
    before, after = (one.predict(batch("mlp"), draws=4) for one in (first, last))
    assert torch.equal(before.variance, after.variance)


def test_how_it_predicts_comes_back(tmp_path: Path) -> None:
    model = shaken(bw.bayesian(small("mlp"), prediction="linearised"))
    assert assert_comes_back(model, batch("mlp"), tmp_path).model.prediction == "linearised"


def test_saving_and_describing_leave_the_model_and_random_numbers_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = bw.bayesian(with_drawn_dropout(_dropping()), "delta")
    state, modules = copy.deepcopy(model.state_dict()), str(model)
    before = torch.get_rng_state()
    bw.save(tmp_path / "model", model, "categorical")
    assert torch.equal(before, torch.get_rng_state())
    assert str(model) == modules
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])
        assert not value.is_meta


# Networks of one's own.


def test_a_class_of_ones_own_has_to_be_passed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = bw.bayesian(Own())
    bw.save(tmp_path / "model", model, "categorical")
    with pytest.raises(bw.FileError, match=r"the class 'Own'.* bayeswell.load\(path, net\)") as caught:
        bw.load(tmp_path / "model")
    assert "\n" not in str(caught.value)
    inputs: Tensor = torch.randn(3, 4)
    before = bw.predict(model, inputs, bw.Categorical(), draws=3, seed=1)
    assert torch.equal(
        before.probabilities, bw.load(tmp_path / "model", Own()).predict(inputs, draws=3, seed=1).probabilities
    )


def test_files_from_before_structure_was_saved(tmp_path: Path) -> None:
    model = bw.bayesian(small("mlp"))
    bw.save(tmp_path / "model", model, "categorical")
    bundle = read_bundle(tmp_path / "model")
    record = {
        key: value for key, value in bundle.record.items() if key not in ("network", "network_class", "prediction")
    }
    write_bundle(tmp_path / "model", bundle.tensors, record)
    with pytest.raises(bw.FileError, match=r"bayeswell.load\(path, net\)"):
        bw.load(tmp_path / "model")
    assert isinstance(lifting.load(tmp_path / "model", small("mlp")), bw.Saved)


# Files made to do harm.


def _alter(path: Path, **changes: Any) -> None:
    bundle = read_bundle(path)
    write_bundle(path, bundle.tensors, {**bundle.record, **changes})


@pytest.mark.parametrize(
    "name", ["os.system", "import", "no mapping", "huge beyond 64 bits", "zoo: deep", "many layers"]
)
def test_a_malicious_description_in_a_whole_file_is_refused(name: str, tmp_path: Path) -> None:
    bw.save(tmp_path / "model", bw.bayesian(small("mlp")), "categorical")
    _alter(tmp_path / "model", network=MALICIOUS[name])
    with pytest.raises(bw.FileError, match="the description of the network cannot be used") as caught:
        bw.load(tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_a_file_cannot_ask_for_more_weights_than_it_holds(tmp_path: Path) -> None:
    bw.save(tmp_path / "model", bw.bayesian(nn.Linear(4, 3), "delta"), "categorical")
    big = {"class": "Linear", "settings": {"in_features": 30_000, "out_features": 30_000}}
    _alter(tmp_path / "model", network={"dtype": "float32", "root": big})
    with pytest.raises(bw.FileError, match=r"it has 900030000 parameters and buffers; allowed are \d\d\b"):
        bw.load(tmp_path / "model")


def test_another_network_in_the_file_is_refused(tmp_path: Path) -> None:
    bw.save(tmp_path / "model", bw.bayesian(nn.Linear(4, 3)), "categorical")
    other = {"class": "Linear", "settings": {"in_features": 3, "out_features": 4}}
    _alter(tmp_path / "model", network={"dtype": "float32", "root": other})
    with pytest.raises(bw.BayeswellError, match="'weight' was saved with shape"):
        bw.load(tmp_path / "model")


def test_way_of_predicting_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    bw.save(tmp_path / "model", bw.bayesian(nn.Linear(4, 3)), "categorical")
    _alter(tmp_path / "model", prediction="os.system")
    with pytest.raises(bw.BayeswellError, match=r"prediction = 'os\.system'"):
        bw.load(tmp_path / "model")
