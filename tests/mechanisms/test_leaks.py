"""Planted values: nothing that a private row holds is in any error, log, listing, plan, comment, file or object."""

from __future__ import annotations

import contextlib
import gc
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import pytest

import dpduck
from dpduck.database import functions, macros, registered
from dpduck.database.functions import OWNER, database_of
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.mechanisms.cubes import measure as release_module
from dpduck.store.releases import RequestOutcome
from dpduck.values.errors import ReleaseFailed
from tests.support.clinics import REHEARSED, Clinic, by, one_line

OpenClinic = Callable[..., Clinic]
TEXTS = ("xq-canary-patient", "xq-canary-ward", "xq-canary-note")
# 18 digits and 8 bytes: no noisy number, address, checksum or key shows one by chance (1e-13 where files are searched)
NUMBERS = ("918273641546372819", "918273642546372819", "918273643546372819")
CANARIES = (*TEXTS, *NUMBERS)
ROWS = 7919
POLICY = """CREATE PRIVACY POLICY ON visits (
    PRIVACY UNIT patient MAX ROWS 3, BUDGET (epsilon = 20),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN ward FROM wards.name WITH OTHER 'other'
)"""
GOOD = (
    by("sex"),
    by("ward", more="confidence = 0.9"),
    by("age", tail="HAVING n > 10 ORDER BY n DESC LIMIT 3"),
    by("sex").replace("FROM visits", "FROM visits WHERE note LIKE '%x%' AND cost + 1 > 5"),
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) region, count(*) FILTER (WHERE cost > 1) AS n, "
    "dp_stderr(n), dp_interval_low(n) FROM visits JOIN wards ON ward = name GROUP BY region",
    "CREATE PRIVATE VIEW kept OPTIONS (epsilon = 1) AS SELECT sex, ward, count(note) AS n FROM visits GROUP BY CUBE "
    "(sex, ward)",
)
BAD = (
    by("note"),
    by("sex").replace("FROM visits", "FROM visits WHERE note::INTEGER > (SELECT 1)"),
    by("sex").replace("FROM visits", "FROM visits WHERE nextval('s') > 1"),
    by("upper(cost)"),
    by("sex", epsilon="1000"),
    by("sex").replace("count(*)", "sum(cost)"),
    by("sex").replace("count(*)", "max(note)"),
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) * FROM visits",
    "SELECT note FROM visits",
    "DROP PRIVATE VIEW nothing",
    "DECLARE PUBLIC TABLE visits",
    "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 3, BUDGET (epsilon = 20), "
    "DOMAIN ward FROM visits.ward)",
    "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 3, BUDGET (epsilon = 20), "
    "DOMAIN note IN (1, 2), DOMAIN cost IN ('a'))",
)


def plant(clinic: Clinic) -> None:
    """Private rows with values that can be recognised: in unit, domain and other columns, in and out of domains."""
    clinic.rows(
        f"CREATE TABLE visits AS SELECT range % 2 AS sex, range * 7 % 100 AS age, 'xq-canary-patient' || range // 4 "
        f"AS patient, 'w' || range % 5 AS ward, 'xq-canary-note' || range AS note, {NUMBERS[0]} AS cost "
        f"FROM range({ROWS})"
    )
    clinic.rows(
        f"INSERT INTO visits VALUES ({NUMBERS[1]}, {NUMBERS[2]}, 'xq-canary-patient', 'xq-canary-ward', "
        "'xq-canary-note', 1), (NULL, NULL, NULL, NULL, NULL, NULL), "
        f"(1, 5, 'p', 'w1', 'xq-canary-note', {NUMBERS[0]})"
    )
    clinic.rows("CREATE TABLE wards AS SELECT 'w' || range AS name, 'region' || range % 2 AS region FROM range(6)")
    clinic.protect(POLICY)


@pytest.fixture(params=["as it is", "prepared"])
def planted(open_clinic: OpenClinic, request: pytest.FixtureRequest) -> Clinic:
    clinic = open_clinic()
    plant(clinic)
    if request.param == "prepared":
        clean(clinic.dp("ALTER PRIVACY POLICY ON visits PREPARE"))
    return clinic


def clean(text: object) -> None:
    shown = text if isinstance(text, str) else repr(text)
    assert not [canary for canary in CANARIES if canary in shown]


def everything_about(error: BaseException) -> str:
    """An error as a debugger would show it: with its chain and the locals of every frame."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(shown.format()) + repr(error) + str(error) + repr(error.args)


@pytest.mark.slow
def test_no_planted_value_in_anything_that_is_shown(
    planted: Clinic, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Answers, refusals with their tracebacks, plans, descriptions, listings, comments, logs and the terminal."""
    caplog.set_level(logging.DEBUG)
    for statement in GOOD:
        clean(planted.dp(statement))
        if statement.startswith("SELECT"):
            for look in ("EXPLAIN", "EXPLAIN ANALYZE", "DESCRIBE", "SUMMARIZE"):
                clean(planted.rows(f"{look} FROM dp($${statement}$$)"))
            clean(planted.rows(f"FROM dp_explain($${statement}$$)"))
    for statement in BAD:
        for call in ("dp", "dp_explain"):
            with pytest.raises(duckdb.Error) as caught:
                planted.rows(f"FROM {call}($${statement}$$)")
            clean(everything_about(caught.value))
    for listing in ("dp_budget()", "dp_ledger()", "dp_policies()", "dp_releases()", "dp_check('visits')"):
        clean(planted.rows(f"FROM {listing}"))
    clean(planted.rows("SELECT comment FROM duckdb_tables() UNION ALL SELECT comment FROM duckdb_columns()"))
    for table in planted.rows("SELECT table_name FROM duckdb_tables() WHERE database_name = 'private'"):
        with contextlib.suppress(duckdb.CatalogException):
            clean(planted.rows(f"FROM private.main.{table[0]}"))
    clean(caplog.text)
    clean("".join(capfd.readouterr()))


def test_no_planted_value_in_any_file(open_clinic: OpenClinic, tmp_path: Path, state_directory: Path) -> None:
    """Not in the store, its write-ahead log, the secrets or the witness: only in the database that holds the rows."""
    database = tmp_path / "place" / "clinic.duckdb"
    database.parent.mkdir()
    clinic = open_clinic(database)
    plant(clinic)
    for statement in GOOD:
        clinic.dp(statement)
    for statement in BAD:
        clinic.refused(statement)

    def others() -> list[Path]:
        files = [*database.parent.rglob("*"), *state_directory.rglob("*")]
        return [path for path in files if path.is_file() and not path.name.startswith("clinic.duckdb")]

    for closed in (False, True):
        if closed:
            clinic.con.close()
        assert len(others()) >= 3
        for path in others():
            content = path.read_bytes()
            assert not [canary for canary in CANARIES if canary.encode() in content], path.name
            assert not [number for number in NUMBERS if int(number).to_bytes(8, "little") in content], path.name
    assert b"xq-canary" in database.read_bytes()


@pytest.mark.slow
def test_no_planted_value_in_any_object(planted: Clinic) -> None:
    """After releases and refusals no exact count is alive, and nothing that the engine refers to holds a value."""
    for statement in GOOD:
        planted.dp(statement)
    for statement in BAD:
        planted.refused(statement)
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, ExactCounts)]
    for found in reachable(list(registered._DATABASES.values())):
        if isinstance(found, (str, bytes, int)):
            clean(str(found))


def reachable(roots: list[Any]) -> Iterator[Any]:
    """Everything that can be reached from objects, classes and modules left out."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, type) or type(found).__name__ in ("module", "function", "frame"):
            continue
        seen.add(id(found))
        yield found
        waiting.extend(gc.get_referents(found))


def quoting(error: type[BaseException]) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error(f"xq-canary-patient17 had {NUMBERS[0]} at ward xq-canary-ward")

    return fail


FAILURES = ("count_exactly", "measure", "recover_table", "release_rows", "put_table", "entropy")


def after_the_rehearsal(fail: Callable[..., NoReturn]) -> Callable[..., object]:
    """A count that works on made-up rows and fails on private ones."""

    def counted(cursor: Any, job: Any, key: bytes, workers: Any) -> object:
        return count_exactly(cursor, job, key, workers) if key == REHEARSED else fail()

    return counted


TRUSTED = {
    "measure": "dpduck.kernel.queries.tables.exact_marginals",
    "entropy": "dpduck.kernel.noise.draw.discrete_laplace",
}


def break_at(monkeypatch: pytest.MonkeyPatch, place: str, error: type[BaseException]) -> None:
    if place == "put_table":
        monkeypatch.setattr("dpduck.store.releases.ReleaseStore.put_table", quoting(error))
    elif place == "count_exactly":
        monkeypatch.setattr("dpduck.kernel.door.count_exactly", after_the_rehearsal(quoting(error)))
    elif place in TRUSTED:
        monkeypatch.setattr(TRUSTED[place], quoting(error))
    else:
        monkeypatch.setattr(release_module, place, quoting(error))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("place", "error"),
    [
        *((place, ValueError) for place in FAILURES),
        ("count_exactly", duckdb.ConversionException),
        ("measure", MemoryError),
        ("put_table", GeneratorExit),
    ],
)
def test_a_failure_after_the_charge_has_one_fixed_text(
    planted: Clinic, monkeypatch: pytest.MonkeyPatch, place: str, error: type[BaseException]
) -> None:
    """Any failure has one text and no chain, and one charge however often DuckDB binds the statement."""
    with monkeypatch.context() as patch:
        break_at(patch, place, error)
        for ask in (planted.con.sql, planted.con.execute, planted.con.sql):
            with pytest.raises(duckdb.Error) as caught:
                ask(f"FROM dp($${by('sex')}$$)")
            assert one_line(caught.value) == (
                "the release failed after its charge was recorded as ledger entry 2; the charge stays, nothing was "
                "released; accepted: the same with refresh = 'tag', which pays again"
            )
            clean(everything_about(caught.value))
    assert planted.charges() == 1
    with pytest.raises(duckdb.Error, match="entry 2"):
        planted.dp(by("sex"))
    assert len(planted.dp(by("sex", more="refresh = 'again'"))) == 2
    assert planted.charges() == 2
    assert planted.rows("SELECT count(*) FROM dp_releases()") == [(1,)]


def test_the_error_of_a_failed_release_has_no_context(planted: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even suppressed: `from None` would leave the quoting error as its context."""
    database = list(registered._DATABASES.values())[-1].whole()
    for place in FAILURES:
        with monkeypatch.context() as patch:
            break_at(patch, place, ValueError)
            with pytest.raises(ReleaseFailed) as caught:
                database.run(by("sex", more=f"refresh = '{place}'"), functions.OWNER)
        assert caught.value.__context__ is None and caught.value.__cause__ is None


def test_a_real_failure_of_duckdb_in_the_count(open_clinic: OpenClinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's own complaint while it counts stays inside, as any other."""
    asked: list[bool] = []

    def failing(*_: object, **__: object) -> str:
        asked.append(True)
        return "SELECT error('xq-canary-note') FROM visits"

    with duckdb.connect() as con:

        def break_it(name: str) -> None:
            if name == "after the charge":
                monkeypatch.setattr("dpduck.kernel.stage.cells_sql", failing)

        clinic = Clinic(dpduck.load(con, steps=break_it))
        plant(clinic)
        with pytest.raises(duckdb.Error, match="the release failed after its charge") as caught:
            clinic.dp(by("sex"))
        clean(everything_about(caught.value))
        assert clinic.charges() == 1
    assert asked, "the count was made of it"


def test_a_carrier_that_cannot_be_made_is_no_failure(planted: Clinic) -> None:
    """The release is stored by then: the answer is read from the store."""
    planted.rows("ATTACH ':memory:' AS dpduck_release_2")
    assert len(planted.dp(by("sex"))) == 2
    assert planted.charges() == 1


def test_an_unexpected_failure_before_the_charge_is_told_in_one_line(
    planted: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of ours quotes nothing either, and charges nothing."""
    monkeypatch.setattr("dpduck.database.database.analyse", quoting(ValueError))
    message = planted.refused(by("sex"))
    assert message == macros.UNEXPECTED


def test_plans_hold_no_estimate_of_private_tables(planted: Clinic) -> None:
    """EXPLAIN shows the scan of a released table, never of the private one, nor how many rows that has."""
    planted.dp(by("sex"))
    for statement in (by("sex"), by("ward"), by("age", epsilon="0.5")):
        plan = str(planted.rows(f"EXPLAIN FROM dp($${statement}$$)"))
        assert "visits" not in plan
        assert "7919" not in plan and "7922" not in plan and "7,9" not in plan


def test_duckdbs_log_of_queries_holds_no_value(planted: Clinic) -> None:
    """Even with DuckDB's logging on, the log of a release is SQL without data or keys."""
    planted.rows("CALL enable_logging('QueryLog', storage = 'memory')")
    planted.dp(by("ward"))
    logged = planted.rows("SELECT message FROM duckdb_logs")
    planted.rows("CALL disable_logging()")
    assert any("GROUP BY" in message for (message,) in logged)
    clean(logged)


def test_a_failure_is_remembered_in_the_store(
    clinic_file: Path, open_clinic: OpenClinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the same statement says the same failure and pays nothing. Refresh asks anew, and pays."""
    asked = by("age")
    with monkeypatch.context() as patch:
        break_at(patch, "measure", ValueError)
        clinic = open_clinic(clinic_file)
        with pytest.raises(duckdb.Error, match="failed after its charge") as first:
            clinic.dp(asked)
    charges = clinic.charges()
    clinic.con.close()
    clinic = open_clinic(clinic_file)
    with pytest.raises(duckdb.Error, match="failed after its charge") as second:
        clinic.dp(asked)
    assert one_line(first.value) == one_line(second.value)
    assert clinic.charges() == charges
    assert len(clinic.dp(by("age", more="refresh = 'again'"))) == 10
    assert clinic.charges() == charges + 1


def test_a_charge_without_an_answer_is_answered_once(clinic_file: Path, open_clinic: OpenClinic) -> None:
    """A process that ends between charge and answer: asked again it is answered without another charge, and only once.

    After a third time it counts as failed: how often a process ends could tell of rows.
    """

    def ending(step: str) -> None:
        if step == "after the count":
            raise KeyboardInterrupt

    def interrupted(text: str) -> None:
        with duckdb.connect(str(clinic_file)) as connection:
            dpduck.load(connection, steps=ending)
            database = database_of(connection)
            assert database is not None
            with pytest.raises(KeyboardInterrupt):
                database.run(text, OWNER)

    for text in (by("age"), by("ward")):
        interrupted(text)
    clinic = open_clinic(clinic_file)
    charges = clinic.charges()
    answer = clinic.dp(by("age"))
    assert len(answer) == 10 and clinic.charges() == charges == 3
    assert clinic.dp(by("age")) == answer
    clinic.con.close()
    interrupted(by("ward"))
    interrupted(by("ward"))
    clinic = open_clinic(clinic_file)
    with pytest.raises(duckdb.Error, match="failed after its charge"):
        clinic.dp(by("ward"))
    assert clinic.charges() == charges
    assert clinic.rows("SELECT count(*) FROM private.dpduck.unanswered") == [(0,)]


def test_an_entry_pays_for_its_own_bill_alone(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry for less, or for something else, opens no door."""
    clinic.dp(by("sex", epsilon="0.01"))
    database = database_of(clinic.con)
    assert database is not None
    entry = database.ledger.last_entry()
    database._releases.find_outcome = lambda _digest: RequestOutcome(unanswered=entry)  # type: ignore[method-assign,assignment]
    monkeypatch.setattr(database.ledger, "times_begun", lambda _: 1)
    assert clinic.refused(by("ward", epsilon="0.5")) == "the asks cost more than the statement; nothing was charged"
    assert clinic.charges() == 1


def test_a_store_that_cannot_note_a_failure_still_says_it(planted: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is the failure alone, with no other error around it. It is known until the process ends."""
    monkeypatch.setattr("dpduck.store.releases.ReleaseStore.put_failure", quoting(duckdb.IOException))
    break_at(monkeypatch, "measure", ValueError)
    for _ in range(2):
        with pytest.raises(duckdb.Error, match="entry 2") as caught:
            planted.dp(by("sex"))
        clean(everything_about(caught.value))
    assert planted.charges() == 1
