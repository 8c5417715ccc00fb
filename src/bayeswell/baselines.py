"""Baselines of score-function gradients: what is subtracted from a value before it multiplies the score.

E_q[d/dtheta log q(w)] = 0, so anything that does not depend on w may be subtracted: the expectation stays, and the
variance is smallest where about the mean is subtracted.
"""

from __future__ import annotations

from torch import Tensor

from .errors import SettingError, nearest

NONE = "none"
LEAVE_ONE_OUT = "leave_one_out"
BASELINES = (NONE, LEAVE_ONE_OUT)


def check_baseline(owner: str, baseline: str, draws: int | None = None) -> None:
    """Refuse an unknown one, and the mean of other draws where there are none."""
    if baseline not in BASELINES:
        raise SettingError(f"{owner}: baseline = {baseline!r}; {nearest(str(baseline), BASELINES)}")
    if baseline == LEAVE_ONE_OUT and draws is not None and draws < 2:
        raise SettingError(
            f"{owner}: baseline = '{LEAVE_ONE_OUT}' is the mean of a step's other draws, and draws = {draws}; use an "
            f"estimator with draws of at least 2, or baseline '{NONE}'"
        )


def deviations(values: Tensor, baseline: str) -> Tensor:
    """(D,): values less their baseline; for ``leave_one_out`` v_d - mean of the others = D / (D - 1) (v_d - mean)."""
    if baseline == NONE:
        return values
    count = len(values)
    return (values - values.mean()) * (count / (count - 1))
