"""The columns of a low-rank covariance: how far the last snapshots were from the average."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import SettingError, require_count
from .running import Moments, Snapshot, restored, widened
from .timetable import REMEDY, Timetable

DEFAULT_RANK = 20
"""Maddox et al. 2019, section 4: K = 20."""


def check_rank(owner: str, setting: str, rank: int | None) -> None:
    """Refuse anything but a whole number of at least two, or None."""
    if rank is not None:
        require_count(owner, setting, rank)
        if rank < 2:
            raise SettingError(f"{owner}: {setting} = {rank}; the covariance divides by {setting} - 1: at least 2")


def chosen_rank(owner: str, setting: str, rank: int | None, timetable: Timetable) -> int:
    """The rank asked for, which must not exceed the planned snapshots; by default 20 or as many as there will be."""
    if rank is None:
        return min(DEFAULT_RANK, timetable.planned)
    if rank > timetable.planned:
        raise SettingError(
            f"{owner}: {setting} = {rank} exceeds the {timetable.planned} snapshots of the plan ({timetable}); use at "
            f"most {timetable.planned}, {REMEDY}"
        )
    return rank


class Columns:
    """Deviations w_n - m_n from the mean *after* its update, the last ``rank`` of them (SWAG, algorithm 1).

    The first is zero, since the mean is then the snapshot itself; it counts among the columns all the same. ``shares``
    (k,) are the weights of the held columns' snapshots among all so far (1/n each for a uniform mean).
    """

    def __init__(self, moments: Moments, like: Tensor, rank: int) -> None:
        self.moments, self.rank = moments, rank
        self.held = like.detach().new_zeros(0, like.numel())
        self.shares: Tensor | None = widened(self.held[:, 0])

    def add(self, snapshot: Snapshot) -> None:
        """Must come after ``moments`` has taken in the same snapshot."""
        # A difference keeps its digits in the model's own dtype, at half the memory.
        deviation = (snapshot.mean - self.moments.mean).to(self.held.dtype)
        shares = self.shares
        if shares is None:  # of a state saved when all snapshots counted alike
            shares = widened(self.held.new_ones(len(self.held))) / (snapshot.number - 1)
        first = max(0, len(self.held) + 1 - self.rank)
        newest = shares.new_full((1,), snapshot.gain)
        self.held = torch.cat([self.held[first:], deviation[None]])
        self.shares = torch.cat([shares[first:] * (1 - snapshot.gain), newest])

    def factor(self, scale: float) -> Tensor:
        """(P, k) in float64: F with F F' = scale D diag(a) D' / (k - 1) for the k columns D that are held.

        a_j = k share_j / sum of the held shares: 1 for a uniform mean, which is SWAG's D D' / (k - 1).
        """
        count = len(self.held)
        factor = widened(self.held).T * math.sqrt(scale / (count - 1))
        return factor if self.shares is None else factor * (count * self.shares / self.shares.sum()).sqrt()

    def state_dict(self) -> dict[str, Any]:
        return {"columns": self.held} | ({} if self.shares is None else {"shares": self.shares})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        held = restored(state, "columns", self.held, rows=self.rank)
        like = widened(held.new_zeros(len(held)))
        self.shares = restored(state, "shares", like) if "shares" in state else None
        self.held = held
