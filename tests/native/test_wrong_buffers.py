"""Compiled code believes the sizes that it is told: no tensor of another size, dtype or order reaches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from bayeswell import native
from bayeswell.errors import BufferMismatch
from bayeswell.native import gaussian, library, low_rank, recurrence, updates
from native.formulas import needs_library, numbers, precisions, states
from native.test_every_function import CALLS

SIZE = 600

WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "cut to 4 numbers": lambda tensor: tensor.flatten()[:4].clone(),
    "one number short": lambda tensor: tensor.flatten()[:-1].clone(),
    "longer": lambda tensor: torch.cat([tensor.flatten(), tensor.flatten()[:1]]),
    "empty": lambda tensor: tensor.flatten()[:0].clone(),
    "of another dtype": lambda tensor: tensor.to(torch.float64 if tensor.dtype != torch.float64 else torch.float32),
    "not contiguous": lambda tensor: torch.stack([tensor.flatten(), tensor.flatten()], 1)[:, 0],
    "without memory": lambda tensor: tensor.to("meta"),
}
NEEDS_SEVERAL = ("not contiguous", "cut to 4 numbers")
"""Of a single number: it is contiguous whatever its stride."""


def tensors_in(arguments: tuple[Any, ...]) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Every tensor that a call is given, with the way to it."""
    for place, value in enumerate(arguments):
        if isinstance(value, Tensor):
            yield (place,), value
        elif isinstance(value, library.Buffer) and value.tensor is not None:
            yield (place, 0), value.tensor
        elif isinstance(value, tuple | list) and not isinstance(value, library.Buffer):
            yield from (((place, *way), tensor) for way, tensor in tensors_in(tuple(value)))


def changed(value: Any, way: tuple[int, ...], tensor: Tensor) -> Any:
    """The same arguments with another tensor in one place."""
    if not way:
        return tensor
    parts = list(value)
    parts[way[0]] = changed(parts[way[0]], way[1:], tensor)
    return library.Buffer(*parts) if isinstance(value, library.Buffer) else tuple(parts)


@needs_library
@pytest.mark.parametrize("name", CALLS)
def test_every_tensor_of_every_function_is_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each argument in turn is made wrong in each way: refused in one line, and nothing is written."""
    made: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    places = [(module, "call") for module in (gaussian, low_rank, recurrence, updates)]
    for module, function in (*places, (recurrence, "prepared"), (updates, "call_many")):
        original = getattr(library, function)

        def noted(*arguments: Any, original: Callable[..., Any] = original) -> Any:
            made.append((original, arguments))
            return original(*arguments)

        monkeypatch.setattr(module, function, noted)
    CALLS[name](SIZE)
    tried = 0
    for original, arguments in made:
        before = [tensor.clone() for _, tensor in tensors_in(arguments)]
        for way, tensor in tensors_in(arguments):
            if not tensor.numel():  # among the arrays of an optimizer there may be empty ones
                continue
            for how, wrong in WRONG.items():
                if tensor.numel() <= 4 and how in NEEDS_SEVERAL:
                    continue
                with pytest.raises(BufferMismatch, match="compiled formula") as caught:
                    original(*changed(arguments, way, wrong(tensor)))
                assert "\n" not in str(caught.value)
                tried += 1
        for kept, (_, tensor) in zip(before, tensors_in(arguments), strict=True):
            assert kept.numpy().tobytes() == tensor.numpy().tobytes()  # bit for bit: what nobody wrote may be NaN
    assert tried >= 5


SITES = torch.tensor([[0, 12, 3, 0, 8], [12, 5, 0, 0, 0]])
"""4 x 3 weights of rank 2, whose factors lie at 0 and 8, and five with log stds of their own."""


@needs_library
@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        (0, 0, -1), (0, 0, 6), (0, 1, 13), (0, 1, -12), (0, 2, -3), (0, 2, 5), (0, 2, 12), (0, 3, -1), (0, 3, 7),
        (0, 4, 9), (0, 4, 2**62), (1, 0, 13), (1, 1, 6), (1, 3, 1), (1, 3, -5), (1, 1, 2**62),
    ],
)  # fmt: skip
def test_a_table_of_tied_sites_that_points_elsewhere_is_refused(row: int, column: int, value: int) -> None:
    factors, log_std, mean, noise = numbers(14, 1), numbers(5, 2), numbers(17, 3), numbers(17, 4)
    given = (2, factors.exp(), log_std, mean, noise, precisions("vector", 17))
    native.tied_draw_and_kl(SITES, *given)  # as it should be
    forged = SITES.clone()
    forged[row, column] = value
    with pytest.raises(BufferMismatch, match="table of 2 tied sites does not fit 17 weights"):
        native.tied_draw_and_kl(forged, *given)
    with pytest.raises(BufferMismatch, match="table of 2 tied sites"):
        native.tied_slopes(forged, *given, noise, torch.tensor(0.3))


@needs_library
@pytest.mark.parametrize("ends", [[600, 500], [-5, 600], [10, 5, 700], [2**62, 600], [600, -(2**62)]])
def test_stretches_that_end_anywhere_touch_nothing_outside(ends: list[int]) -> None:
    """The values are of no use then; under `make sanitize` a read outside would end the process."""
    h = native.Precision(numbers(len(ends), 6).exp(), torch.tensor(ends))
    native.draw_and_kl(0, numbers(600, 1), states(0, 600), numbers(600, 2), h)
    native.slopes(0, numbers(600, 1), states(0, 600), numbers(600, 2), h, numbers(600, 3), torch.tensor(0.4))
    native.half_squares(numbers(600, 1), h)
