"""Members trained at the same time: each is, bit for bit, what it is when trained alone, whatever is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from fractions import Fraction
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.training import RunFolder
from bayeswell.training.helpers import _shares
from bayeswell.training.member_runs import fit_member
from folder_holders import kill_the_holder_of
from quick_python import QUICK_PYTHON

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # of runs that are too short


def problem() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 7), nn.Dropout(0.2), nn.Tanh(), nn.Linear(7, 3))
    x = torch.randn(60, 4, generator=generator)
    return {"net": net, "data": (x, x[:, :3].argmax(1)), "batch_size": 16, "epochs": 4, "seed": 2, "progress": False}


def state(result: Any) -> dict[str, torch.Tensor]:
    return dict(result.model.posterior.state_dict())


def require_same(one: Any, two: Any) -> None:
    first, second = state(one), state(two)
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert one.histories == two.histories
    assert one.temperature == two.temperature


def test_a_network_bank_is_the_same_to_the_bit_and_each_member_is_itself_alone(tmp_path: Path) -> None:
    given = problem()
    seen: dict[str, list[Any]] = {"one": [], "three": []}
    settings: dict[str, Any] = {**given, "method": "deep-ensemble", "members": 5}
    one = bw.fit(**settings, folder=tmp_path / "one", watch=seen["one"].append)
    three = bw.fit(**settings, folder=tmp_path / "three", watch=seen["three"].append, workers=3)
    require_same(one, three)
    assert seen["one"] == seen["three"]
    assert (tmp_path / "one" / "metrics.jsonl").read_bytes() == (tmp_path / "three" / "metrics.jsonl").read_bytes()
    assert not (tmp_path / "three" / "members").exists()
    alone = fit_member(
        given["net"], given["data"], bw.find_method("deep-ensemble").changed(members=5), "categorical", 4,
        epochs=4, batch_size=16, seed=2,
    )  # fmt: skip
    (weights,) = alone.posterior.draws(1, torch.Generator())
    layout = three.model.layout
    assert torch.equal(layout.flatten(three.model.posterior.member(4)), layout.flatten(weights))


def test_distributions_with_early_stopping_and_without_a_folder() -> None:
    given = problem()
    x, y = given["data"]
    more: dict[str, Any] = {"members": 2, "validation": (x[:20], y[:20]), "early_stopping": 1, "lr": 0.3}
    require_same(bw.fit(**given, method="bbb", **more), bw.fit(**given, method="bbb", **more, workers=2))


@dataclass(frozen=True)
class WaitsElsewhere:
    """Changes nothing; in another process than this one it waits, once it has a checkpoint, to be killed at work."""

    folder: Path
    home: int

    def __call__(self, inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if os.getpid() != self.home and list(self.folder.glob("checkpoints/member-*")) and not self.note.exists():
            self.note.touch()
            time.sleep(60)
        return inputs

    @property
    def note(self) -> Path:
        """There when it waits."""
        return self.folder.parents[2] / "waits"

    def kill(self) -> int:
        deadline = time.monotonic() + 120
        while not self.note.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return kill_the_holder_of(self.folder)


def test_a_killed_helper_costs_nothing_but_time(tmp_path: Path) -> None:
    augment = WaitsElsewhere(tmp_path / "run" / "members" / "1", os.getpid())
    settings: dict[str, Any] = {**problem(), "method": "deep-ensemble", "members": 2, "augment": augment}
    folder = RunFolder(tmp_path / "run", checkpoint_steps=3)
    killed: list[int] = []
    killer = threading.Thread(target=lambda: killed.append(augment.kill()))
    killer.start()
    disturbed = bw.fit(**settings, folder=folder, workers=2)
    killer.join()
    assert killed
    require_same(bw.fit(**settings), disturbed)


def test_what_helpers_have_left_is_gone_on_with_by_one_process(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**problem(), "method": "deep-ensemble", "members": 2}
    place = tmp_path / "run"

    def stop(record: Any) -> None:
        deadline = time.monotonic() + 120
        while not (place / "members" / "1" / "newest.json").exists():  # the other has saved its end
            assert time.monotonic() < deadline
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bw.fit(**settings, folder=place, workers=2, watch=stop)
    assert (place / "members" / "1" / "checkpoints").exists()
    seen: list[Any] = []
    again = bw.fit(**settings, folder=place, resume=True, watch=seen.append)
    require_same(bw.fit(**settings), again)
    assert len(seen) == 8  # told of as if they had been here


class EveryStep(bw.Callback):
    pass


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workers": 0}, "workers = 0"),
        ({"callbacks": [EveryStep()]}, "the callback EveryStep could not see the steps of members in other processes"),
        ({"devices": 2}, "workers = 2 with devices = 2"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as caught:
        bw.fit(**{**problem(), "method": "deep-ensemble", "members": 2, "workers": 2, **changes})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


PROGRAM = """
import sys, warnings
import torch
from torch import nn
import bayeswell as bw
warnings.simplefilter("ignore")
warnings.filterwarnings("always", message="workers")
class Net(nn.Linear):
    pass
x = torch.linspace(-1, 1, 60).reshape(20, 3)
y = (x[:, 0] > 0).long()
torch.manual_seed(1)
net = Net(3, 2)
given = dict(method="deep-ensemble", members=3, epochs=2, batch_size=10, seed=2, progress=False)
many = bw.fit(net, (x, y), folder=sys.argv[1], workers=3, **given)
one = bw.fit(net, (x, y), **given)
print(many.model.posterior.state_dict().keys() == one.model.posterior.state_dict().keys())
print(all(torch.equal(a, b) for a, b in zip(many.model.posterior.state_dict().values(),
                                            one.model.posterior.state_dict().values())))
"""


@pytest.mark.parametrize(
    ("way", "said"),
    [("unguarded", 'put what it does below `if __name__ == "__main__":`'), ("stdin", "was it read from stdin?")],
)
def test_a_program_that_no_other_process_can_import_trains_its_members_itself(
    tmp_path: Path, way: str, said: str
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    first = [QUICK_PYTHON, str(script)] if way == "unguarded" else [sys.executable, "-W", "ignore", "-"]
    given = None if way == "unguarded" else PROGRAM
    ran = subprocess.run(
        [*first, str(tmp_path / "run")],
        input=given, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["True", "True"]
    assert "Traceback" not in ran.stderr
    (line,) = [line for line in ran.stderr.splitlines() if "BayeswellWarning" in line]
    assert "members are trained here, one after another" in line
    assert said in line
    assert len(ran.stderr.splitlines()) <= 2  # the second is the line of code that Python shows


class CannotBeRead:
    """It is sent, and cannot be made there."""

    def __call__(self, inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return inputs

    def __reduce__(self) -> Any:
        return _refuse, (os.getpid(),)


def _refuse(pid: int) -> CannotBeRead:
    if os.getpid() != pid:
        raise LookupError("no such thing here\nnor there")
    return CannotBeRead()


@pytest.mark.filterwarnings("default::bayeswell.BayeswellWarning")
@pytest.mark.parametrize(
    ("augment", "said"),
    [
        (lambda inputs, generator: inputs, "something cannot be sent to another process"),
        (CannotBeRead(), "it cannot read what it was sent: LookupError: no such thing here"),
    ],
    ids=["sent", "read"],
)
def test_what_cannot_be_sent_is_trained_here(augment: Any, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Any] = {**problem(), "method": "deep-ensemble", "members": 3, "augment": augment}
    one = bw.fit(**settings)
    with pytest.warns(bw.BayeswellWarning) as caught:
        three = bw.fit(**settings, workers=3)
    (line,) = [str(one.message) for one in caught if "workers" in str(one.message)]
    assert said in line
    assert "\n" not in line
    require_same(one, three)
    assert "Traceback" not in capfd.readouterr().err


def test_a_daemonic_process_trains_its_members_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseProcess, "daemon", True)
    with pytest.warns(bw.BayeswellWarning, match="one after another: this is a daemonic process"):
        bw.fit(**problem(), method="deep-ensemble", members=2, workers=2)


def test_workers_without_members_to_share_are_said_to_have_nothing_to_do() -> None:
    with pytest.warns(bw.BayeswellWarning, match="workers = 4 has nothing to do: .* one member"):
        bw.fit(**problem(), method="bbb", workers=4)


def test_shares_are_of_one_length() -> None:
    """... and what is cut in two is begun first behind the cut, and ended last before it."""
    half, third = Fraction(1, 2), Fraction(1, 3)
    assert _shares(range(4), 2) == [[(0, 1), (1, 1)], [(2, 1), (3, 1)]]
    assert _shares(range(5), 2) == [[(0, 1), (1, 1), (2, 1)], [(2, half), (3, 1), (4, 1)]]
    assert _shares(range(5), 3) == [[(0, 1), (1, 1)], [(1, third), (2, 1), (3, 1)], [(3, 2 * third), (4, 1)]]
    assert _shares(range(2, 5), 8) == [[(2, 1)], [(3, 1)], [(4, 1)]]
    assert _shares(range(0), 3) == []


def test_a_member_that_two_processes_share_is_trained_once(tmp_path: Path) -> None:
    """Three by two processes, of 2 epochs of 4 batches each: half of the second and all of the third are elsewhere."""
    settings: dict[str, Any] = {**problem(), "epochs": 2, "method": "deep-ensemble", "members": 3}
    all_here, some_here = Counting(os.getpid()), Counting(os.getpid())
    whole = bw.fit(**settings, augment=all_here, folder=tmp_path / "whole")
    shared = bw.fit(**settings, augment=some_here, folder=tmp_path / "shared", workers=2)
    require_same(whole, shared)
    assert all_here.batches - some_here.batches == 4 + 8


class Counting:
    """Changes nothing, and counts the batches of the process that made it."""

    def __init__(self, home: int) -> None:
        self.home, self.batches = home, 0

    def __call__(self, inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        self.batches += os.getpid() == self.home
        return inputs
