"""The UCI regression sets with the train/test splits that the studies of Bayesian networks share."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FileError, SettingError, nearest
from .data import Raw
from .files import DataFile, Release, checked_members, gunzip, obtain
from .formats import read_numbers

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
"""Our name of a set, and its folder in the archive."""
_ARCHIVE = "UCI_Datasets.tar.gz"


@dataclass(frozen=True)
class Uci:
    """Nine regression tables with their 20 standard 90/10 splits (protein: 5): ``set`` and ``split`` choose.

    Which columns are features and which is the target follows the archive's own index files: of naval's two decay
    coefficients the first is the target, of energy's two loads the heating load.
    """

    set: str = "boston"
    split: int = 0

    name: ClassVar[str] = "uci"
    paper: ClassVar[str] = "Hernandez-Lobato & Adams 2015, Probabilistic backpropagation; Gal & Ghahramani 2016"
    examples: ClassVar[str] = "308 to 45,730 rows, 4 to 16 features, 1 real target"
    source: ClassVar[str] = "files"
    releases: ClassVar[tuple[Release, ...]] = (
        Release((DataFile(f"uci/{_ARCHIVE}", "071516dc69587d7da356aa5abc9c492fb01038a216d51483da860060a653a36a"),)),
    )

    def __post_init__(self) -> None:
        # Names come with either dash, as everywhere in the registries.
        if isinstance(self.set, str):
            object.__setattr__(self, "set", self.set.replace("_", "-"))
        if self.set not in SETS:
            raise SettingError(f"uci: set = {self.set!r}; {nearest(str(self.set), SETS)}")
        splits = 5 if self.set == "protein" else 20
        if isinstance(self.split, bool) or not isinstance(self.split, int) or not 0 <= self.split < splits:
            raise SettingError(f"uci: split = {self.split!r}; {self.set} has the splits 0 to {splits - 1}")

    def read(self, folder: Path | None) -> Raw:
        archive = obtain(self.name, self.releases, folder)[_ARCHIVE]
        wanted = ("data", "index_features", "index_target", f"index_train_{self.split}", f"index_test_{self.split}")
        found = _members(archive, f"UCI_Datasets/{SETS[self.set]}/data", wanted)
        table = found["data"]
        features, target = (_indices(found, name, table.shape[1]) for name in ("index_features", "index_target"))
        rows = [_indices(found, f"index_{part}_{self.split}", len(table)) for part in ("train", "test")]
        if set(rows[0]) & set(rows[1]) or set(features) & set(target):
            raise FileError(f"{_ARCHIVE}: the index files of {self.set} put the same row or column on both sides")
        train, test = (
            (torch.from_numpy(table[part][:, features]), torch.from_numpy(table[part][:, target])) for part in rows
        )
        return Raw(f"uci_{self.set}", "table", train, test, None)


def _members(archive: bytes, folder: str, names: tuple[str, ...]) -> dict[str, npt.NDArray[np.float64]]:
    """Some text files of the archive as tables, read in memory: nothing is unpacked to disk."""
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(gunzip(archive, _ARCHIVE)), mode="r:") as tar:
            members = checked_members(tar, Path(_ARCHIVE), None, packed_bytes=len(archive))
            by_name = {member.name: member for member in members if member.isfile()}
            for name in names:
                path = f"{folder}/{name}.txt"
                member = by_name.get(path)
                content = tar.extractfile(member) if member else None
                if content is None:
                    raise FileError(f"{_ARCHIVE}: it does not hold {path}")
                found[name] = read_numbers(content.read(), path)
    except (tarfile.TarError, EOFError) as error:
        raise FileError(f"{_ARCHIVE}: not a whole tar archive ({error})") from error
    return found


def _indices(found: dict[str, npt.NDArray[np.float64]], name: str, count: int) -> npt.NDArray[np.int64]:
    indices = found[name].reshape(-1).astype(np.int64)
    if not len(indices) or indices.min() < 0 or indices.max() >= count or (indices != found[name].reshape(-1)).any():
        raise FileError(f"{_ARCHIVE}: {name} must hold whole numbers from 0 to {count - 1}")
    return indices
