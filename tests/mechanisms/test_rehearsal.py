"""A rehearsal evaluates each condition alone; it is left out for a job that went well before, and for no other."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dpduck.database.cursors import SandboxAnswers
from dpduck.database.sandbox import Sandbox
from dpduck.frontend.rows.parts import Source, Stored, Units
from dpduck.mechanisms import rehearsal
from dpduck.mechanisms.rehearsal import told
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.jobs import Attribute, CountingJob, KeyColumn, KeyedJob, KeyJob
from dpduck.trusted.rows import plain
from dpduck.trusted.rows.workers import Runner, StrictWorkers, Workers
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from dpduck.values.errors import InternalError, Refusal

LISTED = ValueDomain("VARCHAR", ("a", "b"))
BINS = RangeDomain("DOUBLE", ("0", "1"), "2", "1", "", 1)


def job_of(domain: Domain) -> CountingJob:
    """A count by one key."""
    size = domain.size
    attribute = Attribute((0,), np.arange(size, dtype=np.int64), size)
    return CountingJob("t", (), "u", 2, ("u",), (KeyColumn("k", domain),), (attribute,), (Contribution(""),))


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
    """Each becomes SQL of its own, or labels that are cast, of which one may fail where the other does not."""
    assert one.size == other.size
    jobs = [job_of(one), job_of(other)]
    for several in (jobs, [KeyedJob(job, (), 1) for job in jobs], [KeyJob(job, "k") for job in jobs]):
        assert told(several[0]) != told(several[1])


def test_equal_jobs_are_one() -> None:
    """The same statement again is not rehearsed again."""
    assert told(job_of(LISTED)) == told(job_of(replace(LISTED)))
    assert hash(told(job_of(BINS))) == hash(told(job_of(replace(BINS))))


TYPES = (('"r0"."u"', "INTEGER"), ('"r0"."note"', "VARCHAR"), ('"r0"."f"', "FLOAT"))


def alone(*filters: str, nested: bool = False) -> tuple[list[str], list[pa.Table]]:
    """What is complained of when the conditions of a job are rehearsed each alone, and what a worker was sent."""
    source = Source(Stored("t", "r0"), (), filters, TYPES)
    if nested:
        source = Source(Units(source, "u", (), (), "r1"), (), (), (('"r1"."u"', "INTEGER"),))
    job = replace(job_of(BINS), source=source, unit_sql='"r0"."u"', keys=())
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
    monkeypatch.setattr(rehearsal, "is_plain", lambda text, types: True)
    complaints, _ = alone(*hiding, 'CAST("r0"."note" AS INTEGER) > 5', nested=nested)
    assert complaints and "Could not convert" in complaints[0]


@pytest.mark.skipif(duckdb.__version__.startswith("1."), reason="DuckDB 1.5 compares them as DOUBLE")
def test_a_cast_of_a_stored_column_is_found_before_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of 40 signs beside a FLOAT, which raised after the charge for one row with NaN."""
    monkeypatch.setattr(plain, "LONGEST_NUMBER", 100)
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
    """A busy machine decides no rehearsal: what ends without DuckDB's words is begun again, a few times."""
    answers = iter(said)
    asked: list[str | None] = []

    def complaint(*_: object) -> str | None:
        asked.append(next(answers))
        return asked[-1]

    monkeypatch.setattr(rehearsal, "_complaint", complaint)
    pool = Workers()
    try:
        rehearsal.rehearsed([], [], SandboxAnswers(), pool)
        assert not refused
    except Refusal as refusal:
        assert refused and "nothing was charged" in refusal.accepted
    finally:
        pool.close()
    assert len(asked) == tries
