"""The same problems by other libraries, each with the settings that its own README shows, and nothing tuned.

Every adapter trains a network and returns the function from inputs to predicted probabilities. All get the epochs and
the batch size that ours get, and 100 draws where they draw. One that is not installed is left out, with a word.
"""

from __future__ import annotations

import importlib.metadata
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .problems import Loaded, load
from .runs import DRAWS, class_scores

PREFIX = "peer: "
PROBLEMS = ("digits", "breast_cancer", "wine")
_RATE = 1e-3
"""Of torch's Adam, its default, where a README names no rate."""

Predict = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Peer:
    """A library: its package on PyPI, and how it is used."""

    package: str
    fit: Callable[[Loaded, int], Predict]
    settings: str


def run(name: str, problem: str, seed: int, epochs: int | None = None) -> dict[str, Any]:
    """Train and measure one library on one problem."""
    torch.set_num_threads(1)
    at = load(problem, seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        predict = PEERS[name.removeprefix(PREFIX)].fit(at, epochs or at.problem.epochs)
        seconds = time.perf_counter() - began
        with torch.no_grad():
            scores = class_scores(lambda inputs: predict(inputs).detach(), at)
    return {**scores, "seconds": seconds, "warnings": [], "version": version(name)}


def names() -> list[str]:
    """Every library as a method's name."""
    return [PREFIX + name for name in PEERS]


def version(name: str) -> str | None:
    """Of the installed package; None: it is not there."""
    try:
        return importlib.metadata.version(PEERS[name.removeprefix(PREFIX)].package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _batches(at: Loaded, epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
    inputs, targets = at.train
    size = _batch_size(at)
    for _ in range(epochs):
        for own in torch.randperm(len(targets)).split(size):
            yield inputs[own], targets[own]


def _batch_size(at: Loaded) -> int:
    """As ``fit`` chooses it: 100, or a fiftieth of fewer data, but 16 at least."""
    return at.problem.batch_size or min(100, max(16, len(at.train[1]) // 50))


def _train(at: Loaded, epochs: int, model: nn.Module, rate: float, divergence: Callable[[int], Tensor | float]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for inputs, targets in _batches(at, epochs):
        optimizer.zero_grad()
        (cross_entropy(model(inputs), targets) + divergence(len(targets))).backward()
        optimizer.step()
    model.eval()


def _averaged(draw: Callable[[Tensor], Tensor]) -> Predict:
    def predict(inputs: Tensor) -> Tensor:
        return torch.stack([draw(inputs).softmax(-1) for _ in range(DRAWS)]).mean(0)

    return predict


def _exchanged(model: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """The network with its dense layers exchanged, in place."""
    for name, child in list(model.named_children()):
        setattr(model, name, make(child) if isinstance(child, nn.Linear) else _exchanged(child, make))
    return model


def _adam(at: Loaded, epochs: int) -> Predict:
    model = at.net()
    _train(at, epochs, model, _RATE, lambda batch: 0.0)
    return lambda inputs: model(inputs).softmax(-1)


def _torchbnn(at: Loaded, epochs: int) -> Predict:
    import torchbnn

    model = _exchanged(at.net(), lambda one: torchbnn.BayesLinear(0, 0.1, one.in_features, one.out_features))
    loss = torchbnn.BKLLoss(reduction="mean", last_layer_only=False)
    _train(at, epochs, model, 0.01, lambda batch: 0.01 * loss(model).sum())
    return _averaged(model)


def _bayesian_torch(at: Loaded, epochs: int) -> Predict:
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    model = at.net()
    dnn_to_bnn(model, {
        "prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -3.0,
        "type": "Reparameterization", "moped_enable": False, "moped_delta": 0.5,
    })  # fmt: skip
    _train(at, epochs, model, _RATE, lambda batch: get_kl_loss(model) / batch)
    return _averaged(model)


def _blitz(at: Loaded, epochs: int) -> Predict:
    from blitz.losses import kl_divergence_from_nn
    from blitz.modules import BayesianLinear

    model = _exchanged(at.net(), lambda one: BayesianLinear(one.in_features, one.out_features))
    size = len(at.train[1])
    # sample_elbo(sample_nbr=3, complexity_cost_weight=1 / N) written out: the mean over three draws.
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for inputs, targets in _batches(at, epochs):
        optimizer.zero_grad()
        draws = [cross_entropy(model(inputs), targets) + kl_divergence_from_nn(model) / size for _ in range(3)]
        (torch.stack(draws).sum() / 3).backward()
        optimizer.step()
    model.eval()
    return _averaged(model)


def _torchbayesian(at: Loaded, epochs: int) -> Predict:
    from torchbayesian import bnn

    model: Any = bnn.BayesianModule(at.net())
    size = len(at.train[1])
    _train(at, epochs, model, _RATE, lambda batch: model.kl_divergence() / size)
    return _averaged(model)


def _ivon(at: Loaded, epochs: int) -> Predict:
    import ivon

    model = at.net()
    optimizer = ivon.IVON(model.parameters(), lr=0.1, ess=len(at.train[1]))
    for inputs, targets in _batches(at, epochs):
        with optimizer.sampled_params(train=True), torch.enable_grad():
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    def draw(inputs: Tensor) -> Tensor:
        with optimizer.sampled_params():
            return model(inputs)  # type: ignore[no-any-return]

    return _averaged(draw)


def _posteriors(at: Loaded, epochs: int) -> Predict:
    import torchopt

    import posteriors

    model, size = at.net(), len(at.train[1])
    parameters = {name: value.detach().clone() for name, value in model.named_parameters()}

    def log_posterior(own: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        outputs = torch.func.functional_call(model, own, (batch[0],))
        return -cross_entropy(outputs, batch[1]) + posteriors.diag_normal_log_prob(own) / size, outputs

    transform = posteriors.vi.diag.build(log_posterior, torchopt.adam(lr=_RATE), temperature=1 / size)
    state = transform.init(parameters)
    for batch in _batches(at, epochs):
        state, _ = transform.update(state, batch)
    return _averaged(lambda inputs: torch.func.functional_call(model, posteriors.vi.diag.sample(state), (inputs,)))


def _laplace(at: Loaded, epochs: int) -> Predict:
    from laplace import Laplace

    model = at.net()
    _train(at, epochs, model, _RATE, lambda batch: 0.0)
    data = torch.utils.data.TensorDataset(*at.train)
    fitted: Any = Laplace(model, "classification", subset_of_weights="all", hessian_structure="diag")
    with torch.enable_grad():
        fitted.fit(torch.utils.data.DataLoader(data, batch_size=_batch_size(at)))
        fitted.optimize_prior_precision(method="marglik", pred_type="glm", link_approx="probit")
    return lambda inputs: torch.cat([_glm(fitted, part) for part in inputs.split(500)])


def _glm(fitted: Any, inputs: Tensor) -> Tensor:
    with torch.enable_grad():
        return fitted(inputs, pred_type="glm", link_approx="probit").detach()  # type: ignore[no-any-return]


PEERS = {
    "Adam": Peer("torch", _adam, "torch's default Adam, no prior: what all of them start from"),
    "laplace-torch": Peer("laplace-torch", _laplace, "after Adam: all weights, diagonal, prior precision by marginal "
                          "likelihood (a README's grid search would need held-out data), probit link"),
    "ivon-opt": Peer("ivon-opt", _ivon, "lr 0.1, ess = N"),
    "torchbnn": Peer("torchbnn", _torchbnn, "prior std 0.1, Adam 0.01, mean KL times 0.01"),
    "bayesian-torch": Peer("bayesian-torch", _bayesian_torch, "prior std 1, rho -3, KL over the batch size"),
    "blitz": Peer("blitz-bayesian-pytorch", _blitz, "Adam 0.01, three draws a step, KL / N"),
    "torchbayesian": Peer("torchbayesian", _torchbayesian, "Adam, KL / N"),
    "posteriors": Peer("posteriors", _posteriors, "diagonal VI, Adam, temperature 1 / N"),
}  # fmt: skip
