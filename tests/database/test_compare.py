"""dp_compare: exact distances of a synthetic table from the data, for its owner alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpduck.database import functions
from dpduck.store.cursors import Caller
from dpduck.values.errors import PermissionRefusal, Refusal
from tests.support.clinics import Clinic

ALICE = Caller("alice", owner=False)
DOMAINS = """DOMAIN sex IN ('F', 'M') WITH NULL, DOMAIN age RANGE 0 TO 100 STEP 1, DOMAIN ward IN ('a', 'b', 'c')"""


@pytest.fixture
def people(open_clinic: Callable[..., Clinic]) -> Clinic:
    """4,000 rows of 2,000 people: ward follows sex, NULLs and values outside the domains."""
    clinic = open_clinic()
    clinic.con.execute(
        """CREATE TABLE people AS SELECT range // 2 AS person,
           CASE WHEN range % 9 = 0 THEN NULL WHEN range % 3 = 0 THEN 'M' ELSE 'F' END AS sex, (range % 103) AS age,
           CASE WHEN range % 3 = 0 THEN 'a' ELSE ['b', 'c', 'd'][1 + range % 11 % 3] END AS ward FROM range(4000)"""
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 2, BUDGET (epsilon = 100, delta = 1e-3), "
        f"{DOMAINS}, EXPECT ROWS 4000)"
    )
    clinic.dp(
        "CREATE PRIVATE TABLE made OPTIONS (epsilon = 8, delta = 1e-5, bins = 10, inside = TRUE, rows = 4000) "
        "AS SELECT * FROM people WHERE age >= 20 WORKLOAD MARGINALS (2)"
    )
    return clinic


def compared(clinic: Clinic, caller: Caller, name: str) -> str:
    database = functions.database_of(clinic.con)
    assert database is not None
    return database.about.compare(name, caller)


def test_distances_are_those_of_the_rows(people: Clinic) -> None:
    """Every marginal of up to three columns is there, the farthest first. Plain SQL over the statement's rows and the
    released ones finds the same distances. Nothing is charged."""
    charged = people.charges()
    found: dict[str, Any] = {row[0]: row[1:] for row in people.rows("FROM dp_compare('made')")}
    assert len(found) == 7 and people.charges() == charged
    distances = [row[1] for row in found.values()]
    assert distances == sorted(distances, reverse=True) and distances[0] < 0.2
    inside = "age BETWEEN 20 AND 99 AND coalesce(ward, '') <> 'd'"
    shares = (
        f"SELECT sex, ward, count(*) / (SELECT count(*) FROM {{0}} WHERE {inside}) AS share FROM {{0}} "
        f"WHERE {inside} GROUP BY ALL"
    )
    expected = people.value(
        f"""SELECT sum(abs(coalesce(d.share, 0) - coalesce(m.share, 0))) / 2 FROM ({shares.format("people")}) AS d
            FULL JOIN ({shares.format("private.made")}) AS m
            ON d.sex IS NOT DISTINCT FROM m.sex AND d.ward IS NOT DISTINCT FROM m.ward"""
    )
    assert found["sex, ward"][:2] == (2, pytest.approx(expected, abs=1e-9))
    assert abs(found["sex"][3] - found["sex"][4]) <= 2 * found["sex"][1] + 1e-9


def test_nobody_else_may_compare(people: Clinic) -> None:
    """A principal is refused before anything is read. The owner is refused where somebody else wrote a WHERE, which is
    never run in this process. A view, a sample and an unknown name are no synthetic tables."""
    with pytest.raises(PermissionRefusal):
        compared(people, ALICE, "made")
    database = functions.database_of(people.con)
    assert database is not None
    head = "CREATE PRIVATE TABLE {} OPTIONS (epsilon = 1, delta = 1e-6) AS SELECT sex, ward FROM people"
    database.run(head.format("hers") + " WHERE sex = 'F' WORKLOAD MARGINALS (1)", ALICE)
    database.run(head.format("plain") + " WORKLOAD MARGINALS (1)", ALICE)
    with pytest.raises(Refusal, match="somebody else"):
        compared(people, functions.OWNER, "hers")
    assert "sex" in compared(people, functions.OWNER, "plain")
    people.dp(
        "CREATE PRIVATE VIEW seen OPTIONS (epsilon = 1, delta = 1e-6) AS "
        "SELECT sex, ward, count(*) AS n FROM people GROUP BY CUBE (sex, ward)"
    )
    people.dp("CREATE PRIVATE TABLE drawn AS SAMPLE 10 FROM private.seen")
    for name in ("seen", "drawn", "nothing", "people"):
        with pytest.raises(Refusal, match="no synthetic table"):
            compared(people, functions.OWNER, name)
