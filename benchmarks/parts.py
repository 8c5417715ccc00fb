"""The parts of the benchmark by name, and how each is measured; a part runs in a process of its own.

python -m benchmarks.parts PART --rounds 31 --threads 2
"""

from __future__ import annotations

import argparse
import gc
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import averages, growth, loop_overhead, memory, ours, peers, precision, start, together, updates
from .nets import NETS, weights, wide_mlp
from .timing import Case, Times, run

SMALL, LARGE = ("lenet", "mlp"), ("resnet", "lstm")
ENCODERS = {"transformer": ours.OF_TRANSFORMERS, "lora": ours.OF_ADAPTERS}
HUGE = ("50m", "200m")
MARK = "benchmark part: "
"""Before the line of JSON that a part ends with."""


@dataclass(frozen=True)
class Part:
    """Something to measure; ``rounds`` is how many of it are worth one of the asked rounds."""

    name: str
    measure: Callable[[int, int], dict[str, Any]]
    rounds: float = 1.0
    quick: bool = False
    on_request: bool = False
    """Left out unless it is named: it needs far more memory, or time, than all others."""

    def rounds_of(self, asked: int) -> int:
        """Rounds of this part: in proportion, but 3 at least."""
        return max(3, round(self.rounds * asked))


def _turns(cases: Sequence[Case], reference: str, rounds: int, warm_up: int = 3) -> dict[str, Any]:
    return {"reference": reference, **run(cases, reference, rounds, warm_up).as_json()}


def _steps(net: str) -> Callable[[int, int], dict[str, Any]]:
    def measure(rounds: int, threads: int) -> dict[str, Any]:
        names = ours.METHODS if net in SMALL else ENCODERS.get(net, (*ours.MAIN, ours.CHEAPER_VL))
        mine = [ours.step_case(name, NETS[net]) for name in names]
        others = [] if NETS[net].where != "all" else peers.step_cases(NETS[net])  # peers make whole networks Bayesian
        cases = [*ours.plain_step_cases(NETS[net]), *mine, *others]
        if net not in SMALL:  # long enough to be timed alone, and for the caches to forget all that came before
            cases = [replace(case, calls=1, settle=0) for case in cases]
        found = _turns(cases, ours.PLAIN, rounds, warm_up=3 if net in SMALL else 1)
        return {"weights": weights(NETS[net].build()), **found}

    return measure


def _predictions(net: str) -> Callable[[int, int], dict[str, Any]]:
    def measure(rounds: int, threads: int) -> dict[str, Any]:
        names = ours.PREDICTING if net in SMALL else ours.PREDICTING_MAIN
        cases = ours.prediction_cases(NETS[net], names) + peers.prediction_cases(NETS[net])
        return {"draws": ours.DRAWS, "batch": NETS[net].predict_batch, **_turns(cases, ours.PLAIN, rounds, warm_up=1)}

    return measure


def _averages(net: str) -> Callable[[int, int], dict[str, Any]]:
    def measure(rounds: int, threads: int) -> dict[str, Any]:
        return {"batches": NETS[net].batches, **_turns(averages.cases(NETS[net]), ours.PLAIN, rounds)}

    return measure


def _updates(place: str) -> Callable[[int, int], dict[str, Any]]:
    return lambda rounds, threads: _turns(updates.cases(place), updates.FUSED_ADAM, rounds)


def _loop(net: str) -> Callable[[int, int], dict[str, Any]]:
    def measure(rounds: int, threads: int) -> dict[str, Any]:
        found = loop_overhead.measure(NETS[net].model, rounds, NETS[net].batch)
        plain = found[loop_overhead.PLAIN]
        others = {name: plain for name in found if name != loop_overhead.PLAIN}
        return {"reference": loop_overhead.PLAIN, **Times(found, others, {}).as_json()}

    return measure


def _memory(net: str) -> Callable[[int, int], dict[str, Any]]:
    def measure(rounds: int, threads: int) -> dict[str, Any]:
        found: dict[str, Any] = {"parts": memory.deterministic_parts(NETS[net]), "peaks": {}, "failed": {}}
        for name in memory.names(net):
            repeats = rounds if name in memory.REPEATED else 1
            one = memory.measure(net, name, threads, repeats)
            if "failed" in one:
                found["failed"][name] = one["failed"]
            else:
                found["peaks"][name] = one["peak_bytes"]
        return found

    return measure


def _huge(net: str) -> Callable[[int, int], dict[str, Any]]:
    """Steps in turns, then the peak of each case in a process of its own, when the memory of the steps is free."""

    def measure(rounds: int, threads: int) -> dict[str, Any]:
        mine = [ours.step_case(name, NETS[net]) for name in ours.OF_LARGE]
        cases = [Case(ours.PLAIN, lambda: ours.plain_step(NETS[net])), *mine]
        if net == HUGE[0]:  # for which there is memory beside the others
            cases.append(Case(ours.PLAIN_FUSED, lambda: ours.plain_step(NETS[net], fused=True)))
        # After a step that is not timed: while others have their turns, the system takes back memory that lies idle.
        found = _turns([replace(case, calls=1, settle=1) for case in cases], ours.PLAIN, rounds, warm_up=0)
        cases.clear()
        gc.collect()
        peaks = {name: memory.measure(net, name, threads)["peak_bytes"] for name in (ours.PLAIN, *ours.OF_LARGE)}
        return {"weights": weights(NETS[net].build()), "peaks": peaks, **found}

    return measure


def _precision(cases: Callable[[Any], list[Case]], net: str) -> Callable[[int, int], dict[str, Any]]:
    return lambda rounds, threads: _turns(cases(NETS[net]), ours.PLAIN, rounds, warm_up=1)


def _series(
    points: Sequence[int], cases: Callable[[int], list[Case]], weights_of: Callable[[int], int] | None = None,
    warm_up: int = 3,
) -> Callable[[int, int], dict[str, Any]]:  # fmt: skip
    def measure(rounds: int, threads: int) -> dict[str, Any]:
        found: dict[str, Any] = {"points": {}}
        for point in points:
            found["points"][str(point)] = _turns(cases(point), ours.PLAIN, rounds, warm_up)
            if weights_of is not None:
                found["points"][str(point)]["weights"] = weights_of(point)
        return found

    return measure


def _imports(rounds: int, threads: int) -> dict[str, Any]:
    return {"seconds": start.import_seconds(rounds)}


def _first(net: str) -> Callable[[int, int], dict[str, Any]]:
    return lambda rounds, threads: {"first": start.first_steps(net, threads, rounds)}


def _together(cases: Callable[[], list[Case]]) -> Callable[[int, int], dict[str, Any]]:
    def measure(rounds: int, threads: int) -> dict[str, Any]:
        torch.set_num_threads(1)
        return {"threads": 1, **_turns(cases(), together.ALONE, rounds, warm_up=1)}

    return measure


def _command(rounds: int, threads: int) -> dict[str, Any]:
    return _turns(start.command_cases(), start.IMPORT_TORCH, rounds, warm_up=1)


def _wide_weights(width: int) -> int:
    return weights(wide_mlp(width).build())


PARTS = {
    part.name: part
    for part in (
        *(Part(f"step/{net}", _steps(net), quick=True) for net in SMALL),
        *(Part(f"step/{net}", _steps(net), 0.3) for net in LARGE),
        *(Part(f"step/{net}", _steps(net), 0.3) for net in ENCODERS),
        *(Part(f"predict/{net}", _predictions(net), 0.4, quick=True) for net in SMALL),
        *(Part(f"predict/{net}", _predictions(net), 0.2) for net in LARGE),
        *(Part(f"average/{net}", _averages(net), quick=True) for net in SMALL),
        *(Part(f"update/{place}", _updates(place), quick=True) for place in updates.PLACES),
        *(Part(f"loop/{net}", _loop(net), 0.5, quick=True) for net in SMALL),
        *(Part(f"memory/{net}", _memory(net), 0.1) for net in (*SMALL, *LARGE)),
        Part("growth/width", _series(growth.WIDTHS, growth.width_cases, _wide_weights), 0.3),
        Part("growth/batch", _series(growth.BATCHES, growth.batch_cases), 0.4),
        *(
            Part(f"growth/draws-{net}", _series(growth.DRAWS, lambda d, n=net: growth.draw_cases(n, d), warm_up=1), 0.2)
            for net in SMALL
        ),
        *(Part(f"large/{net}", _huge(net), 0.1, on_request=True) for net in HUGE),
        Part("bf16/transformer", _precision(precision.bf16_cases, "transformer"), 0.2),
        Part("compile/transformer", _precision(precision.compiled_cases, "transformer"), 0.3),
        Part("together/ensemble", _together(together.ensemble_cases), 0.1),
        Part("together/comparison", _together(together.comparison_cases), 0.1),
        Part("start/import", _imports, 0.2),
        Part("start/command", _command, 0.3),
        *(Part(f"start/{net}", _first(net), 0.1) for net in SMALL),
    )
}


def main() -> None:
    """Measure one part, and print it as a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    part = PARTS[options.part]
    found = part.measure(part.rounds_of(options.rounds), options.threads)
    print(MARK + json.dumps({"threads": options.threads, "rounds": part.rounds_of(options.rounds), **found}))


if __name__ == "__main__":
    main()
