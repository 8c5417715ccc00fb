"""Writers that are killed, and readers and writers at the same time: every bundle is whole."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import bayeswell.persistence
from quick_python import QUICK_PYTHON

HARNESS = """
import json, os, random, signal, sys, time
import torch
from bayeswell.errors import FileError
from bayeswell.persistence import read_bundle, write_bundle

torch.set_num_threads(1)
os.fsync = lambda descriptor: None  # as in conftest.py: a killed process loses nothing by it
folder = sys.argv[1]
path = os.path.join(folder, "b")


def save(value):
    write_bundle(path, {"w": torch.full((20_000,), float(value))}, {"value": value})


def value():
    bundle = read_bundle(path)
    assert bool((bundle.tensors["w"] == bundle.record["value"]).all()) and len(bundle.tensors["w"]) == 20_000
    return bundle.record["value"]


def fork(work):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def outcome(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

"""


def run_harness(folder: Path, script: str) -> Any:
    source = Path(bayeswell.persistence.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [QUICK_PYTHON, "-c", HARNESS + script, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kill_9_before_every_step_leaves_the_old_bundle_or_the_new(tmp_path: Path) -> None:
    report = run_harness(
        tmp_path,
        """
def doomed(at, new):
    calls = 0
    for step in ("mkdir", "fsync", "rename", "unlink", "rmdir"):
        def wrapped(*args, real=getattr(os, step), **kwargs):
            nonlocal calls
            calls += 1
            if calls > at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)
        setattr(os, step, wrapped)
    save(new)


seen = []
save(0)
for at in range(100):
    old, new = 2 * at, 2 * at + 1
    status = outcome(fork(lambda: doomed(at, new)))
    gap = not os.path.exists(path)
    found = value()
    save(2 * at + 2)
    assert value() == 2 * at + 2
    assert os.listdir(folder) == ["b"], os.listdir(folder)
    if status == 0:
        break
    assert status == -signal.SIGKILL
    seen.append("gap" if gap and found == old else {old: "old", new: "new"}[found])
print(json.dumps(seen))
""",
    )
    # Old: mkdir, three files, their folder, a rename. Gap: the other rename. New: the old one is removed.
    assert report == ["old"] * 6 + ["gap"] + ["new"] * 6


def test_kill_9_at_random_moments_leaves_a_whole_bundle(tmp_path: Path) -> None:
    report = run_harness(
        tmp_path,
        """
def forever(start):
    while True:
        start += 1
        save(start)


chance = random.Random(3)
began = time.monotonic()
save(0)
took = time.monotonic() - began  # on a busy machine 20 ms may not do for one write
last, amid = 0, 0
for _ in range(40):
    child = fork(lambda: forever(last))
    time.sleep(chance.uniform(0.002, 0.02) + chance.uniform(0, 2) * took)
    os.kill(child, signal.SIGKILL)
    outcome(child)
    amid += os.listdir(folder) != ["b"]
    found = value()
    assert found >= last, (found, last)
    last = found
save(-1)
assert os.listdir(folder) == ["b"]
print(json.dumps([last, amid]))
""",
    )
    written, amid = report
    assert written > 0
    assert amid > 0  # kills that fell into a write, and not between two


def test_readers_and_writers_at_the_same_time_see_whole_bundles(tmp_path: Path) -> None:
    report = run_harness(
        tmp_path,
        """
def write(sign):
    end = time.monotonic() + 0.5
    count = 0
    while time.monotonic() < end:
        count += 1
        save(sign * count)


save(0)
writers = [fork(lambda sign=sign: write(sign)) for sign in (1, -1)]
end = time.monotonic() + 0.45
found = []
while time.monotonic() < end:
    found.append(value())
statuses = [outcome(writer) for writer in writers]
assert statuses == [0, 0], statuses
assert os.listdir(folder) == ["b"]
print(json.dumps([len(found), len(set(found))]))
""",
    )
    reads, different = report
    assert reads > 5
    assert different > 2  # readers and writers did meet
