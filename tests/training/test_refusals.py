"""Common mistakes are named in one line, before any training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from bayeswell.core.errors import BayeswellError, DataWarning, FitWarning
from bayeswell.nn import bayesian
from bayeswell.training import Callback, Devices, KeepBest, RunFolder, fit, laplace, loop, rate_range, swag

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
T = X[:, :1].clone()


def net(inputs: int = 3, outputs: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 5), nn.ReLU(), nn.Linear(5, outputs))


def with_value(tensor: Tensor, value: float) -> Tensor:
    tensor = tensor.clone().double()
    tensor[4, 0] = value
    return tensor


class Head(nn.Module):
    """A network whose outputs depend on ``how``."""

    def __init__(self, how: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.how = net(), how

    def forward(self, x: Tensor) -> Any:
        return self.how(self.layer, x)


def without_gradient(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return layer(x)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.other(x).detach()


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(X[0], Y[0])])


def under(mode: Any, call: Callable[[], Any]) -> None:
    with mode():
        call()


CASES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "unknown method": (lambda: fit(net(), (X, Y), "bbbb"), ["bbbb", "bbb"]),
    "misspelt setting": (lambda: fit(net(), (X, Y), "bbb", temperatur=1.0), ["temperatur", "temperature"]),
    "learning rate": (lambda: fit(net(), (X, Y), "bbb", learning_rate=1.0), ["did you mean 'lr'"]),
    "capitals": (lambda: fit(net(), (X, Y), "BBB"), ["did you mean 'bbb'"]),
    "unknown likelihood": (lambda: fit(net(), (X, Y), "bbb", "categoricl"), ["categorical"]),
    "method object": (lambda: fit(net(), (X, Y), 3), ["method", "int"]),
    "targets apart": (lambda: fit(net(), X, Y), ["Tensor", "fit(net, (x, y))"]),
    "test data apart": (lambda: fit(net(), (X, Y), (X, Y)), ["tuple", "fit(net, (x, y))"]),
    "network class": (lambda: fit(nn.Linear, (X, Y)), ["nn.Module", "type"]),
    "half precision": (lambda: fit(net().half(), (X, Y)), ["float16", "float()"]),
    "jit": (lambda: fit(torch.jit.trace(net(), X), (X, Y)), ["torch.jit"]),
    "epochs": (lambda: fit(net(), (X, Y), epochs=-1), ["epochs", "-1"]),
    "float epochs": (lambda: fit(net(), (X, Y), epochs=2.5), ["epochs", "2.5"]),
    "batch size": (lambda: fit(net(), (X, Y), batch_size=0), ["batch_size", "0"]),
    "seed": (lambda: fit(net(), (X, Y), seed="1"), ["seed", "'1'"]),
    "lr": (lambda: fit(net(), (X, Y), "bbb", lr=True), ["lr", "True"]),
    "negative lr": (lambda: fit(net(), (X, Y), "bbb", lr=-1.0), ["lr", "-1"]),
    "workers": (lambda: fit(net(), (X, Y), workers=0), ["workers", "0"]),
    "callbacks with workers": (
        lambda: fit(net(), (X, Y), "deep-ensemble", workers=2, callbacks=[Callback()]),
        ["workers", "callbacks"],
    ),
    "callback class": (lambda: fit(net(), (X, Y), callbacks=[Callback]), ["callbacks", "Callback"]),
    "devices": (lambda: fit(net(), (X, Y), devices="cuda"), ["devices", "'cuda'"]),
    "precision": (lambda: Devices(precision="16"), ["precision", "bf16-mixed"]),
    "resume without folder": (lambda: fit(net(), (X, Y), resume=True), ["resume", "folder"]),
    "checkpoint steps": (lambda: RunFolder("x", every_steps=0), ["every_steps", "0"]),
    "no_grad": (lambda: under(torch.no_grad, lambda: fit(net(), (X, Y))), ["no_grad"]),
    "inference mode": (lambda: under(torch.inference_mode, lambda: fit(net(), (X, Y))), ["inference_mode"]),
    "NaN inputs": (lambda: fit(net().double(), (with_value(X, np.nan), Y)), ["inputs", "NaN", "row 4"]),
    "infinite inputs": (lambda: fit(net().double(), (with_value(X, np.inf), Y)), ["inputs", "row 4"]),
    "NaN targets": (
        lambda: fit(net(3, 1).double(), (X.double(), with_value(T, np.nan)), "bbb", "gaussian"),
        ["targets", "row 4"],
    ),
    "no data": (lambda: fit(net(), (X[:0], Y[:0])), ["empty"]),
    "lengths": (lambda: fit(net(), (X, Y[:7])), ["40 inputs", "7 targets"]),
    "no targets": (lambda: fit(net(), (X, None)), ["targets", "None"]),
    "inputs alone": (lambda: fit(net(), X), ["type Tensor"]),
    "pairs": (lambda: fit(net(), list(zip(X, Y, strict=True))), ["40 parts"]),
    "frame alone": (
        lambda: fit(net(), pytest.importorskip("pandas").DataFrame({"a": [1.0]})),
        ["data frame", "targets"],
    ),
    "sparse": (lambda: fit(net(), (X.to_sparse(), Y)), ["sparse"]),
    "masked": (lambda: fit(net(), (np.ma.masked_invalid(X.numpy()), Y)), ["masked"]),
    "ragged lists": (lambda: fit(net(), ([[1.0], [1.0, 2.0]], [0, 1])), ["unequal lengths"]),
    "texts": (lambda: fit(net(), (np.array([["a"]] * 3), [0, 1, 1])), ["numbers"]),
    "stream": (lambda: fit(net(), DataLoader(Stream(), 2)), ["IterableDataset"]),
    "labels": (lambda: fit(net(), (X, Y + 1)), ["2", "target"]),
    "negative labels": (lambda: fit(net(), (X, Y - 1)), ["-1"]),
    "real labels": (lambda: fit(net(), (X, T[:, 0])), ["real numbers", "integer", "'gaussian'"]),
    "one-hot labels": (lambda: fit(net(), (X, nn.functional.one_hot(Y).float())), ["one-hot", "argmax(1)"]),
    "target shape": (lambda: fit(net(3, 1), (X, torch.randn(40, 3)), "bbb", "gaussian"), ["shape"]),
    "bool gaussian": (lambda: fit(net(3, 1), (X, Y > 0), "bbb", "gaussian"), ["targets"]),
    "input size": (lambda: fit(net(4), (X, Y)), ["(16, 3)", "network"]),
    "tuple outputs": (lambda: fit(Head(lambda f, x: (f(x), x)), (X, Y)), ["output", "tuple"]),
    "outputs of one number": (lambda: fit(Head(lambda f, x: f(x).sum()), (X, Y)), ["shape ()", "axis"]),
    "NaN network": (lambda: fit(Head(lambda f, x: f(x) * float("nan")), (X, Y)), ["NaN", "before training"]),
    "no gradient": (lambda: fit(Head(without_gradient), (X, Y)), ["no parameter", "no_grad"]),
    "detached": (lambda: fit(Head(lambda f, x: f(x).detach()), (X, Y), "bbb"), ["no parameter", "detach"]),
    "weights": (lambda: fit(net(), (X, Y, -torch.ones(40))), ["weight", "-1"]),
    "zero weights": (lambda: fit(net(), (X, Y, torch.zeros(40))), ["weights", "0"]),
    "laplace with weights": (lambda: fit(net(), (X, Y, torch.ones(40)), "laplace"), ["laplace", "weights"]),
    "empty validation": (lambda: fit(net(), (X, Y), validation=(X[:0], Y[:0])), ["validation", "empty"]),
    "validation shape": (lambda: fit(net(), (X, Y), validation=(X[:, :2], Y)), ["validation", "(2, 2)"]),
    "validation labels": (lambda: fit(net(), (X, Y), validation=(X, Y + 3)), ["validation", "target 3"]),
    "early stopping alone": (lambda: fit(net(), (X, Y), "map", early_stopping=3), ["validation"]),
    "early stopping of averages": (
        lambda: fit(net(), (X, Y), early_stopping=3),
        ["early_stopping", "'auto' averages"],
    ),
    "patience": (lambda: KeepBest(patience=0), ["patience", "0"]),
    "calibrate": (lambda: fit(net(), (X, Y), calibrate=1.5), ["calibrate", "1.5"]),
    "calibrate few": (lambda: fit(net(), (X[:3], Y[:3]), calibrate=True), ["calibrate", "3 examples"]),
    "calibrate a loader": (
        lambda: fit(net(), DataLoader(TensorDataset(X, Y), 4), calibrate=True),
        ["calibrate", "validation"],
    ),
    "no epochs": (lambda: fit(net(), (X, Y), "bbb", epochs=0), ["epochs=0", "mean_field"]),
    "augment a loader": (
        lambda: fit(net(), DataLoader(TensorDataset(X, Y), 4), augment=lambda x, g: x),
        ["augment", "DataLoader"],
    ),
    "augment returns nothing": (lambda: fit(net(), (X, Y), augment=lambda x, g: None), ["augment", "None"]),
    "target column": (lambda: fit(net(), {"x": X, "y": Y}, target="z"), ["'z'"]),
    "standardize": (lambda: fit(net(), (X, Y), standardize="yes"), ["standardize", "'yes'"]),
    "locked network": (lambda: fit(Head(threading.Lock()), (X, Y)), ["cop"]),  # type: ignore[arg-type]
    "rate range": (lambda: rate_range(net(), (X, Y), lowest=2.0, highest=1.0), ["lowest", "highest"]),
    "one checkpoint": (lambda: swag(net(), [net()]), ["1 checkpoints", "two"]),
    "wrong checkpoint": (lambda: swag(net(), [net(), net(4)]), ["checkpoint 1", "fit"]),
    "paths of checkpoints": (lambda: swag(net(), ["a.pt", "b.pt"]), ["checkpoint 0", "state dict"]),
    "laplace precision": (lambda: laplace(net(), (X, Y), prior_precision="held_out"), ["held_out"]),
    "laplace of a result": (lambda: laplace(bayesian(net()), (X, Y)), ["laplace takes an nn.Module"]),
    "laplace targets apart": (lambda: laplace(net(), X, Y), ["likelihood", "Tensor", "one pair"]),
    "laplace setting": (lambda: laplace(net(), (X, Y), dampin="plain"), ["dampin", "damping"]),
    "laplace labels": (lambda: laplace(net(), (X, Y + 1)), ["target 2"]),
    "laplace real labels": (lambda: laplace(net(), (X, T[:, 0])), ["integer"]),
    "laplace NaN inputs": (lambda: laplace(net().double(), (with_value(X, np.nan), Y)), ["inputs", "NaN", "row 4"]),
    "laplace input size": (lambda: laplace(net(4), (X, Y)), ["(32, 3)", "network"]),
    "laplace structure": (lambda: laplace(net(), (X, Y), structure="block"), ["structure", "block"]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_mistakes_are_named_before_training(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, words = CASES[case]

    def no_step(*_: Any, **__: Any) -> None:
        raise AssertionError("a step of training was taken")

    monkeypatch.setattr(loop, "train_step", no_step)
    with pytest.raises(BayeswellError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 400, line
    for word in words:
        assert word in line, f"{word!r} is not in: {line}"


WARNED: dict[str, tuple[Callable[[], Any], str]] = {
    "softmax": (lambda: fit(nn.Sequential(net(), nn.Softmax(1)), (X, Y), "map", epochs=1), "softmax"),
    "sigmoid": (lambda: fit(nn.Sequential(net(3, 1), nn.Sigmoid()), (X, Y), "map", "bernoulli", epochs=1), "sigmoid"),
    "weights that sum to one": (lambda: fit(net(), (X, Y, torch.ones(40) / 40), "map", epochs=1), "sum to 1"),
    "one class": (lambda: fit(net(), (X, Y * 0), "map", epochs=1), "all targets are class 0"),
    "large targets": (
        lambda: fit(net(3, 1), (X, 1e4 * T), "map", {"name": "gaussian", "noise": "known", "std": 1.0}, epochs=1),
        "standardize=True",
    ),
    "unused layer": (
        lambda: fit(Unused(), (X, Y), "map", epochs=1),
        "'other.weight'",
    ),
}


@pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")
@pytest.mark.parametrize("case", WARNED)
def test_probable_mistakes_are_warned_of(case: str) -> None:
    call, words = WARNED[case]
    with pytest.warns((DataWarning, FitWarning), match=words):
        call()


def test_no_warning_for_a_usual_fit(recwarn: pytest.WarningsRecorder) -> None:
    fit(net(), (X, Y), "map", epochs=60, lr=0.02)
    assert [str(warning.message) for warning in recwarn] == []


def test_nothing_is_printed_without_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    fit(net(), (X, Y), epochs=1)
    assert capsys.readouterr() == ("", "")


def test_logits_in_part_near_one_half_are_no_sigmoid(recwarn: pytest.WarningsRecorder) -> None:
    inputs = torch.cat([torch.full((1, 1), 0.5), X[:, :1]])
    identity = nn.Linear(1, 1)
    nn.init.ones_(identity.weight)
    nn.init.zeros_(identity.bias)
    fit(identity, (inputs, torch.cat([Y[:1], Y])), "map", "bernoulli", epochs=0)
    assert [str(warning.message) for warning in recwarn if issubclass(warning.category, DataWarning)] == []


def test_folder_of_another_run(tmp_path: Path) -> None:
    fit(net(), (X, Y), "map", epochs=1, folder=tmp_path)
    with pytest.raises(BayeswellError, match="resume=True"):
        fit(net(), (X, Y), "map", epochs=1, folder=tmp_path)
    with pytest.raises(BayeswellError, match=r"starting weights differ .*manual_seed"):
        fit(net(), (X, Y), "map", epochs=1, folder=tmp_path, resume=True)
