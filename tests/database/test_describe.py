"""The columns of an answer before it is asked for: free, and those of the answer."""

from __future__ import annotations

import pytest

from dpduck.database.functions import database_of, run_call
from dpduck.store.cursors import Caller
from dpduck.values.errors import DpduckError, PermissionRefusal
from tests.support.clinics import Clinic, by

OPTIONS = "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1)"
PLAIN = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"
STATEMENTS = (
    by("sex"),
    by("ward", more="integer = TRUE"),
    f"SELECT {OPTIONS} sex, age, ward, GROUPING(sex) AS g, count(*) AS n, dp_stderr(n) FROM visits "
    "GROUP BY CUBE (sex, age, ward)",
    f"SELECT {OPTIONS} range_end(age) AS younger, count(*) AS n FROM visits GROUP BY PREFIXES(age)",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 5) sex, count(*) AS n, dp_interval_low(n) "
    "FROM visits GROUP BY sex",
    f"SELECT region, sum(n) AS n FROM (SELECT {OPTIONS} ward, count(*) AS n FROM visits GROUP BY ward) AS c "
    "JOIN wards ON ward = name GROUP BY region",
    "CREATE PRIVATE VIEW described OPTIONS (epsilon = 0.1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex",
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_columns_are_told_before_and_without_a_charge(clinic: Clinic, statement: str) -> None:
    """Requirement: schema probes never charge. Their columns are those of the answer, without a row."""
    database = database_of(clinic.con)
    assert database is not None
    told = clinic.con.sql(database.describe(statement, Caller("alice", owner=False)))
    assert clinic.charges() == 0
    columns = list(zip(told.columns, map(str, told.types), strict=True))
    assert told.fetchall() == []
    answer = clinic.con.sql("FROM dp($1)", params=[statement])
    assert columns == list(zip(answer.columns, map(str, answer.types), strict=True))
    assert clinic.charges() == 1


def test_a_probe_asks_for_permission(clinic: Clinic) -> None:
    """Columns of a table that is not the caller's to ask about are refused like the answer."""
    database = database_of(clinic.con)
    assert database is not None
    with pytest.raises(PermissionRefusal):
        database.describe(by("sex"), Caller("carol", owner=False, tables=("wards",)))


def test_a_call_returns_the_entry_that_paid_for_it(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirement: the call itself returns the ledger's entry, whether it answered or failed."""
    database, alice = database_of(clinic.con), Caller("alice", owner=False)
    assert database is not None

    def entry_of(action: str, text: str) -> int | None:
        try:
            return run_call(database, alice, action, text).entry
        except DpduckError as error:
            return error.entry

    last = database.ledger.last_entry()
    assert entry_of("run", by("sex")) == last + 1
    assert entry_of("run", by("sex")) is None, "it is stored"
    assert entry_of("explain", by("ward")) is None
    assert entry_of("run", by("ward", epsilon="1000")) is None, "it is refused"
    monkeypatch.setattr("dpduck.store.views.PrivateViews.save", lambda *_: 1 / 0)
    assert entry_of("run", f"CREATE PRIVATE VIEW v OPTIONS (epsilon = 0.1) AS {PLAIN}") == last + 2, "it failed later"
    assert database.ledger.last_entry() == last + 2
