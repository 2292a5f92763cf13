"""The witness: a compare-and-swap on disk, in a directory that the owner chooses, or that the word none leaves out."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from dpduck.kernel.ledger.witness import Witness, state_directory
from dpduck.values.errors import StoreError


def test_the_state_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """DPDUCK_STATE_DIR comes first, then XDG, then the home directory. Only the word none means no witness."""
    monkeypatch.setenv("HOME", "/home/owner")
    assert state_directory({}) == Path("/home/owner/.local/state/dpduck")
    assert state_directory({"XDG_STATE_HOME": "/state"}) == Path("/state/dpduck")
    assert state_directory({"XDG_STATE_HOME": "", "DPDUCK_STATE_DIR": ""}) == Path("/home/owner/.local/state/dpduck")
    assert state_directory({"XDG_STATE_HOME": "/state", "DPDUCK_STATE_DIR": "/mine"}) == Path("/mine")
    assert state_directory({"DPDUCK_STATE_DIR": "none"}) is None


def test_the_witness_is_swapped(tmp_path: Path) -> None:
    """A witness is written only over the expected one. Each store has its own, and only its owner can read it."""
    witness, other = Witness(tmp_path / "state", "one"), Witness(tmp_path / "state", "two")
    assert witness.read_text() is None
    assert not witness.replace(b"0", b"1")
    assert witness.replace(None, b"1")
    assert not witness.replace(None, b"2")
    assert witness.replace(b"1", b"2")
    assert (Witness(tmp_path / "state", "one").read_text(), other.read_text()) == (b"2", None)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_one_of_many_swaps_at_once(tmp_path: Path) -> None:
    """Exactly one of four threads takes each of a hundred steps."""
    swapped: list[int] = []

    def swap() -> None:
        witness = Witness(tmp_path, "store")
        for number in range(100):
            expected = b"%d" % (number - 1) if number else None
            if witness.replace(expected, b"%d" % number):
                swapped.append(number)

    threads = [Thread(target=swap) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(swapped) == list(range(len(swapped)))
    assert Witness(tmp_path, "store").read_text() == b"%d" % (len(swapped) - 1)


def test_it_is_on_disk_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is synchronised, then renamed, then its directory is synchronised."""
    calls: list[str] = []
    sync, rename = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        calls.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    Witness(tmp_path, "store").replace(None, b"1")
    assert calls == ["file", "rename", "directory"]


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A store without a witness answers nothing unless the owner allows it. The error says how to allow it."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="DPDUCK_STATE_DIR set to a directory that can be written, or to none"):
        Witness(tmp_path / "file" / "state", "store")
    witness = Witness(tmp_path / "state", "store")
    (tmp_path / "state").rmdir()
    with pytest.raises(StoreError, match="could not be kept in the state directory"):
        witness.replace(None, b"1")
