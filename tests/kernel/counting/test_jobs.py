"""A job that breaks a rule is refused by trusted code when it is constructed, whoever constructs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpduck.kernel.columns.comparisons import Comparison
from dpduck.kernel.columns.expressions import AnalystSql, Expression, Lookup, RelationColumn
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import Attribute, CountingJob, GroupKey
from dpduck.kernel.relations import Join, Source, Stored
from dpduck.values.domain import RangeDomain, ValueDomain
from dpduck.values.errors import InternalError

ID, WARD = RelationColumn("v", "id", "INTEGER"), RelationColumn("v", "ward", "VARCHAR")
FLOOR, NAME = RelationColumn("w", "floor", "INTEGER"), RelationColumn("w", "ward", "VARCHAR")
LOOKED = "(SELECT count(*) FROM visit)"
SEXES = ValueDomain("VARCHAR", ("F", "M"))
JOB = CountingJob(
    Source(Stored("visit", "v")), (), ID, 2, (ID, WARD), (GroupKey(WARD, SEXES),),
    (Attribute((0,), np.arange(2), 2),), (Contribution(),),
)  # fmt: skip


def of_rows(condition: Expression) -> CountingJob:
    """A job that counts rows as units, joined with a public table that has one row for each floor."""
    source = Source(Stored("visit", "v"), (Join("JOIN", Source(Stored("wards", "w")), (condition,), 1, (FLOOR,)),))
    return replace(JOB, source=source, unit=None, max_rows=1)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "rows in an order of SQL": (
        lambda: replace(JOB, content=(ID, AnalystSql((LOOKED,)))), "an order, or a digest, of an analyst's SQL",
    ),
    "a digest of SQL": (
        lambda: replace(JOB, digest=AnalystSql((LOOKED,)), keys=(), attributes=()), "an order, or a digest, of",
    ),
    "steps that nobody made": (
        lambda: replace(JOB, aggregates=(Contribution(None, "sum", WARD, stepped=True),)), "says what its values are",
    ),
    "a value of a known reach": (
        lambda: replace(JOB, aggregates=(Contribution(None, "sum", WARD, reach=Fraction(1)),)), "what its values are",
    ),
    "codes beyond a size": (lambda: Attribute((0,), np.arange(2), 1), "codes beyond the size"),
    "codes of fewer values": (
        lambda: replace(JOB, attributes=(Attribute((0,), np.arange(1), 2),)), "an attribute of other keys",
    ),
    "a type that is SQL": (
        lambda: replace(JOB, keys=(GroupKey(WARD, RangeDomain(f"INTEGER) * {LOOKED}", ("1", "2"), "3", "1", "", 1)),)),
        "a key of no type",
    ),
    "an ENUM that is SQL": (
        lambda: replace(JOB, keys=(GroupKey(WARD, ValueDomain(f"ENUM('a') + {LOOKED} + ENUM('a')", ("a", "b"))),)),
        "a key of no type",
    ),
    "a key that equals itself": (lambda: of_rows(Comparison(FLOOR, "=", FLOOR)), "one table, joined by keys"),
    "a key that equals another column of its table": (
        lambda: of_rows(Comparison(RelationColumn("w", "id", "INTEGER"), "=", FLOOR)), "one table, joined by keys",
    ),
    "a key that is looked up by itself": (lambda: of_rows(Lookup(FLOOR, FLOOR)), "one table, joined by keys"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_other_jobs_are_refused(name: str) -> None:
    """Each of these jobs would count more of a unit than is priced, or run SQL that nobody checked."""
    make, reason = WRONG[name]
    with pytest.raises(InternalError, match=reason):
        make()


def test_the_same_jobs_in_order_are_made() -> None:
    """Jobs like the refused ones, but for the broken rule, are accepted."""
    assert of_rows(Comparison(ID, "=", FLOOR)).unit_bounds == (1,)
    assert of_rows(Lookup(AnalystSql(("CAST(", WARD, " AS INTEGER)")), FLOOR)).unit_bounds == (1,)
    enum = replace(JOB, keys=(GroupKey(WARD, ValueDomain("ENUM('F', 'it''s')", ("F", "it's"))),))
    assert enum.unit_bounds == (2,)
    with pytest.raises(ValueError, match="read-only"):
        JOB.attributes[0].codes[0] = 1
