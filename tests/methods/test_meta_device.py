"""A whole step and a prediction of every named method leave the device alone, and wait for nothing on it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.methods import Assembly, assemble
from bayeswell.objectives import ELBO
from methods.meta_device import META, OnlyMeta, moved, nothing_is_looked_at, on_meta, put_on_meta
from unjudged import unjudged

NAMES = sorted(bw.METHODS)
SHARP = ["f-bbb", "f-swag", "f-sgld"]
FIXED_RATES = {"sgld": {"lr": 0.01}, "sghmc": {"lr": 0.01}, "psgld": {"lr": 0.001}}
"""Samplers whose rate is given: those that fit it read the loss of every step, and have a row of their own above."""


def network() -> nn.Module:
    """A layer of each kind that methods treat in their own way."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1)),
        *(nn.Linear(4 * 36, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3)),
    )


def examples(count: int = 12, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Images of three classes, or the shapes of such."""
    labels = torch.arange(count, device=device) % 3
    generator = bw.make_generator(5) if device == "cpu" else None
    return torch.randn(count, 1, 8, 8, generator=generator, device=device), labels


def assembled(name: str, **changes: Any) -> Assembly:
    method = bw.find_method(name)
    if changes:
        method = method.changed(stepper={"name": name, **changes})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = assemble(
            method, network(), "categorical", dataset_size=36, batches=3, epochs=40, generator=bw.make_generator(1)
        )
    run.model.train()
    return run


def take_steps(run: Assembly, device: str, first: int, count: int = 2) -> None:
    """As the loop does: rates, gradient, clipping, step, collector."""
    inputs, targets = examples(device=device)
    generator = bw.make_generator(2) if device == "cpu" else None
    for step in range(first, first + count):
        at = bw.Progress(step, 120, step % 3, 3, 36)
        run.before_step(at)
        run.optimizer.zero_grad(set_to_none=True)
        run.objective(run.model, inputs, targets, at=at, generator=generator).total.backward()
        if run.fitting is not None:
            assert run.fitting.observe(1.0, lambda: None)
        nn.utils.clip_grad_norm_(run.model.parameters(), 10.0)
        run.optimizer.step()
        if run.collector is not None and run.may_collect(at):
            run.collector.observe(run.model, at)


def without_checks(run: Assembly) -> None:
    """Checks read numbers, and on an accelerator that is not for the objective to do (``training.finite_steps``)."""
    for part in run.objective.modules():
        if isinstance(part, ELBO):
            part.check = False


@pytest.mark.parametrize("name", NAMES + SHARP)
def test_a_step_of_every_method_stays_on_its_device(name: str) -> None:
    run = assembled(name)
    take_steps(run, "cpu", 0)
    without_checks(run)
    put_on_meta(run)
    with on_meta():
        take_steps(run, META, 2, 4)
    assert {parameter.device.type for parameter in run.model.parameters()} == {META}


@pytest.mark.parametrize("name", FIXED_RATES)
def test_samplers_of_a_given_rate_read_nothing(name: str) -> None:
    run = assembled(name, **FIXED_RATES[name])
    take_steps(run, "cpu", 0)
    without_checks(run)
    put_on_meta(run)
    with on_meta():
        take_steps(run, META, 2, 3)


@pytest.mark.parametrize("name", NAMES)
def test_a_prediction_of_every_method_stays_on_its_device(name: str) -> None:
    with warnings.catch_warnings(), unjudged():
        warnings.simplefilter("ignore")
        members = 2 if name in ("auto", "deep-ensemble") else 1
        # Eight steps: in fewer SWAG has too few snapshots.
        trained = bw.fit(network(), examples(36), name, epochs=8, batch_size=36, members=members, progress=False)
    here = bw.predict(trained.model, examples()[0], trained.likelihood, draws=3)
    moved(trained.model)
    if isinstance(trained.likelihood, nn.Module):
        moved(trained.likelihood)
    # Not ``OnlyMeta``: seeds of masks and the like are small, and drawn on the CPU to be the same everywhere.
    with nothing_is_looked_at():
        there = bw.predict(trained.model, examples(device=META)[0], trained.likelihood, draws=3)
    assert there.probabilities.device.type == META
    assert there.probabilities.shape == here.probabilities.shape
    assert there.probabilities.dtype == here.probabilities.dtype


def reads_a_value(x: torch.Tensor) -> torch.Tensor:
    return x * float(x.abs().max())


def makes_a_cpu_tensor(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor(2.0)


_ON_THE_CPU = torch.ones(3)


def mixes_devices(x: torch.Tensor) -> torch.Tensor:
    return x * _ON_THE_CPU


@pytest.mark.parametrize("planted", [reads_a_value, makes_a_cpu_tensor, mixes_devices])
def test_faults_are_seen(planted: Any) -> None:
    run = assembled("bbb")
    without_checks(run)
    put_on_meta(run)
    run.model.net[-1].register_forward_hook(lambda module, inputs, found: planted(found))
    with pytest.raises((RuntimeError, AssertionError)), on_meta():
        take_steps(run, META, 0, 1)


def test_a_check_that_is_left_in_is_seen() -> None:
    run = assembled("bbb")
    put_on_meta(run)
    with pytest.raises(RuntimeError, match="meta"), on_meta():
        take_steps(run, META, 0, 1)


def test_counters_of_steps_are_the_only_exception() -> None:
    with OnlyMeta(), pytest.raises(AssertionError, match="on cpu"):
        torch.zeros(())
