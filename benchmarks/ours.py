"""Steps and predictions of ordinary training and of bayeswell's named methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import nn

import bayeswell as bw
from bayeswell.methods import build
from bayeswell.nn import BayesianModule
from bayeswell.training import train_step

from .nets import Net
from .timing import Case, Step

PLAIN = "ordinary"
PLAIN_AGAIN = "ordinary, again"
PLAIN_FUSED = "ordinary, fused Adam"
DRAWS = 30
STEPS = ("bbb", "k-tied", "low-rank", "sgvb-lrt", "flipout", "vl", "vl-lazy", "f-bbb", "hwa", "swag", "sgld", "ivon")
STEPS_LARGE = ("bbb", "k-tied", "sgld")
PREDICTIONS = ("bbb", "k-tied", "vl", "laplace", "swag")
TRAINED = ("laplace", "swag")
CYCLES = {"vl-lazy": 4}


def plain_step(net: Net, fused: bool = False) -> Step:
    model, data = net.build().train(), net.data()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, fused=fused or None)

    def step() -> None:
        inputs, targets = next(data)
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def method_step(name: str, net: Net) -> Step:
    """One step of a named method with its defaults, as the training loop takes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = build(
            bw.find_method(name),
            net.build(),
            "categorical",
            dataset_size=net.dataset_size,
            batches=net.batches,
            epochs=100,
            generator=bw.make_generator(0),
        )
    state.model.train()
    data = net.data()
    return lambda: train_step(state, next(data))


def method_model(name: str, net: Net) -> BayesianModule:
    """Return a model to predict with, after a short training where the posterior comes from training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        epochs = 4 * DRAWS if name in TRAINED else 1
        result = bw.fit(net.build(), next(net.data()), name, epochs=epochs, batch_size=net.batch, progress=False)
    return result.model


def method_prediction(name: str, net: Net) -> Step:
    model, inputs, likelihood = method_model(name, net), net.inputs(net.predict_batch), bw.Categorical()
    return lambda: bw.predict(model, inputs, likelihood, draws=DRAWS)


def plain_passes(net: Net) -> Step:
    model, inputs = net.build().eval(), net.inputs(net.predict_batch)

    def predict() -> None:
        with torch.inference_mode():
            for _ in range(DRAWS):
                model(inputs)

    return predict


def step_cases(net: Net) -> list[Case]:
    names = STEPS if net.name in ("lenet", "mlp") else STEPS_LARGE
    cases = [
        Case(PLAIN, lambda: plain_step(net)),
        Case(PLAIN_AGAIN, lambda: plain_step(net)),
        Case(PLAIN_FUSED, lambda: plain_step(net, fused=True)),
    ]
    return cases + [Case(name, _with(method_step, name, net), cycle=CYCLES.get(name, 1)) for name in names]


def prediction_cases(net: Net) -> list[Case]:
    cases = [Case(name, lambda: plain_passes(net), calls=1, settle=0) for name in (PLAIN, PLAIN_AGAIN)]
    return cases + [Case(name, _with(method_prediction, name, net), calls=1, settle=0) for name in PREDICTIONS]


def _with(make: Callable[[str, Net], Step], name: str, net: Net) -> Callable[[], Step]:
    return lambda: make(name, net)
