"""A run goes on from its own newest checkpoint alone; whatever else is put there is refused, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell import native
from bayeswell.errors import BayeswellWarning, FileError
from bayeswell.persistence import read_document, write_document
from bayeswell.persistence.folders import aside
from bayeswell.training.identity import settings_sha256, threads_of
from bayeswell.training.run_folder import CONFIG, METRICS, NEWEST, RESULT, SEALS
from survival import saved_state


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", BayeswellWarning)


class Cut(bw.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def after_step(self, run: bw.Run) -> None:
        if run.step == self.step:
            raise KeyboardInterrupt


def fit(folder: Path, *, cut: int | None = None, force: bool = False, **settings: Any) -> bw.Result | None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    where = bw.RunFolder(folder, resume=True, force=force, checkpoint_steps=2)
    chosen = {"epochs": 6, "seed": 3, **settings}
    callbacks = [Cut(-1 if cut is None else cut)]
    try:
        return bw.fit(net, (x, x[:, :3].argmax(1)), "bbb", batch_size=20, folder=where, callbacks=callbacks, **chosen)
    except KeyboardInterrupt:
        return None


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refused(folder: Path, *words: str, **settings: Any) -> None:
    """The run does not go on, says why in a line, and leaves every file as it was."""
    before = everything(folder)
    with pytest.raises(FileError) as caught:
        fit(folder, **settings)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert everything(folder) == before


def test_a_kill_while_a_checkpoint_takes_the_place_of_another_loses_nothing(tmp_path: Path) -> None:
    """A run that goes on from its last checkpoint saves it once more: for a moment neither is in its place."""
    whole = fit(tmp_path / "whole")
    fit(tmp_path / "run", cut=9)
    checkpoints = bw.RunFolder(tmp_path / "run").checkpoints
    newest = checkpoints.paths()[-1]
    newest.rename(aside(newest))
    assert checkpoints.paths()[-1].name < newest.name
    found = fit(tmp_path / "run")
    assert whole is not None
    assert found is not None
    for one, other in zip(whole.model.state_dict().values(), found.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "other", [{"seed": 4}, {"stepper": {"name": "adam", "lr": 0.02}}, {}], ids=["seed", "lr", "same"]
)
def test_the_checkpoint_of_another_run_is_refused(other: dict[str, Any], tmp_path: Path) -> None:
    """With its log, which fits it; also that of a second run of the very same settings."""
    fit(tmp_path / "run", cut=9)
    fit(tmp_path / "other", cut=13, **other)
    ours = bw.RunFolder(tmp_path / "run")
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "run", kept)
    shutil.rmtree(ours.checkpoints.folder)
    shutil.copytree(tmp_path / "other" / "checkpoints", ours.checkpoints.folder)
    for name in (METRICS, NEWEST):
        shutil.copy(tmp_path / "other" / name, tmp_path / "run" / name)
    ids = [bw.RunFolder(tmp_path / name).identity().id for name in ("run", "other")]  # type: ignore[union-attr]
    assert ids[0] != ids[1]
    refused(tmp_path / "run", ours.checkpoints.paths()[-1].name, *ids, "put the run's own checkpoint back")
    refused(tmp_path / "run", *ids, force=True)
    # Put back, it goes on as if nothing had been.
    shutil.rmtree(tmp_path / "run")
    kept.rename(tmp_path / "run")
    fit(tmp_path / "run")
    fit(tmp_path / "whole")
    newest = [bw.RunFolder(tmp_path / name).checkpoints.paths()[-1] for name in ("run", "whole")]
    assert saved_state(newest[0]) == saved_state(newest[1])


def test_a_checkpoint_of_other_settings_under_the_same_id_is_refused(tmp_path: Path) -> None:
    fit(tmp_path / "run", cut=9)
    folder = bw.RunFolder(tmp_path / "run")
    state = folder.checkpoints.newest()
    assert state is not None
    folder.checkpoints.save(0, 99, state, {"id": folder.identity().id, "settings": "0" * 64})  # type: ignore[union-attr]
    refused(tmp_path / "run", "other settings", "member-0000-step-000000099")


def test_a_link_in_place_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    fit(tmp_path / "run", cut=9)
    newest = bw.RunFolder(tmp_path / "run").checkpoints.paths()[-1]
    newest.rename(tmp_path / "elsewhere")
    newest.symlink_to(tmp_path / "elsewhere")
    refused(tmp_path / "run", newest.name, "is a link", "elsewhere")


def test_a_folder_of_checkpoints_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    fit(tmp_path / "run", cut=9)
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    before = everything(tmp_path / "elsewhere")
    refused(tmp_path / "run", "a link out of its folder")
    assert everything(tmp_path / "elsewhere") == before


def older(folder: Path) -> None:
    """The checkpoints of an earlier time beside the log of a later one."""
    fit(folder, cut=5)
    shutil.copytree(folder / "checkpoints", folder.with_name("early"))
    fit(folder, cut=13)
    shutil.rmtree(folder / "checkpoints")
    shutil.copytree(folder.with_name("early"), folder / "checkpoints")


def gone(folder: Path) -> None:
    """No checkpoint at all."""
    fit(folder, cut=13)
    shutil.rmtree(folder / "checkpoints")


@pytest.mark.parametrize("loss", [older, gone])
def test_older_checkpoints_than_the_log_are_refused_unless_forced(loss: Callable[[Path], None], tmp_path: Path) -> None:
    loss(tmp_path / "run")
    refused(tmp_path / "run", "was saved in", "older than the log" if loss is older else "there is none", "force")
    fit(tmp_path / "run", force=True)
    fit(tmp_path / "whole")
    assert (tmp_path / "run" / METRICS).read_bytes() == (tmp_path / "whole" / METRICS).read_bytes()


def test_an_old_checkpoint_under_a_new_name_is_refused(tmp_path: Path) -> None:
    fit(tmp_path / "run", cut=13)
    old, new = bw.RunFolder(tmp_path / "run").checkpoints.paths()
    shutil.rmtree(new)
    old.rename(new)
    refused(tmp_path / "run", new.name, "renamed", old.name)


def test_an_altered_log_is_refused_unless_forced(tmp_path: Path) -> None:
    fit(tmp_path / "run", cut=13)
    log = tmp_path / "run" / METRICS
    log.write_bytes(log.read_bytes().replace(b'"epoch": 1', b'"epoch": 7'))
    refused(tmp_path / "run", METRICS, "line 2")
    fit(tmp_path / "run", force=True)
    assert len(log.read_bytes().splitlines()) == 6


def test_changed_settings_that_were_forced_keep_the_checkpoint(tmp_path: Path) -> None:
    fit(tmp_path / "run", cut=9)
    before = settings_sha256(read_document(tmp_path / "run" / CONFIG))
    assert fit(tmp_path / "run", force=True, accumulate=2) is not None
    config = read_document(tmp_path / "run" / CONFIG)
    assert config["run"]["earlier"] == [before]
    assert config["accumulate"] == 2


def test_a_run_of_an_earlier_version_goes_on_and_gets_an_id(tmp_path: Path) -> None:
    """Its settings, log and checkpoints without seals and ids, as they were written then."""
    fit(tmp_path / "run", cut=13)
    folder = bw.RunFolder(tmp_path / "run")
    config = json.loads((tmp_path / "run" / CONFIG).read_text())
    (tmp_path / "run" / CONFIG).write_text(json.dumps({k: v for k, v in config.items() if k not in ("run", "seal")}))
    lines = [json.loads(line) for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    plain = "".join(json.dumps({k: v for k, v in line.items() if k != "seal"}) + "\n" for line in lines)
    (tmp_path / "run" / METRICS).write_text(plain)
    (tmp_path / "run" / NEWEST).unlink()
    length = len("".join(plain.splitlines(keepends=True)[:3]))
    for path in folder.checkpoints.paths():
        state = folder.checkpoints.read(path)
        state["run"]["callbacks"]["MetricsLog 0"] = {"size": length}
        member, step = int(path.name[7:11]), int(path.name[17:])
        folder.checkpoints.save(member, step, state)
    with pytest.warns(BayeswellWarning, match="no seal"):
        assert fit(tmp_path / "run") is not None
    assert read_document(tmp_path / "run" / CONFIG)["run"]["adopted"] is True
    assert [line["epoch"] for line in folder.epochs()] == list(range(6))


def test_what_a_run_computes_with_is_written_down_and_a_change_said(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        fit(tmp_path / "run", cut=9)
        config = read_document(tmp_path / "run" / CONFIG)
        said = config["run"]["machine"]
        assert said["threads"] == threads_of(config) == 1
        assert said["formulas"] == native.instruction_set()
        assert (said["formulas"] is not None) == native.available()
        assert said["processor"] == torch.backends.cpu.get_cpu_capability()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "the stds|.*(trust|fewer|method)")
            fit(tmp_path / "run", cut=11)
        torch.set_num_threads(2)
        with pytest.warns(BayeswellWarning, match=r"goes on otherwise: threads were 1, are now 2; it will not end"):
            fit(tmp_path / "run", cut=13)
        torch.set_num_threads(1)
        if native.available():
            with native.disabled(), pytest.warns(BayeswellWarning, match="compiled formulas were .*, are now none"):
                fit(tmp_path / "run", cut=15)
    finally:
        torch.set_num_threads(threads)


def test_leftovers_of_killed_saves_are_removed_by_the_next_start(tmp_path: Path) -> None:
    fit(tmp_path / "run", cut=9)
    half = tmp_path / "run" / "checkpoints" / ".member-0000-step-000000099.bayeswell-tmp-0123456789abcdef"
    half.mkdir()
    (half / "tensors.safetensors").write_bytes(b"half")
    file = tmp_path / "run" / ".result.json.bayeswell-tmp-0123456789abcdef"
    file.write_bytes(b"half")
    fit(tmp_path / "run", cut=11)
    assert not half.exists()
    assert not file.exists()


def test_an_empty_result_is_none_and_a_stripped_one_is_said(tmp_path: Path) -> None:
    fit(tmp_path / "run", cut=9)
    folder = bw.RunFolder(tmp_path / "run")
    result = {"test": 1, "draws": 5, "time": 3}
    folder.write_result(result)
    assert folder.result() == json.loads((tmp_path / "run" / RESULT).read_text()) == result
    assert folder.swapped() == []
    for emptied in ("", "{}"):
        (tmp_path / "run" / RESULT).write_text(emptied)
        assert folder.result() is None
    (tmp_path / "run" / RESULT).write_text(json.dumps({**result, "draws": 6}))
    with pytest.raises(FileError, match=r"result\.json' was altered"):
        folder.result()
    (tmp_path / "run" / SEALS).unlink()  # as if killed before it was sealed
    with pytest.warns(BayeswellWarning, match=r"result\.json.*no seal"):
        assert folder.result() is None
    folder.write_result(result)
    config = folder.config()
    write_document(tmp_path / "run" / CONFIG, {**config, "seed": 4})
    assert folder.swapped() == ["settings"]


def test_a_lost_terminal_saves_like_any_other_signal(tmp_path: Path) -> None:
    class HangUp(bw.Callback):
        def after_step(self, run: bw.Run) -> None:
            if run.step == 7:
                os.kill(os.getpid(), signal.SIGHUP)

    x = torch.randn(60, 4)
    data = (x, x[:, :3].argmax(1))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may have been started by nohup
    try:
        with pytest.raises(bw.Interrupted) as caught:
            bw.fit(nn.Linear(4, 3), data, "map", batch_size=20, folder=tmp_path / "run", callbacks=[HangUp()])
        assert caught.value.exit_code == 129
        assert "signal 1 after step 7" in str(caught.value)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        bw.fit(nn.Linear(4, 3), data, "map", batch_size=20, epochs=3, folder=tmp_path / "b", callbacks=[HangUp()])
    finally:
        signal.signal(signal.SIGHUP, before)


def test_with_a_key_a_run_goes_on_signed_and_with_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESWELL_KEY", "a key of a test, long enough")
    fit(tmp_path / "run", cut=9)
    for key, words in (("another key, as long as that", "not made with this"), ("short", "has 5 bytes")):
        monkeypatch.setenv("BAYESWELL_KEY", key)
        before = everything(tmp_path / "run")
        with pytest.raises(bw.BayeswellError, match=words):
            fit(tmp_path / "run")
        assert everything(tmp_path / "run") == before
    monkeypatch.setenv("BAYESWELL_KEY", "a key of a test, long enough")
    assert fit(tmp_path / "run") is not None
    # What was begun without a key is not gone on with under one.
    monkeypatch.delenv("BAYESWELL_KEY")
    fit(tmp_path / "plain", cut=9)
    monkeypatch.setenv("BAYESWELL_KEY", "a key of a test, long enough")
    refused(tmp_path / "plain", "config.json", "not signed")
    # The numbers are the same.
    monkeypatch.delenv("BAYESWELL_KEY")
    fit(tmp_path / "plain")
    assert (tmp_path / "run" / METRICS).read_bytes() == (tmp_path / "plain" / METRICS).read_bytes()
