"""Averages that weigh their snapshots: an exponential one, against closed forms on known paths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.averaging import AVERAGING, EMA, SWAG, Mean, Moments, SnapshotCollector, plan
from bayeswell.averaging.columns import Columns
from bayeswell.averaging.gaussians import diagonal, low_rank
from bayeswell.posteriors import Delta, DeltaPosterior
from bayeswell.types import Progress

STEPS = 9


@dataclass(frozen=True)
class Fading:
    """An exponential average of one's own, with moments and columns: one file outside the package."""

    decay: float = 0.8
    kind: str = "delta"

    name: ClassVar[str] = "fading"
    paper: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()

    def build(self, model: Any, total_steps: int, batches: int) -> SnapshotCollector:
        timetable = plan(self.name, 0.0, 1, total_steps, batches)
        like, layout = model.posterior.mean_vector().detach(), model.layout
        mean, moments = Mean(model), Moments(model)
        columns = Columns(moments, like, 4)

        def finish():
            if self.kind == "delta":
                return Delta(), DeltaPosterior(layout, mean.mean.to(like.dtype))
            if self.kind == "diagonal":
                return diagonal(layout, like, moments.mean, moments.variance)
            return low_rank(layout, like, moments.mean, moments.variance, columns.factor(1.0))

        statistics = {"mean": mean, "moments": moments, "columns": columns}
        return SnapshotCollector(
            self.name, timetable, model, statistics, finish, gain=lambda n: (1 - self.decay) / (1 - self.decay**n)
        )


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)).double()


def path(size: int, seed: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(STEPS, size)).cumsum(0) * 0.4 + 1.3


def weights_of(decay: float, count: int = STEPS) -> np.ndarray:
    """Snapshot j counts b^(n-j), normalised."""
    raw = decay ** np.arange(count - 1, -1, -1.0)
    return raw / raw.sum()


def follow(part: Any, start: int = 0, stop: int = STEPS, collector: Any = None) -> tuple[Any, np.ndarray, np.ndarray]:
    """A collector led along a known path of weights and BatchNorm scales."""
    model = bw.bayesian(network(), "delta", where=["0.*", "2.*"])
    weights, scales = path(model.layout.size), path(2, seed=9)
    collector = part.build(model, STEPS, 3) if collector is None else collector
    for step in range(start, stop):
        with torch.no_grad():
            model.posterior.mean_vector().copy_(torch.from_numpy(weights[step]))
            model.net[1].weight.copy_(torch.from_numpy(scales[step]))
        collector.observe(model, Progress(step, STEPS))
    return collector, weights, scales


@pytest.mark.parametrize(
    ("part", "decay"),
    [
        (EMA(decay=0.83), 0.83),
        (EMA(half_life=2.5), 0.5 ** (1 / 2.5)),
        (EMA(), 0.5 ** (20 / STEPS)),
        (EMA(decay=0.0), 0.0),
        (Fading(0.83), 0.83),
    ],
    ids=["decay", "half life", "default", "last alone", "from outside"],
)
def test_weights_and_batchnorm_scales_are_the_same_weighted_mean(part: Any, decay: float) -> None:
    collector, weights, scales = follow(part)
    shares = weights_of(decay)
    assert isinstance(collector.result()[0], Delta)
    mean = collector.result()[1].mean_vector().detach().numpy()
    np.testing.assert_allclose(mean, shares @ weights, rtol=1e-13)
    np.testing.assert_allclose(collector.deterministic()["1.weight"].numpy(), shares @ scales, rtol=1e-13)


def test_snapshots_every_few_steps_keep_the_half_life_in_steps() -> None:
    collector, weights, _ = follow(EMA(half_life=4, cycle=2, start=0.3))
    taken = [3, 5, 7]  # burn-in is round(2.7) = 3 steps, then every second
    expected = weights_of(0.5 ** (2 / 4), 3) @ weights[taken]
    np.testing.assert_allclose(collector.result()[1].mean_vector().detach().numpy(), expected, rtol=1e-13)


def test_moments_and_columns_are_weighted_alike() -> None:
    """mean, variance and D diag(a) D' / (k - 1), all against sums over the snapshots in float64."""
    decay = 0.7
    shares = weights_of(decay)
    collector, weights, _ = follow(Fading(decay, "diagonal"))
    mean = shares @ weights
    variance = shares @ (weights - mean) ** 2
    _, posterior = collector.result()
    np.testing.assert_allclose(posterior.mean_vector().detach().numpy(), mean, rtol=1e-13)
    np.testing.assert_allclose(posterior.std_vector().detach().numpy() ** 2, variance, rtol=1e-12)

    collector, *_ = follow(Fading(decay, "low rank"))
    _, posterior = collector.result()
    columns = np.stack([weights[n] - weights_of(decay, n + 1) @ weights[: n + 1] for n in range(STEPS)])[-4:]
    relative = 4 * shares[-4:] / shares[-4:].sum()
    expected = np.diag(variance) + (columns.T * relative) @ columns / 3
    basis = torch.eye(posterior.noise_size, dtype=torch.float64)
    spread = (posterior.sample(basis) - posterior.mean_vector()).detach().numpy()
    np.testing.assert_allclose(spread.T @ spread, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("part", [EMA(decay=0.9), Fading(0.9, "low rank")], ids=lambda part: part.name)
def test_a_run_resumed_in_the_middle_ends_bit_for_bit(part: Any) -> None:
    whole, *_ = follow(part)
    half, *_ = follow(part, stop=4)
    state = {k: v.clone() if isinstance(v, Tensor) else v for k, v in half.state_dict().items()}
    fresh, *_ = follow(part, 0, 0)
    fresh.load_state_dict(state)
    resumed, *_ = follow(part, start=4, collector=fresh)
    for name, value in whole.result()[1].state_dict().items():
        assert torch.equal(value, resumed.result()[1].state_dict()[name]), name
    assert torch.equal(whole.deterministic()["1.weight"], resumed.deterministic()["1.weight"])


def test_a_state_saved_before_there_were_weights_still_loads() -> None:
    part = SWAG(start=0, cycle=1, rank=3)
    whole, *_ = follow(part)
    half, *_ = follow(part, stop=5)
    state = {name: value for name, value in half.state_dict().items() if name != "deviations.shares"}
    assert len(state) == len(half.state_dict()) - 1
    fresh, *_ = follow(part, 0, 0)
    fresh.load_state_dict(state)
    for name, value in half.result()[1].state_dict().items():
        torch.testing.assert_close(fresh.result()[1].state_dict()[name], value, rtol=1e-13, atol=0)
    resumed, *_ = follow(part, start=5, collector=fresh)
    for name, value in whole.result()[1].state_dict().items():
        torch.testing.assert_close(resumed.result()[1].state_dict()[name], value, rtol=1e-13, atol=1e-15)


def test_fit_with_an_average_by_name_and_from_outside() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 3, generator=generator)
    y = (x[:, 0] > 0).long()
    found = {}
    for collector in (None, "ema", {"name": "ema", "decay": 0.8}, Fading(0.8), {"name": "ema", "decay": 0.0}):
        result = bw.fit(
            network().float(), (x, y), "map", collector=collector, rate="constant", epochs=3, batch_size=10, seed=5
        )
        found[str(collector)] = next(result.model.posterior.draws(1, None))["0.weight"].detach()
    ended, by_name, named, outside, last = found.values()
    torch.testing.assert_close(named, outside, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(last, ended, rtol=0, atol=0)  # all the weight on the last snapshot
    assert float((by_name - ended).abs().max()) > 1e-4
    assert float((named - ended).abs().max()) > 1e-4


def test_bad_settings_and_gains_are_refused() -> None:
    assert AVERAGING.resolve({"name": "ema", "half_life": 30.0}) == EMA(half_life=30.0)
    for settings, line in (
        ({"decay": 1.0}, r"ema: decay = 1\.0"),
        ({"decay": math.nan}, "ema: decay = nan"),
        ({"half_life": 0}, "ema: half_life = 0"),
        ({"half_life": 3.0, "decay": 0.5}, r"decay = 0\.5 and half_life = 3 both"),
        ({"start": 1.0}, r"ema: start = 1\.0"),
    ):
        with pytest.raises(bw.SettingError, match=line):
            EMA(**settings)
    model = bw.bayesian(network(), "delta")
    timetable = plan("own", 0.0, 1, STEPS, 3)
    for gain, line in ((lambda n: 0.5, "gain of snapshot 1 is 0.5"), (lambda n: float(n), "gain of snapshot 2 is 2.0")):
        collector = SnapshotCollector("own", timetable, model, {}, lambda: None, gain=gain)  # type: ignore[arg-type]

        def observe(collector: SnapshotCollector = collector) -> None:
            for step in range(3):
                collector.observe(model, Progress(step, STEPS))

        with pytest.raises(bw.SettingError, match=line):
            observe()


def test_a_half_life_beyond_all_steps_is_the_uniform_mean() -> None:
    collector, weights, scales = follow(EMA(half_life=1e30))
    np.testing.assert_allclose(collector.result()[1].mean_vector().detach().numpy(), weights.mean(0), rtol=1e-13)
    np.testing.assert_allclose(collector.deterministic()["1.weight"].numpy(), scales.mean(0), rtol=1e-13)
