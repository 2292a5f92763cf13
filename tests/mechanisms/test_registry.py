"""A mechanism is one folder and one line in the registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.mechanisms import registry
from tests.support.clinics import CHARGES
from tests.support.rounded import ROUNDED

COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, {}) count(*) AS n, dp_stderr(n) FROM visits"


@pytest.fixture
def clinic(monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    """Rows under a policy, and one mechanism more: the line in the registry."""
    monkeypatch.setattr(registry, "MECHANISMS", (ROUNDED, *registry.MECHANISMS))
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE visits AS SELECT i AS patient FROM range(12345) AS r(i)")
        connection.execute(
            "FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 1, BUDGET (epsilon = 5)) $$)"
        )
        yield connection


def test_a_mechanism_is_a_folder_and_a_line(clinic: duckdb.DuckDBPyConnection) -> None:
    """Its option is read, explained and charged for; its answer is stored; other statements are as they were.

    Noise of scale 1 is at least 340 with probability below 1e-140, and a multiple of 100 moves by 50.
    """
    asked = COUNT.format("round_to = 100")
    assert clinic.execute(f"SELECT strategy, note FROM dp_explain($${asked}$$)").fetchall() == [("rounded", "to 100")]
    ((n, stderr),) = clinic.execute(f"FROM dp($${asked}$$)").fetchall()
    assert n % 100 == 0 and abs(n - 12345) < 400 and 28 < stderr < 30
    assert clinic.execute(f"FROM dp($${asked}$$)").fetchall() == [(n, stderr)]
    assert clinic.execute("SELECT mechanism, epsilon FROM dp_ledger() WHERE epsilon > 0").fetchall() == [
        ("rounded count", 1.0)
    ]
    assert clinic.execute(f"SELECT strategy FROM dp_explain($${COUNT.format('confidence = 0.9')}$$)").fetchone() != (
        "rounded",
    )


def test_its_option_is_known_while_it_is_registered(
    clinic: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds and the nearest name come from the table of options. Without its line there is no such option."""
    with pytest.raises(duckdb.Error, match="round_to is out of range; accepted: round_to = a whole"):
        clinic.execute(f"FROM dp($${COUNT.format('round_to = 0')}$$)")
    with pytest.raises(duckdb.Error, match=r"round_to \(did you mean that\?\)"):
        clinic.execute(f"FROM dp($${COUNT.format('round_too = 1')}$$)")
    monkeypatch.setattr(registry, "MECHANISMS", registry.MECHANISMS[1:])
    with pytest.raises(duckdb.Error, match="the option 'round_to' is unknown"):
        clinic.execute(f"FROM dp($${COUNT.format('round_to = 7')}$$)")
    assert clinic.execute(CHARGES).fetchall() == [(0,)]


def test_an_option_of_a_mechanism_that_does_not_answer_is_refused(
    clinic: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it is charged for and ignored: behind one that serves every SELECT, or for keys that are selected."""
    monkeypatch.setattr(registry, "MECHANISMS", (*registry.MECHANISMS[1:], ROUNDED))
    with pytest.raises(duckdb.Error, match="the option round_to is not for this statement"):
        clinic.execute(f"FROM dp($${COUNT.format('round_to = 100')}$$)")
    assert clinic.execute(CHARGES).fetchall() == [(0,)]


@pytest.mark.parametrize(
    "other",
    [
        COUNT.replace("count(*)", "count(*) FILTER (WHERE patient > 9)"),
        COUNT.replace("count(*)", "count(patient)"),
        COUNT.replace("epsilon = 1", "rho = 0.1"),
    ],
)
def test_the_guide_refuses_what_its_mechanism_cannot_answer(clinic: duckdb.DuckDBPyConnection, other: str) -> None:
    """A mechanism's plan refuses other questions, before the charge, in place of answering them as its own."""
    clinic.execute("FROM dp('ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 5, delta = 1e-6)')")
    with pytest.raises(duckdb.Error, match="round_to is for one count, at an epsilon"):
        clinic.execute("FROM dp(?)", [other.format("round_to = 100")])
    assert clinic.execute(CHARGES).fetchall() == [(0,)]


def test_the_guide_shows_the_mechanism() -> None:
    """CONTRIBUTING.md quotes the mechanism that these tests add."""
    root = Path(__file__).resolve().parents[2]
    source = (root / "tests/support/rounded/__init__.py").read_text(encoding="utf-8")
    guide = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = source[source.index("ROUND_TO = Option") :].strip()
    assert shown in guide
