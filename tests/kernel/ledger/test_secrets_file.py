"""The secrets file is private from its first moment, durable, and never replaced for a store that has one."""

from __future__ import annotations

import stat
from pathlib import Path
from threading import Thread

import pytest

from dpduck.kernel.ledger.secrets import BOUNDING_KEY, CHAIN_KEY, STORE_ID, SecretsFile, SecretsInMemory, require_secret
from dpduck.values.errors import StoreError


def test_values_are_kept(tmp_path: Path) -> None:
    """A value that was put is there for the next process, and names are independent of each other."""
    secrets = SecretsFile.open(tmp_path / "clinic_secrets", create=True)
    assert secrets.get("token of alice") is None
    secrets.save("token of alice", b"\x00\xff")
    secrets.save("token of alice", b"new")
    secrets.save("'; DROP TABLE secrets; --", b"")
    again = SecretsFile.open(tmp_path / "clinic_secrets", create=False)
    assert again.get("token of alice") == b"new"
    assert again.get("'; DROP TABLE secrets; --") == b""


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_new_store_gets_keys_of_its_own(tmp_path: Path, in_memory: bool) -> None:
    """Identity and keys come from the operating system's entropy, and opening again does not change them."""
    stores = [SecretsInMemory() if in_memory else SecretsFile.open(tmp_path / name, create=True) for name in ("a", "b")]
    for name, size in ((STORE_ID, 32), (CHAIN_KEY, 32), (BOUNDING_KEY, 32)):
        values = {require_secret(secrets, name) for secrets in stores}
        assert [len(value) for value in values] == [size, size]
    assert require_secret(stores[0], CHAIN_KEY) != require_secret(stores[0], BOUNDING_KEY)
    if not in_memory:
        again = SecretsFile.open(tmp_path / "a", create=True)
        assert require_secret(again, CHAIN_KEY) == require_secret(stores[0], CHAIN_KEY)


def test_only_its_owner_can_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The permissions are 0600 when the file appears, before anything is in it, whatever the umask."""
    modes: list[int] = []
    path = tmp_path / "clinic_secrets"
    monkeypatch.setattr(SecretsFile, "_fill", lambda self: modes.append(stat.S_IMODE(path.stat().st_mode)))
    SecretsFile.open(path, create=True)
    monkeypatch.undo()
    secrets = SecretsFile.open(path, create=True)
    secrets.save("name", b"value")
    assert [*modes, stat.S_IMODE(path.stat().st_mode)] == [0o600, 0o600]


def test_a_commit_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    """Every connection synchronises its file and, at the end of a transaction, its directory (EXTRA is 3)."""
    secrets = SecretsFile.open(tmp_path / "clinic_secrets", create=True)
    with secrets._connection() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    SecretsFile.open(tmp_path / "clinic_secrets", create=True)
    (tmp_path / "clinic_secrets").chmod(mode)
    with pytest.raises(StoreError, match="chmod 600"):
        SecretsFile.open(tmp_path / "clinic_secrets", create=False)


@pytest.mark.parametrize("in_memory", [True, False])
def test_replacing_is_a_compare_and_swap(tmp_path: Path, in_memory: bool) -> None:
    """Of eight threads that replace the same value one succeeds. A wrong expected value changes nothing."""
    secrets = SecretsInMemory() if in_memory else SecretsFile.open(tmp_path / "clinic_secrets", create=True)
    assert not secrets.replace("position", b"0", b"1")
    assert secrets.replace("position", None, b"0")
    assert not secrets.replace("position", None, b"1")
    swapped: list[int] = []

    def swap(number: int) -> None:
        if secrets.replace("position", b"0", b"%d" % (number + 1)):
            swapped.append(number + 1)

    threads = [Thread(target=swap, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(swapped) == 1
    assert secrets.get("position") == b"%d" % swapped[0]


def test_a_half_made_file_is_finished(tmp_path: Path) -> None:
    """A crash between making the file and filling it leaves an empty file that the next opening fills."""
    (tmp_path / "clinic_secrets").touch(0o600)
    secrets = SecretsFile.open(tmp_path / "clinic_secrets", create=True)
    assert require_secret(secrets, CHAIN_KEY)


def test_what_cannot_be_used_is_a_store_error(tmp_path: Path) -> None:
    """Secrets that are missing, damaged or out of reach give one line each, without SQLite's text."""
    with pytest.raises(StoreError, match="is missing"):
        SecretsFile.open(tmp_path / "clinic_secrets", create=False)
    assert not (tmp_path / "clinic_secrets").exists()
    with pytest.raises(StoreError, match="could not be made"):
        SecretsFile.open(tmp_path / "nowhere" / "clinic_secrets", create=True)
    secrets = SecretsFile.open(tmp_path / "clinic_secrets", create=True)
    (tmp_path / "clinic_secrets").write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(StoreError, match="could not be used"):
        secrets.get("name")
    (tmp_path / "clinic_secrets").unlink()
    with pytest.raises(StoreError, match="could not be used"):
        secrets.save("name", b"")
    assert not (tmp_path / "clinic_secrets").exists()


def test_a_file_that_lacks_a_key_is_refused(tmp_path: Path) -> None:
    """A key that is absent is never taken for an empty one."""
    (tmp_path / "clinic_secrets").touch(0o600)
    with pytest.raises(StoreError):
        require_secret(SecretsFile.open(tmp_path / "clinic_secrets", create=False), CHAIN_KEY)
    with pytest.raises(StoreError, match="not complete"):
        require_secret(SecretsInMemory(), "unknown")
