"""Principals and their tokens."""

from __future__ import annotations

import threading
from fractions import Fraction
from pathlib import Path

import pytest

from dpduck.kernel.ledger.secrets import SecretsFile, SecretsInMemory
from dpduck.server.principals import RECORD, PrincipalBook, hash_token, parse_share
from dpduck.values.errors import PermissionRefusal, Refusal, StoreError


@pytest.fixture
def kept() -> SecretsInMemory:
    return SecretsInMemory()


def test_a_token_is_its_principals_and_is_not_kept(kept: SecretsInMemory) -> None:
    """The token authenticates. Only its hash is kept. Two tokens never agree."""
    book = PrincipalBook(kept)
    alice, bob = book.add("alice", Fraction(1, 2), ["visits"]), book.add("bob")
    found = book.authenticate(alice)
    assert found is not None and (found.name, found.share, found.tables) == ("alice", Fraction(1, 2), ("visits",))
    assert (found.caller.owner, found.caller.share, found.caller.tables) == (False, Fraction(1, 2), ("visits",))
    assert alice != bob and len(alice) > 40
    record = kept.get(RECORD)
    assert record is not None and alice.encode() not in record and hash_token(alice).encode() in record


@pytest.mark.parametrize("token", ["", "dpduck_", "x" * 100_000, "owner", "\ud800", "é", "\x00"])
def test_other_tokens_are_nobodys(kept: SecretsInMemory, token: str) -> None:
    """A forged token is nobody's, whatever its parts. So are a hash and a token with an addition."""
    book = PrincipalBook(kept)
    assert book.authenticate(token) is None
    alice = book.add("alice")
    for forged in (token, hash_token(alice), alice + " ", alice[:-1], alice.upper()):
        assert book.authenticate(forged) is None


def test_a_revoked_token_is_nobodys(kept: SecretsInMemory) -> None:
    """A revocation counts at once. The same name later has another token."""
    book = PrincipalBook(kept)
    token = book.add("alice")
    book.revoke("alice")
    assert book.authenticate(token) is None
    with pytest.raises(PermissionRefusal):
        book.find("alice")
    assert book.add("alice") != token


@pytest.mark.parametrize("name", ["", "owner", "OWNER", "dpduck", "a b", "1a", "a\n", "a" * 65, "a'b", 'a"b', "é"])
def test_names_are_plain(kept: SecretsInMemory, name: str) -> None:
    """Nobody is called like the owner. Names are words that go anywhere."""
    with pytest.raises(Refusal):
        PrincipalBook(kept).add(name)


def test_names_differ_in_more_than_case(kept: SecretsInMemory) -> None:
    """A second Alice is refused, a missing one cannot be revoked."""
    book = PrincipalBook(kept)
    book.add("alice")
    with pytest.raises(Refusal, match="already"):
        book.add("Alice")
    with pytest.raises(Refusal, match="there is no principal"):
        book.revoke("bob")


@pytest.mark.parametrize("text", ["0", "-1", "2", "abc", "1/0", "101%", "nan", "inf"])
def test_shares_are_parts(kept: SecretsInMemory, text: str) -> None:
    """A share is more than nothing and at most all."""
    with pytest.raises(Refusal):
        PrincipalBook(kept).add("alice", parse_share(text))


def test_all_hashes_are_compared(kept: SecretsInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a token does not tell its owner: every principal is compared, by the constant-time function."""
    book = PrincipalBook(kept)
    tokens = [book.add(f"p{number}") for number in range(5)]
    compared: list[str] = []

    def counting(one: str, other: str) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr("dpduck.server.principals.hmac.compare_digest", counting)
    for token in (*tokens, "forged"):
        compared.clear()
        book.authenticate(token)
        assert len(compared) == 5


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    """Principals added at the same time are all there: the file is changed by compare and swap."""
    path = tmp_path / "clinic_private_secrets"
    SecretsFile.open(path, create=True)

    def add(number: int) -> None:
        PrincipalBook(SecretsFile.open(path, create=False)).add(f"p{number}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [p.name for p in PrincipalBook(SecretsFile.open(path, create=False)).all()] == [f"p{n}" for n in range(8)]


def test_a_damaged_list_lets_nobody_in(kept: SecretsInMemory) -> None:
    """Fail closed, without a word of the list's content."""
    book = PrincipalBook(kept)
    token = book.add("alice")
    kept.save(RECORD, b"[{}")
    with pytest.raises(StoreError, match="damaged"):
        book.authenticate(token)
