"""Files of published data sets: where they are, and their checksums.

Folders are searched in this order: the one of the caller, those of the environment variable ``BAYESWELL_DATA``
(separated as in PATH), and the cache folder of the user. If ``BAYESWELL_DATA_URL`` is set, a missing file is downloaded
from below this address into the first of them, and its SHA-256 is compared.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

from ...core.errors import FileError

SHA256 = {
    "mnist/train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "mnist/train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "mnist/t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "mnist/t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "fashion-mnist/train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "fashion-mnist/train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "fashion-mnist/t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "fashion-mnist/t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    "notmnist/t10k-images-idx3-ubyte.gz": "70ae9e06201f2827e5b0a3781a3169d735dd2efc69996b9eeaee7f10ed4044d7",
    "notmnist/t10k-labels-idx1-ubyte.gz": "1fa03836e01c862542f8eb83463bb951bebec6fcb3efa28dad748c6b38a9021b",
    "cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    "cifar-100-binary.tar.gz": "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    "svhn/train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    "svhn/test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    "svhn/svhn_ood_5k.npz": "9ea411c5192b3bc7728dead303ae320aaf5899e64367739068eed35154cc36e2",
    "imdb/imdb_train.csv.gz": "39c3fbcbd783ce1f1aac2b41b27b7ba228312a7a7c906acab306cb3add8e81cd",
    "imdb/imdb_test.csv.gz": "210138ea05d094e799cac97d29805412c47ac0207114feed501a5f8d7a87a1b4",
    "uci/UCI_Datasets.tar.gz": "071516dc69587d7da356aa5abc9c492fb01038a216d51483da860060a653a36a",
}
"""Checksums of the files by their paths below a data folder."""
_BROKEN = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, SyntaxError, NotImplementedError),
    *(tarfile.TarError, zlib.error),
)
"""What readers of tables, images and archives raise for broken files."""


def data_folders(folder: str | None = None) -> list[Path]:
    """Return the folders that are searched, in order."""
    named = [folder] if folder else []
    named += [entry for entry in os.environ.get("BAYESWELL_DATA", "").split(os.pathsep) if entry]
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return [Path(entry).expanduser() for entry in (*named, f"{cache}/bayeswell")]


def find_file(path: str, folder: str | None = None) -> Path:
    """Return the first file of this name in the folders; a missing one is downloaded."""
    folders = data_folders(folder)
    known = next((place / path for place in folders if (place / path).is_file()), None)
    return known or _download(path, folders[0])


def _download(path: str, folder: Path) -> Path:
    place, address = folder / path, os.environ.get("BAYESWELL_DATA_URL", "").rstrip("/")
    advice = f"put it at {place}, or set BAYESWELL_DATA to a folder with {path}"
    if not address:
        raise FileError(f"{path} is missing; {advice} (or BAYESWELL_DATA_URL to an address to download it from)")
    try:
        # Imported here: needed for downloads alone.
        import pooch  # type: ignore[import-untyped]

        pooch.retrieve(f"{address}/{path}", f"sha256:{SHA256[path]}", fname=place.name, path=place.parent)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise FileError(f"the download of {path} from {address} failed ({reason}); {advice}") from error
    return place


@contextlib.contextmanager
def reading(path: object, kind: str) -> Iterator[None]:
    """Turn the errors of readers into one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileError(f"{error.filename or path}: there is no such file") from error
    except _BROKEN as error:
        raise FileError(f"{path} cannot be read as {kind}: {' '.join(str(error).split())}") from error


def read_members(archive: str, names: Collection[str], folder: str | None) -> dict[str, bytes]:
    """Return files of a tar archive, or those unpacked next to it; nothing is written to disk."""
    unpacked = {name: str(Path(archive).parent / name) for name in names}
    for place in data_folders(folder):
        if all((place / path).is_file() for path in unpacked.values()):
            return {name: (place / path).read_bytes() for name, path in unpacked.items()}
    found = {}
    place = find_file(archive, folder)
    with reading(place, "a tar archive"), tarfile.open(place) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.name in names else None
            if content is not None:
                found[member.name] = content.read()
    for name in names:
        if name not in found:
            raise FileError(f"{place} does not hold {name}")
    return found
