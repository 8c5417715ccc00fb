"""A checkpoint whose checksums are right but whose numbers are not this run's is refused in one line.

Every tensor of every kind of state is cut, lengthened and given another dtype, and the manifest is sealed again, as by
somebody who can write the folder.
"""

from __future__ import annotations

import itertools
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.persistence import pack_state, read_bundle, unpack_state, write_bundle

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
Y = X[:, :3].argmax(1)
RUNS: dict[str, dict[str, Any]] = {
    "map": {"method": "map"},
    "ivon": {"method": "ivon"},
    "adabound": {"method": "bbb", "stepper": "adabound"},
    "amsbound": {"method": "bbb", "stepper": "amsbound"},
    "yellowfin": {"method": "bbb", "stepper": "yellowfin"},
    "k-tied": {"method": "k-tied", "plateau": {"means": {"metric": "nll"}}},
    "sghmc": {"method": "sghmc"},
    "psgld at a rate": {"method": "psgld", "stepper": {"lr": 0.01}},
    "swag": {"method": "swag", "epochs": 8},
    "hwa": {"method": "hwa"},
    "deep-ensemble": {"method": "deep-ensemble", "members": 2},
    "members of bbb": {"method": "bbb", "members": 2},
}


class Stop(bw.Callback):
    """Ends a run in its middle, after a checkpoint."""

    def after_epoch(self, run: Any, record: Any) -> None:
        if run.member == run.members - 1 and run.epoch == run.epochs - 1:
            raise KeyboardInterrupt


def fit(settings: Mapping[str, Any], folder: Path, *, resume: bool, callbacks: tuple[bw.Callback, ...] = ()) -> Any:
    torch.manual_seed(3)
    # Buffers, and one parameter that no posterior holds: every kind of tensor, and no more of each than it takes.
    norms = nn.BatchNorm1d(5, affine=False), nn.LayerNorm(5, bias=False)
    net = nn.Sequential(nn.Linear(4, 5), *norms, nn.ReLU(), nn.Linear(5, 3))
    given = {"epochs": 4, "batch_size": 20, **settings}
    place = bw.RunFolder(folder, resume=resume, checkpoint_steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bw.fit(net, (X, Y), likelihood="categorical", folder=place, callbacks=callbacks, progress=False, **given)


def tensors_in(state: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    if isinstance(state, Tensor):
        yield way, state
    elif isinstance(state, Mapping):
        for key, value in state.items():
            yield from tensors_in(value, (*way, key))
    elif isinstance(state, list | tuple):
        for index, value in enumerate(state):
            yield from tensors_in(value, (*way, index))


def changed(state: Any, way: tuple[Any, ...], value: Any) -> Any:
    if not way:
        return value
    if isinstance(state, Mapping):
        return {**state, way[0]: changed(state[way[0]], way[1:], value)}
    parts = list(state)
    parts[way[0]] = changed(parts[way[0]], way[1:], value)
    return type(state)(parts)


WRONG: dict[str, Callable[[Tensor], Any]] = {
    "cut": lambda tensor: tensor.flatten()[:4].clone(),
    "longer": lambda tensor: torch.cat([tensor, tensor[-1:]]),
    "another dtype": lambda tensor: tensor.to(torch.int32),
    "no tensor": lambda tensor: "a text",
}


@pytest.mark.parametrize("name", RUNS)
def test_no_tensor_of_a_checkpoint_is_believed(name: str, tmp_path: Path) -> None:
    first = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit(RUNS[name], first, resume=False, callbacks=(Stop(),))
    good = sorted((first / "checkpoints").glob("member-*"))[-1]
    bundle = read_bundle(good)
    state = unpack_state(bundle.tensors, bundle.record["state"])
    tried, turn = 0, itertools.cycle(WRONG)
    for way, tensor in tensors_in(state):
        # One fault each, in turn, for the sake of time; all of them where compiled code would be next.
        for how in WRONG if way[-1] in ("precision", "exp_avg", "exp_avg_sq", "velocity") else [next(turn), next(turn)]:
            if not may_be_told(way, tensor, how):
                continue
            forged = tmp_path / "forged"
            shutil.copytree(first, forged, ignore=shutil.ignore_patterns("member-*"))
            tensors, packed = pack_state(changed(state, way, WRONG[how](tensor)))
            write_bundle(forged / "checkpoints" / good.name, tensors, {**bundle.record, "state": packed})
            with pytest.raises((bw.FileError, bw.SettingError)) as caught:
                fit(RUNS[name], forged, resume=True)
            assert "\n" not in str(caught.value), (way, how)
            shutil.rmtree(forged)
            tried += 1
    assert tried > 10
    fit(RUNS[name], first, resume=True)  # as it was: it goes on


def may_be_told(way: tuple[Any, ...], tensor: Tensor, how: str) -> bool:
    """What a wrong tensor can be told from: its shape, where the run decides it, and its dtype."""
    if "tempering" in way:  # counts of as many classes as there are
        return how in ("another dtype", "no tensor")
    if how in ("cut", "longer"):
        single = tensor.dim() == 0 or tensor.numel() <= 4
        grows = way[-1] in ("rows", "weights") and how == "longer"  # one draw more, one member's network more
        return not single and not grows
    if how == "another dtype":  # torch's optimizers make what they load their parameters' dtype
        return tensor.dtype != torch.int32 and "optimizer" not in way
    return True
