"""A sweep in one process: what is recorded, what is refused, what may be gone on with."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bayeswell.errors import DivergenceError, FileError, SettingError
from bayeswell.sweeps import SweepResult, join_sweep, run_sweep, suggestions, sweep_result
from bayeswell.sweeps.definition import read_definition
from bayeswell.sweeps.ledger import Ledger

SPACE = {"lr": "1e-4:1e-1:log", "rank": "1:8", "temperature": "0.01,0.1,1"}


def bowl(settings: Mapping[str, Any], folder: Path) -> float:
    return float((settings["lr"] - 0.03) ** 2 + settings["rank"] + settings["temperature"])


def settings_of(result: SweepResult) -> list[dict[str, Any]]:
    return [dict(trial.settings) for trial in result.trials]


def sweep(folder: Path, function: Any = bowl, **changes: Any) -> SweepResult:
    return run_sweep(
        function, **{"space": SPACE, "folder": folder, "trials": 4, "sampler": "random", "seed": 5, **changes}
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that has ended, to be copied."""
    folder = tmp_path_factory.mktemp("finished") / "s"
    sweep(folder, name="s", settings={"method": "bbb", "epochs": 3})
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "s"))


def test_the_best_trial_is_the_best_of_all(tmp_path: Path) -> None:
    result = sweep(tmp_path / "s")
    assert [trial.number for trial in result.trials] == list(range(4))
    assert all(trial.state == "complete" and trial.attempts == 1 for trial in result.trials)
    for trial in result.trials:
        assert trial.value == bowl(trial.settings, tmp_path)
        assert 1e-4 <= trial.settings["lr"] <= 1e-1
        assert trial.settings["rank"] in range(1, 9)
        assert trial.settings["temperature"] in (0.01, 0.1, 1)
    values = [trial.value for trial in result.trials if trial.value is not None]
    assert result.best is not None
    assert result.best.value == min(values)
    assert [trial.value for trial in result.ranked()] == sorted(values)
    turned = dataclasses.replace(result, direction="maximize")
    assert [trial.value for trial in turned.ranked()] == sorted(values, reverse=True)


def test_a_random_sweep_depends_on_its_seed_alone(finished: Path, tmp_path: Path) -> None:
    first = settings_of(sweep_result(finished))
    assert settings_of(sweep(tmp_path / "a", trials=2)) == first[:2]
    other = settings_of(sweep(tmp_path / "b", trials=2, seed=6))
    assert all(one["lr"] != two["lr"] for one, two in zip(first, other, strict=False))
    assert len({one["lr"] for one in first}) == len(first)


def test_tpe_learns_after_ten_trials(tmp_path: Path) -> None:
    def far(settings: Mapping[str, Any], folder: Path) -> float:
        return abs(float(settings["x"]) - 3)

    changes: dict[str, Any] = {"space": {"x": "-10.0:10.0"}, "trials": 12}
    first = settings_of(sweep(tmp_path / "a", far, sampler="tpe", **changes))
    with pytest.raises(KeyboardInterrupt):  # settings at random, but for the trials themselves
        sweep(tmp_path / "r", _interrupted, **changes)
    book = Ledger(read_definition(tmp_path / "r"), tmp_path / "r")
    random = [dict(claim.settings) for claim in iter(book.claim, None)]
    assert first[:10] == random[:10]
    assert all(one != two for one, two in zip(first[10:], random[10:], strict=True))


def test_a_sweep_that_was_stopped_goes_on(finished: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    def stops(settings: Mapping[str, Any], folder: Path) -> float:
        seen.append(int(folder.name))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return bowl(settings, folder)

    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "s", stops)
    halfway = sweep_result(tmp_path / "s")
    assert [trial.state for trial in halfway.trials] == ["complete", "complete", "running"]
    assert not halfway.finished
    result = sweep(tmp_path / "s", stops)
    assert seen == [0, 1, 2, 2, 3]
    assert settings_of(result) == settings_of(sweep_result(finished))
    assert [trial.attempts for trial in result.trials] == [1] * 4  # being told to stop is not held against a trial
    assert sweep(tmp_path / "s", stops) == result  # nothing is left to do
    assert len(seen) == 5


def test_another_process_may_join_by_the_folder_alone(tmp_path: Path) -> None:
    def stops(settings: Mapping[str, Any], folder: Path) -> float:
        if folder.name == "0002" and not (folder / "been").exists():
            (folder / "been").touch()
            raise KeyboardInterrupt
        return bowl(settings, folder)

    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "s", stops)
    assert join_sweep(stops, tmp_path / "s").count("complete") == 4
    with pytest.raises(SettingError, match=r"is of the function .*stops, not of .*bowl"):
        join_sweep(bowl, tmp_path / "s")
    with pytest.raises(FileError, match="holds no sweep"):
        join_sweep(bowl, tmp_path / "nothing")


def test_settings_that_diverge_are_recorded_and_not_tried_again(tmp_path: Path) -> None:
    def diverges(settings: Mapping[str, Any], folder: Path) -> float:
        if folder.name == "0001":
            raise DivergenceError("step 7: the gradient of fc.weight is NaN\nsecond line")
        return float("nan") if folder.name == "0003" else bowl(settings, folder)

    result = sweep(tmp_path / "s", diverges)
    assert [trial.state for trial in result.trials] == [
        "complete", "failed", "complete", "failed",
    ]  # fmt: skip
    assert result.trials[1].message == "DivergenceError: step 7: the gradient of fc.weight is NaN"
    assert result.trials[1].attempts == 1
    assert result.trials[3].message == "the objective is nan"
    assert len(result.ranked()) == 2
    assert result.finished


def test_errors_that_may_pass_are_tried_again_but_not_for_ever(tmp_path: Path) -> None:
    def full_disk(settings: Mapping[str, Any], folder: Path) -> float:
        with open(folder / "begun", "a") as file:
            file.write("x")
        if folder.name == "0001" or len((folder / "begun").read_text()) < 3:
            raise OSError(28, "No space left on device")
        return bowl(settings, folder)

    result = sweep(tmp_path / "s", full_disk, attempts=4, trials=3)
    assert [trial.attempts for trial in result.trials] == [3, 4, 3]
    assert [trial.state for trial in result.trials] == ["complete", "failed", "complete"]
    assert result.trials[1].message == "OSError: [Errno 28] No space left on device"
    assert (tmp_path / "s" / "trials" / "0001" / "begun").read_text() == "xxxx"


def test_a_trial_that_kills_its_worker_each_time_is_given_up(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    with pytest.raises(KeyboardInterrupt):
        sweep(folder, _interrupted, attempts=3, trials=2)
    for attempt in (1, 2, 3):  # taken, and let go as the system does when a process dies: without a word
        book = Ledger(read_definition(folder), folder)
        claim = book.claim()
        assert claim is not None
        assert (claim.number, claim.attempt) == (0, attempt)
        claim.lease.give_back()
    following = Ledger(read_definition(folder), folder).claim()
    assert following is not None
    assert following.number == 1
    first = sweep_result(folder).trials[0]
    assert (first.state, first.message) == ("failed", "given up after 3 attempts: its worker died each time")


def _interrupted(*given: Any, **named: Any) -> float:
    raise KeyboardInterrupt


def test_a_trial_that_was_cut_off_between_two_settings_gets_those_it_would_have_had(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = settings_of(sweep_result(finished))[:2]
    suggested = suggestions._suggested

    for drawn in (1, 2):
        names: list[str] = []

        def dies(trial: Any, name: str, spread: Any, names: list[str] = names, drawn: int = drawn) -> Any:
            if len(names) == drawn:
                raise KeyboardInterrupt
            names.append(name)
            return suggested(trial, name, spread)

        with monkeypatch.context() as patch:
            patch.setattr(suggestions, "_suggested", dies)
            with pytest.raises(KeyboardInterrupt):
                sweep(tmp_path / str(drawn), trials=2)
        half = sweep_result(tmp_path / str(drawn)).trials
        assert [len(trial.settings) for trial in half] == [drawn]
        assert settings_of(sweep(tmp_path / str(drawn), trials=2)) == whole


def test_two_workers_never_hold_one_trial(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "s", _interrupted, trials=2)
    one, two = (Ledger(read_definition(tmp_path / "s"), tmp_path / "s") for _ in range(2))
    first, second = one.claim(), two.claim()
    assert first is not None
    assert second is not None
    assert {first.number, second.number} == {0, 1}
    assert two.claim() is None  # all are held; none is finished
    one.finish(first, 1.5)
    assert two.claim() is None  # the lease is free again, but the trial has ended
    two.finish(second, 2.5)
    assert [trial.value for trial in one.result().trials] == [1.5, 2.5]


def test_a_trial_that_ended_unrecorded_is_recorded_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = tmp_path / "s", list[str]()

    def counted(settings: Mapping[str, Any], folder: Path) -> float:
        seen.append(folder.name)
        return bowl(settings, folder)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_end", _interrupted)  # killed between the end of the function and the record of it
        with pytest.raises(KeyboardInterrupt):
            sweep(folder, counted, trials=2)
    _free(folder)
    assert [trial.state for trial in sweep_result(folder).trials] == ["running"]
    result = sweep(folder, counted, trials=2)
    assert seen == ["0000", "0001"]
    assert [trial.value for trial in result.trials] == [bowl(trial.settings, folder) for trial in result.trials]


def _free(folder: Path) -> None:
    """Make every lease a copy of itself, which nobody holds: the process that held it lives on in a test."""
    for path in (folder / ".leases").iterdir():
        note = path.read_bytes()
        path.unlink()
        path.write_bytes(note)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trials": 7}, "trials was 4, is now 7"),
        ({"seed": 9}, "seed was 5, is now 9"),
        ({"sampler": "tpe"}, "sampler was 'random', is now 'tpe'"),
        ({"space": {**SPACE, "rank": "1:9"}}, "space.rank was '1:8', is now '1:9'"),
        ({"space": {"lr": SPACE["lr"], "rank": "1:8"}}, "space.temperature was '0.01,0.1,1', is now None"),
        ({"settings": {"method": "bbb", "epochs": 4}}, "settings.epochs was 3, is now 4"),
        ({"direction": "maximize"}, "direction was 'minimize', is now 'maximize'"),
    ],
)
def test_another_sweep_in_the_folder_is_refused_by_name(copy: Path, change: dict[str, Any], said: str) -> None:
    same: dict[str, Any] = {"name": "s", "settings": {"method": "bbb", "epochs": 3}}
    with pytest.raises(SettingError) as caught:
        sweep(copy, **{**same, **change})
    assert said in str(caught.value)
    assert "holds another sweep" in str(caught.value)
    sweep(copy, **same)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trials": 0}, "trials = 0"),
        ({"sampler": "tpa"}, "did you mean 'tpe'"),
        ({"direction": "up"}, "direction = 'up'"),
        ({"workers": 0}, "workers = 0"),
        ({"attempts": 0}, "attempts = 0"),
        ({"seed": 0.5}, "seed = 0.5"),
        ({"storage": "study.db"}, "storage = 'study.db'"),
        ({"storage": "sqlite://"}, "cannot share a database in memory"),
        ({"storage": "nonsense://x"}, "nonsense"),
        ({"workers": 2}, "several workers need a function that another process can import"),
    ],
)
def test_bad_settings_are_refused_in_one_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises((SettingError, FileError)) as caught:
        sweep(tmp_path / "s", lambda settings, folder: 1.0, **change)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match="is not empty and holds no sweep"):
        sweep(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"] or sorted(os.listdir(tmp_path)) == [".sweep.lock", "notes.txt"]


def test_a_database_elsewhere_serves_one_sweep_by_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = sweep(tmp_path / "a", storage="sqlite:///all.db", name="first", trials=2)
    assert (tmp_path / "all.db").exists()
    assert not (tmp_path / "a" / "study.sqlite3").exists()
    with pytest.raises(SettingError, match=r"the study 'first' in .* is not of the sweep in .*b"):
        sweep(tmp_path / "b", storage="sqlite:///all.db", name="first", trials=2)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert sweep_result(tmp_path / "a") == first
    # What only the environment should know is not written down.
    monkeypatch.setenv("PLACE", str(tmp_path))
    second = sweep(tmp_path / "c", storage="sqlite:////${PLACE}/all.db", name="second", trials=2)
    assert settings_of(first) == settings_of(second)
    assert "${PLACE}" in (tmp_path / "c" / "sweep.json").read_text()
    monkeypatch.delenv("PLACE")
    with pytest.raises(SettingError, match="storage: PLACE is not in the environment") as caught:
        sweep_result(tmp_path / "c")
    assert "all.db" not in str(caught.value)  # an address may hold a password


def test_an_address_is_no_template(tmp_path: Path) -> None:
    """Optuna fills in what stands in braces; a password may have some."""
    place = tmp_path / "{odd}"
    place.mkdir()
    sweep(tmp_path / "s", storage=f"sqlite:///{place}/all.db", name="first", trials=2)
    assert (place / "all.db").exists()


def test_a_name_that_is_missing_is_told_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="NOT_THERE is not in the environment"):
        sweep(tmp_path / "s", storage="postgresql://me:${NOT_THERE}@host/all")
    assert not (tmp_path / "s").exists()


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        sweep(tmp_path / "s", storage="nonsense://user:secret@host/all")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("damage", ["half", "header", "pages", "empty", "gone"])
def test_a_damaged_database_is_named(copy: Path, damage: str) -> None:
    path = copy / "study.sqlite3"
    data = path.read_bytes()
    torn = {
        "half": data[: len(data) // 2 + 100],
        "header": b"\0" * 100 + data[100:],
        "pages": data[:4096] + b"\xff" * (len(data) - 4096),
        "empty": b"",
    }
    path.unlink()
    if damage in torn:
        path.write_bytes(torn[damage])
    with pytest.raises(FileError) as caught:
        join_sweep(bowl, copy)
    assert "study.sqlite3" in str(caught.value)
    assert ("is damaged" if damage in ("half", "header", "pages") else "was emptied or replaced") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_database_that_another_program_locks_is_waited_for(copy: Path) -> None:
    folder, definition = copy, read_definition(copy)
    with contextlib.closing(sqlite3.connect(folder / "study.sqlite3", check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(FileError, match=r"another program has kept .* locked for 0.1 s"):
            Ledger(definition, folder, busy_seconds=0.1)
        began = time.monotonic()
        threading.Timer(0.2, other.rollback).start()
        assert Ledger(definition, folder, busy_seconds=20).result().finished
        assert 0.15 < time.monotonic() - began < 10


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"cannot make the folder '.*file/s'"):
        sweep(tmp_path / "file" / "s")
