"""Golden statements through FROM dp(..), the path of every client."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from tests.language.clinic import charges, open_clinic, told, without_duckdb
from tests.language.golden_files import Golden, read_golden

CHARGED = 5  # entries of a clinic's ledger: the budgets of four privacy units and the one answer of trial
REFUSED = read_golden("refused_*.sql")


@pytest.fixture(scope="module")
def shared() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_clinic() as connection:
        yield connection


@pytest.fixture(scope="module")
def changed() -> Iterator[dict[tuple[str, ...], duckdb.DuckDBPyConnection]]:
    """Returns a clinic for all cases that begin with the same changes."""
    made: dict[tuple[str, ...], duckdb.DuckDBPyConnection] = {}
    yield made
    for connection in made.values():
        connection.close()


@pytest.fixture
def clinic(
    request: pytest.FixtureRequest,
    shared: duckdb.DuckDBPyConnection,
    changed: dict[tuple[str, ...], duckdb.DuckDBPyConnection],
) -> duckdb.DuckDBPyConnection:
    """Returns the shared clinic, or another one for a case that changes something first."""
    golden: Golden = request.node.callspec.params["golden"]
    if not golden.before:
        return shared
    if golden.before not in changed:
        changed[golden.before] = open_clinic(golden.before)
    return changed[golden.before]


@pytest.mark.parametrize("golden", REFUSED, ids=str)
def test_refusals(golden: Golden, clinic: duckdb.DuckDBPyConnection) -> None:
    """A refusal is one pinned line that says what, where and what would be accepted. Nothing is charged."""
    charged = charges(clinic) if golden.before else CHARGED
    message = told(clinic, golden.statement)
    assert without_duckdb(message) == dict(golden.expected)["refused"]
    assert "; accepted: " in message and len(message) < 500
    assert charges(clinic) == charged


def test_enough_refusals() -> None:
    """The golden files hold at least the 60 refusals that the issue asks for, each title once in its file."""
    assert len(REFUSED) >= 60
    assert len(set(map(str, REFUSED))) == len(REFUSED)


def test_no_refusal_holds_data(shared: duckdb.DuckDBPyConnection) -> None:
    """A message holds no value of a private table unless the statement itself holds it."""
    words = [row[0] for row in shared.execute("SELECT DISTINCT note FROM visits WHERE note IS NOT NULL").fetchall()]
    for golden in REFUSED:
        message = dict(golden.expected)["refused"]
        found = [word for word in ("canary", *words) if word in message and word not in golden.statement]
        assert found == [], golden
