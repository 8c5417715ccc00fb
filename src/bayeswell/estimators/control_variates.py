"""Control variates of score-function gradients: what is subtracted from a value before it multiplies the score.

E_q[d/dtheta log q(w)] = 0, so anything that does not depend on w may be subtracted without changing the expectation.
The variance is smallest near the mean of the values.
"""

from __future__ import annotations

from torch import Tensor

from ..core.errors import SettingError, check_choice

NONE = "none"
LEAVE_ONE_OUT = "leave_one_out"
BASELINES = (NONE, LEAVE_ONE_OUT)


def check_baseline(owner: str, baseline: str, draws: int | None = None) -> None:
    """Refuse an unknown baseline, and leave-one-out with a single draw."""
    check_choice(owner, "baseline", baseline, BASELINES)
    if baseline == LEAVE_ONE_OUT and draws is not None and draws < 2:
        raise SettingError(f"{owner}: baseline 'leave_one_out' needs an estimator with at least 2 draws, got {draws}")


def deviations(values: Tensor, baseline: str) -> Tensor:
    """Return (D,) values less their baseline; leave-one-out: v_d - mean of the others = D / (D - 1) (v_d - mean)."""
    if baseline == NONE:
        return values
    count = len(values)
    return (values - values.mean()) * (count / (count - 1))
