"""What users hold pickles, deep-copies and goes through torch.save; what comes back predicts the same, bit for bit."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.lifting import BayesianModule, with_drawn_dropout
from bayeswell.posteriors import Empirical, EmpiricalPosterior
from bayeswell.registry import Registry, settings_of


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4, padding_idx=0)
        self.cell = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.cell(self.embedding(tokens))[0][:, -1])
        return out


def _dense() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(5, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 2), nn.Flatten(), nn.Linear(16, 3)
    )


def _bank() -> BayesianModule:
    model = bw.bayesian(_dense(), posterior="delta")
    return model.with_posterior(Empirical(4), EmpiricalPosterior(model.layout, torch.randn(4, model.layout.size)))


MODELS: dict[str, Callable[[], BayesianModule]] = {
    **{
        f"posterior {name}": lambda name=name: bw.bayesian(_dense(), posterior=name)  # type: ignore[misc]
        for name in bw.POSTERIORS
        if name not in ("empirical", "mixture")
    },
    **{
        f"estimator {name}": lambda name=name: bw.bayesian(_dense().append(nn.Softplus()), estimator=name)  # type: ignore[misc]
        for name in bw.ESTIMATORS
    },
    **{f"prior {name}": lambda name=name: bw.bayesian(_dense(), prior=name) for name in bw.PRIORS},  # type: ignore[misc]
    "bank": _bank,
    "softplus": lambda: bw.bayesian(_dense(), {"name": "mean_field", "parameter": "rho"}),
    "dropout": lambda: bw.bayesian(with_drawn_dropout(_dense(), 0.4), posterior="delta"),
    "convolutional": lambda: bw.bayesian(_convolutional()),
    "recurrent": lambda: bw.bayesian(Recurrent()),
}


def _inputs(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    if kind == "recurrent":
        return torch.randint(0, 7, (4, 6), generator=generator)
    return torch.randn((4, 5, 2, 2) if kind == "convolutional" else (4, 5), generator=generator)


def _predict(model: BayesianModule, inputs: Tensor) -> Tensor:
    return bw.predict(model, inputs, bw.Categorical(), draws=3, seed=7).probabilities


def _torch_saved(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "deepcopy": copy.deepcopy,
    "torch.save": _torch_saved,
}
each_way = pytest.mark.parametrize("way", WAYS)


@each_way
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore:the prior has no closed-form KL")
def test_models(kind: str, way: str) -> None:
    """The copy predicts and trains as the model does, and shares no memory with it."""
    model, inputs = MODELS[kind](), _inputs(kind)
    before = _predict(model, inputs)
    copied = WAYS[way](model)
    assert torch.equal(_predict(copied, inputs), before)
    assert repr(copied) == repr(model)
    assert str(copied.describe()) == str(model.describe())
    assert copied.describe() == WAYS[way](model.describe())
    if kind != "bank":
        losses = []
        for one in (model, copied):
            torch.manual_seed(2)  # for the masks of dropout in training
            objective = bw.ELBO(bw.Categorical(), dataset_size=20)
            terms = objective(one, inputs, torch.tensor([0, 1, 2, 0]), generator=torch.Generator().manual_seed(1))
            terms.total.backward()
            losses.append((terms.total, one.posterior.mean.grad))
        assert torch.equal(losses[0][0], losses[1][0])
        assert torch.equal(losses[0][1], losses[1][1])
    with torch.no_grad():
        for tensor in (*copied.parameters(), *copied.posterior.buffers()):
            tensor.zero_()
    # Of drawn dropout nothing is kept between predictions, and BatchNorm has seen one more batch.
    assert kind == "convolutional" or torch.equal(_predict(model, inputs), before)
    assert not torch.equal(_predict(copied, inputs), before)


def test_a_state_can_be_loaded_into_the_copy() -> None:
    """What a prior derives from its state is derived again, in the copy as in the model."""
    narrow, wide = (bw.bayesian(_dense(), prior={"name": "normal", "std": std}) for std in (0.3, 2.0))
    copied = pickle.loads(pickle.dumps(narrow))
    copied.load_state_dict(wide.state_dict())
    mean = wide.posterior.mean_vector().detach()
    assert torch.equal(copied.prior.log_prob(mean), wide.prior.log_prob(mean))
    assert torch.equal(copied.prior.inverse_variance, wide.prior.inverse_variance)
    assert copied.prior.inverse_variance != narrow.prior.inverse_variance


@each_way
def test_two_that_share_a_network_go_on_sharing_it(way: str) -> None:
    first = bw.bayesian(_dense())
    second = first.with_posterior(first.posterior_part, copy.deepcopy(first.posterior))
    one, other = WAYS[way]((first, second))
    assert one.net is other.net
    assert one.guarded_by is other.guarded_by


@pytest.mark.parametrize("method", ["bbb", "swag", "sgld", "deep-ensemble", "mc-dropout", "laplace"])
@pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")  # of so short a training
def test_results(method: str) -> None:
    x = torch.randn(24, 5)
    result = bw.fit(_dense(), (x, torch.arange(24) % 3), method=method, epochs=8, batch_size=12, seed=1, progress=False)
    before = result.predict(x, draws=3).probabilities
    for way in WAYS.values():
        copied = way(result)
        assert torch.equal(copied.predict(x, draws=3).probabilities, before)
        assert copied.histories == result.histories
        assert copied.method == result.method


@pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")  # of so short a training
def test_a_result_whose_prior_was_learned() -> None:
    x, y = torch.randn(24, 5), torch.arange(24) % 3
    first = bw.fit(_dense(), (x, y), "bbb", epochs=2, seed=1, progress=False)
    result = bw.fit(first, (x, y), prior="posterior", epochs=2, seed=1, progress=False)
    assert "prior=posterior" in repr(result.model)
    for way in WAYS.values():
        copied = way(result)
        assert torch.equal(copied.predict(x, draws=3).probabilities, result.predict(x, draws=3).probabilities)
        assert torch.equal(copied.model.prior.std_vector(), result.model.prior.std_vector())


@each_way
@pytest.mark.parametrize("likelihood", ["categorical", "gaussian"])
def test_predictions_and_predictors(likelihood: str, way: str, tmp_path: Any) -> None:
    model, x = bw.bayesian(_dense()), torch.randn(4, 5)
    bw.save(tmp_path / "model", model, likelihood)
    predictor = bw.load(tmp_path / "model")
    prediction = predictor.predict(x, draws=3, keep_samples=True)
    for copied in (WAYS[way](predictor).predict(x, draws=3, keep_samples=True), WAYS[way](prediction)):
        assert torch.equal(copied.samples, prediction.samples)


REGISTRIES = [value for name in dir(bw) if name.isupper() and isinstance(value := getattr(bw, name), Registry)]


@each_way
def test_parts_and_methods(way: str) -> None:
    """Every registered part, and every named method."""
    parts = [registry.resolve(name) for registry in REGISTRIES for name in registry]
    assert len(parts) > 50
    for part in parts:
        assert settings_of(WAYS[way](part)) == settings_of(part)
    for method in bw.METHODS.values():
        assert WAYS[way](method) == method


def _in_a_worker(given: tuple[BayesianModule, Tensor]) -> Tensor:
    return _predict(*given)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_in_another_process(start: str) -> None:
    """As joblib hands models to its workers; a forked one inherits no guard that a thread of its parent holds."""
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {start} here")
    model, inputs = bw.bayesian(_dense()), torch.randn(4, 5)
    context = multiprocessing.get_context(start)
    with context.Pool(1) as pool:
        found = pool.apply_async(_in_a_worker, ((model, inputs),)).get(timeout=120)
    assert torch.equal(found, _predict(model, inputs))
