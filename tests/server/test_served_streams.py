"""Streams on a server: the owner makes and refreshes them, and principals read each month when it is published."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpduck
from dpduck.server.audit import AuditFile
from dpduck.server.gate import open_service
from dpduck.server.limits import Limits
from dpduck.server.local_vault import LocalVault
from tests.server.served import Served, add_principals, make_clinic


@pytest.fixture(scope="module")
def stays(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder: Path = tmp_path_factory.mktemp("streams")
    database = make_clinic(folder)
    with dpduck.connect(database) as con:
        con.execute(
            "CREATE TABLE stays AS SELECT i % 40 AS patient, DATE '2024-01-01' + (i % 180)::INTEGER AS came, "
            "['a', 'b'][i % 2 + 1] AS ward FROM range(400) AS r(i)"
        )
    tokens, log = add_principals(database), folder / "audit.jsonl"
    vault = LocalVault(database, None, None, None)
    service = open_service(database, None, AuditFile(log), Limits(seconds=600.0, rows=100_000), vault=vault)
    served = Served(database, service, tokens, log)
    for statement in (
        "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient MAX ROWS 2, BUDGET (epsilon = 4), "
        "DOMAIN ward IN ('a', 'b'), DOMAIN came RANGE 2024-01-01 TO 2024-07-01 STEP MONTH)",
        *(
            f"CREATE PRIVATE STREAM {name} OPTIONS (epsilon = 1) AS "
            "SELECT came, ward, count(*) AS n FROM stays GROUP BY came, ward"
            for name in ("monthly", "again")
        ),
        "REFRESH PRIVATE STREAM monthly UNTIL '2024-03-01'",
        "REFRESH PRIVATE STREAM again UNTIL '2024-03-01'",
    ):
        owned(served, statement)
    return served


def owned(served: Served, statement: str) -> None:
    """Runs a statement as the owner's door does, which brings the public database up to date."""
    vault = served.service.vault
    assert isinstance(vault, LocalVault)
    vault.owner("run", statement)
    served.service.gate.sync()


def test_principals_read_what_the_owner_refreshes(stays: Served) -> None:
    """A refresh through the owner's door is seen by whoever reads the table, and changes nobody's budget."""
    before = stays.spent()
    assert stays.rows("carol", "SELECT count(*), max(came) < '2024-03-01' FROM monthly") == [(4, True)]
    owned(stays, "REFRESH PRIVATE STREAM monthly UNTIL '2024-05-01'")
    assert stays.rows("carol", "SELECT count(*) FROM monthly") == [(8,)]
    assert [entry for entry in stays.spent()[len(before) :] if entry[2]] == []
    listed = stays.rows("bob", "SELECT name, published, statement FROM dp_streams()")
    assert listed == [("again", 2, None), ("monthly", 4, None)]


def test_principals_compare_them(stays: Served) -> None:
    """Differences of views are for whoever may read them."""
    two = stays.rows("alice", "FROM dp_difference('monthly', 'monthly', '2024-02-01', of_second := '2024-01-01')")
    assert {row[0] for row in two} == {"a", "b"}
    assert len(stays.rows("alice", "SELECT stderr FROM dp_difference('monthly', 'again')")) == 4


@pytest.mark.parametrize("statement", ["REFRESH PRIVATE STREAM monthly", "DROP PRIVATE STREAM monthly"])
def test_principals_change_no_stream(stays: Served, statement: str) -> None:
    """Making, refreshing and dropping are the owner's, by role."""
    assert "streams are the data owner's" in stays.refused("alice", f"FROM dp($$ {statement} $$)")
