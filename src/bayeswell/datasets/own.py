"""A user's own data: a table (csv), arrays (npz) or a folder of pictures.

Where no test examples are given, a seeded share of the examples is held out. What cannot be used is refused with one
line that names the file, the row and the column.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, FileError, SettingError, nearest, require_between
from ..extras import needs_extra
from ..tables import Table
from ..tables.numbers import LARGEST
from ..tables.table import near
from .bundled import check_seed
from .csv_cells import cells_of, column_place, read_table, target_texts
from .data import Pair, Raw, RawPair, shuffled_split
from .files import read_bytes
from .formats import Array, read_npz
from .targets import targets_of

PICTURE_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})
PICTURE_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
"""What a picture may be, whatever its name: PostScript, say, would start a program."""
TASKS = ("auto", "classification", "regression")
_TABS = ("tab", "\\t")


@dataclass(frozen=True)
class Csv:
    """A table of your own: ``path``, the ``target`` column, and what the ``task`` is.

    ``target`` is the name of a column (with ``header = false`` its number, from 1); empty stands for the last one.
    ``columns`` names the inputs, in order; empty stands for all but the target. ``delimiter`` is one character;
    ``tab`` and ``\\t`` stand for a tab.
    ``task`` is classification or regression; ``auto`` takes texts, and whole numbers of at most 20 values, for classes.
    Missing cells and columns of texts become numbers (``tables.Columns``); ``categories`` names columns whose cells are
    names though they look like numbers. ``id`` names a column that is no input: ``predict`` carries it along.
    ``test_path`` names a second file with the test rows; without it ``test_share`` of the rows, drawn by the seed
    ``split``, are for the test; a share of 1 makes a set that only tests. So for npz and images.
    """

    path: str = ""
    target: str = ""
    task: str = "auto"
    test_path: str = ""
    header: bool = True
    delimiter: str = ","
    test_share: float = 0.25
    split: int = 0
    columns: Sequence[str] = ()
    categories: Sequence[str] = ()
    id: str = ""

    name: ClassVar[str] = "csv"
    paper: ClassVar[str] = "your own file"
    examples: ClassVar[str] = "any"
    source: ClassVar[str] = "own"

    def __post_init__(self) -> None:
        _check_own(self.name, self.path, self.task, self.test_share, self.split)
        for setting in ("columns", "categories"):
            given = getattr(self, setting)
            if not isinstance(given, list | tuple):
                raise SettingError(f"csv: {setting} = {given!r}; it must be a list of names")
            object.__setattr__(self, setting, tuple(map(str, given)))
        object.__setattr__(self, "id", str(self.id))
        if self.delimiter in _TABS:
            object.__setattr__(self, "delimiter", "\t")
        if not isinstance(self.delimiter, str) or len(self.delimiter) != 1 or self.delimiter in '\r\n"':
            raise SettingError(f"csv: delimiter = {self.delimiter!r}; it must be one character, or 'tab'")

    def read(self, folder: Path | None) -> Raw:
        names, *train = self._table(self.path)
        test = None
        if self.test_path:
            test_names, *test = self._table(self.test_path)
            if test_names != names:
                raise DataError(f"{self.test_path}: its columns are {test_names}; those of {self.path} are {names}")
        raw = _assembled(self, "table", train, test)
        return replace(raw, columns=tuple(names[:-1]), target_name=names[-1]) if self.header else raw

    def _table(self, path: str) -> tuple[list[str], Table, Array]:
        """The names of the input columns and of the target, the inputs, and the cells of the target column as text."""
        names, rows = read_table(path, header=self.header, delimiter=self.delimiter)
        places = {name: place for place, name in enumerate(names)}
        target = names[-1] if self.target == "" else str(self.target)
        if target not in places:
            raise DataError(f"{path}: there is no column '{target}' to be the target; {near(target, names)}")
        if len(names) < 2:
            raise DataError(f"{path}: it has the one column '{names[0]}'; a target and at least one input are needed")
        for column in (*self.columns, *self.categories, *((self.id,) if self.id else ())):
            column_place(column, places, path)
        for what, chosen in (("the target", target), ("the id", self.id)):
            if chosen in self.columns:
                raise DataError(f"{path}: column '{chosen}' is {what} and cannot be an input too")
        if self.id == target:
            raise DataError(f"{path}: column '{target}' is the target and cannot be the id too")
        inputs = list(self.columns) or [name for name in names if name not in (target, self.id)]
        if not inputs:
            raise DataError(f"{path}: beside the target and the id there is no column to be an input")
        table = cells_of(path, rows, {name: places[name] for name in inputs}, frozenset(self.categories))
        return [*inputs, target], table, target_texts(path, rows, target, places[target])


@dataclass(frozen=True)
class Npz:
    """Arrays of your own: ``path`` of an npz file with x and y, and perhaps x_test and y_test.

    x is a table (n, features) or images (n, H, W), (n, C, H, W) or, for bytes, (n, H, W, C); bytes stand for
    value / 255. y holds classes (numbers or texts) or real targets (n,) or (n, outputs); ``task`` as for csv.
    Arrays of objects are refused: they are pickles.
    """

    path: str = ""
    task: str = "auto"
    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str] = "npz"
    paper: ClassVar[str] = "your own file"
    examples: ClassVar[str] = "any"
    source: ClassVar[str] = "own"

    def __post_init__(self) -> None:
        _check_own(self.name, self.path, self.task, self.test_share, self.split)

    def read(self, folder: Path | None) -> Raw:
        arrays = read_npz(read_bytes(Path(self.path)), self.path)
        for needed in ("x", "y"):
            if needed not in arrays:
                raise DataError(f"{self.path}: there is no array '{needed}'; it holds {', '.join(sorted(arrays))}")
        if ("x_test" in arrays) != ("y_test" in arrays):
            raise DataError(f"{self.path}: x_test and y_test come together; one of them is missing")
        kind, train = self._examples(arrays, "x", "y")
        if "x_test" not in arrays:
            return _assembled(self, kind, train, None)
        test_kind, test = self._examples(arrays, "x_test", "y_test")
        inputs, test_inputs = train[0], test[0]
        if (test_kind, test_inputs.shape[1:], test_inputs.dtype) != (kind, inputs.shape[1:], inputs.dtype):
            raise DataError(
                f"{self.path}: x has examples {tuple(inputs.shape[1:])} of {arrays['x'].dtype}, "
                f"x_test {tuple(test_inputs.shape[1:])} of {arrays['x_test'].dtype}; they must agree"
            )
        if train[1].shape[1:] != test[1].shape[1:]:
            raise DataError(f"{self.path}: y has shape {train[1].shape}, y_test {test[1].shape}")
        return _assembled(self, kind, train, test)

    def _examples(self, arrays: Mapping[str, Array], first: str, second: str) -> tuple[str, tuple[Tensor, Array]]:
        x, y = arrays[first], arrays[second]
        kind, inputs = _inputs_of(x, f"{self.path}: array '{first}'")
        if y.ndim == 0 or len(x) != len(y):
            shapes = f"array '{first}' has shape {x.shape}, '{second}' {y.shape}"
            raise DataError(f"{self.path}: {shapes}; both must have n examples")
        return kind, (inputs, y)


@dataclass(frozen=True)
class Images:
    """A folder of pictures of your own: one folder for each class under ``path``, or under its train/ and test/.

    Each picture (png, jpg, bmp, gif, webp, tif) is made ``size`` x ``size``, in colour or ``grey``. Needs Pillow.
    """

    path: str = ""
    size: int = 32
    grey: bool = False
    test_share: float = 0.25
    split: int = 0

    name: ClassVar[str] = "images"
    paper: ClassVar[str] = "your own files"
    examples: ClassVar[str] = "any"
    source: ClassVar[str] = "own"

    def __post_init__(self) -> None:
        _check_own(self.name, self.path, "auto", self.test_share, self.split)
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 1 <= self.size <= 4096:
            raise SettingError(f"images: size = {self.size!r}; it must be a whole number from 1 to 4096")

    def read(self, folder: Path | None) -> Raw:
        root = Path(self.path)
        if not root.is_dir():
            raise FileError(f"{self.path}: there is no such folder")
        if (root / "train").is_dir() and (root / "test").is_dir():
            names = self._classes(root / "train")
            if (found := self._classes(root / "test")) != names:
                raise DataError(f"{self.path}: train/ has the classes {names}, test/ {found}; they must agree")
            pairs = self._pictures(root / "train", names), self._pictures(root / "test", names)
            return _given(root.name, "image", *pairs, names, self.path)
        names = self._classes(root)
        return _split(root.name, "image", *self._pictures(root, names), names, self)

    def _classes(self, root: Path) -> tuple[str, ...]:
        names = tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name[0] != "."))
        if len(names) < (2 if self.test_share < 1 else 1):
            raise DataError(f"{root}: it has {len(names)} folders; each class needs one, and there must be two or more")
        return names

    def _pictures(self, root: Path, names: tuple[str, ...]) -> Pair:
        files = []
        for label, name in enumerate(names):
            files += [(path, label) for path in pictures_in((root / name).iterdir(), root / name)]
        pixels = np.stack([read_picture(path, self.size, grey=self.grey) for path, _ in files])
        return torch.from_numpy(pixels), torch.tensor([label for _, label in files])


def is_picture(path: Path) -> bool:
    """Whether a file is named like a picture."""
    return path.suffix.lower() in PICTURE_ENDINGS


def pictures_in(paths: Iterable[Path], owner: Path) -> list[Path]:
    """The pictures among some paths, in the order of their names; at least one."""
    found = sorted(path for path in paths if is_picture(path))
    if not found:
        raise DataError(f"{owner}: it holds no picture ({', '.join(sorted(PICTURE_ENDINGS))})")
    return found


def read_picture(path: Path, pixels: int, *, grey: bool) -> Array:
    """One picture as bytes (C, pixels, pixels), scaled without keeping its proportions."""
    # Imported here: Pillow is needed for pictures alone.
    with needs_extra("lab", f"{path}, a picture,"):
        from PIL import Image
    try:
        # Bytes first: what PIL is given cannot change or vanish half-way.
        with Image.open(io.BytesIO(read_bytes(path)), formats=PICTURE_FORMATS) as picture:
            width, height = picture.size
            if width * height > 100_000_000:
                raise FileError(f"{path}: its header claims {width} x {height} pixels; refused")
            small = picture.convert("L" if grey else "RGB").resize((pixels, pixels), Image.Resampling.BILINEAR)
            array = np.array(small, np.uint8)
    except FileError:
        raise
    except Exception as error:  # PIL's decoders raise of all kinds
        raise FileError(f"{path}: not a picture that can be read ({' '.join(str(error).split())})") from error
    return array[None] if grey else array.transpose(2, 0, 1)


def _inputs_of(array: Array, owner: str) -> tuple[str, Tensor]:
    if array.dtype.kind not in "biuf":
        raise DataError(f"{owner} has dtype {array.dtype}; inputs must be numbers")
    if array.ndim not in {2, 3, 4} or not array.size:
        raise DataError(f"{owner} has shape {array.shape}; it must be (n, features), (n, H, W) or (n, C, H, W)")
    wrong = np.argwhere(~(np.abs(array) <= LARGEST)) if array.dtype.kind == "f" else np.empty((0, array.ndim))
    if len(wrong):
        place = tuple(int(index) for index in wrong[0])
        allowed = f"finite and at most {LARGEST:g}" if np.isfinite(array[place]) else "finite"
        raise DataError(f"{owner}: the value at index {list(place)} is {array[place]}; inputs must be {allowed}")
    if array.ndim == 2:
        return "table", torch.from_numpy(array.astype(np.float64))
    if array.ndim == 3:
        array = array[:, None]
    elif array.dtype == np.uint8 and array.shape[3] in {1, 3} and array.shape[1] not in {1, 3}:
        array = array.transpose(0, 3, 1, 2)
    kept = np.uint8 if array.dtype == np.uint8 else np.float32
    return "image", torch.from_numpy(np.array(array, kept, order="C"))


def _check_own(owner: str, path: str, task: str, test_share: float, split: int) -> None:
    if not isinstance(path, str) or not path:
        raise SettingError(f"data '{owner}' needs the setting 'path': where your data are (it is {path!r})")
    if task not in TASKS:
        raise SettingError(f"{owner}: task = {task!r}; {nearest(str(task), TASKS)}")
    # All for the test is a set to measure a run on, which bundled sets, with their own test parts, have no use for.
    require_between(owner, "test_share", test_share, 0, 1, open_low=True)
    check_seed(owner, split)


def _assembled(part: Csv | Npz, kind: str, train: Sequence[Any], test: Sequence[Any] | None) -> Raw:
    """Examples from inputs and what stands for their targets, which both parts are needed to tell."""
    name = Path(part.path).stem
    if test is None:
        targets, classes = targets_of(train[1], part.task, part.path, varied=part.test_share < 1)
        return _split(name, kind, train[0], targets, classes, part)
    targets, classes = targets_of(np.concatenate([train[1], test[1]]), part.task, part.path)
    count = len(train[1])
    return _given(name, kind, (train[0], targets[:count]), (test[0], targets[count:]), classes, part.path)


def _split(
    name: str,
    kind: str,
    inputs: Tensor | Table,
    targets: Tensor,
    classes: tuple[str, ...] | None,
    part: Csv | Npz | Images,
) -> Raw:
    if part.test_share == 1:
        return Raw(name, kind, None, (inputs, targets), classes)
    held = round(part.test_share * len(targets))
    if held < 1 or held >= len(targets):
        raise DataError(
            f"{part.path}: of {len(targets)} examples a share of {part.test_share:g} for the test leaves "
            f"{len(targets) - held} to learn from and {held} to test on; both must be at least 1"
        )
    pairs = shuffled_split(inputs, targets, test_share=part.test_share, seed=part.split)
    return _given(name, kind, *pairs, classes, part.path)


def _given(name: str, kind: str, train: RawPair, test: RawPair, classes: tuple[str, ...] | None, path: str) -> Raw:
    if classes is not None and len(train[1].unique()) < 2:
        only = classes[int(train[1][0])]
        raise DataError(f"{path}: all {len(train[1])} training examples are of class '{only}'; two are needed")
    return Raw(name, kind, train, test, classes)
