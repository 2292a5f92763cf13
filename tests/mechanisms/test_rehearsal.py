"""A rehearsal evaluates each condition alone. Only a job that went well before needs no rehearsal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpduck
from dpduck.kernel.columns import comparisons
from dpduck.kernel.columns.expressions import AnalystSql, RelationColumn
from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.door import rehearse
from dpduck.kernel.relations import Source, Stored, Units
from dpduck.kernel.worker import workers
from dpduck.kernel.worker.workers import Runner, StrictWorkers, Workers
from dpduck.language.rows.compiled import condition_of
from dpduck.mechanisms import rehearsal, release
from dpduck.mechanisms.rehearsal import rehearsal_key
from dpduck.store.cursors import SandboxAnswers
from dpduck.store.sandbox import Sandbox
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from dpduck.values.errors import InternalError, Refusal
from tests.support.nodes import adds, columns_of, counts, key, selected

LISTED = ValueDomain("VARCHAR", ("a", "b"))
BINS = RangeDomain("DOUBLE", ("0", "1"), "2", "1", "", 1)


def job_of(domain: Domain) -> CountingJob:
    """A count by one key."""
    size = domain.size
    attribute = Attribute((0,), np.arange(size, dtype=np.int64), size)
    return counts("t", (), "u", 2, ("u",), (key("k", domain),), (attribute,), (adds(),))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LISTED, ValueDomain("VARCHAR", ("a",), with_null=True)),
        (LISTED, ValueDomain("VARCHAR", ("a",), other="b")),
        (LISTED, ValueDomain("VARCHAR", ("a", "c"))),
        (BINS, replace(BINS, with_edges=True)),
        (BINS, replace(BINS, edges=("0", "1.5"))),
    ],
)
def test_domains_of_one_size_and_type_are_told_apart(one: Domain, other: Domain) -> None:
    """Each job has its own SQL, or labels with casts, and one of these may fail where another does not."""
    assert one.size == other.size
    jobs = [job_of(one), job_of(other)]
    for several in (jobs, [selected(job, (), 1) for job in jobs]):
        assert rehearsal_key(several[0]) != rehearsal_key(several[1])


def test_equal_jobs_are_one() -> None:
    """The same statement again is not rehearsed again."""
    assert rehearsal_key(job_of(LISTED)) == rehearsal_key(job_of(replace(LISTED)))
    assert hash(rehearsal_key(job_of(BINS))) == hash(rehearsal_key(job_of(replace(BINS))))


TYPES = {'"r0"."u"': "INTEGER", '"r0"."note"': "VARCHAR", '"r0"."f"': "FLOAT"}


def alone(*filters: str, nested: bool = False) -> tuple[list[str], list[pa.Table]]:
    """Returns the complaints when the conditions of a job are rehearsed each alone, and the messages to a worker."""
    unit, columns = RelationColumn("r0", "u", "INTEGER"), columns_of(TYPES)
    source = Source(Stored("t", "r0"), (), tuple(condition_of(text, columns) for text in filters))
    if nested:
        source = Source(Units(source, unit, (), (), "r1"))
    job = replace(job_of(BINS), source=source, unit=unit, keys=(), attributes=())
    sent: list[pa.Table] = []
    own = Runner.compute

    def compute(self: Runner, batch: pa.Table) -> pa.Table:
        sent.append(batch)
        return own(self, batch)

    pool = Workers()
    strict = StrictWorkers(pool)
    with pytest.MonkeyPatch.context() as patch, Sandbox() as box, box.cursor() as cursor:
        patch.setattr(Runner, "compute", compute)
        try:
            rehearsal._each_alone(cursor, [job], strict)
        except InternalError:
            return strict.complaints, sent
        finally:
            pool.close()
    return [], sent


@pytest.mark.parametrize("nested", [False, True])
def test_no_condition_hides_what_stands_beside_it(monkeypatch: pytest.MonkeyPatch, nested: bool) -> None:
    """No made-up row is between 3,000 and 7,000: what raises beside that was never rehearsed when all ran together.

    That a cast is taken for plain is a fault made by hand.
    """
    hiding = ('"r0"."u" > 3000', '"r0"."u" < 7000')
    assert alone(*hiding, '"r0"."note" IS NULL', nested=nested) == ([], [])
    monkeypatch.setattr(AnalystSql, "plain", True)
    complaints, _ = alone(*hiding, 'CAST("r0"."note" AS INTEGER) > 5', nested=nested)
    assert complaints and "Could not convert" in complaints[0]


@pytest.mark.skipif(duckdb.__version__.startswith("1."), reason="DuckDB 1.5 compares them as DOUBLE")
def test_a_cast_of_a_stored_column_is_found_before_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of 40 signs beside a FLOAT, which raised after the charge for one row with NaN."""
    monkeypatch.setattr(comparisons, "LONGEST_NUMBER", 100)
    complaints, _ = alone('"r0"."u" > 3000', f'"r0"."f" IN (1, 1{"0" * 39})')
    assert complaints and "BIGNUM" in complaints[0]


def test_a_worker_computes_all_combinations_of_the_values_of_its_columns() -> None:
    """Every pair of made-up values and NULL, although a condition beside it is met by none."""
    text = 'length("r0"."note") > "r0"."u" AND "r0"."f" + 1 > 2'
    complaints, sent = alone('"r0"."u" > 3000 AND "r0"."u" < 7000', text)
    assert complaints == [] and len(sent) == 1
    columns = [column.to_pylist() for column in sent[0].columns]
    assert [len(set(map(str, column))) for column in columns] == [7, 7, 6]
    assert len(set(zip(*(map(str, column) for column in columns), strict=True))) == 7 * 7 * 6


@pytest.mark.parametrize(
    ("said", "tries", "refused"), [(("", "", None), 3, False), (("",) * 9, 3, True), (("no",), 1, True)]
)
def test_a_process_that_ended_without_a_word_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, said: tuple[str | None, ...], tries: int, refused: bool
) -> None:
    """A busy machine decides no rehearsal: a process that ends without DuckDB's words is started again, a few times."""
    answers = iter(said)
    asked: list[str | None] = []

    def complaint(*_: object) -> str | None:
        asked.append(next(answers))
        return asked[-1]

    monkeypatch.setattr(rehearsal, "_complaint", complaint)
    pool = Workers()
    try:
        rehearsal.rehearse_asks([], [], SandboxAnswers(), pool)
        assert not refused
    except Refusal as refusal:
        assert refused and "nothing was charged" in refusal.accepted
    finally:
        pool.close()
    assert len(asked) == tries


ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = '{}') {}"
PLAIN = (
    "count(*) FROM visits",
    "sex, count(*) FROM visits GROUP BY sex",
    "sex, age, count(*) FROM visits GROUP BY CUBE (sex, age)",
    "age % 2, count(*) FROM visits GROUP BY age % 2",
    "sex, count(DISTINCT age) FROM visits GROUP BY sex",
)
WRITTEN = (
    "sex, count(*) FROM visits WHERE age > 3 GROUP BY sex",
    "sex, count(*) FROM visits WHERE age > 4 GROUP BY sex",
    "sex, count(*) FILTER (WHERE age > 3) FROM visits GROUP BY sex",
    "sex, count(sex) FROM visits GROUP BY sex",
    "sex, sum(age) FROM visits GROUP BY sex",
    "letter, count(*) FROM visits JOIN letters ON sex = letter GROUP BY letter",
)
"""Each has some SQL of an analyst's, if only a column under count, sum or ON: that is decided by the text that runs."""

COMPUTED = ("sex, count(*) FROM visits WHERE age % 3 = 1 GROUP BY sex", "sex, sum(age / 7) FROM visits GROUP BY sex")


def make_visits(connection: duckdb.DuckDBPyConnection) -> None:
    """Visits by unit, and a public table."""
    connection.execute(
        "CREATE TABLE visits AS SELECT range AS id, 'FM'[range % 2 + 1] AS sex, range % 8 AS age FROM range(80)"
    )
    connection.execute("CREATE TABLE letters AS SELECT unnest(['F', 'M']) AS letter")
    for statement in (
        "DECLARE PUBLIC TABLE letters",
        "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT id MAX ROWS 2, BUDGET (epsilon = 1000), DOMAIN sex IN "
        "('F', 'M'), DOMAIN age IN (0, 1, 2, 3, 4, 5, 6, 7), CLAMP age BETWEEN 0 AND 9)",
    ):
        connection.execute("FROM dp(?)", [statement]).fetchall()


@pytest.fixture(scope="module")
def visits() -> Iterator[duckdb.DuckDBPyConnection]:
    """The clinic, for tests that start no process of their own."""
    with dpduck.connect() as connection:
        make_visits(connection)
        yield connection


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rehearsals, each as the number of its runs over made-up rows."""
    found: list[int] = []
    complaint = rehearsal._complaint

    def begun(*asked: Any) -> str | None:
        found.append(0)
        return complaint(*asked)

    def run(*asked: Any) -> None:
        found[-1] += 1
        rehearse(*asked)

    monkeypatch.setattr(rehearsal, "_complaint", begun)
    monkeypatch.setattr(rehearsal, "rehearse", run)
    return found


def test_a_plain_count_is_not_rehearsed(visits: duckdb.DuckDBPyConnection, runs: list[int]) -> None:
    """Stored columns and the public labels of their domains: nothing that an analyst wrote is asked of a row."""
    for number, text in enumerate(PLAIN):
        visits.execute("FROM dp(?)", [ASKED.format(number, text)]).fetchall()
    assert runs == []


def test_whatever_was_written_is_rehearsed_once(visits: duckdb.DuckDBPyConnection, runs: list[int]) -> None:
    """Each shape is rehearsed once, with one run of the later SQL, however often it is asked anew."""
    for number, text in enumerate((*WRITTEN, *COMPUTED)):
        for tag in ("a", "b"):
            visits.execute("FROM dp(?)", [ASKED.format(tag, text)]).fetchall()
        assert runs == [1] * (number + 1), text


def test_a_worker_is_started_for_an_expression_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, conditions and sums of stored columns start no process, in rehearsals neither."""
    started: list[bool] = []

    class Counted(workers.Worker):
        def __init__(self, *words: Any) -> None:
            started.append(True)
            super().__init__(*words)

    monkeypatch.setattr(workers, "Worker", Counted)
    for module in ("dpduck.database.database", "dpduck.kernel.counting.exact"):
        monkeypatch.setattr(f"{module}.Workers", Workers)
    monkeypatch.setattr(release, "SandboxAnswers", SandboxAnswers)
    with dpduck.connect() as fresh:
        make_visits(fresh)
        for number, text in enumerate((*PLAIN, *WRITTEN)):
            fresh.execute("FROM dp(?)", [ASKED.format(number, text)]).fetchall()
        assert started == []
        fresh.execute("FROM dp(?)", [ASKED.format("w", COMPUTED[0])]).fetchall()
        assert len(started) == 2, "one for made-up rows, one for those of the table"
