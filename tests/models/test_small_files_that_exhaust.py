"""Descriptions and models of a few kilobytes that ask for hours or gigabytes: refused before anything is built."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.models import build_network, description
from bayeswell.persistence import read_bundle, write_bundle

RELU = {"class": "ReLU", "settings": {"inplace": False}}


def described(root: Any) -> dict[str, Any]:
    return {"dtype": "float32", "root": root}


def doubling(levels: int) -> dict[str, Any]:
    """A container of two, of which the second is the first again, within another such, and so on."""
    node: dict[str, Any] = RELU
    for level in range(levels, 0, -1):
        first = ".".join(["0"] * level)
        node = {"class": "Sequential", "children": {"0": node, "1": {"same_as": first}}}
    return node


def test_a_layer_may_stand_in_a_network_several_times() -> None:
    net = build_network(described(doubling(3)))
    assert sum(isinstance(module, nn.ReLU) for _, module in net.named_modules(remove_duplicate=False)) == 8


@pytest.mark.parametrize("levels", [16, 20, 60, 200])
def test_repeats_of_repeats_are_counted_before_they_are_made(levels: int) -> None:
    with pytest.raises(bw.FileError, match="more than 20000 modules"):
        build_network(described(doubling(levels)))


def test_a_network_of_too_many_modules_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first that is too many, however many there are: nobody has looked at those behind it."""
    assert description.MOST_MODULES == 20_000
    monkeypatch.setattr(description, "MOST_MODULES", 1000)  # so many are built in a moment
    most = {str(index): RELU for index in range(999)}  # and the container
    build_network(described({"class": "Sequential", "children": most}))
    many = {**most, "one more": RELU, **{str(index): "no module" for index in range(1000, 300_000)}}
    with pytest.raises(bw.FileError, match="more than 1000 modules"):
        build_network(described({"class": "Sequential", "children": many}))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ZeroPad2d", {"padding": [10**9, 0, 0, 0]}),
        ("Conv2d", {"in_channels": 1, "out_channels": 1, "kernel_size": [1, 1], "padding": [10**9, 10**9]}),
        ("Upsample", {"scale_factor": 10**6}),
        ("AdaptiveAvgPool2d", {"output_size": 10**8}),
    ],
)
def test_settings_that_no_weight_answers_for_are_bounded(kind: str, settings: dict[str, Any]) -> None:
    with pytest.raises(bw.FileError, match="numbers go up to"):
        build_network(described({"class": kind, "settings": settings}))


def test_a_model_of_the_zoo_with_endless_layers_is_refused() -> None:
    model = {"name": "mlp", "hidden": [1] * 300_000}
    record = {"model": model, "input_shape": [4], "outputs": 2, "vocabulary": None}
    with pytest.raises(bw.FileError, match="'hidden' has 300000 entries; at most 1000"):
        build_network(described({"built_from": record}))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    model = bw.bayesian(nn.Sequential(nn.Linear(60, 50), nn.Tanh(), nn.Linear(50, 3)))
    bw.save(tmp_path / "model", model, bw.Categorical())
    return tmp_path / "model"


@pytest.mark.parametrize(
    "posterior",
    [
        {"name": "empirical", "count": 10**8, "extras": []},
        {"name": "mixture", "count": 10**8, "of": {"name": "mean_field"}, "extras": []},
        {"name": "full", "initial_std": None, "max_weights": 10**9},
        {"name": "low_rank", "rank": 3000, "initial_std": None},
    ],
    ids=lambda posterior: str(posterior["name"]),
)
def test_a_posterior_that_the_file_cannot_fill_is_refused_before_it_is_made(
    saved: Path, posterior: dict[str, Any]
) -> None:
    bundle = read_bundle(saved)
    write_bundle(saved, bundle.tensors, {**bundle.record, "posterior": posterior})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(bw.FileError, match="the file holds"):
        bw.load(saved)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes
