"""The compiled formulas run on the threads of torch's own OpenMP runtime, whatever team it gives; else on one."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bayeswell import native
from bayeswell.native import library

pytestmark = pytest.mark.skipif(not native.available(), reason="the compiled library is not there, or turned off")

MANY = 1_000_003
"""62 chunks, the last of them short."""
KEY = 0xA4093822299F31D0
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PARALLEL = ctypes.CFUNCTYPE(None, BODY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
NUMBER = ctypes.CFUNCTYPE(ctypes.c_int)


class Team:
    """A runtime that plays so many threads, one after the other, and counts."""

    def __init__(self, size: int) -> None:
        self.size, self.now = size, 0
        self.asked: list[int] = []
        self.functions = (PARALLEL(self.parallel), NUMBER(lambda: self.now), NUMBER(lambda: self.size))

    def parallel(self, body: ctypes._CFunctionType, data: int, threads: int, flags: int) -> None:
        self.asked.append(threads)
        for number in range(self.size):
            self.now = number
            body(data)


@pytest.fixture
def loaded() -> Iterator[ctypes.CDLL]:
    """The library, with its threads put right again afterwards."""
    found = library._library()
    assert found is not None
    yield found
    found.bayeswell_use_threads(*library._thread_functions())


def drawn(threads: int) -> Tensor:
    out = torch.full((MANY,), torch.nan)
    found = library._library()
    assert found is not None
    found.bayeswell_normals(KEY, out.data_ptr(), MANY, threads)
    return out


def half_squares(threads: int) -> float:
    x = torch.linspace(-3, 2, MANY)
    found = library._library()
    assert found is not None
    precision, ends = torch.tensor([0.7]), torch.tensor([MANY])
    pointers = [tensor.data_ptr() for tensor in (x, precision, ends)]
    return float(found.bayeswell_half_squares(*pointers, 1, MANY, threads))


@pytest.mark.parametrize("team", [1, 2, 3, 5, 61, 62, 63, 200])
def test_every_piece_is_done_once_by_a_team_of_any_size(loaded: ctypes.CDLL, team: int) -> None:
    """Also one that is smaller than was asked for, as nested regions and limits make it, or larger than the work."""
    alone, alone_sum = drawn(1), half_squares(1)
    played = Team(team)
    loaded.bayeswell_use_threads(*(ctypes.cast(function, ctypes.c_void_p) for function in played.functions))
    assert torch.equal(drawn(4), alone)
    assert half_squares(4) == alone_sum
    assert played.asked == [4, 4]
    x = torch.linspace(-3, 2, MANY).double()
    assert alone_sum == pytest.approx(0.35 * x.square().sum().item(), rel=1e-6)


def test_without_a_runtime_it_runs_on_one_thread(loaded: ctypes.CDLL) -> None:
    alone = drawn(1)
    loaded.bayeswell_use_threads(None, None, None)
    assert torch.equal(drawn(4), alone)


def test_on_one_thread_and_for_little_no_team_is_called(loaded: ctypes.CDLL) -> None:
    played = Team(2)
    loaded.bayeswell_use_threads(*(ctypes.cast(function, ctypes.c_void_p) for function in played.functions))
    drawn(1)
    few = torch.empty(1000)
    loaded.bayeswell_normals(KEY, few.data_ptr(), 1000, 4)
    assert played.asked == []


def test_a_torch_without_openmp_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "__file__", "/no/such/library.so")
    assert library._thread_functions() == (None, None, None)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_the_process_has_one_openmp_runtime_and_it_is_torchs() -> None:
    if "OpenMP" not in torch.__config__.parallel_info().split("ATen parallel backend:")[1]:
        pytest.skip("this torch has no OpenMP")
    native.normals(KEY, MANY)
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    ours = {path for path in mapped if "kernels-" in path}
    assert ours
    for path in ours:
        assert b"libgomp" not in Path(path).read_bytes()
        assert b"libomp" not in Path(path).read_bytes()
    parallel = library._thread_functions()[0]
    assert parallel is not None
    (home,) = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if _within(line, parallel))
    assert any(part in Path(home).name for part in ("gomp", "iomp", "libomp", "torch"))
    assert "torch" in home or "omp" in home


def _within(line: str, address: int) -> bool:
    low, high = (int(number, 16) for number in line.split()[0].split("-"))
    return low <= address < high
