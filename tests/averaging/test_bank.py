"""Banks: which networks are kept, with what, where, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from averaging.paths import BATCHES, numbers, path, put, small_model, watch
from bayeswell.averaging import Bank, CycleEnds
from bayeswell.core.errors import BayeswellWarning, CompositionError, DivergenceError, SettingError
from bayeswell.core.protocols import Progress
from bayeswell.posteriors import Empirical

STEPS = 30


def kept(part: Any, steps: int = STEPS) -> tuple[Empirical, tuple]:
    model = small_model("delta")
    rows = path(steps, model.layout.size)
    posterior = watch(part.build(model, steps, BATCHES), model, rows).finalize(model)
    assert isinstance(posterior, Empirical)
    return posterior, rows


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Bank(), range(15, 30)),
        (Bank(max_draws=4), [18, 22, 26]),
        (Bank(burn_in=5, thinning=7), [11, 18, 25]),
        (CycleEnds(4), [7, 15, 23, 29]),
        (CycleEnds(4, keep=2), [23, 29]),
        (CycleEnds(3), [9, 19, 29]),
    ],
)
def test_networks_that_are_kept(part: Any, expected: Any) -> None:
    posterior, (means, _, scales) = kept(part)
    np.testing.assert_array_equal(numbers(posterior.weights), means[list(expected)])
    for index, step in enumerate(expected):
        network = posterior.network(index)
        scale = next(tensor for name, tensor in network.items() if name == "1.weight")
        np.testing.assert_array_equal(numbers(scale), scales[step])
        assert {"1.running_mean", "1.running_var", "1.bias"} <= network.keys()


def test_draws_in_files_are_those_in_memory(tmp_path: Path) -> None:
    expected = kept(Bank())[0]
    posterior = kept(Bank(folder=str(tmp_path / "new")))[0]
    assert torch.equal(posterior.weights, expected.weights)
    (file,) = (tmp_path / "new").iterdir()
    assert file.stat().st_size == expected.weights.numel() * 8


def test_a_bank_in_a_folder_resumes_from_its_file(tmp_path: Path) -> None:
    model = small_model("delta")
    rows = path(STEPS, model.layout.size)
    part = Bank(folder=str(tmp_path))
    first = watch(part.build(model, STEPS, BATCHES), model, tuple(row[:20] for row in rows))
    state = first.state_dict()
    assert not any(isinstance(value, torch.Tensor) and value.numel() > 50 for value in state.values())
    second = part.build(model, STEPS, BATCHES)
    second.load_state_dict(state)
    posterior = watch(second, model, rows, 20).finalize(model)
    np.testing.assert_array_equal(numbers(posterior.weights), rows[0][15:])


def test_steps_that_a_sampler_does_not_offer_do_not_count() -> None:
    model = small_model("delta")
    means, stds, scales = path(STEPS, model.layout.size)
    averager = Bank(burn_in=0, thinning=3).build(model, STEPS, BATCHES)
    for step in range(20, STEPS):
        put(model, means[step], stds[step], scales[step])
        averager.after_step(model, Progress(step, STEPS))
    np.testing.assert_array_equal(numbers(averager.finalize(model).weights), means[[22, 25, 28]])


def test_a_longer_run_than_planned_warns_and_keeps_what_it_has() -> None:
    model = small_model("delta")
    rows = path(STEPS, model.layout.size)
    averager = Bank(burn_in=10, thinning=5).build(model, 20, BATCHES)
    with pytest.warns(BayeswellWarning, match="2 draws are kept"):
        watch(averager, model, rows)
    np.testing.assert_array_equal(numbers(averager.finalize(model).weights), rows[0][[14, 19]])


def test_mistakes_are_named() -> None:
    with pytest.raises(CompositionError, match="posterior 'delta'"):
        Bank().build(small_model(), STEPS, BATCHES)
    model = small_model("delta")
    for part in (Bank(burn_in=30), Bank(thinning=16)):
        with pytest.raises(SettingError, match="no draw"):
            part.build(model, STEPS, BATCHES)
    with pytest.raises(SettingError, match="no draw was kept"):
        Bank().build(model, STEPS, BATCHES).finalize(model)
    means, stds, scales = path(1, model.layout.size)
    put(model, means[0] * np.inf, stds[0], scales[0])
    with pytest.raises(DivergenceError):
        Bank(burn_in=0).build(model, STEPS, BATCHES).after_step(model, Progress(0, STEPS))
