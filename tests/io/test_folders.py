from __future__ import annotations

import json
import os
import random
import shutil

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from bayeswell.core.errors import FileError
from bayeswell.io import folder_exists, folder_lock, folders, load_folder, save_folder


@pytest.fixture
def saved(tmp_path):
    tensors = {"a": torch.randn(5, 3), "b": torch.arange(4), "c": torch.zeros(0), "d": torch.tensor(2.5).double()}
    documents = {"model": {"x": [1, None, "é"], "y": 0.1}, "other": [True]}
    save_folder(tmp_path / "run", tensors, documents)
    return tmp_path / "run", tensors, documents


def assert_same(found, tensors, documents):
    assert found[0].keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[0][name].dtype == tensor.dtype
        assert torch.equal(found[0][name], tensor)
    assert {name: found[1][name] for name in documents} == documents


def test_round_trip_is_exact(saved):
    assert_same(load_folder(saved[0]), *saved[1:])


def test_shared_and_strided_tensors_are_saved(tmp_path):
    base = torch.randn(4, 6)
    tensors = {"whole": base, "same": base, "view": base[:, 1], "turned": base.T, "low": base.bfloat16()}
    save_folder(tmp_path / "x", tensors, {})
    assert_same(load_folder(tmp_path / "x"), tensors, {})


def test_numpy_numbers_become_json(tmp_path):
    save_folder(tmp_path / "x", {}, {"n": {"i": np.int64(3), "f": np.float32(0.5)}})
    assert load_folder(tmp_path / "x")[1]["n"] == {"i": 3, "f": 0.5}


def test_every_flipped_bit_is_found(saved):
    path = saved[0]
    files = sorted(path.iterdir())
    generator = random.Random(0)
    for _ in range(400):
        file = generator.choice(files)
        good = file.read_bytes()
        bad = bytearray(good)
        bad[generator.randrange(len(bad))] ^= 1 << generator.randrange(8)
        file.write_bytes(bad)
        with pytest.raises(FileError):
            load_folder(path)
        file.write_bytes(good)
    assert_same(load_folder(path), *saved[1:])


def test_cut_and_missing_files_are_found(saved):
    path = saved[0]
    for file in sorted(path.iterdir()):
        good = file.read_bytes()
        for length in {0, 1, len(good) // 2, len(good) - 1}:
            file.write_bytes(good[:length])
            with pytest.raises(FileError):
                load_folder(path)
        file.unlink()
        with pytest.raises(FileError):
            load_folder(path)
        file.write_bytes(good)


def test_manifest_cannot_name_files_outside_the_folder(saved, tmp_path):
    manifest = saved[0] / "manifest.json"
    record = json.loads(manifest.read_text())
    record["files"]["../secret.json"] = "0" * 64
    manifest.write_text(json.dumps(record))
    with pytest.raises(FileError, match="outside"):
        load_folder(saved[0])


def test_pickled_tensors_are_not_read(saved):
    torch.save({"a": torch.zeros(2)}, saved[0] / "tensors.safetensors")
    with pytest.raises(FileError):
        load_folder(saved[0])


def test_folder_is_replaced_as_a_whole(saved):
    save_folder(saved[0], {"new": torch.ones(2)}, {"only": 1})
    tensors, documents = load_folder(saved[0])
    assert set(tensors) == {"new"}
    assert documents["only"] == 1
    assert "model" not in documents
    assert [entry.name for entry in saved[0].parent.iterdir()] == ["run"]


def test_folder_with_other_files_is_not_deleted(saved):
    (saved[0] / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match=r"notes\.txt"):
        save_folder(saved[0], {}, {})
    assert (saved[0] / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("fails_at", [1, 2])
def test_interrupted_writing_leaves_the_old_folder_readable(saved, monkeypatch, fails_at):
    calls, replace = [], os.replace

    def failing(source, target):
        calls.append(target)
        if len(calls) == fails_at:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(KeyboardInterrupt):
        save_folder(saved[0], {"new": torch.ones(2)}, {})
    monkeypatch.undo()
    assert folder_exists(saved[0])
    assert_same(load_folder(saved[0]), *saved[1:])
    save_folder(saved[0], {"new": torch.ones(2)}, {})
    assert set(load_folder(saved[0])[0]) == {"new"}
    assert [entry.name for entry in saved[0].parent.iterdir()] == ["run"]


def test_failed_writing_leaves_nothing(tmp_path):
    with pytest.raises(FileError, match="JSON"):
        save_folder(tmp_path / "x", {}, {"bad": object()})
    assert list(tmp_path.iterdir()) == []
    assert not folder_exists(tmp_path / "x")


def test_rest_of_a_killed_writer_is_removed(saved):
    rest = saved[0].parent / ".run.partial"
    rest.mkdir()
    (rest / "tensors.safetensors").write_bytes(b"cut")
    save_folder(saved[0], {"new": torch.ones(2)}, {})
    assert set(load_folder(saved[0])[0]) == {"new"}
    assert not rest.exists()


def test_absent_and_foreign_folders_are_named(tmp_path):
    with pytest.raises(FileError, match="absent"):
        load_folder(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"manifest\.json"):
        load_folder(tmp_path / "empty")


def test_folder_can_be_moved(saved, tmp_path):
    shutil.move(saved[0], tmp_path / "elsewhere")
    assert_same(load_folder(tmp_path / "elsewhere"), *saved[1:])


def test_lock_is_exclusive(tmp_path):
    with folder_lock(tmp_path / "run"), pytest.raises(FileError, match="in use"):
        folder_lock(tmp_path / "run")
    with folder_lock(tmp_path / "run"):
        pass


def test_full_disks_are_file_errors(tmp_path, monkeypatch):
    def fail(*_):
        raise SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr(folders, "save_file", fail)
    with pytest.raises(FileError, match="cannot be written: No space left"):
        save_folder(tmp_path / "x", {"a": torch.ones(2)}, {})
    assert not list(tmp_path.iterdir())
