"""The server's own messages: ends of tokens, newer files, shares that are left, comments of views."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dpduck.kernel.ledger.secrets import SecretsInMemory
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import PrincipalBook, parse_until
from dpduck.values.errors import DpduckError, PermissionRefusal, StoreError
from tests.server.served import Served, count, make_clinic
from tests.support.newer_file import make_newer


def test_a_token_may_end() -> None:
    """Up to its last moment it is a token, then nobody's. A connection of before ends with it."""
    book, now = PrincipalBook(SecretsInMemory()), datetime.now(UTC)
    good, past = book.add("alice", until=now + timedelta(hours=1)), book.add("bob", until=now - timedelta(seconds=1))
    assert book.authenticate(good) == book.find("alice")
    assert book.authenticate(past) is None
    with pytest.raises(PermissionRefusal, match="revoked, or the token has ended; accepted: a token that is in force"):
        book.find("bob")
    assert [principal.until for principal in book.all()] == [now + timedelta(hours=1), now - timedelta(seconds=1)]
    alice = book.find("alice")
    assert alice.in_force(now) and not alice.in_force(now + timedelta(hours=2))
    with pytest.raises(DpduckError, match="'soon' is no date; accepted: 2027-01-31"):
        parse_until("soon")


def test_a_file_of_a_newer_duckdb_is_named(tmp_path: Path, own_state: Path) -> None:
    """The vault says which DuckDB wrote the file, and what to do."""
    database = make_newer(make_clinic(tmp_path))
    with pytest.raises(StoreError, match=r"clinic.duckdb was written by DuckDB 9.0.0, and DuckDB .* accepted: a copy"):
        LocalVault(database)


def test_a_principal_sees_what_is_left_of_a_share(served: Served) -> None:
    """Half of a budget of 10 is 5, less the charges. Without a share it is the rest of the budget."""
    seen = "SELECT budget - spent = remaining, remaining, share FROM dp_budget()"
    assert served.rows("alice", seen) == [(True, 5.0, 0.5)]
    served.rows("alice", count("ward", "0.25"))
    assert served.rows("alice", seen) == [(True, 4.75, 0.5)]
    (left,) = served.rows("bob", "SELECT remaining, share FROM dp_budget()")
    assert left == (7.75, None)


def test_comments_do_not_number_the_ledger(served: Served) -> None:
    """Only the owner sees the number of a ledger's entry, in comments as in dp_releases()."""
    comments = served.rows("bob", "SELECT comment FROM duckdb_tables()")
    assert len(comments) == 2
    assert all("epsilon = 1 (pure), " in comment and "; protects " in comment for (comment,) in comments)
    assert all("; strategy" in comment for (comment,) in comments)
    assert not any("ledger" in comment for (comment,) in comments)
    vault = served.service.vault
    assert isinstance(vault, LocalVault) and "ledger entry" in str(vault.view_with_entry("ages").comment)
