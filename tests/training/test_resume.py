"""A run that is cut off anywhere and goes on ends bit for bit as one that was not."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import bayeswell as bw
from bayeswell.datasets import Augmentation
from bayeswell.errors import FileError, SettingError
from bayeswell.methods import METHODS
from bayeswell.persistence import pack_state, read_lines, unpack_state
from bayeswell.training import run_folder as run_folder_module
from bayeswell.training.run_folder import METRICS
from survival import saved_state

pytestmark = pytest.mark.usefixtures("no_verdicts")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", bw.BayeswellWarning)


def problem(examples: int = 60) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(examples, 4, generator=generator)
    return x, x[:, :3].argmax(1)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(4, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Dropout(0.2), nn.Linear(12, 3)
    )  # fmt: skip


class Cut(bw.Callback):
    """Ends the process, as far as a test can: an error in the middle of training that nobody catches."""

    def __init__(self, step: int) -> None:
        self.step = step

    def after_step(self, run: bw.Run) -> None:
        if run.member * run.total_steps + run.step == self.step:
            raise KeyboardInterrupt


def outcome(folder: Path) -> dict[str, bytes]:
    """The bytes of the metrics and of the newest checkpoint: weights, optimizer, averages, banks, generators."""
    newest = bw.RunFolder(folder).checkpoints.paths()[-1]
    return {METRICS: (folder / METRICS).read_bytes(), **saved_state(newest)}


def run(
    folder: Path,
    method: str,
    *,
    cut: tuple[int, ...] = (),
    every: int = 2,
    data: Any = None,
    net: Any = None,
    **settings: Any,
) -> bw.Result:
    """Train in a folder with a checkpoint ``every`` so many steps, cut off at given steps, each time gone on with."""
    common: dict[str, Any] = {"epochs": 12, "batch_size": 25, "seed": 3, **settings}
    data = problem() if data is None else data
    net = network() if net is None else net
    for step in cut:
        where = bw.RunFolder(folder, resume=True, checkpoint_steps=every)
        with pytest.raises(KeyboardInterrupt):
            bw.fit(net, data, method, folder=where, callbacks=[Cut(step)], **common)
    return bw.fit(
        net,
        data,
        method,
        folder=bw.RunFolder(folder, resume=True, checkpoint_steps=every),
        callbacks=[Cut(-1)],
        **common,
    )


def parameters(result: bw.Result) -> dict[str, Tensor]:
    return dict(result.model.state_dict())


def assert_same(one: bw.Result, other: bw.Result) -> None:
    left, right = parameters(one), parameters(other)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name
    assert one.histories == other.histories


@pytest.mark.parametrize("method", [*METHODS, "f-sgvb", "f-swag"])
def test_every_method_goes_on_bit_for_bit(method: str, tmp_path: Path) -> None:
    """16 steps, two an epoch, cut off in steps 4, 8 and 16, checkpoints after each third; of the whole run after 16.

    So it goes on in the middle of an epoch, at the end of one, and in the middle of the last, when draws and averages
    have been collected.
    """
    members = {"members": 2} if METHODS.get(method) and METHODS[method].members > 1 else {}
    short: dict[str, Any] = {"epochs": 8, "batch_size": 35, **members}
    whole = run(tmp_path / "whole", method, every=16, **short)
    pieces = run(tmp_path / "pieces", method, cut=(4, 8, 16), every=3, **short)
    assert_same(whole, pieces)
    assert outcome(tmp_path / "whole") == outcome(tmp_path / "pieces")
    x, _ = problem()
    assert torch.equal(whole.predict(x, draws=5).probabilities, pieces.predict(x, draws=5).probabilities)


def test_a_folder_changes_nothing_of_what_is_learned(tmp_path: Path) -> None:
    kept = run(tmp_path / "run", "hwa")
    assert_same(kept, bw.fit(network(), problem(), "hwa", epochs=12, batch_size=25, seed=3))


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Examples that change at random whenever they are read, by torch's global generator."""

    def __init__(self) -> None:
        self.inputs, self.targets = problem()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        # Both kinds of noise that data sets use; numpy's legacy one on purpose.
        noise = torch.randn(4) + float(np.random.standard_normal())  # noqa: NPY002
        return self.inputs[index] + 0.1 * noise, self.targets[index]


@pytest.mark.parametrize("workers", [None, 0, 2, "2, which stay"])
def test_shuffling_and_random_examples_go_on_too(workers: int | str | None, tmp_path: Path) -> None:
    """A data set (None), and loaders with and without worker processes; the middle of an epoch is entered."""

    def data() -> Any:
        if workers is None:
            return Noisy()
        stay = isinstance(workers, str)
        count = 2 if stay else int(workers)
        return DataLoader(Noisy(), batch_size=25, shuffle=True, num_workers=count, persistent_workers=stay)

    short = {"epochs": 2}
    whole = run(tmp_path / "whole", "bbb", data=data(), **short)
    pieces = run(tmp_path / "pieces", "bbb", cut=(5,), data=data(), **short)
    assert_same(whole, pieces)
    assert outcome(tmp_path / "whole") == outcome(tmp_path / "pieces")
    # The noise is there: with another seed everything differs.
    other = run(tmp_path / "other", "bbb", data=data(), **short, where=["0*"])
    assert not torch.equal(other.model.posterior.mean_vector()[:10], whole.model.posterior.mean_vector()[:10])


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate": 3},
        # A threshold that nothing reaches: the plateau lowers the rates after every epoch but the first.
        {"plateau": {"means": {"metric": "nll", "patience": 0, "threshold": 1e9, "factor": 0.5}}, "rate": "constant"},
        {"alternate": 1},
        {"stepper": {"name": "yellowfin"}},
        {"stepper": {"name": "adabound", "lr": 1e-3}},
        {"estimator": "variational_laplace"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_other_parts_go_on_bit_for_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", "bbb", **settings, epochs=4)
    assert_same(whole, run(tmp_path / "pieces", "bbb", cut=(8,), **settings, epochs=4))
    assert outcome(tmp_path / "whole") == outcome(tmp_path / "pieces")


def test_early_stopping_keeps_its_best_weights_across_a_cut(tmp_path: Path) -> None:
    """A rate so high that the validation nll rises again: the best epoch is an early one."""
    x, y = problem()
    hot: dict[str, Any] = {
        "stepper": {"name": "adam", "lr": 0.3}, "rate": "constant", "validation": (x[:20], y[:20]), "epochs": 12,
    }  # fmt: skip
    whole = run(tmp_path / "whole", "map", early_stopping=bw.KeepBest("nll", patience=3), **hot)
    found = [record.validation["nll"] for record in whole.histories[0].epochs]
    assert whole.stopped
    assert len(found) < 12
    best = min(range(len(found)), key=found.__getitem__)
    assert best == len(found) - 1 - 3
    # The weights are those of the best epoch: measured again they give its nll.
    again = bw.training.scores.validation_on(x[:20], y[:20], draws=10)(whole.model, whole.likelihood)
    assert again["nll"] == found[best]
    # Cut in the epoch after the best one, and where one epoch has been waited for already.
    for place, cut in (("pieces", 3 * best + 4), ("later", 3 * best + 8)):
        pieces = run(tmp_path / place, "map", cut=(cut,), early_stopping=bw.KeepBest("nll", patience=3), **hot)
        assert_same(whole, pieces)


def test_learned_noise_goes_on_too(tmp_path: Path) -> None:
    x, _ = problem()
    settings: dict[str, Any] = {"data": (x, 2 * x[:, :1] + 0.3), "likelihood": bw.Gaussian("learned", 1.0), "epochs": 4}

    def once(folder: Path, cut: tuple[int, ...]) -> bw.Result:
        torch.manual_seed(1)
        return run(folder, "bbb", cut=cut, net=nn.Linear(4, 1), **settings)

    whole, pieces = once(tmp_path / "whole", ()), once(tmp_path / "pieces", (7,))
    assert_same(whole, pieces)
    variances = [r.likelihood.mean_and_variance(torch.zeros(1, 1))[1].item() for r in (whole, pieces)]
    assert variances[0] == variances[1] != 1.0


class StopAt(bw.Callback):
    """Asks to stop in the middle of an epoch."""

    def after_step(self, run: bw.Run) -> None:
        if run.step == 4:
            run.stop("enough")


def test_a_run_that_was_asked_to_stop_finishes_its_epoch_also_after_a_cut(tmp_path: Path) -> None:
    def once(folder: Path, cut: int) -> bw.Result:
        where = bw.RunFolder(folder, resume=True, checkpoint_steps=1)
        return bw.fit(
            network(), problem(), "map", epochs=5, batch_size=25, callbacks=[StopAt(), Cut(cut)], folder=where
        )

    whole = once(tmp_path / "whole", -1)
    assert len(whole.histories[0].epochs) == 2
    assert whole.stopped == "enough"
    with pytest.raises(KeyboardInterrupt):
        once(tmp_path / "pieces", 5)
    assert_same(whole, once(tmp_path / "pieces", -1))


def test_one_process_at_a_time_works_on_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder_module, "LOCK_SECONDS", 0.1)
    said = []

    class Intruder(bw.Callback):
        def after_step(self, run: bw.Run) -> None:
            if run.step == 5:
                where = bw.RunFolder(tmp_path / "run", resume=True)
                with pytest.raises(FileError) as caught:
                    bw.fit(network(), problem(), "map", epochs=3, batch_size=25, folder=where)
                said.append(str(caught.value))

    bw.fit(network(), problem(), "map", epochs=3, batch_size=25, folder=tmp_path / "run", callbacks=[Intruder()])
    assert "another process is working on the run" in said[0]
    assert len(read_lines(tmp_path / "run" / METRICS)) == 3


def test_a_log_that_something_else_cuts_is_told_of(tmp_path: Path) -> None:
    class Vandal(bw.Callback):
        def after_step(self, run: bw.Run) -> None:
            if run.step == 5:
                (tmp_path / "run" / METRICS).unlink()

    with pytest.raises(FileError, match="something else changes it"):
        bw.fit(network(), problem(), "map", epochs=3, batch_size=25, folder=tmp_path / "run", callbacks=[Vandal()])


def test_augmentation_goes_on_too(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(60, 1, 6, 6, generator=generator), torch.arange(60) % 3

    def once(folder: Path, cut: tuple[int, ...]) -> bw.Result:
        common: dict[str, Any] = {"epochs": 3, "batch_size": 25, "augment": Augmentation(pad=1)}
        net = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
        nn.init.zeros_(net[1].weight)
        nn.init.zeros_(net[1].bias)
        for step in cut:
            where = bw.RunFolder(folder, resume=True, checkpoint_steps=2)
            with pytest.raises(KeyboardInterrupt):
                bw.fit(net, images, "map", folder=where, callbacks=[Cut(step)], **common)
        where = bw.RunFolder(folder, resume=True, checkpoint_steps=2)
        return bw.fit(net, images, "map", folder=where, callbacks=[Cut(-1)], **common)

    assert_same(once(tmp_path / "whole", ()), once(tmp_path / "pieces", (4,)))


def test_the_metrics_have_one_line_an_epoch(tmp_path: Path) -> None:
    result = run(tmp_path / "run", "deep-ensemble", cut=(4, 11), members=2, epochs=3)
    lines = read_lines(tmp_path / "run" / METRICS)
    assert [(line["member"], line["epoch"]) for line in lines] == [(m, e) for m in range(2) for e in range(3)]
    assert [line["nll"] for line in lines] == [r.nll for history in result.histories for r in history.epochs]
    assert {"total", "nll", "kl", "accuracy", "lr.means", "std_ratio", "step"} <= lines[0].keys()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stepper": {"name": "adam", "lr": 0.02}}, ["method.stepper"]),
        ({"epochs": 13}, ["epochs was 12, is now 13"]),
        ({"seed": 4}, ["seed was 3, is now 4"]),
        ({"prior": {"name": "normal", "std": 0.3}}, ["method.prior"]),
        ({"data": (problem()[0] + 1e-6, problem()[1])}, ["data was"]),
        ({"validation": problem(5)}, ["validation was None"]),
        ({"accumulate": 2}, ["accumulate was 1"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_changed_run_does_not_go_on(change: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        bw.fit(
            network(), problem(), "bbb", epochs=12, batch_size=25, seed=3, callbacks=[Cut(4)],
            folder=bw.RunFolder(tmp_path / "run", checkpoint_steps=2),
        )  # fmt: skip
    with pytest.raises(SettingError) as caught:
        run(tmp_path / "run", "bbb", **change)
    assert "\n" not in str(caught.value)
    for word in [*words, "force"]:
        assert word in str(caught.value)


def test_a_folder_with_a_run_or_with_other_things_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path / "run", "map", epochs=1)
    with pytest.raises(FileError, match="already holds a run"):
        bw.fit(network(), problem(), "map", epochs=1, folder=tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(FileError, match="not empty and holds no run"):
        bw.fit(network(), problem(), "map", epochs=1, folder=tmp_path / "other")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="cannot make the folder"):
        bw.fit(network(), problem(), "map", epochs=1, folder=tmp_path / "file")


def test_states_come_back_as_they_were() -> None:
    """Keys that are numbers, tuples, infinities and names that look like places: all by value and type."""
    state = {
        "a/b": torch.tensor([1.5]), "a": {"b": torch.tensor([2.5]), 3: (1, [2.0, float("inf")])}, "none": None,
        "~tensor": "not a tensor", "flags": [True, False], "text": "é", "half": torch.tensor(0.1, dtype=torch.bfloat16),
    }  # fmt: skip
    tensors, packed = pack_state(state)
    back = unpack_state(tensors, packed)
    assert back["a/b"].item() == 1.5
    assert back["a"]["b"].item() == 2.5
    assert back["a"][3] == (1, [2.0, float("inf")])
    assert back["~tensor"] == "not a tensor"
    assert back["half"].dtype == torch.bfloat16
    assert {key: back[key] for key in ("none", "flags", "text")} == {
        key: state[key] for key in ("none", "flags", "text")
    }
    with pytest.raises(SettingError, match="state/x is of type set"):
        pack_state({"x": {1, 2}})
