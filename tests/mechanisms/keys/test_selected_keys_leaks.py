"""Unpublished groups stay private: none of their keys, counts or errors reaches anything else."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import duckdb
import pyarrow as pa
import pytest

from dpduck.database import registered
from dpduck.kernel.queries import keys as module
from tests.mechanisms.keys.selected_keys import DELTA, POLICY, PRICE, ROWS, ask, open_calls, statement
from tests.mechanisms.test_leaks import everything_about, reachable
from tests.support.clinics import REHEARSED, Clinic

CANARY = "rare reason "  # begins the keys of single callers
STATEMENTS = (
    statement("reason, count(*) AS n, dp_interval_low(n) FROM calls GROUP BY reason ORDER BY n", "other = TRUE"),
    statement(
        "upper(reason) AS k, sex, count(*) AS n FROM calls GROUP BY k, sex HAVING n > 5", "max_groups_contributed = 1"
    ),
    statement(
        "reason, sum(age) AS s, avg(age, contribution_bounds_per_group => (0, 50)) AS a, dp_interval_high(a) "
        "FROM calls GROUP BY reason ORDER BY s"
    ),
    f"CREATE PRIVATE VIEW kept OPTIONS ({PRICE}, delta = {DELTA}, group_selection_strategy = LAPLACE_THRESHOLD, "
    "max_rows_contributed = 1) AS SELECT reason, count(*) AS n FROM calls GROUP BY reason",
)


def holds_canary(found: object) -> bool:
    return CANARY in str(found).lower()


def test_unpublished_keys_are_in_no_file_and_no_answer(
    open_clinic: Callable[..., Clinic], tmp_path: Path, state_directory: Path
) -> None:
    """Answers, listings, plans, the store, its log, the secrets and the witness hold published keys alone."""
    database = tmp_path / "place" / "calls.duckdb"
    database.parent.mkdir()
    clinic = open_clinic(database)
    clinic.rows("PRAGMA force_compression = 'uncompressed'")  # so that a search of the files finds a text that is there
    clinic.rows(f"CREATE TABLE calls AS {ROWS}")
    clinic.dp(POLICY)
    for text in STATEMENTS:
        assert not holds_canary(clinic.dp(text))
        assert not holds_canary(clinic.rows(f"FROM dp_explain($${text}$$)"))
    for listing in ("dp_budget()", "dp_ledger()", "dp_releases()", "private.kept"):
        assert not holds_canary(clinic.rows(f"FROM {listing}"))
    assert not holds_canary(clinic.rows(f"EXPLAIN ANALYZE FROM dp($${STATEMENTS[0]}$$)"))
    clinic.con.close()
    files = [*database.parent.rglob("*"), *state_directory.rglob("*")]
    others = [path for path in files if path.is_file() and not path.name.startswith("calls.duckdb")]
    assert len(others) >= 3
    assert [path.name for path in others if CANARY.encode() in path.read_bytes()] == []
    assert CANARY.encode() in database.read_bytes()


def test_unpublished_keys_are_in_no_object() -> None:
    """After releases nothing that is alive or that the engine refers to holds a key that was not published."""
    with open_calls() as calls:
        for text in STATEMENTS:
            ask(calls, text)
        gc.collect()
        tables = [found for found in gc.get_objects() if isinstance(found, (pa.Table, pa.RecordBatch, pa.Array))]
        assert not [table for table in tables if holds_canary(table)]
        texts = [found for found in reachable(list(registered._DATABASES.values())) if isinstance(found, (str, bytes))]
        assert not [text for text in texts if holds_canary(text)]


def quoting(error: type[BaseException]) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error("rare reason 19 had 1 caller")

    return fail


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("read_groups", duckdb.ConversionException),
        ("draw", ValueError),
        ("draw", MemoryError),
        ("_select_groups", pa.ArrowInvalid),
    ],
)
def test_a_failure_has_one_fixed_text(monkeypatch: pytest.MonkeyPatch, place: str, error: type[BaseException]) -> None:
    """Whatever fails after the charge, the message is fixed, has no chain, keeps the charge and is charged once."""
    with open_calls() as calls:
        real, fail = getattr(module, place), quoting(error)
        monkeypatch.setattr(module, place, lambda *given: real(*given) if REHEARSED in given else fail())
        for _ in range(2):
            with pytest.raises(duckdb.Error, match="the release failed after its charge") as caught:
                ask(calls, STATEMENTS[0])
            assert not holds_canary(everything_about(caught.value))
            assert caught.value.__context__ is None
        spent = calls.execute("SELECT count(*) FROM dp_ledger() WHERE mechanism LIKE 'discrete%'").fetchone()
        assert spent == (1,)


def test_a_default_collation_is_refused() -> None:
    """A collation that equates 'a' and 'A' would count two people's rows as one's. Nothing is released under it,
    whatever the keys. Earlier releases can still be read."""
    with open_calls() as calls:
        first = ask(calls, STATEMENTS[0])
        calls.execute("SET default_collation = 'nocase'")
        try:
            assert ask(calls, STATEMENTS[0]) == first
            for text in (STATEMENTS[1], "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) FROM calls"):
                with pytest.raises(duckdb.Error, match="default_collation makes texts equal that differ"):
                    ask(calls, text)
        finally:
            calls.execute("RESET default_collation")
        assert len(ask(calls, STATEMENTS[1])) > 0
