"""The compiled library: finding it, turning it off, asking what it takes, and calling its functions."""

from __future__ import annotations

import ctypes
import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ..errors import BufferMismatch

_FOLDER = Path(__file__).parent
_BY_CAPABILITY = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}

_pointer, _count, _number, _key = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_uint64
_int, _double = ctypes.c_int, ctypes.c_double
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "version": (ctypes.c_uint32, []),
    "normals": (None, [_key, _pointer]),
    "kernels_fit": (_int, [_pointer, _count]),
    "fresh_draws": (None, [_int, _pointer, _count, *[_pointer] * 3, _count, _pointer, _count]),
    "draw_and_kl": (_double, [_int, *[_pointer] * 3, _int, _key, *[_pointer] * 2, _count, _pointer]),
    "slopes": (None, [_int, *[_pointer] * 3, _int, _key, *[_pointer] * 2, _count, *[_pointer] * 4]),
    "half_squares": (_double, [_pointer, _pointer, _pointer, _count]),
    "half_squares_slope": (None, [_pointer, _pointer, _pointer, _count, *[_pointer] * 3]),
    "variance": (None, [_int, _pointer, _pointer]),
    "variance_slope": (None, [_int, _pointer, _pointer, _pointer]),
    "weighted_squares": (_double, [_int, _pointer, _pointer]),
    "weighted_squares_slopes": (None, [_int, *[_pointer] * 5]),
    "tied_fits": (_int, [_pointer, _count, _count, _count, _count]),
    "tied_draw_and_kl": (_double, [_pointer, _count, _count, *[_pointer] * 4, _int, _key, _pointer, _count, _pointer]),
    "tied_slopes": (None, [_pointer, _count, _count, *[_pointer] * 4, _int, _key, _pointer, _count, *[_pointer] * 5]),
    "low_rank_fresh_draws": (None, [_count, _pointer, _count, *[_pointer] * 5, _count]),
    "low_rank_draw_and_kl": (
        _double,
        [_count, *[_pointer] * 4, _int, _key, *[_pointer] * 3, _count, _pointer, _pointer],
    ),
    "low_rank_slopes": (None, [_count, *[_pointer] * 4, _int, _key, *[_pointer] * 3, _count, *[_pointer] * 6]),
    "lstm_step": (None, [*[_count] * 3, *[_pointer] * 4]),
    "lstm_step_backward": (None, [*[_count] * 3, *[_pointer] * 10]),
    "lstm_step_tangents": (None, [*[_count] * 3, *[_pointer] * 9]),
    "lstm_second_derivatives": (None, [*[_count] * 2, *[_pointer] * 12]),
    "magnitude": (_double, [_pointer] * 3),
    "langevin_step": (None, [_int, _key, *[_pointer] * 2, *[_number] * 2]),
    "hamiltonian_step": (None, [_int, _key, _int, *[_pointer] * 3, *[_number] * 3]),
    "preconditioned_step": (None, [_int, _key, *[_pointer] * 3, *[_number] * 6]),
    "bounded_step": (None, [_pointer, _pointer, _int, *[_number] * 8]),
    "gradient_norms": (None, [_pointer, _pointer, *[_number] * 3, _pointer]),
    "momentum_step": (None, [_pointer, _pointer, *[_number] * 6]),
    "newton_step": (None, [*[_pointer] * 9, *[_number] * 9]),
}


class _Switch:
    on = os.environ.get("BAYESWELL_NATIVE", "1") != "0"


@contextmanager
def disabled() -> Iterator[None]:
    """Within the block everything is computed by torch's operations."""
    before, _Switch.on = _Switch.on, False
    try:
        yield
    finally:
        _Switch.on = before


@cache
def _library() -> ctypes.CDLL | None:
    """The best library for this machine; None if there is none, or none of this version."""
    capability = torch.backends.cpu.get_cpu_capability()
    for name in _BY_CAPABILITY.get(capability, ("default",)):
        path = _FOLDER / f"kernels-{name}.so"
        if not path.is_file():
            continue
        try:
            library = ctypes.CDLL(str(path))
            library.bayeswell_use_threads.argtypes = [_pointer] * 3
            library.bayeswell_use_threads.restype = None
            for function, (result, arguments) in _SIGNATURES.items():
                found = getattr(library, f"bayeswell_{function}")
                found.restype = result
                found.argtypes = arguments if function == "version" else [*arguments, _count, _int]
        except (OSError, AttributeError):
            continue
        if library.bayeswell_version() == version_of(Path(__file__).parent):
            library.bayeswell_use_threads(*_thread_functions())
            return library
    return None


def _thread_functions() -> tuple[int | None, int | None, int | None]:
    """The OpenMP runtime that torch itself is linked to: how it starts threads, and who and how many they are.

    Looked for among what torch's extension module has loaded, so that there is one runtime in the process, and nothing
    to be missing. GNU's, Intel's and LLVM's all have these three; torch without OpenMP has none, nor have we then.
    """
    try:
        torch_itself = ctypes.CDLL(torch._C.__file__)
        names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
        addresses = [ctypes.cast(getattr(torch_itself, name), ctypes.c_void_p).value for name in names]
    except (OSError, AttributeError):
        return None, None, None
    return addresses[0], addresses[1], addresses[2]


def version_of(folder: Path) -> int:
    """A checksum of the sources: a library that says another was left behind by an older install."""
    version = 0
    for path in sorted([*folder.glob("*.cpp"), *folder.glob("*.h")]):
        version = zlib.crc32(path.read_bytes(), version)
    return version


def available() -> bool:
    """Whether this process computes with the compiled formulas."""
    return _Switch.on and _library() is not None


def instruction_set() -> str | None:
    """For which processors the compiled formulas in use are made, such as "avx2"; None if there are none."""
    library = _library() if _Switch.on else None
    return None if library is None else Path(library._name).stem.removeprefix("kernels-")


def transformed() -> bool:
    """Whether code is being compiled, or runs inside vmap, a grad transform or forward mode: these need to see every
    operation.
    """
    inside = torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0
    return inside or torch.compiler.is_compiling()


def takes(*tensors: Tensor | None) -> bool:
    """Whether the compiled formulas can read these: plain, dense float32 vectors in the memory of the CPU."""
    if not _Switch.on or transformed() or _library() is None:
        return False
    return all(tensor is None or _is_taken(tensor) for tensor in tensors)


def _is_taken(tensor: Tensor) -> bool:
    return (
        tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.is_contiguous()
        and tensor.layout is torch.strided
        and type(tensor) in _PLAIN
        and not tensor._is_zerotensor()  # zeros without memory, of forward-mode differentiation
        and torch._C._has_storage(tensor)  # which a batch of gradients (is_grads_batched) has not
    )


_PLAIN = (Tensor, nn.Parameter)


class Buffer(NamedTuple):
    """A tensor of another length or dtype than the float32 vectors that a call is about."""

    tensor: Tensor | None
    size: int
    dtype: torch.dtype = torch.float32


def call(name: str, elements: int, *arguments: Any) -> Any:
    """Compute one formula over so many numbers; a tensor is handed over as the address of its memory.

    Compiled code believes the sizes that it is told, so every tensor is looked at first: it must lie densely in the
    memory of the CPU and hold ``elements`` float32 numbers, or what its ``Buffer`` says.
    """
    given = _given(name, elements, arguments)
    return getattr(_library(), f"bayeswell_{name}")(*given, elements, torch.get_num_threads())


def prepared(name: str, elements: int, *arguments: Any) -> Callable[[int], None]:
    """``call`` for many times, which differ in a first number only: the tensors are looked at once."""
    given = _given(name, elements, arguments)
    function, threads = getattr(_library(), f"bayeswell_{name}"), torch.get_num_threads()

    def again(number: int, _kept: Any = arguments) -> None:  # the tensors live as long as their addresses are in use
        function(number, *given, elements, threads)

    return again


def _given(name: str, elements: int, arguments: Iterable[Any]) -> list[Any]:
    """Numbers as they are, and where tensors lie."""
    given = []
    for value in arguments:
        if isinstance(value, Tensor):
            value = _address(name, value, elements, torch.float32)
        elif isinstance(value, Buffer):
            tensor, size, dtype = value
            value = None if tensor is None else _address(name, tensor, size, dtype)
        given.append(value)
    return given


class Addresses:
    """Where many tensors lie: lists of those that are weights, of those that are gradients, ..., in one order.

    They are looked at once, for as many calls as are made before anybody else can change them.
    """

    def __init__(self, columns: Sequence[list[Tensor]], addresses: Iterable[int]) -> None:
        self.columns = columns
        self.sizes, self.pointers = array("q", map(Tensor.numel, columns[0])), array("Q", addresses)


def taken(columns: Sequence[list[Tensor]]) -> Addresses | None:
    """As ``takes``, of many tensors that are to be used together: where they lie, None if one cannot be read."""
    if not _Switch.on or transformed() or _library() is None:
        return None
    addresses = []
    for column in columns:
        for tensor, first in zip(column, columns[0], strict=True):
            if not _is_taken(tensor) or tensor.numel() != first.numel():
                return None
            addresses.append(tensor.data_ptr())
    return Addresses(columns, addresses)


def call_many(name: str, columns: Sequence[list[Tensor]] | Addresses, *numbers: float) -> None:
    """One call for many tensors."""
    found = columns if isinstance(columns, Addresses) else _addresses(name, columns)
    call(name, len(found.sizes), found.pointers.buffer_info()[0], found.sizes.buffer_info()[0], *numbers)


def _addresses(name: str, columns: Sequence[list[Tensor]]) -> Addresses:
    first, rows = [tensor.numel() for tensor in columns[0]], len(columns[0])
    for column in columns:
        if len(column) != rows:
            raise BufferMismatch(f"compiled formula '{name}': lists of {rows} and of {len(column)} tensors")
    found = [
        _address(name, tensor, size, torch.float32)
        for column in columns
        for tensor, size in zip(column, first, strict=True)
    ]
    return Addresses(columns, found)


def _address(name: str, tensor: Tensor, size: int, dtype: torch.dtype) -> int:
    if (
        tensor.numel() != size
        or tensor.dtype != dtype
        or not tensor.is_cpu
        or not tensor.is_contiguous()
        or tensor.layout is not torch.strided
    ):
        found = f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"
        found += "" if tensor.is_contiguous() else ", not contiguous"
        raise BufferMismatch(
            f"compiled formula '{name}': a tensor of shape {found}; it reads {size} numbers of {dtype} in a row"
        )
    return tensor.data_ptr()
