"""Rates that fall on a plateau, against torch's scheduler."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.errors import DataError, SettingError
from bayeswell.optimizers import (
    MEANS,
    STDS,
    Adam,
    Plateau,
    PlateauState,
    means_by_nll_stds_by_kl,
    parameter_groups,
    set_rates,
)
from nets import lift
from optimizers.steps import net


def follow(plateau: Plateau, values: Sequence[float]) -> list[float]:
    state, found = PlateauState(), []
    for value in values:
        state = plateau.update(state, value)
        found.append(state.factor)
    return found


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_plateau_agrees_with_torch(patience: int) -> None:
    values = np.random.default_rng(6).gamma(2.0, size=200) * np.linspace(2, 1, 200)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.8, patience=patience, threshold=0.02, eps=0.0
    )
    expected = []
    for value in values:
        scheduler.step(float(value))
        expected.append(optimizer.param_groups[0]["lr"])
    found = follow(Plateau("nll", factor=0.8, patience=patience, threshold=0.02), [float(v) for v in values])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert found[-1] < 0.1


def test_plateau_waits_for_its_patience_and_counts_anew() -> None:
    #                    first, better, worse, same: falls, worse, worse: falls, better, worse
    values = [3.0, 2.0, 2.5, 2.0, 2.2, 2.2, 1.9, 2.0]
    np.testing.assert_allclose(follow(Plateau("nll"), values), [1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.01], rtol=1e-12)


def test_plateau_with_negative_values() -> None:
    # -9.9995 is worse than -10, though above -10 (1 - 1e-4), which torch would call better.
    assert follow(Plateau("nll", patience=0), [-10.0, -9.9995])[-1] == 0.1
    assert follow(Plateau("nll", patience=0), [-10.0, -10.01])[-1] == 1.0
    assert follow(Plateau("nll", patience=0), [-10.0, -10.0005])[-1] == 0.1  # better by less than the threshold


def test_plateau_has_a_floor_and_survives_json() -> None:
    plateau = Plateau("kl", factor=0.1, patience=0, minimum=0.03)
    np.testing.assert_allclose(follow(plateau, [1.0] * 5), [1, 0.1, 0.03, 0.03, 0.03], rtol=1e-12)
    state = PlateauState()
    for value in (3.0, 2.0, 2.0):
        saved = json.loads(json.dumps(state.state_dict()))
        state = plateau.update(state, value)
        assert plateau.update(PlateauState.from_state_dict(saved), value) == state
    with pytest.raises(DataError, match="plateau: the metric 'kl' is nan; it must be finite"):
        plateau.update(state, math.nan)
    with pytest.raises(SettingError, match="plateau: patience = -1"):
        Plateau("nll", patience=-1)
    with pytest.raises(SettingError, match="plateau: factor = 1"):
        Plateau("nll", factor=1)


def test_each_group_listens_to_its_own_metric() -> None:
    plateaus = means_by_nll_stds_by_kl()
    optimizer = Adam(lr=1e-3).build(parameter_groups(lift(net()), 1e-3))
    states = {name: PlateauState() for name in plateaus}
    for nll, kl in ((2.0, 50.0), (1.5, 51.0), (1.2, 52.0)):
        metrics = {"nll": nll, "kl": kl}
        states = {name: plateau.update(states[name], metrics[plateau.metric]) for name, plateau in plateaus.items()}
        set_rates(optimizer, {name: state.factor for name, state in states.items()})
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    np.testing.assert_allclose([rates[MEANS], rates[STDS]], [1e-3, 1e-4], rtol=1e-12)
