"""Are ensemble members faster when they are trained together? `python benchmarks/ensemble_together.py`.

One gradient of M members on batches of their own: by one `torch.func.vmap` over stacked weights, and one after another.
Prints the time of the second over that of the first, and whether a member has the same gradient to the bit either way.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

import bayeswell as bw

CASES = {
    "mlp 64-50-10": ({"name": "mlp", "hidden": (50,)}, (1, 8, 8)),
    "mlp 784-400-400-10": ("mlp", (1, 28, 28)),
    "cnn 8x8": ("cnn", (1, 8, 8)),
    "lenet5 28x28": ("lenet5", (1, 28, 28)),
}


def now() -> float:
    """Seconds: of this process alone where it has one thread, so that other work on the machine does not count."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def median_seconds(work: Callable[[], object], rounds: int) -> float:
    """The middle of several measurements."""
    work()
    found = []
    for _ in range(rounds):
        began = now()
        work()
        found.append(now() - began)
    return statistics.median(found)


def measure(net: nn.Module, shape: tuple[int, ...], members: int, batch: int, rounds: int) -> tuple[float, bool]:
    """One by one over together, and whether the gradients are the same to the bit."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: 0.1 * torch.randn(members, *value.shape, generator=generator) for name, value in net.named_parameters()
    }
    inputs = torch.randn(members, batch, *shape, generator=generator)
    labels = torch.randint(0, 10, (members, batch), generator=generator)

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(net, parameters, (x,)), y)

    def together() -> tuple[Tensor, ...]:
        own = {name: value.clone().requires_grad_() for name, value in weights.items()}
        return torch.autograd.grad(vmap(loss)(own, inputs, labels).sum(), list(own.values()))

    def alone(member: int) -> tuple[Tensor, ...]:
        own = {name: value[member].clone().requires_grad_() for name, value in weights.items()}
        return torch.autograd.grad(loss(own, inputs[member], labels[member]), list(own.values()))

    same = all(torch.equal(all_[0], one) for all_, one in zip(together(), alone(0), strict=True))
    ratio = median_seconds(lambda: [alone(m) for m in range(members)], rounds) / median_seconds(together, rounds)
    return ratio, same


def main() -> None:
    """Print one line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{options.members} members, batch {options.batch}, {torch.get_num_threads()} threads")
    for name, (choice, shape) in CASES.items():
        net = bw.build_model(choice, shape, 10)
        ratio, same = measure(net, shape, options.members, options.batch, options.rounds)
        print(f"{name}: one by one / together = {ratio:.2f}; the same to the bit: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
