"""Streams through SQL: one charge, periods that close, answers that never change, and refusals by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from dpduck.kernel.queries.streams import require_stream
from dpduck.mechanisms.streams.statements import FEWER
from dpduck.strategies.time_axis import STRATEGIES
from dpduck.values.errors import InternalError
from tests.mechanisms.streams.streams import MOST, PERIODS, POLICY, STREAM, Visits, options

ROWS = [
    (f"p{person}", f"2024-{month:02}-{1 + person % 28:02}", ["a", "b", None][(person + month) % 3], person)
    for month in range(1, PERIODS + 1)
    for person in range(month, 60, 5)
]


@pytest.fixture
def visits() -> Iterator[Visits]:
    made = Visits()
    made.put(ROWS)
    yield made
    made.con.close()


def test_one_charge_for_all_periods(visits: Visits) -> None:
    """A stream is paid for when it is made, before any row is read. Refreshes cost nothing."""
    visits.create()
    assert visits.spent() == 1
    assert visits.published() == []
    for month in range(1, PERIODS + 1):
        assert visits.refresh(month).startswith(f"by_month has {month} of {PERIODS} periods")
        assert len(visits.published()) == 3 * month
    ended = f"by_month has {PERIODS} of {PERIODS} periods: its horizon has ended"
    assert visits.refresh() == f"{ended}; {FEWER}"
    assert visits.spent() == 1
    charges = visits.con.execute(
        "SELECT mechanism, rho > 0 FROM dp_ledger() WHERE mechanism LIKE '%stream%'"
    ).fetchall()
    assert charges == [("discrete Laplace, stream of 6 periods, periods", True), *[("stream refresh", False)] * PERIODS]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_answers_are_the_counts_plus_noise(strategy: str) -> None:
    """At a price where noise is nearly nothing every strategy publishes counts, totals and windows, month by month."""
    visits = Visits(budget="rho = 1000")
    visits.put(ROWS)
    visits.create(options("rho = 100", strategy, ", window = 2"))
    for month in range(1, PERIODS + 1):
        visits.refresh(month)
    exact = visits.exact()
    assert exact.sum() == sum(min(MOST, sum(row[0] == person for row in ROWS)) for person in {row[0] for row in ROWS})
    totals = np.cumsum(exact, axis=0)
    windows = totals - np.concatenate([np.zeros((2, 3), int), totals[:-2]])
    rows = np.array(visits.published("n, n_total, n_last, n_stderr, n_total_stderr"), float).reshape(PERIODS, 3, 5)
    for place, expected in enumerate((exact, totals, windows)):
        assert np.abs(rows[..., place] - expected).max() <= 8 * rows[..., 3:].max()
    assert rows[..., 3:].max() < 5, "the noise hides what is tested"
    visits.con.close()


def test_a_published_period_never_changes(visits: Visits) -> None:
    """Rows that are altered, deleted, or come late after their period closed change nothing that was published."""
    visits.create(options(strategy="tree"))
    visits.refresh(3)
    before, exact = visits.published(), visits.exact()
    visits.con.execute("DELETE FROM visits WHERE came < '2024-03-01' AND number % 2 = 0")
    visits.con.execute("UPDATE visits SET ward = 'b' WHERE came < '2024-04-01'")
    visits.put([("late", "2024-02-02", "a", 1), ("late", "2024-03-31", "a", 1)])
    visits.refresh(4)
    assert visits.published()[: len(before)] == before
    assert np.array_equal(visits.exact()[:3], exact[:3])
    assert visits.refresh(3).startswith("by_month has 4"), "there is no way back"


def test_late_rows_are_never_counted_and_this_is_said(visits: Visits) -> None:
    """A row that comes after its period closed is in no count of any period. Comment and dp_streams() say so."""
    visits.create()
    visits.refresh(3)
    before = visits.exact().sum()
    visits.put([("late", "2024-02-02", "a", 1), ("late", "2024-03-31", "a", 1)])
    visits.refresh()
    assert visits.exact()[:3].sum() == before, "late rows were counted where they belong"
    visits.put([("late", f"2024-{month:02}-01", "a", 1) for month in range(1, 7)])
    again = Visits()
    again.put(ROWS)
    again.create()
    again.refresh()
    assert np.array_equal(visits.exact(), again.exact()), "late rows were counted in a later period"
    again.con.close()
    comment = visits.con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'by_month'").fetchall()[0][0]
    (listed,) = visits.con.execute("SELECT late FROM dp_streams()").fetchall()[0]
    assert listed in comment and "after their period closed are never counted, in that period or a later" in listed


def test_a_fall_by_max_rows_is_said() -> None:
    """A person who comes monthly counts in the first months alone: CREATE, REFRESH, comment and dp_streams() say so."""
    monthly = Visits(budget="rho = 1000")
    monthly.put([(f"p{n}", f"2024-{month:02}-01", "a", 1) for month in range(1, 7) for n in range(50)])
    created = monthly.dp(STREAM.format(options=options("rho = 100"), source="visits"))
    said = [str(created[0][0]), *(monthly.refresh(month) for month in range(1, 7))]
    counts = [int(row[0]) for row in monthly.published("n") if row[0] > 25]
    assert len(counts) == MOST, "later months are empty, though as many persons came"
    assert all(text.endswith(FEWER) for text in said)
    comment = monthly.con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'by_month'").fetchall()[0][0]
    assert FEWER in comment
    assert monthly.con.execute("SELECT left_out FROM dp_streams()").fetchall() == [(FEWER,)]
    monthly.con.close()


@pytest.mark.slow
def test_units_of_several_columns(visits: Visits) -> None:
    """A stream of units that two columns hold together is that of a stored column of both, at each refresh."""
    made = []
    for unit, table in (("(person, wave)", "waves"), ("pair", "stored")):
        columns = "id INTEGER PRIMARY KEY, person VARCHAR, wave VARCHAR, pair INTEGER, came DATE, ward VARCHAR"
        visits.con.execute(f"CREATE TABLE {table} ({columns})")
        policy = POLICY.format(most=MOST, budget="rho = 1000").replace("UNIT person", f"UNIT {unit}")
        visits.dp(policy.replace("ON visits", f"ON {table}"))
        visits.con.execute(
            f"INSERT INTO {table} SELECT i, p, w, list_position([('a', 'bc'), ('ab', 'c'), ('a', 'c')], (p, w)), "
            "DATE '2024-01-01' + CAST(i * 8 AS INTEGER), ['a', 'b', NULL][i % 3 + 1] FROM (SELECT i, "
            "['a', 'ab', 'a', NULL][i % 4 + 1] AS p, ['bc', 'c', 'c', 'c'][i % 4 + 1] AS w FROM range(23) AS r(i))"
        )
        visits.dp("DROP PRIVATE STREAM IF EXISTS by_month")
        visits.create(options("rho = 9"), table)
        for month in (1, 3, PERIODS):
            visits.refresh(month)
        made.append(visits.exact())
    assert np.array_equal(made[0], made[1]) and made[0].sum() == 3 * MOST


def test_max_rows_are_of_the_whole_horizon(visits: Visits) -> None:
    """Of somebody with two rows in each month the first MAX ROWS are counted, the earliest first, and no others."""
    visits.con.execute("DELETE FROM visits")
    visits.put([("eve", f"2024-{month:02}-{day:02}", "a", 1) for month in range(1, 7) for day in (3, 4)])
    visits.create()
    for month in (1, 2, 5, 6):
        visits.refresh(month)
    assert visits.exact()[:, 0].tolist() == [2, 1, 0, 0, 0, 0]
    assert visits.exact().sum() == MOST


def test_the_same_statement_again_costs_nothing(visits: Visits) -> None:
    """DuckDB binds a statement more than once: neither making nor refreshing does anything a second time."""
    visits.create()
    visits.refresh(2)
    before = visits.published()
    visits.create()
    visits.con.execute("PREPARE again AS FROM dp('REFRESH PRIVATE STREAM by_month UNTIL ''2024-03-01''')")
    visits.con.execute("EXECUTE again").fetchall()
    assert (visits.spent(), visits.published()) == (1, before)


def test_periods_close_by_the_clock_alone() -> None:
    """A period is measured once its end has passed in UTC, whatever rows there are. UNTIL holds it back, no more."""
    visits = Visits()
    today = datetime.now(UTC).date()
    first = today.replace(day=1)
    start, end = (first - timedelta(days=1)).replace(day=1), (first + timedelta(days=80)).replace(day=1)
    visits.dp(f"ALTER PRIVACY POLICY ON visits SET DOMAIN came RANGE {start} TO {end} STEP MONTH")
    visits.dp(STREAM.format(options="epsilon = 1", source="visits"))
    said = visits.dp(f"REFRESH PRIVATE STREAM by_month UNTIL '{end}'")[0][0]
    assert said.startswith("by_month has 1 of 4 periods") or said.startswith("by_month has 1 of 3 periods")
    assert {row[0] for row in visits.published("came")} == {start}
    closes = visits.con.execute("SELECT closes, next_period FROM dp_streams()").fetchall()
    assert closes == [(datetime(first.year + first.month // 12, first.month % 12 + 1, 1), str(first))]
    visits.con.close()


@pytest.mark.slow
def test_the_budget_refuses_a_stream_as_any_statement(visits: Visits) -> None:
    """A stream beyond the budget is refused before the charge, and leaves nothing behind."""
    for _ in range(9):
        visits.create(options("epsilon = 100"))
        visits.dp("DROP PRIVATE STREAM by_month")
    visits.create(options("epsilon = 99"))
    visits.dp("DROP PRIVATE STREAM by_month")
    said = visits.refusal(STREAM.format(options=options("epsilon = 2"), source="visits"))
    assert "budget" in said and visits.spent() == 999
    assert visits.con.execute("FROM dp_streams()").fetchall() == []


@pytest.fixture(scope="module")
def unchanged() -> Iterator[Visits]:
    made = Visits()
    made.put(ROWS[:9])
    yield made
    assert made.spent() == 0, "something that was refused was charged for"
    made.con.close()


REFUSED = {
    "SELECT ward, count(*) AS n FROM visits GROUP BY ward": "0 keys of a stream are bins of time",
    "SELECT came, sum(number) AS n FROM visits GROUP BY came": "CLAMP",
    "SELECT came, count(DISTINCT ward) AS n FROM visits GROUP BY came": "is not published by a stream",
    "SELECT came, median(least(greatest(number, 0), 9)) AS n FROM visits GROUP BY came": "is not published by a stream",
    "SELECT came, number, count(*) AS n FROM visits GROUP BY came, number": "has no public domain",
    "SELECT came, count(*) AS n FROM visits GROUP BY RANGES(came)": "answers = 'totals'",
    "SELECT came, ward, count(*) AS n FROM visits GROUP BY CUBE (came, ward)": "period is not in every grouping set",
    "SELECT came, ward, count(DISTINCT person) AS n FROM visits GROUP BY came, CUBE (ward)": "these groups overlap",
    "SELECT came, count(*) AS n FROM visits GROUP BY PREFIXES(came)": "answers = 'totals'",
    "SELECT came, count(*) AS n FROM visits GROUP BY came ORDER BY n": "publishes each period as it closes",
    "SELECT came, count(*) AS n FROM visits GROUP BY came HAVING count(*) > 2": "publishes each period as it closes",
    "SELECT came, 2 * count(*) AS n FROM visits GROUP BY came": "its keys and its answers",
    "SELECT came, count(*) AS n, count(ward) AS n_total FROM visits GROUP BY came": "the name 'n_total'",
    "SELECT year(came) AS y, count(*) AS n FROM visits GROUP BY y": "0 keys of a stream are bins of time",
}


@pytest.mark.parametrize("select", REFUSED)
def test_what_is_refused(unchanged: Visits, select: str) -> None:
    """A stream that cannot be published is refused by name, in one free line that says what would be accepted."""
    said = unchanged.refusal(f"CREATE PRIVATE STREAM s OPTIONS (epsilon = 1) AS {select}")
    assert REFUSED[select] in said and "accepted:" in said and "\n" not in said


@pytest.mark.parametrize("clause", ["answers = 'totals'", "window = 3", "answers = 'window', window = 3"])
def test_persons_of_several_periods_are_refused(unchanged: Visits, clause: str) -> None:
    """A person may be in several periods, so totals and windows of persons are no sums, and are not published."""
    select = "SELECT came, count(DISTINCT person) AS persons FROM visits GROUP BY came"
    said = unchanged.refusal(f"CREATE PRIVATE STREAM s OPTIONS (epsilon = 1, {clause}) AS {select}")
    assert "of several periods is not the sum of theirs" in said and "max_rows_contributed = 1" in said


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("epsilon = 1, periods = 13", "the DOMAIN has 12 periods"),
        ("epsilon = 1, start = '2024-01-15'", "no period starts there"),
        ("epsilon = 1, answers = 'window'", "without a window"),
        ("epsilon = 1, late = 'arrival'", "'drop'"),
        ("epsilon = 1, strategy = 'haar'", "'factorisation'"),
        ("epsilon = 1, summary = 'threshold'", "for a stream"),
        ("epsilon = 1, summary_size = 10", "for a stream"),
        ("epsilon = 1, delta = 1e-6, max_groups_contributed = 1", "for a stream"),
        ("epsilon = 1, min_privacy_units_per_group = 5", "for a stream"),
        ("epsilon = 1, group_selection_strategy = LAPLACE_THRESHOLD", "for a stream"),
    ],
)
def test_options_that_are_refused(unchanged: Visits, clause: str, expected: str) -> None:
    """Summaries, thresholded keys and options out of range are refused with what would be accepted."""
    assert expected in unchanged.refusal(STREAM.format(options=clause, source="visits"))


@pytest.mark.parametrize("step", ["MONTH", "2 MONTHS", "7 DAYS"])
def test_edges_of_the_periods_are_refused_with_what_to_type(visits: Visits, step: str) -> None:
    """A draft's WITH EDGES is no period: the refusal has the ALTER, which is accepted as it stands."""
    end = "2024-12-30" if "DAYS" in step else "2025-01-01"
    visits.dp(f"ALTER PRIVACY POLICY ON visits SET DOMAIN came RANGE 2024-01-01 TO {end} STEP {step} WITH EDGES")
    statement = STREAM.format(options="epsilon = 1", source="visits")
    said = visits.refusal(statement)
    assert "which is no period" in said
    visits.dp(said.partition("accepted: ")[2])
    assert visits.dp(statement)


def test_units_that_a_stream_does_not_follow(visits: Visits) -> None:
    """Units by periods, prepared tables and joins of private tables are refused by name."""
    visits.con.execute("CREATE TABLE months AS FROM visits")
    visits.dp(
        "CREATE PRIVACY POLICY ON months (PRIVACY UNIT person PER MONTH OF came MAX ROWS 2, "
        "BUDGET (epsilon = 1) PER MONTH, DOMAIN came RANGE 2024-01-01 TO 2025-01-01 STEP MONTH)"
    )
    said = visits.refusal(
        "CREATE PRIVATE STREAM s OPTIONS (epsilon = 1) AS SELECT came, count(*) AS n FROM months GROUP BY came"
    )
    assert "accepted:" in said and "a person's month" in said
    visits.create()
    visits.dp("ALTER PRIVACY POLICY ON visits PREPARE")
    assert "UNPREPARE" in visits.refusal("REFRESH PRIVATE STREAM by_month")
    visits.dp("ALTER PRIVACY POLICY ON visits UNPREPARE")
    assert visits.refresh(1).startswith("by_month has 1")


def test_what_a_stream_rests_on(visits: Visits) -> None:
    """A budget, EXPECT ROWS or a new column changes nothing. MAX ROWS, a domain or an epoch ends the stream."""
    visits.create()
    visits.dp("ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 2000)")
    visits.con.execute("ALTER TABLE visits ADD COLUMN more INTEGER")
    visits.con.execute("INSERT INTO wards VALUES ('c', 'two')")
    assert visits.refresh(1).startswith("by_month has 1")
    for change in ("SET DOMAIN ward IN ('a', 'b', 'c')", "SET PRIVACY UNIT person MAX ROWS 4", "NEW EPOCH"):
        visits.dp(f"ALTER PRIVACY POLICY ON visits {change}")
        assert "changed: the unit, MAX ROWS" in visits.refusal("REFRESH PRIVATE STREAM by_month")
    assert len(visits.published()) == 3, "what was published stays"


def test_periods_of_a_column_that_is_no_date_any_more(visits: Visits) -> None:
    """A stream of such periods is not charged, since no refresh could count it. An existing one waits for the date."""
    visits.create()
    before = visits.spent()
    visits.con.execute("ALTER TABLE visits ALTER came TYPE VARCHAR")
    stream = "CREATE PRIVATE STREAM s OPTIONS (epsilon = 1) AS SELECT came, count(*) AS n FROM visits GROUP BY came"
    for statement in (stream, "REFRESH PRIVATE STREAM by_month UNTIL '2024-02-01'"):
        assert "is VARCHAR, and no longer a date" in visits.refusal(statement)
    assert visits.spent() == before
    visits.con.execute("ALTER TABLE visits ALTER came TYPE DATE")
    assert visits.refresh(1).startswith("by_month has 1")


def test_a_join_and_a_condition(visits: Visits) -> None:
    """Public joins, conditions that the database reads and conditions that a worker computes are a stream's, too."""
    visits.create(options("epsilon = 100"), "visits JOIN wards ON ward = name WHERE 7 / number >= 0 AND number > 3")
    visits.refresh(2)
    visits.refresh(6)
    kept: dict[str, int] = {}
    for person, _, ward, number in ROWS:
        kept[person] = kept.get(person, 0) + (ward is not None and number > 3)
    assert visits.exact().sum() == sum(min(MOST, rows) for rows in kept.values())


def test_names_of_streams(visits: Visits) -> None:
    """A view cannot replace, refresh or drop a stream's table. It is listed with its next period."""
    visits.create()
    assert "is a private stream" in visits.refusal("DROP PRIVATE VIEW by_month")
    assert "accepted:" in visits.refusal("REFRESH PRIVATE VIEW by_month")
    select = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"
    for word in ("", "OR REPLACE "):
        view = f"CREATE {word}PRIVATE VIEW by_month OPTIONS (epsilon = 1) AS {select}"
        assert "by_month" in visits.refusal(view)
    assert "is taken" in visits.refusal(STREAM.format(options=options("epsilon = 2"), source="visits"))
    assert "there is no private stream" in visits.refusal("REFRESH PRIVATE STREAM other")
    (row,) = visits.con.execute(
        "SELECT name, strategy, periods, published, next_period, refreshed_by FROM dp_streams()"
    ).fetchall()
    assert row == ("by_month", "periods", PERIODS, 0, "2024-01-01", "owner")
    comment = visits.con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'by_month'").fetchall()[0][0]
    assert "at most 3 rows over the whole horizon" in comment
    drop = visits.con.sql("FROM dp('DROP PRIVATE STREAM by_month')")  # bound for its columns, and for its rows
    assert drop.fetchall() == [("by_month is dropped; its budget stays spent",)]
    assert visits.dp("DROP PRIVATE STREAM IF EXISTS by_month") == [("there was no such stream",)]
    visits.create()
    assert visits.spent() == 2, "a stream that is made again is paid for again"


def test_what_dp_explain_compares(visits: Visits) -> None:
    """Every strategy is listed with each period's error for the question. Single periods take the plain mechanism."""
    for budget, asked, best in (
        ("epsilon = 1", "periods", "periods"),
        ("rho = 0.1", "totals", "factorisation"),
        ("rho = 0.1", "periods", "periods"),
    ):
        text = STREAM.format(options=f"{budget}, answers = '{asked}'", source="visits")
        if "rho" in budget:
            visits.con.close()
            visits = Visits(budget="rho = 10")
        rows = visits.con.execute(
            "SELECT strategy, chosen, worst_stderr, stderr_by_period, cells FROM dp_explain(?)", [text]
        ).fetchall()
        assert [row[0].split("_")[0] for row in rows if row[1]] == [best]
        assert {row[0].split("_")[0] for row in rows} == set(STRATEGIES)
        assert all(len(row[3]) == 12 and max(row[3]) == pytest.approx(row[2], abs=1e-6) for row in rows)
        assert {row[4] for row in rows} == {36}
        assert visits.spent() == 0


def test_a_part_of_the_unit_of_another_type(visits: Visits) -> None:
    """Records of units are texts of their parts' types: a column that became a text would be other units."""
    visits.con.execute("ALTER TABLE visits ALTER number TYPE BIGINT")
    visits.dp(POLICY.format(most=MOST, budget="epsilon = 9").replace("CREATE", "CREATE OR REPLACE").replace(
        "UNIT person", "UNIT (person, number)"))  # fmt: skip
    visits.create()
    visits.refresh(1)
    visits.con.execute("ALTER TABLE visits ALTER number TYPE VARCHAR")
    assert "rests on changed: the unit" in visits.refusal("REFRESH PRIVATE STREAM by_month UNTIL '2024-04-01'")
    visits.con.execute("ALTER TABLE visits ALTER number TYPE INTEGER")
    assert visits.refresh(3).startswith("by_month has 3")


def test_bounds_that_no_refresh_keeps(visits: Visits) -> None:
    """A refresh takes rows by MAX ROWS alone: no stream has a job with a price by groups, levels or norms."""
    select = "came, ward, count(DISTINCT person) AS p FROM visits GROUP BY came, ward"
    visits.dp(f"CREATE PRIVATE STREAM by_month OPTIONS ({options()}) AS SELECT {select}")
    asks = visits.asks()
    job, _, _ = require_stream(asks, 0)
    weighed = tuple(replace(one, norm=1) for one in job.aggregates)
    for other in (replace(job, groups=1), replace(job, levels=3), replace(job, aggregates=weighed)):
        assert other.unit_bounds != job.unit_bounds == (MOST,)
        with pytest.raises(InternalError, match="a stream does not follow"):
            require_stream([replace(ask, scan=replace(ask.scan, job=other)) for ask in asks], 0)
