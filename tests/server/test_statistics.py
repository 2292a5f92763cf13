"""Statistics of a private column decide nothing that a served principal sees: an exploit of 0.1, run to its end."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dpduck.server.audit import AuditFile
from dpduck.server.gate import open_service
from dpduck.server.limits import Limits
from dpduck.server.local_vault import LocalVault
from dpduck.values.errors import DpduckError
from tests.server.served import Served, add_principals, ask, make_clinic
from tests.server.test_served_releases import POLICY

LATE = (
    "date_trunc('hour', CASE WHEN sex = 1 THEN DATE '300000-01-01' ELSE DATE '2024-01-01' + CAST(age AS INTEGER) END) "
    "IS NOT NULL"
)
LIMIT = 2**31 - 2


def fails(served: Served, threshold: int) -> bool:
    """Tells whether the statement fails. DuckDB once computed its plan from the largest age."""
    options = "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01)"
    try:
        served.rows("bob", ask(f"SELECT {options} count(*) AS n FROM visits WHERE age > {threshold} AND {LATE}"))
    except DpduckError as error:
        assert "failed after its charge" in str(error)
        return True
    return False


@pytest.mark.slow
def test_bisection_by_statistics_finds_nothing(tmp_path: Path, own_state: Path) -> None:
    """31 halvings look for one far age. Each is answered, whatever the statistics prove."""
    database = make_clinic(tmp_path, POLICY)
    with duckdb.connect(str(database)) as connection:
        connection.execute("UPDATE visits SET age = 1234567 WHERE rowid = 7")
        connection.execute("CHECKPOINT")
    tokens, log = add_principals(database), tmp_path / "audit.jsonl"
    service = open_service(
        database, None, AuditFile(log), Limits(seconds=600.0, rows=100_000), vault=LocalVault(database)
    )
    served = Served(database, service, tokens, log)
    low, high = 0, LIMIT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fails(served, middle) else (low, middle)
    service.close()
    assert (low, high) == (0, 1), "no statement failed, and the search fell to its lower end"
