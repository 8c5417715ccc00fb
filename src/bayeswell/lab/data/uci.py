"""The UCI regression sets with the train and test splits that papers on Bayesian networks share."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ...core.errors import SettingError, check_choice
from .dataset import Raw
from .files import read_members, reading

SETS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power-plant": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine-red": "wine-quality-red",
    "yacht": "yacht",
}
"""Folder of each set in the archive."""
_ARCHIVE = "uci/UCI_Datasets.tar.gz"


@dataclass(frozen=True)
class Uci:
    """Nine regression tables with 20 random 90/10 splits, protein with 5 (Hernandez-Lobato & Adams 2015).

    Features and target follow the index files of the archive. Of the two targets of naval and energy, the first counts.

    Args:
        set: name of the table; "uci-boston" is short for ``{"name": "uci", "set": "boston"}``.
        split: number of the split, from 0.
    """

    set: str = "boston"
    split: int = 0

    name: ClassVar[str] = "uci"
    summary: ClassVar[str] = f"regression tables with standard splits: uci-{', uci-'.join(SETS)}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "set", str(self.set).replace("_", "-"))
        check_choice("uci", "set", self.set, SETS)
        splits = 5 if self.set == "protein" else 20
        if self.split not in range(splits):
            raise SettingError(f"uci: `split` of {self.set} must be 0 to {splits - 1}, got {self.split!r}")

    def read(self, folder: str | None) -> Raw:
        names = ("data", "index_features", "index_target", f"index_train_{self.split}", f"index_test_{self.split}")
        paths = [f"UCI_Datasets/{SETS[self.set]}/data/{name}.txt" for name in names]
        members = read_members(_ARCHIVE, paths, folder)
        with reading(_ARCHIVE, f"the tables of {self.set}"):
            table, *indices = (np.loadtxt(io.BytesIO(members[path]), ndmin=2) for path in paths)
        features, target, train, test = (index.reshape(-1).astype(np.int64) for index in indices)
        values = torch.from_numpy(table)
        train_pair, test_pair = ((values[rows][:, features], values[rows][:, target]) for rows in (train, test))
        return Raw(f"uci-{self.set}", train_pair, test_pair)
