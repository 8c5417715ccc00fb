"""Banks of draws: what they keep, in memory and on disk, and from one process to another."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

import bayeswell as bw
from averaging.paths import feed, path, put, trained, vector_model
from bayeswell.averaging import AVERAGING, Bank
from bayeswell.averaging.draw_store import FileRows
from bayeswell.errors import SettingError
from bayeswell.posteriors import Empirical, EmpiricalPosterior
from bayeswell.types import Progress
from nets import make
from quick_python import QUICK_PYTHON

# Networks: training, deterministic parameters, banks.


@pytest.mark.parametrize("on_disk", [False, True])
def test_bank_keeps_the_draws_with_what_belongs_to_them(on_disk: bool, tmp_path: Path) -> None:
    net, inputs = make("normalised")
    folder = str(tmp_path / "draws") if on_disk else None
    model, collector, states = trained(net, inputs, "delta", Bank(burn_in=3, thinning=2, folder=folder))
    kept = [4, 6, 8, 10]
    part, posterior = collector.result()
    assert isinstance(part, Empirical)
    assert isinstance(posterior, EmpiricalPosterior)
    assert part.count == collector.snapshots == len(kept)
    assert torch.equal(posterior.weights, torch.stack([states[step]["posterior.mean"] for step in kept]))
    names = {name.removeprefix("net.") for name in states[0] if name.startswith("net.")}
    assert {"batch_norm.running_mean", "batch_norm.num_batches_tracked", "batch_norm.weight"} <= names
    assert set(part.extras) == names
    for index, step in enumerate(kept):
        member = posterior.member(index)
        for name in names:
            assert torch.equal(member[name], states[step][f"net.{name}"])
            assert member[name].dtype == states[step][f"net.{name}"].dtype
        then = copy.deepcopy(model)
        then.load_state_dict(states[step])
        ended = model.with_posterior(part, posterior).eval()
        torch.testing.assert_close(ended.call(member, inputs), then.eval()(inputs))
    files = list((tmp_path / "draws").glob("*")) if on_disk else []
    assert len(files) == (1 if on_disk else 0)


def test_a_bank_on_disk_is_mapped_and_cannot_be_changed_by_accident(tmp_path: Path) -> None:
    model = vector_model(5, dtype=torch.float32)
    collector = Bank(burn_in=0, thinning=1, folder=str(tmp_path)).build(model, 4, 4)
    means = path(4, 5)[0].float()
    feed(collector, model, means)
    posterior = collector.result()[1]
    with torch.no_grad():
        posterior.weights.zero_()
    assert torch.equal(collector.result()[1].weights, means)
    before = (next(tmp_path.iterdir())).read_bytes()
    assert before[:20] == means[0].numpy().tobytes()


def temporary_banks() -> set[str]:
    return {entry.name for entry in Path(tempfile.gettempdir()).glob("bayeswell-bank-*")}


@pytest.mark.parametrize("spare", [0, -1])
def test_a_large_bank_goes_to_disk_by_itself_and_leaves_nothing_behind(
    spare: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7 planned draws of 5 float32 weights, in rows of 24 bytes: one byte below that, they go to a file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model, means = vector_model(5, dtype=torch.float32), path(7, 5)[0].float()
    collector = Bank(burn_in=0, thinning=1, memory_limit=7 * 24 + spare).build(model, 7, 7)
    feed(collector, model, means)
    found = temporary_banks()
    assert len(found) == (1 if spare < 0 else 0)
    weights = collector.result()[1].weights
    assert torch.equal(weights, means)
    state = collector.state_dict()
    del collector
    gc.collect()
    assert not temporary_banks()
    # What was mapped outlives the file: the posterior, and a state that is saved later.
    assert torch.equal(weights, means)
    again = Bank(burn_in=0, thinning=1).build(model, 7, 7)
    again.load_state_dict(state)
    assert torch.equal(again.result()[1].weights, means)


def test_a_bank_moves_between_memory_and_disk(tmp_path: Path) -> None:
    """A state from memory goes on in a file, under a lower limit or in a folder of its own, with the same draws."""
    model, means = vector_model(3), path(6, 3)[0]
    collector = Bank(burn_in=0, thinning=1).build(model, 6, 6)
    feed(collector, model, means[:4])
    for part in (Bank(0, 1, memory_limit=0), Bank(0, 1, folder=str(tmp_path))):
        moved = part.build(model, 6, 6)
        moved.load_state_dict(collector.state_dict())
        for step in (4, 5):
            put(model, means[step])
            moved.observe(model, Progress(step, 6))
        assert torch.equal(moved.result()[1].weights, means)
    assert (next(tmp_path.iterdir())).read_bytes() == means.numpy().tobytes()
    with pytest.raises(SettingError, match="give the same 'folder'"):
        Bank(0, 1).build(model, 6, 6).load_state_dict(moved.state_dict())


ANOTHER_PROCESS = """
import sys, torch
sys.path.insert(0, {tests!r})
from averaging.paths import feed, path, vector_model
from bayeswell.averaging import Bank
means = path(6, 3)[0]
for name, settings in (("temporary", {{"memory_limit": 0}}), ("kept", {{"folder": {folder!r}}})):
    model = vector_model(3)
    collector = Bank(0, 1, **settings).build(model, 6, 6)
    feed(collector, model, means[:4])
    torch.save(collector.state_dict(), f"{where}/{{name}}.pt")
    # Lost with the process that ends here.
    feed(collector, model, means[4:5] + 1)
"""


def test_a_bank_on_disk_goes_on_in_another_process(tmp_path: Path) -> None:
    """The first four draws there, the last two here; the temporary folder of the first process is gone."""
    script = ANOTHER_PROCESS.format(
        tests=str(Path(__file__).parents[1]), folder=str(tmp_path / "draws"), where=tmp_path
    )
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([QUICK_PYTHON, "-c", script], check=True, env=environment, cwd=tmp_path)
    assert not list((tmp_path / "tmp").glob("bayeswell-bank-*"))
    model, means = vector_model(3), path(6, 3)[0]
    for name, part in (("temporary", Bank(0, 1, memory_limit=0)), ("kept", Bank(0, 1, folder=str(tmp_path / "draws")))):
        collector = part.build(model, 6, 6)
        collector.load_state_dict(torch.load(tmp_path / f"{name}.pt", weights_only=True))
        for step in (4, 5):
            put(model, means[step])
            collector.observe(model, Progress(step, 6))
        assert torch.equal(collector.result()[1].weights, means), name


def test_bank_defaults_spread_over_the_second_half() -> None:
    model = vector_model(2)
    collector = Bank(max_draws=10).build(model, 70, 7)
    means, _ = path(70, 2)
    feed(collector, model, means)
    # 35 steps are left, every 4th of them is kept: 8 draws, no more than 10.
    assert torch.equal(collector.result()[1].weights, means[35:][3::4])


def test_bank_counts_observed_steps_only() -> None:
    """A sampler that explores does not show those steps; thinning counts the others."""
    model, (means, _) = vector_model(2), path(20, 2)
    collector = Bank(burn_in=4, thinning=2).build(model, 20, 5)
    shown = [step for step in range(20) if step % 5 >= 2]
    for step in shown:
        put(model, means[step])
        collector.observe(model, Progress(step, 20))
    kept = [step for step in shown if step >= 4][1::2]
    assert torch.equal(collector.result()[1].weights, means[kept])


def test_bank_past_the_plan_says_so_once() -> None:
    model, (means, _) = vector_model(2), path(8, 2)
    collector = Bank(burn_in=0, thinning=1, max_draws=5).build(model, 5, 5)
    with pytest.warns(bw.BayeswellWarning, match=r"step 5 is past the plan .*max_draws = 5") as told:
        feed(collector, model, means)
    assert len(told) == 1
    assert torch.equal(collector.result()[1].weights, means[:5])


# Bad input.


def test_every_part_has_a_name_a_summary_and_a_paper() -> None:
    assert list(AVERAGING) == ["swa", "ema", "swag_diag", "swag", "hwa", "bank", "cycle_ends"]
    for summary, paper in AVERAGING.summaries().values():
        assert summary.endswith(".")
        assert paper


def test_a_flipped_bit_in_a_bank_on_disk_is_found(tmp_path: Path) -> None:
    rows = FileRows(tmp_path, 16, 3)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, 256, (3, 16), generator=generator, dtype=torch.uint8)
    for row in drawn[:2]:
        rows.append(row)
    state = rows.state_dict()
    rows.append(drawn[2])
    fresh = FileRows(tmp_path, 16, 3)
    fresh.load_state_dict(state)
    assert torch.equal(fresh.matrix(), drawn[:2])
    file = tmp_path / state["file"]
    data = bytearray(file.read_bytes())
    data[20] ^= 4
    file.write_bytes(bytes(data))
    with pytest.raises(bw.FileError, match="altered"):
        FileRows(tmp_path, 16, 3).load_state_dict(state)
