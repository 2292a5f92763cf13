"""The kernel refuses rows of several units by itself: without the language's own proofs, nothing is charged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from sqlglot import exp

import dpduck
from dpduck.kernel.check import NotVerified
from dpduck.kernel.columns.expressions import NotPlain
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.door import require_units
from dpduck.language.rows import per_unit, periods, private_joins, relation, unions
from dpduck.language.rows.scope import resolve
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.jobs import counting_job
from dpduck.values.errors import Refusal
from tests.language.facts import request_of
from tests.support.clinics import Clinic

TABLES = """
CREATE TABLE visits (id INTEGER PRIMARY KEY, person INTEGER, ward VARCHAR, day DATE);
CREATE TABLE stays (visit INTEGER, person INTEGER, ward VARCHAR, day DATE);
CREATE TABLE tests (visit INTEGER, near INTEGER, ward VARCHAR);
CREATE TABLE sales (shop INTEGER, person INTEGER, ward VARCHAR);
CREATE TABLE pairs (a INTEGER, b INTEGER, ward VARCHAR);
CREATE TABLE single (person INTEGER, ward VARCHAR);
CREATE TABLE loose (id INTEGER PRIMARY KEY, person INTEGER, ward VARCHAR);
CREATE TABLE notes (visit INTEGER, ward VARCHAR);
CREATE TABLE typed (visit INTEGER, ward VARCHAR);
CREATE TABLE folded (person VARCHAR, ward VARCHAR);
CREATE TABLE spans (person INTEGER, ward VARCHAR);
CREATE TABLE mixed (a INTEGER, b INTEGER, ward VARCHAR);
CREATE TABLE came (person INTEGER, day DATE, ward VARCHAR);
CREATE TABLE paid (person INTEGER, day TIMESTAMP, ward VARCHAR)
"""
UNITS = {
    "visits": "person", "stays": "person REFERENCES visits.person", "tests": "visit REFERENCES visits.id",
    "sales": "shop", "pairs": "(a, b)", "single": "ROW", "loose": "person", "notes": "visit REFERENCES loose.id",
    "typed": "visit REFERENCES visits.id", "folded": "person", "spans": "person", "mixed": "(a, b)",
    "came": "person PER MONTH OF day", "paid": "person REFERENCES came.person PER MONTH OF day",
}  # fmt: skip
LATER = """
DROP TABLE loose; CREATE TABLE loose (id INTEGER, person INTEGER, ward VARCHAR);
DROP TABLE typed; CREATE TABLE typed (visit VARCHAR, ward VARCHAR);
DROP TABLE folded; CREATE TABLE folded (person VARCHAR COLLATE NOCASE, ward VARCHAR);
DROP TABLE spans; CREATE TABLE spans (person INTERVAL, ward VARCHAR);
DROP TABLE mixed; CREATE TABLE mixed (a INTEGER, b DOUBLE, ward VARCHAR)
"""
"""What changes once policies are in force: a key that is gone, and columns of other types."""

LINK, KIND, UNITED, GROUP, KEY, REFERENCE, PLAIN, TOGETHER, PERIOD = (
    "link of a join", "kind of a join", "kind of a UNION ALL", "column of GROUP BY", "key", "reference", "plain unit",
    "columns together", "period of a join",
)  # fmt: skip
SAME = "date_trunc('month', visits.day) = date_trunc('month', paid.day)"
BROKEN: dict[str, tuple[str, tuple[str, ...]]] = {
    **{f"{kind} by a ward": (f"visits {kind} stays ON visits.ward = stays.ward", (LINK,))
       for kind in ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")},
    "JOIN by a number that refers to nothing": ("visits JOIN stays ON visits.id = stays.visit", (LINK,)),
    "JOIN by a person and another number": ("visits JOIN stays ON visits.person = stays.visit", (LINK,)),
    "JOIN by an order of persons": ("visits JOIN stays ON visits.person <= stays.person", (LINK,)),
    "JOIN by a person or a ward": (
        "visits JOIN stays ON visits.person = stays.person OR visits.ward = stays.ward", (LINK,),
    ),
    "JOIN by another number of a test": ("tests JOIN visits ON tests.near = visits.id", (LINK,)),
    "LEFT JOIN by another number of a test": ("tests LEFT JOIN visits ON tests.near = visits.id", (LINK,)),
    "JOIN by one of two columns": ("pairs JOIN pairs AS other ON pairs.a = other.a", (LINK,)),
    "JOIN by two columns across": ("pairs JOIN pairs AS other ON pairs.a = other.b AND pairs.b = other.a", (LINK,)),
    "JOIN of two kinds": ("visits JOIN sales ON visits.person = sales.person", (LINK, KIND)),
    "LEFT JOIN of two kinds": ("visits LEFT JOIN sales ON visits.person = sales.person", (LINK, KIND)),
    "ANTI JOIN of two kinds": ("visits ANTI JOIN sales ON visits.ward = sales.ward", (LINK, KIND)),
    "JOIN of rows that are units": ("visits JOIN single ON visits.person = single.person", (LINK, KIND)),
    "JOIN of units by months and of others": ("came JOIN visits ON came.person = visits.person", (LINK, KIND, PERIOD)),
    "UNION ALL of two kinds": ("(SELECT ward FROM visits UNION ALL SELECT ward FROM sales) AS visits", (UNITED,)),
    "UNION ALL of two kinds, turned": (
        "(SELECT ward FROM sales UNION ALL SELECT ward FROM visits) AS visits", (UNITED,),
    ),
    "UNION ALL of units by months and of others": (
        "(SELECT ward FROM came UNION ALL SELECT ward FROM visits) AS visits", (UNITED,),
    ),
    "UNION ALL with pairs": ("(SELECT ward FROM visits UNION ALL SELECT ward FROM pairs) AS visits", (UNITED,)),
    "GROUP BY a ward": ("(SELECT ward, count(*) AS k FROM visits GROUP BY ward) AS visits", (GROUP,)),
    "GROUP BY a number": (
        "(SELECT id, max(ward) AS ward, count(*) AS k FROM visits GROUP BY id) AS visits", (GROUP,),
    ),
    "GROUP BY a reference": (
        "(SELECT visit, max(ward) AS ward, count(*) AS k FROM tests GROUP BY visit) AS visits", (GROUP,),
    ),
    "a reference that leads to no key": ("notes AS visits", (KEY,)),
    "JOIN by a reference that leads to no key": ("notes AS visits JOIN loose ON visits.visit = loose.id", (KEY, LINK)),
    "a reference of another type than its key": ("typed AS visits", (REFERENCE,)),
    "a unit that a collation compares": ("folded AS visits", (PLAIN,)),
    "UNION ALL of a unit that a collation compares": (
        "(SELECT ward FROM folded UNION ALL SELECT ward FROM folded) AS visits",
        (PLAIN,),
    ),
    "a JOIN by a unit that a collation compares": (
        "folded AS visits JOIN folded AS other ON visits.person = other.person", (PLAIN, LINK, KIND),
    ),
    "a unit of intervals": ("spans AS visits", (PLAIN,)),
    "UNION ALL of a unit of intervals": (
        "(SELECT ward FROM spans UNION ALL SELECT ward FROM spans) AS visits", (PLAIN,),
    ),
    "a part of a unit with two forms of zero": ("mixed AS visits", (TOGETHER,)),
    **{f"{kind} across months": (f"came AS visits {kind} paid ON visits.person = paid.person", (PERIOD,))
       for kind in ("JOIN", "LEFT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")},
}  # fmt: skip
KEPT = {
    "a table": "visits",
    "LEFT JOIN by a person": "visits LEFT JOIN stays ON visits.person = stays.person AND visits.ward = stays.ward",
    "JOIN by a reference": "tests JOIN visits ON tests.visit = visits.id",
    "UNION ALL": "(SELECT ward FROM visits UNION ALL SELECT ward FROM stays) AS visits",
    "GROUP BY a person": "(SELECT person, max(ward) AS ward FROM visits GROUP BY person) AS visits",
    "PARTITION BY a person": "(SELECT ward, row_number() OVER (PARTITION BY person ORDER BY id) AS n FROM visits) AS "
    "visits WHERE n = 1",
    "JOIN by two columns": "pairs AS visits JOIN pairs AS other ON visits.a = other.a AND visits.b = other.b",
    "JOIN within a month": f"came AS visits JOIN paid ON visits.person = paid.person AND {SAME}",
    "ANTI JOIN within a month": f"came AS visits ANTI JOIN paid ON visits.person = paid.person AND {SAME}",
}


_BOUND = per_unit._units


def _first_key(group: exp.Expr, source: Any) -> exp.Expr:
    return resolve(group.expressions[0], source.scope)


def _as_it_is(table: Any, names: Any, facts: Any) -> tuple[Any, ...]:
    return tuple(one for one in facts.columns(table) if one.name in names)


def _by_any(source: Any, outputs: Any, alias: str, windowed: bool) -> tuple[Any, str]:
    """Writes max(column) for each column, which DuckDB binds in any grouping, so that every column passes."""
    units, bound = _BOUND(source, outputs, alias, windowed)
    for one in outputs:
        if one.made is None and not windowed:
            bound = bound.replace(f"{one.sql} AS ", f"max({one.sql}) AS ")
    return units, bound


def _nothing(*_: object) -> list[object]:
    return []


def _in_any(source: Any, facts: Any, _: object) -> Any:
    return source.first.policy.unit.period


PROOFS: dict[str, list[tuple[Any, str, Callable[..., object]]]] = {
    LINK: [(private_joins, "_are_of_one_unit", lambda *_: True)],
    KIND: [(private_joins, "_require_one_unit", _nothing)],
    UNITED: [(unions, "require_one_unit", _nothing), (unions, "comparable", lambda *_: True)],
    GROUP: [
        (per_unit, "_unit_column", _first_key),
        (per_unit, "_units", _by_any),
        (per_unit, "_require_unit", lambda column, *_: column.unnest()),
    ],
    KEY: [(relation, "require_key", _nothing)],
    REFERENCE: [(relation, "require_plain_reference", _nothing)],
    PLAIN: [(relation, "require_plain_unit", _nothing)],
    TOGETHER: [(relation, "require_joint_columns", _as_it_is)],
    PERIOD: [(periods, "require_periods_alone", _in_any), (private_joins, "_same_period", lambda *_: None)],
}
"""The language's own proofs: functions, and what stands in their place."""


class Refused(Clinic):
    """Tables with policies, some of them changed since, and the verifier's refusals."""

    def __init__(self) -> None:
        super().__init__(dpduck.connect(config={"threads": 1}))
        self.con.execute(TABLES)
        for table, unit in UNITS.items():
            rows = "" if unit == "ROW" else "MAX ROWS 3"
            budget = "" if "REFERENCES" in unit else "BUDGET (epsilon = 9), "
            budget = budget.replace(",", " PER MONTH,") if "PER" in unit else budget
            self.dp(f"CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT {unit} {rows}, {budget}DOMAIN ward IN ('a', 'b'))")
        self.con.execute(LATER)
        for number in range(40):
            ward, day = "ab"[number % 2], f"2024-0{1 + number % 3}-0{1 + number % 7}"
            self.con.execute("INSERT INTO visits VALUES (?, ?, ?, ?)", [number, number % 9, ward, day])
            self.con.execute("INSERT INTO stays VALUES (?, ?, ?, ?)", [number % 7, number % 5, ward, day])
            self.con.execute("INSERT INTO tests VALUES (?, ?, ?)", [number % 30, number % 8, ward])
            self.con.execute("INSERT INTO pairs VALUES (?, ?, ?)", [number % 3, number % 4, ward])
            for table in ("came", "paid") if number % 9 < 5 else ("came",):
                self.con.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", [number % 9, day, ward])

    def request(self, source: str) -> SelectRequest:
        return request_of(self.con, f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) {counted(source)}")

    def verify(self, source: str) -> None:
        """Shows the job of a statement to the verifier, as the door does before the charge."""
        request = self.request(source)
        with self.con.cursor() as cursor:
            require_units(cursor, [counting_job(request, [Contribution()])], request.rows.unit_key, "private")

    def ask(self, source: str) -> None:
        self.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) {counted(source)}")

    def counts(self, source: str) -> list[tuple[int, ...]]:
        """Returns the exact counts of a statement that keeps the rules."""
        request = self.request(source)
        with self.con.cursor() as cursor:
            found = count_exactly(cursor, counting_job(request, [Contribution()]), b"key")
        return sorted(zip(found._exact_coordinates[0].tolist(), found._exact_counts[0].tolist(), strict=True))


def counted(source: str) -> str:
    """Counts by the ward of the first table of a statement."""
    first = next(name for name in (*UNITS, "visits") if source.startswith(name) or "AS visits" in source)
    first = "visits" if "AS visits" in source else first
    return f"{first}.ward, count(*) AS n FROM {source} GROUP BY {first}.ward"


@pytest.fixture(scope="module")
def clinic() -> Iterator[Refused]:
    made = Refused()
    yield made
    made.con.close()


def switch_off(monkeypatch: pytest.MonkeyPatch, proofs: tuple[str, ...]) -> None:
    """Takes the language's proofs away."""
    for proof in proofs:
        for module, name, instead in PROOFS[proof]:
            monkeypatch.setattr(module, name, instead)


@pytest.mark.parametrize("name", BROKEN)
def test_the_kernel_refuses_what_the_language_would(
    clinic: Refused, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The language refuses each statement. Without its proof, and without any proof, the verifier refuses it."""
    source, proofs = BROKEN[name]
    with pytest.raises(Refusal):
        clinic.verify(source)
    before = clinic.rows("FROM dp_ledger()")
    for off in (proofs, tuple(PROOFS)):
        with monkeypatch.context() as without:
            switch_off(without, off)
            with pytest.raises((NotVerified, NotPlain)):
                clinic.verify(source)
            with pytest.raises(duckdb.Error):
                clinic.ask(source)
    assert clinic.rows("FROM dp_ledger()") == before


@pytest.mark.parametrize("name", KEPT)
def test_what_is_in_order_is_answered_as_before(clinic: Refused, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements that keep the rules have the same counts without any proof of the language, and pass the kernel."""
    source = KEPT[name]
    before, charges = clinic.counts(source), clinic.charges()
    assert before
    off = tuple(proof for proof in PROOFS if proof not in (PERIOD, TOGETHER))
    switch_off(monkeypatch, off)
    monkeypatch.setattr(periods, "require_periods_alone", _in_any)
    assert clinic.counts(source) == before
    clinic.ask(source)
    assert clinic.charges() == charges + 1


def test_a_window_is_by_the_unit_whatever_the_statement_says(clinic: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel writes PARTITION BY the unit, also for a window over wards, which the language refuses."""
    by_person = KEPT["PARTITION BY a person"]
    by_ward = by_person.replace("BY person", "BY ward")
    with pytest.raises(duckdb.Error, match="a window over rows of several privacy units"):
        clinic.ask(by_ward)
    before = clinic.counts(by_person)
    switch_off(monkeypatch, (GROUP,))
    assert clinic.counts(by_ward) == before


def test_there_are_many_statements() -> None:
    """At least 25 statements break a rule, and each proof is broken by some statement."""
    assert len(BROKEN) >= 25 and {proof for _, proofs in BROKEN.values() for proof in proofs} == set(PROOFS)
