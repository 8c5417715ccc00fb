"""What layouts in memory gain on this processor: `python -m benchmarks.layouts`.

By them was chosen which products of matrices are convolutions (``bayeswell.layers.products``), which kernels of drawn
networks have their channels last (``bayeswell.lifting.laid_out``), and what docs/speed.md says of glibc's memory. Each
line is a time and its ratio to the first of its group; a group's cases take turns.
"""

from __future__ import annotations

import argparse
import resource
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

import bayeswell as bw
from bayeswell.layers import products
from bayeswell.lifting import laid_out

from .nets import NETS
from .ours import assembled, method_prediction, method_step, plain_passes, plain_step
from .record import circumstances
from .summary import ratios, summarise
from .timing import Case, Step, run

SHAPES = ((2560, 128, 512), (1024, 64, 256), (1024, 1024, 1024), (256, 784, 400), (128, 784, 400))
"""Rows, inputs and outputs: those of the LSTM's second derivatives first."""
IMAGES = (8, 32, 128)
MOST_WEIGHTS: Mapping[str, int | None] = {"with all wide kernels laid out": None, "with those up to 2^20": 2**20}
DRAWS = 30


def report(title: str, steps: Mapping[str, Callable[[], Step]], rounds: int, calls: int = 2) -> None:
    """Time the steps in turns; the first is the reference."""
    print(f"\n{title}")
    reference = next(iter(steps))
    times = run([Case(name, build, calls=calls) for name, build in steps.items()], reference, rounds)
    for name, seconds in times.seconds.items():
        found = summarise(ratios(times, name, reference, reference))
        print(f"  {name:34} {1e3 * statistics.median(seconds):9.3f} ms  {found.median:.2f} ± {found.error:.2f}")


def products_of(rows: int, inputs: int, outputs: int) -> dict[str, Callable[[], Step]]:
    """The three products of a dense layer, by torch's library for matrices and as convolutions."""
    x, weight, y = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)

    def forward(multiplied: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], Step]:
        return lambda: lambda: multiplied(x, weight)

    return {
        "x w', matrices": forward(F.linear),
        "x w', convolution": forward(lambda rows, kernel: products._Linear.apply(rows, kernel, None)),
        "y' x, matrices": lambda: lambda: y.T @ x,
        "y' x, convolution": lambda: lambda: products._OuterSum.apply(y, x),
    }


@contextmanager
def chosen(least_examples: int, most_weights: int | None) -> Iterator[None]:
    """Other limits of what is laid out, for the time of a block."""
    before = laid_out.LEAST_EXAMPLES, laid_out.MOST_WEIGHTS
    laid_out.LEAST_EXAMPLES, laid_out.MOST_WEIGHTS = least_examples, most_weights
    try:
        yield
    finally:
        laid_out.LEAST_EXAMPLES, laid_out.MOST_WEIGHTS = before


def passes(images: int) -> dict[str, Callable[[], Step]]:
    """A pass of ResNet-18 at one draw, which is made beforehand."""
    model, x = assembled("bbb", NETS["resnet"])[0].model.eval(), torch.randn(images, 3, 32, 32)
    drawn = next(model.draws(1, bw.make_generator(1)))

    def passed(call: Callable[[Mapping[str, Tensor], Tensor], object], weights: Mapping[str, Tensor]) -> Step:
        return torch.inference_mode()(lambda: call(weights, x))

    def built(most_weights: int | None) -> Step:
        with chosen(1, most_weights):
            layout = model.find_layout(x, images)
        assert layout is not None
        weights = next(layout.networks(1, bw.make_generator(1)))
        return passed(partial(layout.called, model.call), weights)

    others = {name: partial(built, most) for name, most in MOST_WEIGHTS.items()}
    return {"as it is": lambda: passed(model.call, drawn), **others}


def predictions() -> dict[str, Callable[[], Step]]:
    """30 draws of ResNet-18 over as many plain passes."""

    def predicted(least_examples: int, most_weights: int | None) -> Step:
        step = method_prediction("bbb", NETS["resnet"], DRAWS)

        def limited() -> None:
            with chosen(least_examples, most_weights):
                step()

        return limited

    others = {name: partial(predicted, 1, most) for name, most in MOST_WEIGHTS.items()}
    plain = partial(plain_passes, NETS["resnet"], DRAWS)
    return {"plain passes": plain, "with none laid out": partial(predicted, 10**9, None), **others}


def faults(name: str, build: Callable[[], Step], steps: int = 6) -> None:
    """How often a step asks the system for a page of memory, which MALLOC_TRIM_THRESHOLD_ can spare it."""
    step = build()
    for _ in range(4):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        step()
    print(f"  {name:34} {(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps:9.0f} pages a step")


def compare_products(rounds: int) -> None:
    """Matrices of many rows and of few."""
    for shape in SHAPES:
        report("{} rows, {} inputs, {} outputs".format(*shape), products_of(*shape), 3 * rounds, calls=10)


def compare_kernels(rounds: int) -> None:
    """Channels last in passes, and in whole predictions."""
    for images in IMAGES:
        report(f"ResNet-18, a pass of {images} images", passes(images), rounds)
    report("ResNet-18, 30 draws for 8 images", predictions(), rounds, calls=1)


def count_pages(rounds: int) -> None:
    """Steps, and the pages of memory that they ask for."""
    for name in ("resnet", "lstm"):
        net = NETS[name]
        steps = {"ordinary step": partial(plain_step, net), "step of vl": partial(method_step, "vl", net)}
        report(net.title, steps, rounds)
        for kind, build in steps.items():
            faults(kind, build)


GROUPS = {"products": compare_products, "kernels": compare_kernels, "memory": count_pages}


def main() -> None:
    """All groups, or one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layouts", description=__doc__)
    parser.add_argument("--only", choices=GROUPS, action="append")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    said = circumstances()
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"{said['cpu']}, {capability}, {options.threads} threads, commit {said['commit']}")
    for name in options.only or GROUPS:
        GROUPS[name](options.rounds)


if __name__ == "__main__":
    main()
