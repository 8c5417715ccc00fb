"""Studies by their place: a file, a paper's folder, or the folder of all papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import FileError
from .definition import Study, read_study
from .page import findings_of, write_index, write_page


def find_studies(path: Path) -> list[Study]:
    """The study of a file; of a folder all that lie in it or one folder below, in the order of names."""
    if path.is_dir():
        files = sorted([*path.glob("*.toml"), *path.glob("*/*.toml")])
        if not files:
            raise FileError(f"{str(path)!r} holds no study: there is no .toml file in it")
        return [read_study(file) for file in files]
    return [read_study(path)]


def write_pages(path: Path, studies: Sequence[Study]) -> list[Path]:
    """The page of every folder that the studies lie in, and the index where ``path`` is the folder of several."""
    folders = sorted({study.path.parent for study in studies})
    found = {folder: findings_of([read_study(file) for file in sorted(folder.glob("*.toml"))]) for folder in folders}
    pages = [write_page(folder, one) for folder, one in found.items()]
    if path.is_dir() and path not in folders:
        pages.append(write_index(path, found))
    return pages
