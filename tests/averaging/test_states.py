"""A run resumed mid-way ends as one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from averaging.paths import RESUMABLE, feed, path, put, trained, vector_model
from bayeswell.averaging import SWA, Bank
from bayeswell.errors import FileError, SettingError
from bayeswell.types import Collector, Progress
from nets import make


def result_numbers(collector: Collector) -> dict[str, Tensor]:
    part, posterior = collector.result()
    return {"part": torch.tensor(hash(part)), **posterior.state_dict()}


@pytest.mark.parametrize("name", RESUMABLE)
@pytest.mark.parametrize("cut", [0, 5, 11])
def test_a_run_resumed_mid_way_ends_bit_for_bit_as_one_that_was_not(name: str, cut: int) -> None:
    part, posterior = RESUMABLE[name]
    means, stds = path(20, 4)
    model = vector_model(4, posterior, torch.float32)
    spreads = None if posterior == "delta" else stds.float()
    whole = part.build(model, 20, 5)
    feed(whole, model, means.float(), spreads)

    first = part.build(model, 20, 5)
    state: dict[str, Any] = {}
    for step in range(20):
        if step == cut:
            state = first.state_dict()
        put(model, means[step].float(), None if spreads is None else spreads[step])
        first.observe(model, Progress(step, 20))  # what comes after must not reach into the state
    second = part.build(model, 20, 5)
    second.load_state_dict(state)
    for step in range(cut, 20):
        put(model, means[step].float(), None if spreads is None else spreads[step])
        second.observe(model, Progress(step, 20))
    expected, found = result_numbers(whole), result_numbers(second)
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        assert torch.equal(value, found[key]), key
    plain = (int, str, Tensor)
    assert all(isinstance(value, plain) for value in state.values())


@pytest.mark.parametrize("part", [SWA(start=0, cycle=2), Bank(burn_in=1, thinning=2)])
def test_what_has_no_posterior_is_resumed_too(part: Any) -> None:
    net, inputs = make("normalised")
    model, whole, states = trained(net, inputs, "delta", part)
    first, second = part.build(model, 12, 3), part.build(model, 12, 3)
    for step, state in enumerate(states):
        if step == 5:
            second.load_state_dict(first.state_dict())
        model.load_state_dict(state)
        (first if step < 5 else second).observe(model, Progress(step, 12))
    for key, value in whole.state_dict().items():
        assert np.array_equal(value, second.state_dict()[key]), key
    expected, found = result_numbers(whole), result_numbers(second)
    assert len(expected) > 1
    assert all(torch.equal(value, found[key]) for key, value in expected.items())


def test_two_branches_of_a_bank_on_disk_do_not_touch_each_other(tmp_path: Path) -> None:
    part = Bank(burn_in=0, thinning=1, folder=str(tmp_path))
    model, (means, _) = vector_model(3), path(6, 3)
    other = means + 10
    collector = part.build(model, 6, 6)
    feed(collector, model, means[:2])
    early = collector.state_dict()
    for step in range(2, 4):
        put(model, means[step])
        collector.observe(model, Progress(step, 6))
    late = collector.state_dict()
    branch = part.build(model, 6, 6)
    branch.load_state_dict(early)
    for step in range(2, 6):
        put(model, other[step])
        branch.observe(model, Progress(step, 6))
    resumed = part.build(model, 6, 6)
    resumed.load_state_dict(late)
    for step in range(4, 6):
        put(model, means[step])
        resumed.observe(model, Progress(step, 6))
    assert torch.equal(resumed.result()[1].weights, means)
    assert torch.equal(branch.result()[1].weights, torch.cat([means[:2], other[2:]]))
    assert len(list(tmp_path.iterdir())) == 2  # the file was copied once, for the branch
    path_of = tmp_path / late["file"]
    path_of.write_bytes(path_of.read_bytes()[:-1])
    cut_short = part.build(model, 6, 6)
    with pytest.raises(FileError, match=r"has 143 bytes, 144 were saved; restore it"):
        cut_short.load_state_dict(resumed.state_dict())
    path_of.unlink()
    with pytest.raises(FileError, match="is missing; restore it"):
        cut_short.load_state_dict(late)


def test_states_of_other_networks_are_refused() -> None:
    for part, posterior in RESUMABLE.values():
        small, large = vector_model(3, posterior), vector_model(4, posterior)
        collector = part.build(small, 20, 5)
        feed(collector, small, path(20, 3)[0])
        with pytest.raises(SettingError, match=r"belong"):
            part.build(large, 20, 5).load_state_dict(collector.state_dict())
        with pytest.raises(SettingError, match=r"it is not the state of a"):
            part.build(large, 20, 5).load_state_dict({})
