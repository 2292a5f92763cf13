"""The verifier accepts rows by periods if each belongs to one person and one period, by the facts of the tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import product

import duckdb
import pytest

from dpduck.kernel.check import NotVerified, require_carried
from dpduck.kernel.columns.expressions import AnalystSql, Expression, RelationColumn
from dpduck.kernel.facts import Facts, PolicyUnit, TableFacts
from dpduck.kernel.relations import (
    NUMBER_TYPE,
    PERIOD_COLUMN,
    UNIT_COLUMN,
    Branch,
    Feature,
    Join,
    Source,
    Stored,
    Union,
    Units,
)
from dpduck.kernel.rows.held import cut_sql
from dpduck.kernel.rows.placed import render_source
from dpduck.kernel.units import FirstOf, InPeriod, Numbered, Referenced, ReferenceStep, SamePeriod
from dpduck.values.errors import InternalError
from dpduck.values.periods import Periods, number_of
from tests.kernel.test_check import column, equal

PERSON = "main.visits.person PER MONTH"
RUN = Periods("MONTH", 12 * 2023, 12 * 2023 + 2)
"""January to March of 2024."""

TYPES = {
    "visit": {"id": "INTEGER", "patient": "INTEGER", "ward": "VARCHAR", "day": "DATE"},
    "stay": {"visit": "INTEGER", "patient": "INTEGER", "ward": "VARCHAR", "day": "DATE"},
    "test": {"visit": "INTEGER", "ward": "VARCHAR", "near": "INTEGER"},
    "wards": {"ward": "VARCHAR", "floor": "INTEGER", "patient": "INTEGER"},
}
BY_DAY = ("MONTH", "day")
FACTS: Facts = {
    "visit": TableFacts(PolicyUnit(PERSON, ("patient",), None, BY_DAY), TYPES["visit"], frozenset({"id"}), False),
    "stay": TableFacts(PolicyUnit(PERSON, ("patient",), None, BY_DAY), TYPES["stay"], frozenset(), False),
    "wards": TableFacts(None, TYPES["wards"], frozenset({"ward"}), False),
}


def changed(**units: PolicyUnit) -> Facts:
    """Returns the facts with other units of some tables."""
    return {**FACTS, **{name: replace(FACTS[name], unit=unit) for name, unit in units.items()}}


def stored(table: str, alias: str = "", moment: str = "day") -> Stored:
    """A table with the month of its rows."""
    return Stored(table, alias or table, moment=RelationColumn(alias or table, moment, TYPES[table][moment]))


def within(table: str, person: str = "patient", moment: str = "day", word: str = "MONTH") -> InPeriod:
    """The unit of a table's rows."""
    return InPeriod(column(table, person), Numbered(column(table, moment), word))


VISIT, STAY = within("visit"), within("stay")
BY_PATIENT, SAME = equal(column("visit", "patient"), column("stay", "patient")), SamePeriod(VISIT.number, STAY.number)
VISITS, STAYS = Source(stored("visit")), Source(stored("stay"))


def joined(*on: Expression, kind: str = "JOIN", right: Source = STAYS) -> Source:
    """Visits with stays."""
    return replace(VISITS, joins=(Join(kind, right, on),))


def united(*branches: tuple[Source, Expression]) -> Source:
    """A UNION ALL of tables that show nothing."""
    return Source(Union(tuple(Branch(source, unit, ()) for source, unit in branches), "u"))


def of_relation(alias: str) -> InPeriod:
    """The unit of the rows of a relation inside the statement."""
    return InPeriod(RelationColumn(alias, UNIT_COLUMN, "INTEGER"), RelationColumn(alias, PERIOD_COLUMN, NUMBER_TYPE))


def grouped(unit: Expression, source: Source = VISITS, windowed: bool = False) -> Source:
    """Rows by unit, with their number."""
    counts, features = ((), (Feature("count", "n"),)) if windowed else (((None, "n"),), ())
    return Source(Units(source, unit, (), counts, "g", features, windowed))


BOTH = InPeriod(FirstOf((VISIT.unit, STAY.unit)), FirstOf((VISIT.number, STAY.number)))
UNITED, GROUPED, SHOWN = of_relation("u"), of_relation("g"), of_relation("v")
PAIRS = ((VISITS, VISIT), (STAYS, STAY))
AS_V = Union(tuple(Branch(source, unit, ()) for source, unit in PAIRS), "v")
ACCEPTED: dict[str, tuple[Source, Expression]] = {
    "a table": (VISITS, VISIT),
    **{
        f"{kind} within a month": (joined(BY_PATIENT, SAME, kind=kind), unit)
        for kind, unit in (
            ("JOIN", VISIT), ("JOIN", STAY), ("LEFT JOIN", VISIT), ("RIGHT JOIN", STAY), ("SEMI JOIN", VISIT),
            ("ANTI JOIN", VISIT), ("FULL JOIN", BOTH),
        )
    },
    "a public table": (
        joined(equal(column("visit", "ward"), column("wards", "ward")), right=Source(Stored("wards", "wards"))), VISIT,
    ),
    "UNION ALL": (united(*PAIRS), UNITED),
    "GROUP BY": (grouped(VISIT), GROUPED),
    "PARTITION BY": (grouped(VISIT, windowed=True), GROUPED),
    "GROUP BY of a UNION ALL": (grouped(UNITED, united(*PAIRS)), GROUPED),
    "GROUP BY of a FULL JOIN": (grouped(BOTH, joined(BY_PATIENT, SAME, kind="FULL JOIN")), GROUPED),
    "LEFT JOIN of a UNION ALL": (
        joined(equal(column("visit", "patient"), RelationColumn("v", UNIT_COLUMN, "INTEGER")),
               SamePeriod(VISIT.number, SHOWN.number), kind="LEFT JOIN", right=Source(AS_V)), VISIT,
    ),
}  # fmt: skip
NO_MOMENT, WARD = Source(Stored("visit", "visit")), column("visit", "ward")
FOR_ALL_TIME, BY_WEEK = PolicyUnit(PERSON, ("patient",)), PolicyUnit(PERSON, ("patient",), None, ("WEEK", "day"))
REFUSED: dict[str, tuple[Source, Expression | None, str]] = {
    "a table that says no month": (NO_MOMENT, VISIT, "periods of another column"),
    "a table without its period": (VISITS, VISIT.unit, "another privacy unit"),
    "a period of another word": (VISITS, within("visit", word="DAY"), "another privacy unit"),
    "a period of another table's column": (VISITS, InPeriod(VISIT.unit, STAY.number), "another privacy unit"),
    "a number that is stored": (VISITS, InPeriod(VISIT.unit, column("visit", "id")), "another privacy unit"),
    "a public table that says a month": (
        joined(BY_PATIENT, right=Source(Stored("wards", "stay", moment=WARD))), VISIT, "periods of another column",
    ),
    **{
        f"{kind} across months": (joined(BY_PATIENT, kind=kind), unit, "rows of two periods")
        for kind, unit in (("JOIN", VISIT), ("LEFT JOIN", VISIT), ("SEMI JOIN", VISIT), ("FULL JOIN", BOTH))
    },
    "a JOIN within a month of two persons": (joined(SAME), VISIT, "rows of two units"),
    "a JOIN within a month of one side": (
        joined(BY_PATIENT, SamePeriod(VISIT.number, VISIT.number)), VISIT, "an equality of other periods",
    ),
    "a JOIN within a quarter": (
        joined(BY_PATIENT, SamePeriod(within("visit", word="QUARTER").number, within("stay", word="QUARTER").number)),
        VISIT, "an equality of other periods",
    ),
    "an equality of periods in WHERE": (
        replace(joined(BY_PATIENT, SAME), filters=(SAME,)), VISIT, "a node that is no expression here",
    ),
    "a JOIN with a table that says no month": (
        joined(BY_PATIENT, SAME, right=Source(Stored("stay", "stay"))), VISIT, "periods of another column",
    ),
    "FULL JOIN with the person of one side": (
        joined(BY_PATIENT, SAME, kind="FULL JOIN"), InPeriod(VISIT.unit, BOTH.number), "another privacy unit",
    ),
    "FULL JOIN with the period of one side": (
        joined(BY_PATIENT, SAME, kind="FULL JOIN"), InPeriod(BOTH.unit, VISIT.number), "another privacy unit",
    ),
    "UNION ALL with persons alone": (united((VISITS, VISIT), (STAYS, STAY.unit)), UNITED, "without the unit of its"),
    "UNION ALL with another period": (
        united((VISITS, VISIT), (STAYS, within("stay", word="YEAR"))), UNITED, "without the unit of its rows",
    ),
    "UNION ALL as persons": (united(*PAIRS), UNITED.unit, "another privacy unit"),
    "GROUP BY the person alone": (grouped(VISIT.unit), GROUPED, "grouped by something else"),
    "PARTITION BY the person alone": (grouped(VISIT.unit, windowed=True), GROUPED, "grouped by something else"),
    "GROUP BY as persons": (grouped(VISIT), GROUPED.unit, "another privacy unit"),
    "an output under the period's name": (
        Source(Units(VISITS, VISIT, ((VISIT.unit, "dpduck_PERIOD"),), (), "g")), GROUPED, "two columns of one name",
    ),
}  # fmt: skip
WIDE = {**FACTS, "visit": replace(FACTS["visit"], types={**TYPES["visit"], "patient": "DECIMAL(38,0)"})}
OTHER_FACTS: dict[str, tuple[Source, Expression | None, Facts, str]] = {
    "a policy of another word": (VISITS, VISIT, changed(visit=BY_WEEK), "another privacy unit"),
    "a policy without PER": (VISITS, VISIT, changed(visit=FOR_ALL_TIME), "periods of another column"),
    "a policy of another column": (
        VISITS, VISIT, changed(visit=PolicyUnit(PERSON, ("patient",), None, ("MONTH", "ward"))), "of another column",
    ),
    "a JOIN with a table for all time": (
        joined(BY_PATIENT, right=Source(Stored("stay", "stay"))), VISIT, changed(stay=FOR_ALL_TIME),
        "a join of rows by periods and of others",
    ),
    "a JOIN with a table by weeks": (
        joined(BY_PATIENT, SAME), VISIT, changed(stay=BY_WEEK), "a join of rows by periods and of others",
    ),
    "UNION ALL with a table for all time": (
        united((VISITS, VISIT), (Source(Stored("stay", "stay")), STAY.unit)), UNITED, changed(stay=FOR_ALL_TIME),
        "a UNION ALL of rows by periods and of others",
    ),
    "UNION ALL of two words": (
        united((VISITS, VISIT), (STAYS, within("stay", word="WEEK"))), UNITED, changed(stay=BY_WEEK),
        "a UNION ALL of rows by periods and of others",
    ),
    "a unit that pairs do not tell apart": (VISITS, VISIT, WIDE, "a unit that pairs do not tell apart"),
    "a month of a text": (
        Source(stored("visit", moment="ward")), None,
        changed(visit=PolicyUnit(PERSON, ("patient",), None, ("MONTH", "ward"))), "a column that is no moment",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_rows_of_one_person_and_month_are_accepted(name: str) -> None:
    """The verifier returns the charged unit's name, and refuses periods of another word, or none."""
    source, unit = ACCEPTED[name]
    assert require_carried(source, unit, RUN, (), FACTS) == PERSON
    for periods in (None, Periods("DAY", 0, 1)):
        with pytest.raises(NotVerified, match="periods of another word"):
            require_carried(source, unit, periods, (), FACTS)


@pytest.mark.parametrize("name", [*REFUSED, *OTHER_FACTS])
def test_rows_of_several_are_refused(name: str) -> None:
    """Each refusal names the reason, and says that nothing was charged."""
    source, unit, facts, reason = OTHER_FACTS[name] if name in OTHER_FACTS else (*REFUSED[name][:2], FACTS, "")
    with pytest.raises(NotVerified, match=reason or REFUSED[name][2]) as error:
        require_carried(source, unit, RUN, (), facts)
    assert str(error.value).endswith("nothing was charged")


def test_rows_that_are_units_are_of_one_month() -> None:
    """PRIVACY UNIT ROW PER MONTH has no unit column, but its rows have a month."""
    facts = changed(visit=PolicyUnit(PERSON, (), None, BY_DAY))
    assert require_carried(VISITS, None, RUN, (), facts) == PERSON
    for source, periods in ((NO_MOMENT, RUN), (VISITS, None)):
        with pytest.raises(NotVerified, match="periods of another"):
            require_carried(source, None, periods, (), facts)


def test_a_table_is_read_in_its_periods_or_not_at_all() -> None:
    """SQL of a table by periods needs a run of periods. Each table of a cross join is cut to the months, too."""
    assert "day" in render_source(VISITS, (), periods=RUN).from_sql
    for source, periods in ((VISITS, None), (Source(replace(stored("visit"), alias="other")), RUN)):
        with pytest.raises(InternalError):
            render_source(source, (), periods=periods)
    keys = (column("stay", "patient"),)
    cut = replace(joined(BY_PATIENT, SAME).joins[0], copies=3, keys=keys, content=(column("stay", "ward"),))
    _, window = cut_sql(cut, STAY.number)
    assert 'PARTITION BY dpduck_t."patient", CASE WHEN dpduck_t."day" >=' in window
    assert window in render_source(replace(VISITS, joins=(cut,)), (), periods=RUN).from_sql


def test_a_worker_is_asked_about_charged_periods_alone() -> None:
    """A worker that decides an outer join is asked about rows of the charged run, and of no others."""
    condition = AnalystSql(("7 / ", column("stay", "visit"), " >= 1"))
    (stage,) = render_source(joined(BY_PATIENT, SAME, condition, kind="LEFT JOIN"), (), periods=RUN).stages
    assert stage.where == (
        """("stay"."day" >= CAST('2024-01-01' AS DATE)) AND ("stay"."day" < CAST('2024-04-01' AS DATE))"""
    )


# An oracle: in whatever is accepted, removing one person's rows of one month changes no row of another unit.

DATA: dict[str, list[tuple[object, ...]]] = {
    "visit": [
        (1, 1, "w1", "2024-01-01"), (2, 1, "w2", "2024-02-29"), (3, 2, "w1", "2024-01-31"), (4, None, "w1", None),
        (5, 1, "w1", "infinity"), (6, 2, "w1", "2024-02-01"), (7, 1, "w1", "2023-12-31"), (8, 2, "w2", None),
        (9, None, "w1", "2024-01-01"), (10, 1, "w2", "2024-01-31"), (11, 1, "w2", "2024-04-01"),
        (12, 3, "w1", "2024-03-05"),
    ],
    "stay": [
        (1, 1, "w1", "2024-01-31"), (1, 1, "w1", "2024-02-01"), (3, 2, "w1", "2024-02-29"), (8, 2, "w1", None),
        (5, 1, "w1", "infinity"), (9, None, "w1", "2024-01-01"), (2, 1, "w2", "2024-03-01"), (7, 1, "w1", "2023-12-31"),
        (3, 2, "w2", "2024-01-01"), (12, 3, "w1", "2024-02-05"),
    ],
    "wards": [("w1", 1, 1), ("w2", 1, 2), ("w2", 2, 2)],
}  # fmt: skip
MONTHS = (None, "2023-12", "2024-01", "2024-02", "2024-03", "2024-04")
EVERY_UNIT = [(person, month) for person in (1, 2, 3, None) for month in MONTHS]


@cache
def without(unit: tuple[int | None, str | None] | None) -> duckdb.DuckDBPyConnection:
    """Returns the data without one unit's rows, or all data for None."""
    connection = duckdb.connect()
    for table, rows in DATA.items():
        listed = ", ".join(f"{name} {kind}" for name, kind in TYPES[table].items())
        connection.execute(f"CREATE TABLE {table} ({listed})")
        kept = [row for row in rows if table == "wards" or unit is None or (row[1], month_of(row[3])) != unit]
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(TYPES[table]))})", kept)
    return connection


def month_of(day: object) -> str | None:
    """Returns the month of a day, or None for no day."""
    return None if day is None or day == "infinity" else str(day)[:7]


def rows_of(source: Source, unit: Expression, left_out: tuple[int | None, str | None] | None) -> Counter[str]:
    """Returns the rows of a source as the kernel writes it, each with its unit."""
    found = render_source(source, (), periods=RUN)
    looking = ("SEMI JOIN", "ANTI JOIN")
    aliases = [source.first.alias] + [join.right.first.alias for join in source.joins if join.kind not in looking]
    shown = ", ".join(f"{alias}.*" for alias in aliases)
    sql = f"SELECT {unit.sql}, {shown} FROM {found.from_sql}"
    return Counter(map(repr, without(left_out).execute(sql).fetchall()))


def moved(source: Source, unit: Expression) -> list[object]:
    """Lists the units that, if removed, change rows of others or leave rows of their own."""
    whole, found = rows_of(source, unit, None), list[object]()
    for person, month in EVERY_UNIT:
        left = rows_of(source, unit, (person, month))
        number = None if month is None else number_of("MONTH", month_day(month))
        own = f"({{'of': {person}, 'in_period': {number}}},"
        nobody = person is None or month is None
        kept = Counter({row: count for row, count in whole.items() if not row.startswith(own)})
        somebodys = [Counter({row: n for row, n in rows.items() if not row.startswith("(None,")})
                     for rows in (kept, left)]  # fmt: skip
        found += [(person, month)] if somebodys[0] != somebodys[1] or (nobody and len(kept) != len(whole)) else []
    return found


def month_day(month: str) -> date:
    """Returns the first day of a month."""
    return date.fromisoformat(f"{month}-01")


@pytest.mark.parametrize("name", ACCEPTED)
def test_rows_of_other_units_stay(name: str) -> None:
    """Removing one person's rows of one month removes exactly these rows."""
    assert moved(*ACCEPTED[name]) == []


def test_every_accepted_join_keeps_units_apart() -> None:
    """Accepted joins keep units apart, among joins of every kind by every pair of columns and equality of months."""
    kinds = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")
    numbers = [VISIT.number, STAY.number]
    sames = [(), *((SamePeriod(one, other),) for one, other in product(numbers, repeat=2))]
    units = [VISIT, STAY, BOTH, InPeriod(VISIT.unit, STAY.number), InPeriod(column("visit", "id"), VISIT.number)]
    accepted = tried = 0
    for one, other in product(TYPES["visit"], TYPES["stay"]):
        if TYPES["visit"][one] != TYPES["stay"][other]:
            continue
        on = equal(column("visit", one), column("stay", other))
        for kind, same, unit in product(kinds, sames, units):
            source, tried = joined(on, *same, kind=kind), tried + 1
            try:
                require_carried(source, unit, RUN, (), FACTS)
            except NotVerified:
                continue
            accepted += 1
            assert moved(source, unit) == []
    assert (tried, accepted) == (900, 7)


def test_the_oracle_finds_rows_of_two_units() -> None:
    """The oracle finds moved rows of other units in refused joins of this data, so that it can fail."""
    names = ("JOIN across months", "LEFT JOIN across months", "SEMI JOIN across months", "FULL JOIN across months")
    for name in (*names, "a JOIN within a month of one side", "a JOIN within a month of two persons"):
        source, unit, _ = REFUSED[name]
        assert unit is not None and moved(source, unit), name


def test_references_to_rows_by_periods_are_refused() -> None:
    """A row that finds its person through a row of another month would have two units, and is refused."""
    key = ReferenceStep("visit", RelationColumn("test_1", "id", "INTEGER"))
    unit = Referenced(column("test", "visit"), (key,), RelationColumn("test_1", "patient", "INTEGER"))
    of_parent = PolicyUnit(PERSON, (), ("visit", "visit", "id"))
    facts = {**FACTS, "test": TableFacts(of_parent, TYPES["test"], frozenset(), False)}
    with pytest.raises(NotVerified, match="a reference to rows by periods"):
        require_carried(Source(Stored("test", "test")), unit, RUN, (), facts)
