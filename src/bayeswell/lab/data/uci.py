"""The UCI regression sets with the train and test splits that papers on Bayesian networks share."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from ...core.errors import FileError, SettingError, check_choice
from .dataset import Raw
from .files import DataFile, obtain, read_members

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
_ARCHIVE = DataFile("uci/UCI_Datasets.tar.gz")


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
        table, *indices = self._tables(names, folder)
        features, target, train, test = (index.reshape(-1).astype(np.int64) for index in indices)
        values = torch.from_numpy(table)
        train_pair, test_pair = ((values[rows][:, features], values[rows][:, target]) for rows in (train, test))
        return Raw(f"uci-{self.set}", train_pair, test_pair)

    def _tables(self, names: tuple[str, ...], folder: str | None) -> list[np.ndarray[Any, Any]]:
        paths = [f"UCI_Datasets/{SETS[self.set]}/data/{name}.txt" for name in names]
        members = read_members(obtain(self.name, _ARCHIVE, folder), _ARCHIVE.path, set(paths).__contains__)
        try:
            return [np.loadtxt(io.BytesIO(members[path]), ndmin=2) for path in paths]
        except (KeyError, ValueError) as error:
            raise FileError(f"{_ARCHIVE.path} does not hold the tables of {self.set}: {error}") from error
