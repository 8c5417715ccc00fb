from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.core.errors import FileError
from bayeswell.io import pack_state, unpack_state


def trip(tree):
    tensors, document = pack_state(tree)
    written = {name: tensor.clone() for name, tensor in tensors.items()}
    return unpack_state(written, json.loads(json.dumps(document)))


def test_nested_state_round_trips_exactly():
    tree = {
        "empty": {},
        "list": [1, 2.5, None, "text", True, [], ()],
        "tuple": (0.9, 0.999, (torch.arange(3), "x")),
        3: {0: torch.zeros(2, dtype=torch.float64)},
        None: "none",
        "$tensor": "not one",
        "a.b": torch.tensor(1),
        "a": {"b": torch.tensor(2)},
        "inf": -math.inf,
    }
    found = trip(tree)
    assert found.keys() == tree.keys()
    assert found["list"] == tree["list"]
    assert found["$tensor"] == "not one"
    assert found["inf"] == -math.inf
    assert isinstance(found["tuple"], tuple)
    assert torch.equal(found["tuple"][2][0], torch.arange(3))
    assert found[3][0].dtype == torch.float64
    assert found[None] == "none"
    assert int(found["a.b"]) == 1
    assert int(found["a"]["b"]) == 2


def test_numpy_arrays_and_numbers_round_trip():
    found = trip({"keys": np.arange(3, dtype=np.uint32), "n": np.float64(0.1), "i": np.int32(3)})
    assert isinstance(found["keys"], np.ndarray)
    assert found["keys"].dtype == np.uint32
    assert found["n"] == 0.1
    assert found["i"] == 3


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.LBFGS])
def test_optimizer_continues_exactly(kind):
    def stepped(optimizer, weight, steps):
        for _ in range(steps):

            def loss():
                optimizer.zero_grad()
                value = (weight.cos() * torch.arange(3.0)).sum()
                value.backward()
                return value

            optimizer.step(loss)

    weight = nn.Parameter(torch.ones(3))
    optimizer = kind([weight], lr=0.1)
    stepped(optimizer, weight, 3)
    other = nn.Parameter(weight.detach().clone())
    resumed = kind([other], lr=0.5)
    resumed.load_state_dict(trip(optimizer.state_dict()))
    stepped(optimizer, weight, 3)
    stepped(resumed, other, 3)
    assert torch.equal(weight, other)


def test_unknown_types_are_named():
    with pytest.raises(FileError, match=r"a\.0.*object"):
        pack_state({"a": [object()]})


def test_missing_tensors_are_named():
    tensors, document = pack_state({"a": torch.ones(1)})
    with pytest.raises(FileError, match="'a'"):
        unpack_state({}, document)
    assert list(tensors) == ["a"]
