"""Arrays in files larger than memory: the results of arrays in memory, and none of the memory."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import bayeswell as bw
from bayeswell.errors import DataError, FileError
from bayeswell.predictive import nll_of_draws
from quick_python import QUICK_PYTHON


def saved(folder: Path, x: Any, y: Any | None = None) -> Path:
    np.save(folder / "x.npy", x)
    if y is not None:
        np.save(folder / "y.npy", y)
    return folder


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(230, 5)).astype(np.float32)
    return x, (x[:, 0] - x[:, 1] > 0.2).astype(np.int64)


def fitted(data: Any, **settings: Any) -> bw.FitResult:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BayeswellWarning)  # so short a training says that it is
        return bw.fit(net, data, "bbb", "categorical", epochs=3, batch_size=40, seed=4, progress=False, **settings)


def test_training_and_prediction_are_those_of_the_arrays_in_memory(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    x, y = map(torch.from_numpy, arrays)
    mapped = bw.MappedArrays(saved(tmp_path, *arrays))
    from_file, in_memory = fitted(mapped), fitted((x, y))
    for name, value in in_memory.model.state_dict().items():
        assert torch.equal(value, from_file.model.state_dict()[name]), name
    found = from_file.predict(mapped, draws=7, batch_size=60, seed=1).probabilities
    assert torch.equal(found, in_memory.predict(x, draws=7, batch_size=60, seed=1).probabilities)
    losses = nll_of_draws(from_file.model, mapped, None, from_file.likelihood, draws=4, batch_size=60, seed=1)
    truth = nll_of_draws(in_memory.model, x, y, in_memory.likelihood, draws=4, batch_size=60, seed=1)
    assert torch.equal(losses, truth)


def test_what_numpy_may_hold_is_read_as_it_is(tmp_path: Path) -> None:
    """Big-endian, Fortran order and whole numbers; without targets; by a loader with workers."""
    x = np.arange(60).reshape(20, 3)
    np.save(tmp_path / "big.npy", x.astype(">f4"))
    np.save(tmp_path / "columns.npy", np.asfortranarray(x.astype(np.float64)))
    np.save(tmp_path / "whole.npy", x)
    for name in ("big", "columns", "whole"):
        mapped = bw.MappedArrays(tmp_path / f"{name}.npy")
        np.testing.assert_array_equal(mapped.rows(4, 9).numpy(), x[4:9])
        np.testing.assert_array_equal(torch.stack(mapped.__getitems__([7, 0, 7])).numpy(), x[[7, 0, 7]])
        assert mapped.targets() is None
        assert len(mapped) == 20
    again = pickle.loads(pickle.dumps(mapped))
    np.testing.assert_array_equal(again[5].numpy(), x[5])
    batches = list(DataLoader(mapped, batch_size=7, num_workers=1))
    np.testing.assert_array_equal(torch.cat(batches).numpy(), x)


def test_whole_numbers_become_real_ones_where_the_network_takes_them_so(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    x = (10 * arrays[0]).round().astype(np.int64)
    result = fitted(tuple(map(torch.from_numpy, arrays)))
    mapped = bw.MappedArrays(saved(tmp_path, x))
    found = result.predict(mapped, draws=3, batch_size=60, seed=1).probabilities
    assert torch.equal(found, result.predict(torch.from_numpy(x), draws=3, batch_size=60, seed=1).probabilities)


def test_what_cannot_be_used_is_refused_in_one_line(arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    x, y = arrays
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "short.npy", y[:-1])
    np.save(tmp_path / "objects.npy", np.array([{}, 3], object))
    np.save(tmp_path / "texts.npy", np.array(["a", "b"]))
    np.save(tmp_path / "nothing.npy", np.empty((0, 5)))
    np.savez(tmp_path / "several.npz", x=x)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-100])
    (tmp_path / "noise.npy").write_bytes(b"not an array")
    cases: list[tuple[type[Exception], str, list[str]]] = [
        (DataError, "230 examples, .*short.npy 229", ["x.npy", "short.npy"]),
        (DataError, "nothing.npy: shape .* holds no examples", ["nothing.npy"]),
        (FileError, "absent.npy: cannot be read", ["absent.npy"]),
        (FileError, "texts.npy: dtype", ["texts.npy"]),
        (FileError, "several.npz: holds several arrays", ["several.npz"]),
        (FileError, "objects.npy: not an npy file of numbers", ["objects.npy"]),
        (FileError, "cut.npy: not an npy file of numbers", ["cut.npy"]),
        (FileError, "noise.npy: not an npy file of numbers", ["noise.npy"]),
    ]
    for kind, message, names in cases:
        with pytest.raises(kind, match=message) as caught:
            bw.MappedArrays(*(tmp_path / name for name in names))
        assert "\n" not in str(caught.value)
        assert "pickle" not in str(caught.value)  # numpy would advise to load the file unsafely
    with pytest.raises(DataError, match="leave out targets"):
        bw.MappedArrays(tmp_path, tmp_path / "short.npy")
    x[130, 2] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(DataError, match=r"nan at index \(130, 2\), row 130"):
        fitted((torch.zeros(40, 5), torch.arange(40) % 2)).predict(bw.MappedArrays(tmp_path), batch_size=60)


_CHILD = """
import json, resource, sys
import torch
import bayeswell as bw

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def run(data):
    torch.manual_seed(0)
    result = bw.fit(torch.nn.Linear(1000, 2), data, "bbb", "categorical", epochs=1, batch_size=1000, progress=False)
    return result.predict(data, draws=2).probabilities.shape

small = torch.randn(3000, 1000), torch.arange(3000) % 2
run(torch.utils.data.TensorDataset(*small))
before = peak()
shape = run(bw.MappedArrays(sys.argv[1]))
print(json.dumps({"shape": list(shape), "grown": peak() - before}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how much memory a process took is asked of Linux")
def test_a_file_is_trained_on_and_predicted_without_being_held(tmp_path: Path) -> None:
    """A file of 400 MB; the peak of the process grows by less than a quarter of it (60 MB where it was measured)."""
    examples, size = 100_000, 400_000_000
    written = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(examples, 1000))
    written[::1000] = 0.5  # the rest is a hole: no disk is needed
    del written
    np.save(tmp_path / "y.npy", np.arange(examples) % 2)
    assert (tmp_path / "x.npy").stat().st_size > size
    done = subprocess.run(
        [QUICK_PYTHON, "-c", _CHILD, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["shape"] == [examples, 2]
    assert found["grown"] < size / 4, f"{found['grown'] / 1e6:.0f} MB"
