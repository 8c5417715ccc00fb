"""Steps and predictions of bayeswell and of ordinary training: a case for each named method, as in a user's loop."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import bayeswell as bw
from bayeswell.methods import Assembly, assemble

from .nets import Net, with_dropout
from .timing import Case, Step

PLAIN = "deterministic"
"""Ordinary training with Adam as torch makes it unless told otherwise: what everything is compared with.

So were the published numbers of other libraries by which the goals were set.
"""
PLAIN_FUSED = "deterministic, fused Adam"
"""Ordinary training with torch's fused Adam: a faster step, so the stricter comparison; the tables give both."""
PLAIN_AGAIN = "deterministic, again"
"""The same as ``PLAIN`` once more: what it seems to differ by is noise."""

DRAWS = 30

CHEAPER_VL = "vl-lazy"
_CHEAPER_VL_CYCLE = 4
"""Its penalty comes in each fourth step: whole cycles are timed."""

MAIN = ("bbb", "k-tied", "sgvb-lrt", "flipout", "vl", "sgld")
METHODS = (
    *MAIN, CHEAPER_VL, "f-bbb", "f-k-tied", "low-rank", "ivon", "map", "swa", "swag", "hwa", "sghmc", "psgld",
    "mc-dropout",
)  # fmt: skip

OF_TRANSFORMERS = ("bbb", "k-tied", "sgld")
OF_ADAPTERS = OF_LARGE = ("bbb", "k-tied")

EPOCHS = 100
_LEARNING_RATE = 3e-3


def assembled(name: str, net: Net) -> tuple[Assembly, torch.Generator]:
    """The parts of a run of the method, and the generator of its noise."""
    generator = bw.make_generator(0)
    chosen = bw.find_method(name)
    plain = with_dropout(net.build()) if chosen.dropout is not None else net.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = assemble(
            chosen, plain, "categorical", dataset_size=net.dataset_size, batches=net.batches, epochs=EPOCHS,
            where=net.where, generator=bw.make_generator(1),
        )  # fmt: skip
    made.model.train()
    return made, generator


def plain_step(net: Net, **adam: Any) -> Step:
    """Ordinary training."""
    model = net.build().train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, _LEARNING_RATE, **adam)
    data = net.data()

    def step() -> None:
        inputs, targets = next(data)
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def method_step(name: str, net: Net) -> Step:
    """One step of a named method: the loop of the README, with the objective and optimizer that the method chooses."""
    parts, generator = assembled(name, net)
    model, objective, optimizer, clip = parts.model, parts.objective, parts.optimizer, parts.method.clip_norm
    data, counter = net.data(), itertools.count()

    def step() -> None:
        inputs, targets = next(data)
        optimizer.zero_grad(set_to_none=True)
        objective(model, inputs, targets, at=bw.Progress(next(counter)), generator=generator).total.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()

    return step


def plain_step_cases(net: Net) -> list[Case]:
    """The reference and its two companions."""
    return [
        Case(PLAIN, lambda: plain_step(net)),
        Case(PLAIN_AGAIN, lambda: plain_step(net)),
        Case(PLAIN_FUSED, lambda: plain_step(net, fused=True)),
    ]


def step_case(name: str, net: Net) -> Case:
    """The step of a named method."""
    return Case(name, lambda: method_step(name, net), cycle=_CHEAPER_VL_CYCLE if name == CHEAPER_VL else 1)


PREDICTING = ("bbb", "k-tied", "low-rank", "flipout", "vl", "laplace", "mc-dropout", "swag", "sgld")
PREDICTING_MAIN = ("bbb", "k-tied")
_TRAINED_TO_PREDICT = ("laplace", "swag", "sgld")
"""Methods whose posterior is only there after training: a short one is run."""


def plain_passes(net: Net, draws: int = DRAWS) -> Step:
    """As many passes of the ordinary network as there would be draws."""
    model, inputs = net.build().eval(), net.inputs(net.predict_batch)

    def predict() -> None:
        with torch.inference_mode():
            for _ in range(draws):
                model(inputs)

    return predict


def method_prediction(name: str, net: Net, draws: int = DRAWS) -> Step:
    """``bw.predict`` of a model of a named method."""
    model, inputs, likelihood = _predicting(name, net), net.inputs(net.predict_batch), bw.Categorical()
    generator = bw.make_generator(2)
    return lambda: bw.predict(model, inputs, likelihood, draws=draws, generator=generator)


def _predicting(name: str, net: Net) -> bw.BayesianModule:
    if name not in _TRAINED_TO_PREDICT:
        return assembled(name, net)[0].model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = next(net.data())
        return bw.fit(net.build(), batch, name, epochs=4 * DRAWS, batch_size=net.batch, progress=False).model


def prediction_cases(net: Net, names: tuple[str, ...]) -> list[Case]:
    """Plain passes, and the predictions of some methods."""
    plain = [predicting(name, lambda: plain_passes(net)) for name in (PLAIN, PLAIN_AGAIN)]
    return plain + [predicting(name, lambda name=name: method_prediction(name, net)) for name in names]


def predicting(name: str, build: Callable[[], Step]) -> Case:
    """A case of many passes: long enough to be timed by itself."""
    return Case(name, build, calls=1, settle=0)
