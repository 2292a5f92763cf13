"""Policies as the store reads them."""

from __future__ import annotations

from pathlib import Path

import dpduck
from dpduck.database.functions import database_of
from dpduck.language.text.names import TableName

DECLARED = (
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 2, BUDGET (epsilon = {}), "
    "DOMAIN age RANGE 0 TO 50000 STEP 1)"
)


def test_the_labels_of_a_domain_are_in_memory_once(tmp_path: Path) -> None:
    """Two copies of a policy share the labels of a domain, once 12 MB for each statement. A changed one is read."""
    with dpduck.connect(tmp_path / "clinic.duckdb") as connection:
        connection.execute("CREATE TABLE visits (patient INTEGER, age INTEGER)")
        connection.execute(f"FROM dp($o$ {DECLARED.format(1)} $o$)")
        database = database_of(connection)
        assert database is not None
        policies = database._policies
        table = TableName(("clinic", "main", "visits"))
        first, second = policies.policy(table), policies.policy(table)
        assert first is not None
        assert second is not None
        assert first.domains is second.domains
        connection.execute("FROM dp('ALTER PRIVACY POLICY ON visits DROP DOMAIN age')")
        changed = policies.policy(table)
        assert changed is not None
        assert changed.domains == ()
