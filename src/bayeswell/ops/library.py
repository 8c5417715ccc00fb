"""The compiled library: plain C functions, called through ctypes."""

from __future__ import annotations

import ctypes
import os
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).parent
_BY_CAPABILITY = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}
_pointer: Any = ctypes.c_void_p
_int64, _int, _float = ctypes.c_int64, ctypes.c_int, ctypes.c_float
_GAUSSIANS: list[Any] = [_pointer, _pointer, _int, _pointer, _pointer, _int64, _pointer]
_SIZE_AND_THREADS: list[Any] = [_int64, _int]


@cache
def load() -> ctypes.CDLL | None:
    """Return the best library for this machine, or None; the environment variable BAYESWELL_NATIVE=0 turns it off."""
    if os.environ.get("BAYESWELL_NATIVE") == "0":
        return None
    for name in _BY_CAPABILITY.get(torch.backends.cpu.get_cpu_capability(), ("default",)):
        try:
            library = ctypes.CDLL(str(FOLDER / f"kernels-{name}.so"))
            _declare(library)
        except (OSError, AttributeError):
            continue
        if library.bayeswell_version() == _version():
            library.bayeswell_use_threads(*_thread_functions())
            return library
    return None


def _declare(library: ctypes.CDLL) -> None:
    library.bayeswell_version.restype = ctypes.c_uint32
    library.bayeswell_use_threads.argtypes = [_pointer] * 3
    library.bayeswell_normals.argtypes = [ctypes.c_uint64, _pointer, *_SIZE_AND_THREADS]
    library.bayeswell_draw_and_kl.argtypes = [*_GAUSSIANS, _pointer, _pointer, _int64, *_SIZE_AND_THREADS]
    library.bayeswell_draw_and_kl.restype = ctypes.c_double
    outputs = [_float, _pointer, _pointer]
    library.bayeswell_gradients.argtypes = [*_GAUSSIANS, _pointer, _pointer, _int64, *outputs, *_SIZE_AND_THREADS]


def _version() -> int:
    # The checksum of the sources; an older install may have left a library of another one.
    version = 0
    for path in sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")]):
        version = zlib.crc32(path.read_bytes(), version)
    return version


def _thread_functions() -> tuple[int | None, ...]:
    # The functions of torch's own OpenMP runtime that start and count threads, or None without OpenMP.
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    try:
        extension = ctypes.CDLL(torch._C.__file__)
        return tuple(ctypes.cast(getattr(extension, name), _pointer).value for name in names)
    except (OSError, AttributeError):
        return None, None, None
