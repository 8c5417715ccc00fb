"""Downloads, from a server on this machine: what is brought is checked, and failure is one clear line."""

from __future__ import annotations

import functools
import gc
import hashlib
import http.server
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from bayeswell.datasets import DATASETS, cache_folder, data_folders, data_status, load_data
from bayeswell.datasets.files import DataFile, Release
from bayeswell.errors import FileError

Pack = Callable[[Mapping[str, bytes]], bytes]

# pooch leaves the socket of a download that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the address under which it is served."""
    pooch = pytest.importorskip("pooch", reason="pooch, which downloads, is not installed")
    pooch.get_logger().setLevel(logging.ERROR)
    monkeypatch.setenv("BAYESWELL_OFFLINE", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    root = tmp_path / "server"
    root.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield root, f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
            gc.collect()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def house_numbers() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros((2, 32, 32, 3), np.uint8), y=np.arange(2))
    return buffer.getvalue()


def test_a_missing_file_is_brought_checked_and_kept(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, address = served
    content = house_numbers()
    (root / "numbers.npz").write_bytes(content)
    file = DataFile("svhn/svhn_ood_5k.npz", sha256(content), address + "numbers.npz")
    monkeypatch.setattr(DATASETS["svhn_ood"], "releases", (Release((file,)),))
    part = DATASETS.resolve("svhn_ood")
    assert len(part.read(tmp_path / "data").test[1]) == 2
    assert (tmp_path / "data/svhn/svhn_ood_5k.npz").read_bytes() == content
    (root / "numbers.npz").unlink()
    assert len(part.read(tmp_path / "data").test[1]) == 2, "the second time the file is there"


def test_a_file_that_is_not_the_original_or_not_there_is_refused(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, address = served
    (root / "numbers.npz").write_bytes(house_numbers() + b"more")
    for name in ("numbers.npz", "nothing.npz"):
        file = DataFile("svhn/svhn_ood_5k.npz", sha256(house_numbers()), address + name)
        monkeypatch.setattr(DATASETS["svhn_ood"], "releases", (Release((file,)),))
        with pytest.raises(FileError, match=f"the download of .*{name} failed") as caught:
            DATASETS.resolve("svhn_ood").read(tmp_path / "data")
        assert "\n" not in str(caught.value)
        assert "put into" in str(caught.value)
        assert data_status("svhn_ood", tmp_path / "data") == "absent"


def test_an_archive_is_unpacked_into_the_data_folder(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tar_gz: Pack
) -> None:
    root, address = served
    image = bytes([2, 5]) + bytes(1024) + bytes([100]) * 2048
    members = {"cifar-100-binary/train.bin": image * 3, "cifar-100-binary/test.bin": image}
    archive = tar_gz(members)
    (root / "all.tar.gz").write_bytes(archive)
    files = tuple(DataFile(name, sha256(content)) for name, content in members.items())
    release = Release(files, DataFile("cifar-100-binary.tar.gz", sha256(archive), address + "all.tar.gz"))
    monkeypatch.setattr(DATASETS["cifar100"], "releases", (release,))
    data = load_data("cifar100", folder=tmp_path / "data")
    assert data.train[1].tolist() == [5, 5, 5]
    assert (tmp_path / "data/cifar-100-binary/test.bin").read_bytes() == image
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert names == ["cifar-100-binary", "cifar-100-binary.tar.gz"], "nothing is left lying about"


def test_offline_and_without_a_source_nothing_is_tried(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="BAYESWELL_OFFLINE forbids the download") as caught:
        load_data("cifar10", folder=tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert "cifar-10-batches-bin/data_batch_1.bin" in message
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz" in message
    with pytest.raises(FileError, match="no source is known"):
        load_data("uci_boston", folder=tmp_path)


def test_without_pooch_the_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESWELL_OFFLINE", "")
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(FileError, match="pooch, which downloads, is not installed"):
        load_data("mnist", folder=tmp_path)


def test_the_cache_folder_is_the_one_of_pooch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BAYESWELL_DATA")
    assert data_folders() == [cache_folder()]
    pooch = pytest.importorskip("pooch", reason="pooch, which downloads, is not installed")
    assert cache_folder() == Path(pooch.os_cache("bayeswell"))


@pytest.mark.parametrize("name", [name for name in DATASETS if DATASETS[name].source == "files"])
def test_every_published_file_has_a_checksum_and_a_place_inside_the_folder(name: str) -> None:
    for release in DATASETS[name].releases:  # type: ignore[attr-defined]
        for file in (*release.files, *([release.archive] if release.archive else [])):
            assert len(bytes.fromhex(file.sha256)) == 32
            assert not Path(file.path).is_absolute()
            assert ".." not in Path(file.path).parts
            assert file.url.startswith(("https://", "http://")) or not file.url
