"""Compile the native formulas with the address and undefined-behaviour sanitizers, and fuzz every one of them.

Sizes around the borders of blocks and chunks, none and many, vectors that begin anywhere within others, NaN,
infinities, denormals and the largest numbers: with right sizes nothing may be read or written outside, and no
operation may be undefined. With wrong ones (a tensor cut, lengthened, of another dtype, tables that point elsewhere)
nothing may reach the compiled code at all.

    python tools/sanitize.py [--seconds 60] [--seed 0]

The sanitizers end the process at the first fault, with the line of C++; the seed brings it back. Where there is no
compiler with sanitizers, or no Linux, it says so and leaves with 0.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import platform
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "sanitize"
SANITIZERS = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
FLAGS = ["-std=c++17", "-O1", "-g", "-fno-omit-frame-pointer", "-fPIC", "-shared", "-fopenmp-simd"]
SIZES = (0, 1, 2, 3, 7, 8, 15, 16, 17, 127, 128, 129, 255, 256, 257, 511, 513, 2051, 16383, 16384, 16385, 40_000)
ODD_NUMBERS = (float("nan"), float("inf"), -float("inf"), 1e-45, -1e-40, 3.4e38, -3.4e38, 0.0, -0.0, 88.1, -87.5, 1e9)


def main() -> int:
    """Build, then fuzz in a process that has the sanitizer's library loaded first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to fuzz")
    parser.add_argument("--seed", type=int, default=None, help="decides every size and number; printed if not given")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else int(time.time())
    if asked.inside:
        return fuzz(seed, asked.seconds)
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    runtime = None if compiler is None else _runtime(compiler)
    if compiler is None or runtime is None or not sys.platform.startswith("linux"):
        print("sanitize: no compiler with an address sanitizer here: nothing was tried")
        return 0
    if not build(compiler):
        return 1
    environment = {
        **os.environ, "LD_PRELOAD": runtime, "PYTHONMALLOC": "malloc", "BAYESWELL_NATIVE": "1",
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:alloc_dealloc_mismatch=0:exitcode=99",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }  # fmt: skip
    command = [sys.executable, __file__, "--inside", "--seed", str(seed), "--seconds", str(asked.seconds)]
    found = subprocess.run(command, env=environment, check=False).returncode
    if found:
        print(f"sanitize: a fault (see above); again: python tools/sanitize.py --seed {seed}", file=sys.stderr)
    return 1 if found else 0


def _runtime(compiler: str) -> str | None:
    """The sanitizer's library, which must be the first one in a process; None if the compiler has none."""
    found = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    path = found.stdout.strip()
    return path if found.returncode == 0 and os.path.isabs(path) and Path(path).exists() else None


def build(compiler: str) -> bool:
    """The libraries that this machine runs, with the sanitizers inside."""
    sys.path.insert(0, str(ROOT))
    hatch_build: Any = importlib.import_module("hatch_build")  # not a module of the package: its types are its own
    sources_in, machines = hatch_build.FOLDER, hatch_build.X86

    from bayeswell.native.library import version_of

    FOLDER.mkdir(parents=True, exist_ok=True)
    sources = [str(path) for path in sorted(sources_in.glob("*.cpp"))]
    for name, flags in hatch_build.INSTRUCTION_SETS.items():
        if flags and platform.machine() not in machines:
            continue
        mark = f"-DSOURCES={version_of(sources_in)}u"
        target = ["-o", str(FOLDER / f"kernels-{name}.so"), *sources]
        made = subprocess.run([compiler, *FLAGS, *SANITIZERS, *flags, mark, *target], check=False)
        if made.returncode:
            print(f"sanitize: kernels-{name}.so was not made", file=sys.stderr)
            return False
    return True


def fuzz(seed: int, seconds: float) -> int:
    """Call every function again and again, with right sizes and with wrong ones."""
    import torch

    from bayeswell.native import available, library

    library._FOLDER = FOLDER
    if not available():
        print("sanitize: the libraries with the sanitizers were not loaded", file=sys.stderr)
        return 1
    print(f"sanitize: seed {seed}, {torch.backends.cpu.get_cpu_capability()}, {seconds:g} s", flush=True)
    torch.set_num_threads(2)
    chance = random.Random(seed)
    calls = dict.fromkeys(FUNCTIONS, 0)
    refused, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for name, function in FUNCTIONS.items():
            function(Source(chance, wrong=False))
            calls[name] += 1
            refused += _refused(function, Source(chance, wrong=True))
    print(f"sanitize: {sum(calls.values())} calls of {len(calls)} functions, {refused} wrong ones refused; no fault")
    return 0


def _refused(function: Callable[[Source], Any], source: Source) -> bool:
    """A call with one wrong tensor must not reach the compiled code; if it does, the sanitizer says so."""
    from bayeswell.errors import BufferMismatch

    try:
        function(source)
    except BufferMismatch:
        return True
    if source.spoiled:
        raise SystemExit(f"sanitize: a wrong tensor ({source.spoiled}) was not refused")
    return False


class Source:
    """Tensors of one size at odd places, with odd numbers among them; ``wrong`` spoils one of them."""

    def __init__(self, chance: random.Random, *, wrong: bool) -> None:
        self.chance, self.size = chance, chance.choice(SIZES)
        self.spoil_at = chance.randrange(6) if wrong else -1
        self.made, self.spoiled = 0, ""

    def vector(self, size: int | None = None, low: float = -3.0, high: float = 3.0) -> Tensor:
        """(size,) float32 numbers that begin somewhere within a larger block of memory."""
        import torch

        size = self.size if size is None else size
        at = self.chance.choice((0, 0, 1, 3, 5, 16))
        whole = torch.empty(at + size).uniform_(low, high)
        found = whole[at : at + size]
        for _ in range(self.chance.choice((0, 0, 1, 3)) if size else 0):
            found[self.chance.randrange(size)] = self.chance.choice(ODD_NUMBERS)
        self.made += 1
        return self._spoilt(found) if self.made - 1 == self.spoil_at else found

    def _spoilt(self, tensor: Tensor) -> Tensor:
        import torch

        ways: dict[str, Callable[[], Tensor]] = {"float64": tensor.double}
        if len(tensor) > 1:
            ways["strided"] = lambda: torch.stack([tensor, tensor], 1)[:, 0]
        if self.made > 1:  # the first may be what says how many numbers there are
            ways["longer"] = lambda: torch.cat([tensor, torch.ones(1)])
            ways |= {"cut": lambda: tensor[: max(1, len(tensor) // 2)].clone()} if len(tensor) > 1 else {}
        self.spoiled = self.chance.choice(list(ways))
        return ways[self.spoiled]()

    def matrix(self, columns: int) -> Tensor:
        """(size, columns), one row behind the other."""
        flat = self.vector(self.size * columns)
        rows = len(flat) // columns
        if rows == self.size and self.spoiled == "longer":  # what was put behind it is cut off again
            self.spoiled = ""
        return flat[: rows * columns].view(rows, columns)

    def stretches(self) -> Any:
        """Prior precisions, one a weight or one a stretch; their ends are the house's own, and may be odd as well."""
        import torch

        from bayeswell.native import Precision

        if self.chance.random() < 0.5:
            return Precision(self.vector(low=0.1), None)
        count = self.chance.randrange(1, 9)
        ends = sorted(self.chance.randrange(self.size + 1) for _ in range(count - 1))
        odd = [self.chance.choice((-1, 2**62, -(2**62), self.size + 5))] if self.chance.random() < 0.2 else [self.size]
        return Precision(torch.empty(count).uniform_(0.1, 9.0), torch.tensor([*ends, *odd]))

    def noise(self) -> Tensor | int:
        """Numbers, or the key that they are made of."""
        return self.vector() if self.chance.random() < 0.5 else self.chance.randrange(2**64)

    def form(self) -> int:
        """From the logarithm, or as it is."""
        return self.chance.randrange(2)

    def number(self) -> Tensor:
        """A gradient of one number."""
        import torch

        return torch.tensor(self.chance.uniform(-2, 2))

    def lists(self, count: int) -> list[list[Tensor]]:
        """Lists of tensors of the same sizes: those of an optimizer."""
        sizes = [self.size, self.chance.choice(SIZES), 1][: self.chance.randrange(1, 4)]
        return [[self.vector(size) for size in sizes] for _ in range(count)]


def _functions() -> dict[str, Callable[[Source], Any]]:
    from bayeswell import native

    def tied(source: Source, slopes: bool) -> Any:
        import torch

        rows, columns, rank, free = (source.chance.randrange(1, 70) for _ in range(4))
        size, factors = rows * columns + free, (rows + columns) * rank
        # The tied one last: at places where no block of noise begins.
        sites = torch.tensor([[free, rows * columns, columns, 0, rows * rank], [0, free, 0, 0, 0]])
        if source.spoil_at == 0 and source.chance.random() < 0.5:
            place = source.chance.choice(((0, 0), (0, 1), (0, 3), (0, 4), (1, 0), (1, 1), (1, 3)))
            sites[place] += source.chance.choice((2**61, -(2**61)))
            source.spoiled, source.spoil_at = "table", -1
        source.size = size
        means, noise = source.vector(), source.noise() if slopes or source.chance.random() < 0.5 else None
        values = native.Precision(source.vector(low=0.1), None)
        state = (source.vector(factors, 0.01, 2.0), source.vector(free))
        if source.spoiled not in ("", "table") and source.made > 3:  # lengths of the state are what they are
            source.spoiled = source.spoiled if source.spoiled != "longer" else ""
        given = (sites, rank, *state, means, noise, values)
        if not slopes:
            return native.tied_draw_and_kl(*given)
        of_weights = source.vector()
        return native.tied_slopes(*given, of_weights, source.number(), source.chance.choice((None, of_weights)))

    def low_rank(source: Source, slopes: bool) -> Any:
        import torch

        rank = source.chance.choice((1, 2, 2, 3, 4, 7, 21))  # with and without a rest of the tiles
        given = (source.vector(), source.vector(), source.matrix(rank))
        noise = source.noise() if source.chance.random() < 0.7 else None
        drawn = (noise, None if noise is None else source.vector(rank), source.stretches())
        if not slopes:
            return native.low_rank_draw_and_kl(*given, *drawn)
        of_weights = None if noise is None else source.vector()
        of_kl = source.number() if of_weights is None or source.chance.random() < 0.5 else None
        return native.low_rank_slopes(*given, *drawn, torch.rand(rank, rank), of_weights, of_kl)

    def low_rank_draws(source: Source) -> Any:
        import torch

        rank, draws = source.chance.choice((1, 2, 5, 21)), source.chance.randrange(0, 4)
        keys = torch.tensor([source.chance.randrange(-(2**63), 2**63) for _ in range(draws)]).long()
        given = (source.vector(), source.vector(), source.matrix(rank))
        return native.low_rank_fresh_draws(keys, *given, source.vector(draws * rank))

    def drawn(source: Source) -> Any:
        import torch

        # Now and then so many that they are written around the caches.
        count = 220 if source.size == max(SIZES) and source.chance.random() < 0.2 else source.chance.randrange(0, 4)
        keys = torch.tensor([source.chance.randrange(-(2**63), 2**63) for _ in range(count)])
        kernels: list[list[int]] = []
        end = 0
        for _ in range(source.chance.randrange(4)):
            shape = [source.chance.randrange(1, 40) for _ in range(3)]
            if source.chance.random() < 0.5:  # of 3 x 3, which are turned by squares, in lines of the caches or not
                shape[1:] = [source.chance.choice((16, 32, 45, 64)), 9]
            place = end + source.chance.choice((0, 0, 5, 8))
            if place + math.prod(shape) <= source.size:
                kernels.append([place, *shape])
                end = place + math.prod(shape)
        if kernels and source.spoil_at == 0:
            source.chance.choice(kernels)[source.chance.randrange(4)] += source.chance.choice((2**61, -(2**61)))
            source.spoiled, source.spoil_at = "table", -1
        table = torch.tensor(kernels, dtype=torch.int64).view(-1, 4)
        return native.fresh_draws(source.form(), keys.long(), source.vector(), source.vector(), None, table)

    def lstm(source: Source, name: str) -> None:
        """Loops of one to four steps over whole tensors, one of which may be wrong."""
        import torch

        batch, width = source.chance.choice(((1, 1), (3, 17), (2, 64), (70, 130)))
        steps, size = source.chance.randrange(1, 5), batch * width

        def whole(times: int = 1) -> Tensor:
            return source.vector(steps * size * times)

        def maybe(times: int = 1) -> Tensor | None:
            return whole(times) if source.chance.random() < 0.5 else None

        cells = torch.rand(steps, batch, width)
        first, gates = source.vector(size), whole(4)
        if name == "lstm_step":
            step = native.lstm_step(first, gates, cells, whole())
        elif name == "lstm_step_backward":
            outside = maybe(), maybe(), maybe(4)
            step = native.lstm_step_backward(first, gates, cells, *outside, whole(), whole(), whole(), whole(4))
        elif name == "lstm_step_tangents":
            tanh, moved = whole(), source.vector(size)
            step = native.lstm_step_tangents(first, gates, cells, tanh, moved, whole(4), whole(4), whole(), whole())
        else:
            tangents = source.vector(size), whole(4), whole()
            met = whole(), whole(), whole(), *tangents
            native.lstm_second_derivatives(first, gates, cells, *met, maybe(4), whole(4), whole())
            return
        for t in (*range(steps), -1, steps, 2**62):  # other steps than there are are none
            step(t)

    def ivon(source: Source) -> Any:
        vectors = [source.vector() for _ in range(source.chance.choice((8, 9)))]
        return native.newton_step(
            *vectors, ess=90.0, rate=0.1, gain=0.1, correction=0.9, clip=0.2, lr=0.1, gain2=0.1, damping=3.0
        )

    noise = (None, 7, 2**64 - 1)
    chain: dict[str, Any] = {"momentum": 0.9, "rate": 0.1, "scale": 0.2}
    squares: dict[str, Any] = {"keep": 0.9, "gain": 0.1, "correction": 0.5, "damping": 1e-8, "rate": 0.1, "scale": 0.2}
    heavy: dict[str, Any] = {"decay": 0.1, "keep": 0.9, "gain": 0.1, "shrink": 1.0, "rate": 0.1}
    bound: dict[str, Any] = {
        "decay": 0.1,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "floor": 0.1,
        "ceiling": 1.0,
        "rate": 0.1,
    }

    def hamiltonian(source: Source) -> Any:
        weights, grads, velocity = (source.vector() for _ in range(3))
        key, split = source.chance.choice(noise), source.chance.random() < 0.5
        return native.hamiltonian_step(key, weights, grads, velocity, split=split, **chain)

    def bounded(source: Source) -> Any:
        ams = source.chance.random() < 0.5
        return native.bounded_step(source.lists(5 if ams else 4), largest=ams, **bound)

    return {
        "normals": lambda s: native.normals(s.chance.randrange(2**64), s.size),
        "fresh_draws": drawn,
        "draw_and_kl": lambda s: native.draw_and_kl(s.form(), s.vector(), s.vector(), s.noise(), s.stretches()),
        "slopes": lambda s: native.slopes(
            s.form(), s.vector(), s.vector(), s.noise(), s.stretches(), s.vector(), s.number()
        ),
        "half_squares": lambda s: native.half_squares(s.vector(), s.stretches()),
        "half_squares_slope": lambda s: native.half_squares_slope(s.vector(), s.stretches(), s.vector(), s.number()),
        "variance": lambda s: native.variance(s.form(), s.vector()),
        "variance_slope": lambda s: native.variance_slope(s.form(), s.vector(), s.vector()),
        "weighted_squares": lambda s: native.weighted_squares(s.form(), s.vector(), s.vector()),
        "weighted_squares_slopes": lambda s: native.weighted_squares_slopes(
            s.form(), s.vector(), s.vector(), s.number()
        ),
        "tied_draw_and_kl": lambda s: tied(s, False),
        "tied_slopes": lambda s: tied(s, True),
        "low_rank_draw_and_kl": lambda s: low_rank(s, False),
        "low_rank_slopes": lambda s: low_rank(s, True),
        "low_rank_fresh_draws": low_rank_draws,
        "lstm_step": lambda s: lstm(s, "lstm_step"),
        "lstm_step_backward": lambda s: lstm(s, "lstm_step_backward"),
        "lstm_step_tangents": lambda s: lstm(s, "lstm_step_tangents"),
        "lstm_second_derivatives": lambda s: lstm(s, "lstm_second_derivatives"),
        "magnitude": lambda s: native.magnitude(s.vector(), s.vector(), s.vector()),
        "langevin_step": lambda s: native.langevin_step(s.chance.choice(noise), s.vector(), s.vector(), 0.1, 0.2),
        "hamiltonian_step": hamiltonian,
        "preconditioned_step": lambda s: native.preconditioned_step(
            s.chance.choice(noise), s.vector(), s.vector(), s.vector(), **squares
        ),
        "bounded_step": bounded,
        "gradient_norms": lambda s: native.gradient_norms(s.lists(3), decay=0.1, keep=0.9, gain=0.1),
        "momentum_step": lambda s: native.momentum_step(s.lists(4), momentum=s.chance.choice((0.0, 0.9)), **heavy),
        "newton_step": ivon,
    }


FUNCTIONS: dict[str, Callable[[Source], Any]] = {}

if __name__ == "__main__":
    if "--inside" in sys.argv:
        FUNCTIONS.update(_functions())
    sys.exit(main())
