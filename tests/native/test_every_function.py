"""What all compiled functions have in common: threads, nothing of nothing, nothing beside the vector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from bayeswell import native
from bayeswell.native import library
from native.formulas import KEY, KEYS, needs_library, numbers, precisions, states, the_same
from native.low_rank import low_rank_inputs
from native.recurrence import CALLS as RECURRENCE
from native.steps import STEPS, step_vectors
from native.tied import tied_draw_and_kl, tied_factors, tied_slopes

MANY = 50_051
"""Enough for several threads, and no multiple of anything."""


def _slopes(size: int) -> tuple[Tensor, Tensor]:
    given = (numbers(size, 2)[None], precisions("stretches", size), numbers(size, 3)[None], torch.tensor(-0.37))
    return native.slopes(0, numbers(size, 1), states(0, size), *given)


def _draw_and_kl(size: int) -> tuple[Any, ...]:
    h = precisions("stretches", size)
    return native.draw_and_kl(1, numbers(size, 1), states(1, size), numbers(size, 2)[None], h)


def _tied(size: int) -> tuple[Tensor, Tensor, Tensor, int]:
    columns = 50
    size -= size % columns
    return *tied_factors(size // columns, columns, 2), numbers(size, 1), size


def _tied_draw_and_kl(size: int) -> tuple[Any, ...]:
    left, right, mean, size = _tied(size)
    return tied_draw_and_kl(left, right, mean, numbers(size, 2), precisions("vector", size))


def _tied_slopes(size: int) -> tuple[Tensor, ...]:
    left, right, mean, size = _tied(size)
    given = (numbers(size, 2), the_same(0.35, size), numbers(size, 3), torch.tensor(-0.37))
    return tied_slopes(left, right, mean, *given)


def _low_rank_draw_and_kl(size: int) -> tuple[Any, ...]:
    return native.low_rank_draw_and_kl(*low_rank_inputs(size, 3, "stretches"))


def _low_rank_slopes(size: int) -> tuple[Tensor, ...]:
    inverse = numbers(9, 7).view(3, 3)
    given = low_rank_inputs(size, 3, "stretches")
    return native.low_rank_slopes(*given, inverse, numbers(size, 3), torch.tensor(-0.37))


def _low_rank_fresh_draws(size: int) -> tuple[Tensor]:
    mean, std, loading, *_ = low_rank_inputs(size, 5, "stretches")
    return (native.low_rank_fresh_draws(KEYS, mean, std.exp(), loading, numbers(5 * len(KEYS), 9).view(-1, 5)),)


def one_kernel(size: int) -> Tensor:
    """The table of a kernel that all weights but the last few are."""
    return torch.tensor([[0, 1, 3, size // 3]] if size > 2 else [], dtype=torch.int64).view(-1, 4)


def _step(name: str, size: int) -> tuple[Any, ...]:
    vectors = step_vectors(size)
    return *(STEPS[name].run(vectors) or {}).values(), *vectors.values()


CALLS: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "normals": lambda size: (native.normals(KEY, size),),
    "fresh_draws": lambda size: (
        native.fresh_draws(0, KEYS, numbers(size, 1), states(0, size), None, one_kernel(size)),
    ),
    "draw_and_kl": _draw_and_kl,
    "slopes": _slopes,
    "half_squares": lambda size: (native.half_squares(numbers(size, 1), precisions("stretches", size)),),
    "half_squares_slope": lambda size: (
        native.half_squares_slope(
            numbers(size, 1), precisions("stretches", size), numbers(size, 3), torch.tensor(-0.37)
        ),
    ),
    "variance": lambda size: (native.variance(0, states(0, size)),),
    "variance_slope": lambda size: (native.variance_slope(0, numbers(size, 3), states(0, size)),),
    "weighted_squares": lambda size: (native.weighted_squares(0, states(0, size), numbers(size, 1)),),
    "weighted_squares_slopes": lambda size: native.weighted_squares_slopes(
        0, states(0, size), numbers(size, 1), torch.tensor(-0.37)
    ),
    "tied_draw_and_kl": _tied_draw_and_kl,
    "tied_slopes": _tied_slopes,
    "low_rank_draw_and_kl": _low_rank_draw_and_kl,
    "low_rank_slopes": _low_rank_slopes,
    "low_rank_fresh_draws": _low_rank_fresh_draws,
    **RECURRENCE,
    **{name: partial(_step, name) for name in STEPS},
}

each_call = pytest.mark.parametrize("name", CALLS)


def test_every_function_is_here() -> None:
    assert {name.split(",")[0] for name in CALLS} == set(library._SIGNATURES) - {"version", "tied_fits", "kernels_fit"}


@needs_library
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for threads in (1, 2):
        # The compiled formulas ask for it; torch itself stays at one, as two would wait for each other here.
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append({name: call(MANY) for name, call in CALLS.items()})
    monkeypatch.undo()
    for name in CALLS:
        for one, two in zip(results[0][name], results[1][name], strict=True):
            assert torch.equal(one, two) if isinstance(one, Tensor) else one == two, name


@needs_library
@each_call
def test_nothing_at_all_is_computed_of_nothing(name: str) -> None:
    for result in CALLS[name](0):
        assert not bool(result.count_nonzero()) if isinstance(result, Tensor) else result == 0


@needs_library
@pytest.mark.parametrize("size", [1, 255, 257, 2051])
@pytest.mark.usefixtures("each_library")
def test_nothing_is_written_beside_the_vector(size: int) -> None:
    """Vectors that lie within others, at no special address."""
    guard, at = 7.25, 5
    whole = torch.full((size + 300,), guard)

    def untouched() -> bool:
        return bool((whole[:at] == guard).all()) and bool((whole[at + size :] == guard).all())

    mine = whole[at : at + size]
    for step in STEPS.values():
        for changed in ("weights", "means", "squares", "largest", "log_std", "precision"):
            vectors = step_vectors(size)
            mine.copy_(vectors[changed])
            step.run(vectors)
            step.run({**step_vectors(size), changed: mine})
            torch.testing.assert_close(mine, vectors[changed], rtol=1e-6, atol=1e-6)
            assert untouched()
    library.call("normals", size, KEY, mine)
    assert torch.equal(mine, native.normals(KEY, size))
    assert untouched()
    rows = torch.full((4, size + 7), guard)
    keys, whole_rows = library.Buffer(KEYS, 3, torch.int64), library.Buffer(rows, 4 * (size + 7))
    library.call("fresh_draws", size, 0, keys, 3, numbers(size, 1), states(0, size), whole_rows, size + 7, None, 0)
    assert torch.equal(rows[:3, :size], native.fresh_draws(0, KEYS, numbers(size, 1), states(0, size)))
    kernels = one_kernel(size)
    table = library.Buffer(kernels, kernels.numel(), torch.int64), len(kernels)
    library.call("fresh_draws", size, 0, keys, 3, numbers(size, 1), states(0, size), whole_rows, size + 7, *table)
    mean, std, loading, *_ = low_rank_inputs(size, 2, "stretches")
    others = library.Buffer(loading, size * 2), library.Buffer(numbers(6, 9), 6)
    library.call("low_rank_fresh_draws", size, 2, keys, 3, mean, std.exp(), *others, whole_rows, size + 7)
    expected = native.low_rank_fresh_draws(KEYS, mean, std.exp(), loading, numbers(6, 9).view(3, 2))
    assert torch.equal(rows[:3, :size], expected)
    assert bool((rows[:, size:] == guard).all())
    assert bool((rows[3] == guard).all())
