"""A small statement sends few statements to DuckDB: most of its time goes into them, whatever the machine does."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpduck
from dpduck.store import attached
from dpduck.store.cursors import SandboxAnswers
from tests.support.statements import sent_statements

POLICY = (
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 1000), "
    "DOMAIN sex IN ('F', 'M'), DOMAIN age RANGE 0 TO 100 STEP 5, CLAMP charge BETWEEN 0 AND 100)"
)
SHAPES = {
    "count": "sex, count(*) AS n FROM visits GROUP BY sex",
    "cube": "sex, age, count(*) AS n, sum(charge) AS s FROM visits GROUP BY CUBE (sex, age)",
    "condition": "sex, count(*) AS n FROM visits WHERE age > {} GROUP BY sex",
    "expression": "sex, count(*) AS n FROM visits WHERE age % 7 > {} GROUP BY sex",
}
SENT = {
    "read-only": {"count": 42, "cube": 46, "condition": 51, "expression": 54, "stored": 8},
    "written": {"count": 45, "cube": 49, "condition": 54, "expression": 57, "stored": 8},
}
"""Of a new statement whose shape is known, and of one that is asked again. Lower a figure when there are fewer.

The kernel reads facts by three short statements. One long one took three times as long."""


@pytest.mark.parametrize("kind", SENT)
def test_statements_sent_to_duckdb(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more statements than the number here for each shape. Opening a cursor counts as one, which sets its path."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(attached, "_SETTLED", -(10**9))
    for module in ("dpduck.database.database", "dpduck.mechanisms.release"):  # nothing was asked by another test
        monkeypatch.setattr(f"{module}.SandboxAnswers", SandboxAnswers)
    with dpduck.connect(tmp_path / "clinic.duckdb") as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT range // 4 AS patient, 'FM'[range % 2 + 1] AS sex, "
            "CAST(range % 100 AS INTEGER) AS age, range % 50 * 1.5 AS charge FROM range(400)"
        )
        connection.execute("FROM dp(?)", [POLICY]).fetchall()
    sent, found = sent_statements(monkeypatch), dict[str, int]()
    with dpduck.connect(tmp_path / "clinic.duckdb", read_only=kind == "read-only") as connection:
        for name, shape in SHAPES.items():
            for number in range(3):
                sent.clear()
                text = shape.format(number)
                options = f"OPTIONS (epsilon = 1, refresh = '{number}')"
                connection.execute("FROM dp(?)", [f"SELECT WITH DIFFERENTIAL_PRIVACY {options} {text}"]).fetchall()
            found[name] = len(sent)
        copies = "SELECT count(*) FROM duckdb_databases() WHERE database_name LIKE 'dpduck_release%'"
        assert connection.execute(copies).fetchall() == [(3,)], "the cubes: a few values need none"
        sent.clear()
        connection.execute("FROM dp(?)", [f"SELECT WITH DIFFERENTIAL_PRIVACY {options} {text}"]).fetchall()
        found["stored"] = len(sent)
    assert found == SENT[kind]
