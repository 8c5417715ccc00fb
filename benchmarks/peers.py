"""The same steps and predictions by other libraries, each as its documentation shows, on the same networks.

A library that is not installed, or does not support a network, raises when its case is built; the record keeps the
reason. Libraries that take an optimizer of torch get fused Adam, as ours do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .nets import Net
from .ours import DRAWS
from .timing import Case, Step

_LEARNING_RATE = 3e-3


class Cannot(Exception):
    """The library does not support this network."""


@dataclass(frozen=True)
class Peer:
    """Training step and prediction of a library; None if it has none."""

    name: str
    package: str
    step: Callable[[Net], Step] | None
    prediction: Callable[[Net], Step] | None


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), _LEARNING_RATE, fused=True)


def _step(net: Net, model: nn.Module, divergence: Callable[[int], Tensor]) -> Step:
    """Cross-entropy plus the divergence of the library."""
    optimizer, data = _adam(model.train()), net.data()

    def step() -> None:
        inputs, targets = next(data)
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(model(inputs), targets) + divergence(len(targets))
        loss.backward()
        optimizer.step()

    return step


def _passes(net: Net, model: nn.Module) -> Step:
    """Draws one after another, with averaged probabilities, as all these libraries document it."""
    model.eval()
    return _averaged(lambda inputs: model(inputs), net)


def _averaged(draw: Callable[[Tensor], Tensor], net: Net) -> Step:
    inputs = net.inputs(net.predict_batch)

    def predict() -> Tensor:
        with torch.inference_mode():
            total = draw(inputs).softmax(-1)
            for _ in range(DRAWS - 1):
                total += draw(inputs).softmax(-1)
            return total / DRAWS

    return predict


def _replaced(model: nn.Module, replace: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
    """Exchange layers in place."""
    for name, child in list(model.named_children()):
        made = replace(child)
        if made is None:
            _replaced(child, replace)
        else:
            setattr(model, name, made)
    return model


def _torchbnn(net: Net) -> tuple[nn.Module, Callable[[int], Tensor]]:
    import torchbnn

    if net.vocabulary is not None:
        raise Cannot("torchbnn has no embedding")

    def replace(layer: nn.Module) -> nn.Module | None:
        if isinstance(layer, nn.Linear):
            return torchbnn.BayesLinear(0, 0.1, layer.in_features, layer.out_features, layer.bias is not None)
        if isinstance(layer, nn.Conv2d):
            return torchbnn.BayesConv2d(
                0, 0.1, layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding,
                layer.dilation, layer.groups, layer.bias is not None,
            )  # fmt: skip
        return None

    model = _replaced(net.build(), replace)
    loss = torchbnn.BKLLoss(reduction="sum", last_layer_only=False)
    return model, lambda batch: loss(model).sum() / net.dataset_size


def _bayesian_torch(net: Net, kind: str) -> tuple[nn.Module, Callable[[int], Tensor]]:
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    model = net.build()
    settings = {
        "prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -3.0, "type": kind,
        "moped_enable": False, "moped_delta": 0.5,
    }  # fmt: skip
    dnn_to_bnn(model, settings)
    return model, lambda batch: get_kl_loss(model) / batch


def _torchbayesian(net: Net) -> tuple[nn.Module, Callable[[int], Tensor]]:
    from torchbayesian import bnn

    model: Any = bnn.BayesianModule(net.build())
    return model, lambda batch: model.kl_divergence() / net.dataset_size


def _blitz(net: Net) -> tuple[nn.Module, Callable[[int], Tensor]]:
    from blitz.losses import kl_divergence_from_nn
    from blitz.modules import BayesianConv2d, BayesianEmbedding, BayesianLinear

    def replace(layer: nn.Module) -> nn.Module | None:
        if isinstance(layer, nn.Linear):
            return BayesianLinear(layer.in_features, layer.out_features, bias=layer.bias is not None)
        if isinstance(layer, nn.Conv2d):
            return BayesianConv2d(
                layer.in_channels, layer.out_channels, layer.kernel_size, layer.groups, layer.stride, layer.padding,
                layer.dilation, layer.bias is not None,
            )  # fmt: skip
        if isinstance(layer, nn.Embedding):
            return BayesianEmbedding(layer.num_embeddings, layer.embedding_dim)
        return None

    model = _replaced(net.build(), replace)
    return model, lambda batch: kl_divergence_from_nn(model) / net.dataset_size


def _ivon(net: Net) -> tuple[nn.Module, Any]:
    import ivon

    model = net.build()
    return model, ivon.IVON(model.parameters(), lr=0.1, ess=net.dataset_size)


def _ivon_step(net: Net) -> Step:
    model, optimizer = _ivon(net)
    data = net.data()
    model.train()

    def step() -> None:
        inputs, targets = next(data)
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def _ivon_prediction(net: Net) -> Step:
    model, optimizer = _ivon(net)
    model.eval()

    def draw(inputs: Tensor) -> Tensor:
        with optimizer.sampled_params():
            return model(inputs)

    return _averaged(draw, net)


def _posteriors(net: Net) -> tuple[Any, nn.Module, dict[str, Tensor], Callable[..., Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import posteriors

    model = net.build()
    parameters = {name: value.detach().clone() for name, value in model.named_parameters()}

    def log_posterior(own: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, targets = batch
        outputs = torch.func.functional_call(model, own, (inputs,))
        prior = posteriors.diag_normal_log_prob(own) / net.dataset_size
        return -cross_entropy(outputs, targets) + prior, torch.tensor([])

    return posteriors, model, parameters, log_posterior


def _posteriors_step(net: Net, kind: str) -> Step:
    posteriors, model, parameters, log_posterior = _posteriors(net)
    model.train()
    transform = _transform(posteriors, kind, log_posterior, net)
    state, data = transform.init(parameters), net.data()

    def step() -> None:
        nonlocal state
        state, _ = transform.update(state, next(data), inplace=kind == "sgld")

    return step


def _transform(posteriors: Any, kind: str, log_posterior: Callable[..., Any], net: Net) -> Any:
    if kind == "sgld":
        return posteriors.sgmcmc.sgld.build(log_posterior, lr=1e-3, temperature=1 / net.dataset_size)
    import torchopt

    return posteriors.vi.diag.build(
        log_posterior, torchopt.adam(lr=_LEARNING_RATE), temperature=1 / net.dataset_size, init_log_sds=-3.0
    )


def _posteriors_prediction(net: Net, kind: str) -> Step:
    posteriors, model, parameters, log_posterior = _posteriors(net)
    model.eval()
    state = _transform(posteriors, kind, log_posterior, net).init(parameters)
    kept = [{name: value.clone() for name, value in parameters.items()} for _ in range(DRAWS if kind == "sgld" else 0)]
    position = 0

    def draw(inputs: Tensor) -> Tensor:
        nonlocal position
        position += 1
        own = kept[position % DRAWS] if kept else posteriors.vi.diag.sample(state)
        return torch.func.functional_call(model, own, (inputs,))

    return _averaged(draw, net)


def _laplace_prediction(net: Net) -> Step:
    from laplace import Laplace

    data = net.data()
    batches = [next(data) for _ in range(2)]
    inputs = torch.cat([batch[0] for batch in batches])
    targets = torch.cat([batch[1] for batch in batches])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=net.batch)
    fitted = Laplace(net.build().eval(), "classification", subset_of_weights="last_layer", hessian_structure="kron")
    fitted.fit(loader)
    shown = net.inputs(net.predict_batch)
    return lambda: fitted(shown, pred_type="glm", link_approx="mc", n_samples=DRAWS)


PEERS = (
    Peer("ivon", "ivon-opt", _ivon_step, _ivon_prediction),
    Peer("posteriors sgld", "posteriors", lambda net: _posteriors_step(net, "sgld"),
         lambda net: _posteriors_prediction(net, "sgld")),
    Peer("torchbnn", "torchbnn", lambda net: _step(net, *_torchbnn(net)), lambda net: _passes(net, _torchbnn(net)[0])),
    Peer("bayesian-torch", "bayesian-torch", lambda net: _step(net, *_bayesian_torch(net, "Reparameterization")),
         lambda net: _passes(net, _bayesian_torch(net, "Reparameterization")[0])),
    Peer("bayesian-torch flipout", "bayesian-torch", lambda net: _step(net, *_bayesian_torch(net, "Flipout")),
         lambda net: _passes(net, _bayesian_torch(net, "Flipout")[0])),
    Peer("torchbayesian", "torchbayesian", lambda net: _step(net, *_torchbayesian(net)),
         lambda net: _passes(net, _torchbayesian(net)[0])),
    Peer("blitz", "blitz-bayesian-pytorch", lambda net: _step(net, *_blitz(net)),
         lambda net: _passes(net, _blitz(net)[0])),
    Peer("posteriors vi", "posteriors", lambda net: _posteriors_step(net, "vi"),
         lambda net: _posteriors_prediction(net, "vi")),
    Peer("laplace-torch last layer", "laplace-torch", None, _laplace_prediction),
)  # fmt: skip

PREFIX = "peer: "
"""Marks the cases of other libraries."""


def step_cases(net: Net) -> list[Case]:
    return [Case(PREFIX + peer.name, _quietly(peer.step, net)) for peer in PEERS if peer.step is not None]


def prediction_cases(net: Net) -> list[Case]:
    return [
        Case(PREFIX + p.name, _quietly(p.prediction, net), calls=1, settle=0) for p in PEERS if p.prediction is not None
    ]


def _quietly(make: Callable[[Net], Step], net: Net) -> Callable[[], Step]:
    def build() -> Step:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make(net)

    return build
