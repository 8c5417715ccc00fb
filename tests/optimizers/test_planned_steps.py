"""How far stds can get in the planned steps: tied factors, annealed KL weights, any stepper with a bound."""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.methods import assemble
from bayeswell.optimizers import OPTIMIZERS, RATES, Adam, counted_steps, reachable_log_std, std_convergence_warning
from bayeswell.schedules import KL_WEIGHTS, Geometric, LinearAnneal, Uniform
from bayeswell.types import Progress, Stepper


@pytest.mark.parametrize("posterior", ["mean_field", {"name": "k_tied", "rank": 2}, "matrix_normal"])
def test_adam_moves_log_stds_as_far_as_their_speed_says(posterior: Any) -> None:
    """A steady pull upwards on every log std: each moves by speed x lr in a step, of tied ones by both factors."""
    torch.manual_seed(0)
    model = bw.bayesian(nn.Linear(6, 5, bias=False).double(), posterior)
    q = model.posterior
    stds = [p for name, p in q.named_parameters() if name != "mean"]
    optimizer = Adam(lr=0.01).build([{"params": stds}])
    start, steps = q.std_vector().detach().log(), 40
    for _ in range(steps):
        optimizer.zero_grad()
        (-q.std_vector().log().sum()).backward()
        optimizer.step()
    moved = q.std_vector().detach().log() - start
    reach = reachable_log_std(0.01, steps, q.log_std_speed)
    assert q.log_std_speed == (1.0 if posterior == "mean_field" else 2.0)
    if posterior != "matrix_normal":  # whose factors have entries off the diagonal, which add a little
        assert float(moved.max()) <= reach * (1 + 1e-6)
    assert float(moved.mean()) == pytest.approx(reach, rel=0.1)


@functools.cache
def whole_run(steps: int) -> list[Progress]:
    return [Progress(step, steps, step % 20, 20) for step in range(steps)]


@functools.cache
def factors(schedule: Any, steps: int) -> list[float]:
    """Of a rate or a KL weight at every step: made once for all that it goes together with."""
    of = getattr(schedule, "factor", schedule)
    return [of(at) for at in whole_run(steps)]


@pytest.mark.parametrize("steps", [40, 999, 1000, 1001, 7300, 100_000])
@pytest.mark.parametrize("rate", ["constant", "cosine"])
@pytest.mark.parametrize("weight", [Uniform(), LinearAnneal(), LinearAnneal(0.25), Geometric(0.7)], ids=repr)
def test_steps_count_by_rate_and_kl_weight(steps: int, rate: str, weight: Any) -> None:
    """A thousand looks against the whole sum; the number of batches divides the distance between looks."""
    chosen = RATES.resolve(rate)
    pairs = zip(factors(chosen, steps), factors(weight, steps), strict=True)
    whole = sum(factor * min(1.0, share) for factor, share in pairs)
    assert counted_steps(chosen, weight, steps, 20) == pytest.approx(whole, rel=1e-9 if steps <= 1000 else 0.01)


def test_an_annealed_weight_over_the_whole_run_counts_half() -> None:
    assert counted_steps(RATES.resolve("constant"), LinearAnneal(), 500, 10) == pytest.approx(250.5)
    assert counted_steps(RATES.resolve("constant"), KL_WEIGHTS.resolve("uniform"), 500, 10) == 500


@dataclass(frozen=True)
class SignSteps(Stepper):
    """A stepper of one's own: half a rate in each step, whatever the gradient."""

    lr: float = 0.01

    name: ClassVar[str] = "sign_steps"
    step_bound: ClassVar[float | None] = 0.5

    def build(self, groups: Any) -> Any:
        return torch.optim.SGD(groups, lr=self.lr)


def notes_of(steps: int, **settings: Any) -> list[str]:
    """What the assembly of a run warns of. The stds start at e^-3 of the prior's: 6 are asked for."""
    method = bw.find_method("bbb").changed(
        **{"stepper": Adam(lr=0.01), "std_multiplier": 1.0, "rate": "constant", "prior": bw.Normal(1.0)} | settings,
        temperature=1.0,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assemble(
            method, nn.Linear(6, 5), "categorical", dataset_size=100, batches=10, epochs=steps // 10,
            generator=bw.make_generator(0),
        )  # fmt: skip
    return [str(w.message) for w in caught if "converge" in str(w.message)]


FAR = {"initial_std": math.exp(-3)}


@pytest.mark.parametrize(
    ("settings", "enough"),
    [
        ({"posterior": {"name": "mean_field", **FAR}}, 600),
        ({"posterior": {"name": "mean_field", **FAR}, "kl_weight": "linear_anneal"}, 1200),
        ({"posterior": {"name": "k_tied", "rank": 2, **FAR}}, 300),
        ({"posterior": {"name": "mean_field", **FAR}, "stepper": {"name": "amsgrad", "lr": 0.02}}, 300),
    ],
    ids=["mean field", "annealed", "k-tied", "amsgrad"],
)
def test_the_warning_of_a_run_ends_where_the_stds_can_get_there(settings: dict[str, Any], enough: int) -> None:
    (note,) = notes_of(int(0.9 * enough), **settings)
    assert note.startswith("the stds may not converge")
    assert notes_of(int(1.1 * enough), **settings) == []
    (note,) = notes_of(int(0.4 * enough), **settings)
    assert note.startswith("the stds cannot converge")


def test_the_stepper_says_how_far_it_goes() -> None:
    model = bw.bayesian(nn.Linear(6, 5), bw.MeanField(**FAR), bw.Normal(1.0))
    plan = (RATES.resolve("constant"), Uniform(), 1000, 10)
    own = SignSteps()
    line = std_convergence_warning(model.posterior, model.prior, own.lr, own.step_bound, *plan)
    assert line is not None
    assert "move them by about 5 at most" in line
    assert std_convergence_warning(model.posterior, model.prior, 0.01, 1.0, *plan) is None
    assert std_convergence_warning(model.posterior, model.prior, 1e-9, None, *plan) is None
    bounded = {name for name in OPTIMIZERS if OPTIMIZERS[name].step_bound is not None}
    assert bounded == {"adam", "amsgrad", "adamw", "radam"}
    assert notes_of(100, posterior={"name": "mean_field", **FAR}, stepper={"name": "sgd", "lr": 1e-6}) == []
