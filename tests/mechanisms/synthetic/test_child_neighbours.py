"""Neighbours of child tables: one unit moves the parents' table by a row and the children's by MAX ROWS at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dpduck
from dpduck.auditor.audit import Settings, audit
from dpduck.database.functions import OWNER, database_of
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.price import Ask, price
from dpduck.mechanisms.synthetic.measure import SyntheticProposal, propose_synthetic
from dpduck.mechanisms.synthetic.request import SyntheticRequest
from tests.kernel.test_bounding import assert_bounded
from tests.mechanisms.synthetic.test_child_tables import CHILDREN, PARENTS, fill
from tests.support.clinics import Clinic

MECHANISMS = ("cube", "mwem", "aim")


@pytest.fixture
def shop() -> Iterator[Clinic]:
    with dpduck.connect(config={"threads": 1}) as connection:
        made = Clinic(connection)
        fill(made)
        made.dp(PARENTS)
        yield made


def proposal(shop: Clinic, statement: str) -> SyntheticProposal:
    database = database_of(shop.con)
    assert database is not None
    question, _ = database.question_of(statement, OWNER)
    assert isinstance(question, SyntheticRequest)
    return propose_synthetic(question)


def asks_of(planned: SyntheticProposal) -> list[Ask[Any]]:
    """All that is asked of private rows."""
    return [*(planned.tables if planned.mwem_asks is None else planned.mwem_asks.asks)]


def table(shop: Clinic, planned: SyntheticProposal) -> NDArray[np.int64]:
    """The exact bounded table of all columns, as every ask of the statement reads it."""
    (scan,) = {ask.scan for ask in asks_of(planned)}
    assert isinstance(scan.job, CountingJob)
    with shop.con.cursor() as cursor:
        counts = count_exactly(cursor, scan.job, b"key")
    found = np.zeros(counts._sizes, np.int64)
    np.add.at(found, tuple(counts._exact_coordinates), counts._exact_counts[0])
    return found[None]


@pytest.mark.slow
def test_a_unit_moves_no_table_by_more_than_is_paid_for(shop: Clinic) -> None:
    """With a unit removed from both tables, the parents' table loses one row at most, the children's four at most, and
    nothing is added: whatever the unit has, none, a few or nine orders, no age, or is a customer of nobody's. Plans and
    prices are the same, since they do not depend on rows, and asks read these tables alone. A unit's orders may lie in
    one cell or in several."""
    plans = [proposal(shop, one.replace("1e-6", "1e-6, mechanism = 'aim'")) for one in (PARENTS, CHILDREN)]
    bounds = [one.request.rows.unit_bound for one in plans]
    assert bounds == [1, 4]
    before, lost = [table(shop, one) for one in plans], set()
    paid = [price(asks_of(one)) for one in plans]
    for unit in (0, 1, 500, 17, 51, 3, 4, 123, 3999):
        for name, column in (("customers", "id"), ("orders", "customer")):
            shop.con.execute(f"CREATE OR REPLACE TEMP TABLE gone_{name} AS FROM {name} WHERE {column} = {unit}")
            shop.con.execute(f"DELETE FROM {name} WHERE {column} = {unit}")
        for planned, whole, bound in zip(plans, before, bounds, strict=True):
            smaller = table(shop, planned)
            assert_bounded(whole, smaller, bound)
            lost.add((bound, int((whole - smaller).sum())))
        again = [proposal(shop, one.replace("1e-6", "1e-6, mechanism = 'aim'")) for one in (PARENTS, CHILDREN)]
        assert [price(asks_of(one)) for one in again] == paid
        for name in ("customers", "orders"):
            shop.con.execute(f"INSERT INTO {name} FROM gone_{name}")
    assert {(1, 1), (4, 4), (4, 0)} <= lost


@pytest.mark.audit
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_audit_of_child_tables(shop: Clinic, mechanism: str) -> None:
    """`dpduck audit` of both statements, which asks two databases that differ in one unit for release after release:
    nothing tells more than is charged. False alarm: 1e-9 a statement."""
    texts = [
        one.replace("made_", "audited_{tag}_").replace("1e-6", f"1e-6, mechanism = '{mechanism}'").split("FOR EACH")[0]
        for one in (PARENTS, CHILDREN)
    ]
    texts[1] += "WORKLOAD MARGINALS (2)"
    *found, alone = audit(shop.con, texts, Settings(seconds=20))
    assert len(found) == 4 and [one for one in found if one.broken or one.refused or not one.bounds] == []
    assert (alone.mechanism, alone.broken, alone.refused) == ("additivity", False, "")
