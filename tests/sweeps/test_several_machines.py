"""Sweeps of machines that share a PostgreSQL and nothing else: each has a folder of its own, and no lock of a file."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from bayeswell.errors import FileError, InUseError, SettingError
from bayeswell.sweeps import SweepResult, join_sweep, run_sweep, sweep_result
from bayeswell.sweeps.definition import read_definition, storage_url
from bayeswell.sweeps.leases import DatabaseLocks
from bayeswell.sweeps.ledger import Ledger
from bayeswell.sweeps.worker import work
from bayeswell.training import RunFolder
from sweeps.postgres import Cluster, cluster, missing
from sweeps.sleeper import SPACE, Sleeper, calls
from sweeps.test_killed_workers import PATIENCE, alive, expected_settings, program, require_each_once, until

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


def begun(folder: Path, server: Cluster, name: str, **changes: Any) -> Ledger:
    """The book of a sweep of which nothing has been done."""

    def stops(*given: object) -> float:
        raise KeyboardInterrupt

    settings: dict[str, Any] = {"trials": 4, "sampler": "random", "seed": 3, "storage": server.address, "name": name}
    with pytest.raises(KeyboardInterrupt):
        run_sweep(stops, SPACE, folder, **{**settings, **changes})
    return Ledger(read_definition(folder), folder)


@pytest.mark.usefixtures("quick_workers")
def test_eight_workers_of_two_machines_of_which_three_are_killed(server: Cluster, tmp_path: Path) -> None:
    log, killed = tmp_path / "calls", set[int]()

    def machine(name: str) -> SweepResult:
        return run_sweep(
            Sleeper(str(log), 0.3, together=8), SPACE, tmp_path / name / "s",
            trials=24, workers=4, sampler="random", seed=3, storage=server.address, name="killed",
        )  # fmt: skip

    with ThreadPoolExecutor(2) as both:
        results = [both.submit(machine, name) for name in ("one", "two")]
        kill_three(log, killed, seed=1)
        assert results[0].result() == results[1].result()
    require_each_once_of_both(tmp_path, 24, log, killed)


def test_a_grid_of_two_machines_has_every_point_once(server: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    space = {"stepper.lr": "0.1,0.01", "posterior.rank": "1:3", "temperature": "0.1,1"}

    def machine(name: str) -> SweepResult:
        return run_sweep(
            Sleeper(str(log), 0.02), space, tmp_path / name / "s",
            sampler="grid", storage=server.address, name="grid",
        )  # fmt: skip

    with ThreadPoolExecutor(2) as both:
        one, two = both.map(machine, ("one", "two"))
    assert one == two
    points = [tuple(trial.settings.values()) for trial in one.trials]
    assert points == list(product((0.1, 0.01), (1, 2, 3), (0.1, 1)))
    assert sorted(call["trial"] for call in calls(log) if call["what"] == "end") == list(range(12))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_the_same_of_two_commands(server: Cluster, tmp_path: Path, seed: int) -> None:
    log, killed, began = tmp_path / "calls", set[int](), time.monotonic()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    options = ("--trials", "60", "--workers", "4", "--seconds", "0.3", "--together", "8",
               "--storage", server.address, "--name", f"killed{seed}")  # fmt: skip
    commands = [program(tmp_path / name / "s", log, *options) for name in ("one", "two")]
    kill_three(log, killed, seed)
    assert [command.wait(PATIENCE) for command in commands] == [0, 0]
    print(f"60 trials, {len(killed)} of 8 workers killed: {time.monotonic() - began:.1f} s")
    require_each_once_of_both(tmp_path, 60, log, killed)


def kill_three(log: Path, killed: set[int], seed: int) -> None:
    """When all eight are at work: in a trial, between two, or while one holds a lock."""
    moments = random.Random(seed)
    until(lambda: len({call["pid"] for call in calls(log)}) >= 8)
    while len(killed) < 3:
        time.sleep(moments.uniform(0.02, 0.3))
        pids = [pid for pid in sorted({int(call["pid"]) for call in calls(log)} - killed) if alive(pid)]
        victim = moments.choice(pids)
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)


def require_each_once_of_both(folder: Path, trials: int, log: Path, killed: set[int]) -> None:
    result = sweep_result(folder / "one" / "s")
    assert result == sweep_result(folder / "two" / "s")
    require_each_once(result, expected_settings(folder / "undisturbed", trials), log, killed)
    ended = {str(trial.place).split(":")[1].removeprefix(str(folder)).split("/")[1] for trial in result.trials}
    assert ended == {"one", "two"}
    for name in ended:  # no lock of a file says whose a trial is
        assert not (folder / name / "s" / ".leases").exists()


def test_a_trial_is_one_workers_and_free_when_its_connection_ends(server: Cluster, tmp_path: Path) -> None:
    one = begun(tmp_path / "one" / "s", server, "held")
    two = begun(tmp_path / "two" / "s", server, "held")
    first, second = one.claim(), two.claim()
    assert first is not None
    assert second is not None
    assert {first.number, second.number} == {0, 1}
    more = [one.claim(), two.claim()]
    assert [one.claim(), two.claim()] == [None, None]  # its own trials are no more free than another's
    one._locks.close()  # as the system does when its process is killed
    again = two.claim()
    assert again is not None
    assert (again.number, again.attempt, dict(again.settings)) == (first.number, 2, dict(first.settings))
    two.finish(again, 2.5)
    one.finish(first, 2.25)  # it was only cut off: whoever ends a trial first has ended it
    one.give_back(first)
    assert [trial.value for trial in one.result().trials][first.number] == 2.5
    assert all(claim is not None for claim in more)


def test_a_worker_of_the_trials_own_machine_goes_before_that_of_another(server: Cluster, tmp_path: Path) -> None:
    one = begun(tmp_path / "one" / "s", server, "own")
    two = begun(tmp_path / "two" / "s", server, "own")
    (two.folder / "trials" / "0000").rmdir()  # which it had begun, and given back
    claims = {number: book.claim() for number, book in ((0, one), (1, two))}
    assert all(claim is not None and claim.number == number for number, claim in claims.items())
    for book in (one, two):
        book._locks.close()
    taken = Ledger(two.definition, two.folder).claim()
    assert taken is not None
    assert taken.number == 1  # whose folder is there


def cut_off(book: Ledger) -> None:
    """End the connection that holds the book's locks, as a network does; its holder does not know."""
    assert isinstance(book._locks, DatabaseLocks)
    holder = book._locks._session().execute(text("SELECT pg_backend_pid()")).scalar()
    other = DatabaseLocks(storage_url(book.definition, book.folder))
    other._session().execute(text("SELECT pg_terminate_backend(:holder, 5000)"), {"holder": holder})
    other.close()


def test_a_worker_that_was_cut_off_takes_its_trials_again_where_they_are_free(server: Cluster, tmp_path: Path) -> None:
    one, two = begun(tmp_path / "one" / "s", server, "cut"), begun(tmp_path / "two" / "s", server, "cut")
    claims = [one.claim(), one.claim()]
    assert [claim is not None and claim.number for claim in claims] == [0, 1]
    cut_off(one)
    taken = two.claim()  # before one has noticed
    assert taken is not None
    assert taken.number == 0
    more = one.claim()  # notices
    assert more is not None
    assert more.number == 2
    last = two.claim()
    assert last is not None
    assert last.number == 3  # 1 is one's again
    assert [one.claim(), two.claim()] == [None, None]


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_trial_whose_worker_is_only_cut_off_is_not_taken_in_the_same_folder(
    server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    """A second worker of the folder is idle: it finds the lease free and the run's own lock held."""
    monkeypatch.setattr("bayeswell.training.run_folder.LOCK_SECONDS", 0.1)
    one = begun(tmp_path / "s", server, f"alive{attempts}", trials=1, attempts=attempts)
    monkeypatch.setattr("bayeswell.sweeps.worker.POLL_SECONDS", 0.02)
    two = Ledger(one.definition, one.folder)
    looks, claim = list[object](), two.claim
    monkeypatch.setattr(two, "claim", lambda: looks.append(claim()) or looks[-1])
    begins, ends = threading.Event(), threading.Event()

    def trains(settings: Any, folder: Path) -> float:
        run = RunFolder(folder, resume=True)
        run.open({})
        begins.set()
        ends.wait(PATIENCE)
        run.close()
        return 2.5

    with ThreadPoolExecutor(2) as both:
        first = both.submit(work, one, trains)
        assert begins.wait(PATIENCE)
        cut_off(one)
        second = both.submit(work, two, trains)
        until(lambda: len(looks) >= 4 or second.done())
        ends.set()
        first.result(PATIENCE)
        second.result(PATIENCE)
    (trial,) = one.result().trials
    assert (trial.state, trial.value, trial.attempts, trial.message) == ("complete", 2.5, 1, None)


def test_a_run_that_another_works_on_costs_no_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was free when it was taken, and locked a moment later."""
    monkeypatch.setattr("bayeswell.sweeps.worker.POLL_SECONDS", 0.02)
    met: list[Path] = []

    def trains(settings: Any, folder: Path) -> float:
        met.append(folder)
        if len(met) < 4:
            raise InUseError("another process is working on the run")
        return 2.5

    (trial,) = run_sweep(trains, SPACE, tmp_path / "s", trials=1, attempts=2, sampler="random").trials
    assert (trial.state, trial.value, trial.attempts, len(met)) == ("complete", 2.5, 1, 4)


def test_a_server_that_was_started_anew_costs_no_trial(server: Cluster, tmp_path: Path) -> None:
    book = begun(tmp_path / "s", server, "anew")
    claim = book.claim()
    assert claim is not None
    server.stop()
    try:
        with pytest.raises(FileError, match=r"the study in 'postgresql\+psycopg://me:\*\*\*@") as caught:
            book.finish(claim, 1.5)
        assert "\n" not in str(caught.value)
    finally:
        server.start()
    book.finish(claim, 1.5)
    assert book.result().trials[claim.number].value == 1.5


def test_a_machine_joins_by_the_address_and_what_is_another_sweep_is_refused(server: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    function = Sleeper(str(log), 0.0)
    settings: dict[str, Any] = {"trials": 3, "sampler": "random", "seed": 3, "storage": server.address}
    first = run_sweep(function, SPACE, tmp_path / "one" / "joined", **settings)
    # The same call, with more workers than there is work for; and by the address alone.
    assert run_sweep(function, SPACE, tmp_path / "two" / "joined", **settings) == first
    assert join_sweep(function, tmp_path / "three", storage=server.address, name="joined") == first
    assert join_sweep(function, tmp_path / "three") == first
    assert len(calls(log)) == 6  # three began, three ended
    written = (tmp_path / "three" / "sweep.json").read_text()
    assert os.environ["SWEEP_TEST_PASSWORD"] not in written
    with pytest.raises(SettingError, match=r"is of another sweep: seed was 3, is now 4"):
        run_sweep(function, SPACE, tmp_path / "four" / "joined", **{**settings, "seed": 4})
    with pytest.raises(SettingError, match=r"has no study 'join'; did you mean 'joined'"):
        join_sweep(function, tmp_path / "five", storage=server.address, name="join")
    with pytest.raises(SettingError, match=r"name: the sweep in .* has another one"):
        join_sweep(function, tmp_path / "three", storage=server.address, name="other")
    with pytest.raises(SettingError, match="only a sweep on PostgreSQL is joined by its address"):
        join_sweep(function, tmp_path / "six", storage=f"sqlite:///{tmp_path}/all.db", name="joined")
