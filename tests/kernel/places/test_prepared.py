"""Exact counts over twins, the prepared copies of tables, equal those over the tables, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import duckdb
import pytest

import dpduck
from dpduck.kernel.counting.exact import count_exactly, job_sql
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.places import prepared_writer
from dpduck.kernel.places.labels import Ask, evaluate_on_labels
from dpduck.kernel.places.prepared import PreparedTable, over_prepared
from dpduck.kernel.places.prepared_writer import Layout, false_facts_sql, write_prepared
from dpduck.kernel.places.rows import LIVE, LiveRows
from dpduck.kernel.queries.key_counts import count_keys
from dpduck.kernel.queries.keys import read_groups
from dpduck.kernel.rows.bounding import BoundingFacts, bound_rows_sql
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.kernel.units import ROWS, Referenced, lookup_sql, unit_type
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.compiled import text_of
from dpduck.language.rows.relation import RowReading, relation_of
from dpduck.language.text.names import TableName
from dpduck.mechanisms.cubes.measure import scans_of
from dpduck.store.catalog import Catalog
from dpduck.store.policies import PolicyStore
from dpduck.store.prepared import cuts_of
from dpduck.values.errors import InternalError
from dpduck.values.quoting import quote_identifier
from tests.mechanisms.cubes.aggregate_clinic import open_stays, plan_of
from tests.support.nodes import adds, by_digest, columns_of, compiled, own_of, selected

KEY = b"key"
WORKERS = Workers()
STAYS = columns_of(
    {'"r0"."big"': "BIGINT", '"r0"."dec"': "DECIMAL(18,3)", '"r0"."text"': "VARCHAR", '"r0"."flag"': "BOOLEAN"}
)
BEGIN = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "
STATEMENTS = (
    "sex, ward, count(*) AS n FROM stays GROUP BY sex, ward",
    "count(*) AS n FROM stays",
    "ward, count(*) AS n FROM stays GROUP BY CUBE (ward, sex, flag)",
    "ward, sum(big) AS s, avg(real) AS m, count(*) AS n FROM stays GROUP BY ward",
    "ward, count(DISTINCT who) AS n FROM stays GROUP BY ward",
    "ward, count(*) FILTER (WHERE flag) AS n FROM stays WHERE big > 0 GROUP BY ward",
    "moment, count(*) AS n FROM stays WHERE sex = 'F' GROUP BY moment",
    "sex, count(*) AS n FROM stays WHERE length(text) + 1 > 2 GROUP BY sex",
    "CASE WHEN ward = 'w0' THEN 'a' ELSE 'b' END AS k, count(*) AS n FROM stays GROUP BY k",
    "sex, stddev(real) AS d FROM stays GROUP BY sex",
    "sex, count(*) AS n FROM (FROM stays WHERE big > 0 UNION ALL FROM stays WHERE flag) GROUP BY sex",
)


def layout_of(connection: duckdb.DuckDBPyConnection, name: str) -> Layout:
    """Returns the layout of the twin of a table."""
    with connection.cursor() as cursor:
        catalog = Catalog(cursor, PolicyStore(connection.cursor, "private", dict))
        table = TableName(("memory", "main", name))
        policy = catalog.policy(table)
        assert policy is not None
        relation = relation_of(table, policy, RowReading(catalog, {}))
        columns = tuple((column.name, column.type_name) for column in relation.columns)
        content = tuple(f'"r0"."{name}"' for name in relation.row_key)
        lookup, own = relation.person, policy.unit.column
        rows = f'{relation.sql} AS "r0"'
        if isinstance(lookup, Referenced):
            chain = lookup_sql(lookup).replace(f"{ROWS}.", '"r0".').replace('"dpduck_rows".', '"r0".')
            chain = chain.replace('"dpduck_reference"', quote_identifier(lookup.reference.name))
            rows, own = f"{rows} {chain.replace('JOIN ', 'LEFT JOIN ')}", "dpduck_person"
        links = frozenset(name for name, _ in relation.links) | {own or ""}
        cuts = () if lookup is None else cuts_of(policy, columns)
        return Layout(rows, columns, content, lookup, unit_type(lookup), own, policy.domains, links, cuts)


def prepared(
    connection: duckdb.DuckDBPyConnection, *names: str
) -> tuple[duckdb.DuckDBPyConnection, dict[str, PreparedTable]]:
    """Returns a database with twins of the tables."""
    other, twins = duckdb.connect(), {}
    keep_plans_plain(other)
    for name in names or ("stays",):
        layout, steps = layout_of(connection, name), list[str]()
        twin = f'"memory"."main"."{name}_twin"'
        with connection.cursor() as cursor, other.cursor() as second:
            write_prepared(cursor, second, layout, twin, KEY, steps.append)
        assert steps[0] == "reading rows"
        own = layout.unit != "dpduck_person"
        twins[f'"memory"."main"."{name}"'] = PreparedTable(
            twin, layout.domains, layout.unit, layout.unit_type, own, layout.cuts
        )
    return other, twins


def jobs_of(connection: duckdb.DuckDBPyConnection, statement: str) -> list[CountingJob]:
    return [scan.job for scan in scans_of(plan_of(connection, BEGIN + statement))]


def asked(cursor: duckdb.DuckDBPyConnection) -> Ask:
    return partial(evaluate_on_labels, cursor, WORKERS)


def cells(cursor: duckdb.DuckDBPyConnection, job: object) -> dict[tuple[int, ...], list[int]]:
    """Returns exact tables by cell, without cells that are empty."""
    assert isinstance(job, CountingJob)
    counts = count_exactly(cursor, job, KEY, WORKERS)
    places = list(zip(*(codes.tolist() for codes in counts._exact_coordinates), strict=True))
    found: dict[tuple[int, ...], list[int]] = {}
    for number, values in enumerate(counts._exact_counts.T.tolist()):
        place = places[number] if places else ()
        known = found.setdefault(place, [0] * len(values))
        found[place] = [(one + more) % (1 << 64) for one, more in zip(known, values, strict=True)]
    return {place: values for place, values in found.items() if any(values)}


def differing(
    connection: duckdb.DuckDBPyConnection, statements: Sequence[str], *names: str
) -> list[tuple[str, object, object]]:
    """Lists statements that are counted otherwise over twins, or over twins of policies with more MAX ROWS."""
    other, twins = prepared(connection, *names)
    wrong: list[tuple[str, object, object]] = []
    for statement in statements:
        for job in jobs_of(connection, statement):
            with connection.cursor() as cursor:
                plain = cells(cursor, job)
            for known in (twins, roomy(twins)):
                with other.cursor() as second:
                    twin = cells(second, over_prepared(job, known, {}, asked(second)))
                if plain != twin:
                    wrong.append((statement, plain, twin))
    return wrong


def roomy(twins: dict[str, PreparedTable]) -> dict[str, PreparedTable]:
    """Returns the twins with a MAX ROWS above that of each statement, so that most units have too many rows."""
    return {name: replace(twin, max_rows=1000) for name, twin in twins.items()}


@pytest.mark.sampled
@pytest.mark.parametrize("unit", ["who MAX ROWS 1", "who MAX ROWS 3", "who MAX ROWS 40", "ROW"])
def test_counts_are_those_of_the_table(unit: str) -> None:
    """Counts are the table's for units with few or too many rows, values outside domains, NULL units, and workers."""
    chosen = [text for text in STATEMENTS if unit != "ROW" or ("UNION" not in text and "DISTINCT" not in text)]
    with open_stays(unit) as connection:
        assert differing(connection, chosen) == []


def test_units_inside_of_domains_need_no_rank() -> None:
    """Where no condition drops rows, the kept rows of a unit inside all domains follow from their stored places."""
    with open_stays("who MAX ROWS 3") as connection:
        connection.execute(
            "UPDATE stays SET sex = 'F', ward = 'w1', text = 'a', moment = TIMESTAMP '2024-03-01', real = 1"
        )
        other, twins = prepared(connection)
        (job,) = jobs_of(connection, STATEMENTS[0])
        twin = over_prepared(job, twins, {}, asked(other))
        assert isinstance(twin, CountingJob)
        assert "dpduck_of_unit > 3 AND dpduck_open = 0 AND dpduck_order <= 3" in job_sql(twin)
        (filtered,) = jobs_of(connection, STATEMENTS[6])
        assert "dpduck_open = 0" not in job_sql(over_prepared(filtered, twins, {}, asked(other)))
        assert "dpduck_of_unit > 3" in job_sql(over_prepared(filtered, twins, {}, asked(other)))
        ranked = over_prepared(filtered, roomy(twins), {}, asked(other))
        assert "dpduck_of_unit > 3" not in job_sql(ranked)
        assert "dpduck_open = 0" in job_sql(over_prepared(job, roomy(twins), {}, asked(other)))
        assert other.execute("SELECT max(dpduck_open_rows) FROM stays_twin").fetchone() == (0,)
        assert differing(connection, STATEMENTS) == []


@pytest.mark.sampled
@pytest.mark.parametrize("size", [255, 256, 257])
@pytest.mark.parametrize("more", ["", " WITH NULL", " WITH OTHER", " WITH NULL WITH OTHER"])
def test_texts_are_what_they_were(size: int, more: str) -> None:
    """Texts are read from the labels of their codes, and texts outside of the domain from where they were stored."""
    with dpduck.connect() as connection:
        connection.execute("CREATE TABLE texts AS SELECT i // 3 AS u, 'é' || i % 300 AS t FROM range(3000) AS r(i)")
        connection.execute("UPDATE texts SET t = NULL WHERE hash(t, u) % 7 = 0")
        values = ", ".join(f"'é{i}'" for i in range(size))
        policy = f"PRIVACY UNIT u MAX ROWS 2, BUDGET (epsilon = 9), DOMAIN t IN ({values}){more}"
        connection.execute(f"FROM dp($$CREATE PRIVACY POLICY ON texts ({policy})$$)")
        other, _ = prepared(connection, "texts")
        rows = "SELECT u, t, count(*) FROM {} GROUP BY ALL ORDER BY ALL"
        plain = connection.execute(rows.format("texts")).fetchall()
        assert other.execute(rows.format("texts_twin")).fetchall() == plain
        assert differing(connection, ["t, count(*) AS n FROM texts GROUP BY t"], "texts") == []


def test_an_empty_table_is_prepared() -> None:
    """A table without rows has a twin without rows."""
    with open_stays() as connection:
        connection.execute("DELETE FROM stays")
        assert differing(connection, STATEMENTS) == []


@pytest.mark.parametrize(
    "damage",
    [
        "dpduck_rows_of_unit = 1",
        "dpduck_place = 1, dpduck_open_rows = 0",
        "dpduck_unit = 7",
        "dpduck_rows_of_unit = NULL",
        "dpduck_open_rows = dpduck_place % 2",
    ],
)
def test_what_is_said_of_units_is_counted_again(damage: str) -> None:
    """A twin that records too little of its units' rows is noticed: its rows are counted again when it is written."""
    with open_stays() as connection:
        other, _ = prepared(connection)
        assert other.execute(false_facts_sql("stays_twin")).fetchall() == [(0,)]
        other.execute(f"UPDATE stays_twin SET {damage} WHERE dpduck_unit IS NOT NULL")
        (miscounted,) = other.execute(false_facts_sql("stays_twin")).fetchone() or (0,)
        assert miscounted > 0


def test_a_twin_that_says_too_little_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of the writer is an error before any statement could count over its rows."""
    right = prepared_writer._rank_again

    def careless(second: duckdb.DuckDBPyConnection, layout: Layout, twin_sql: str) -> None:
        right(second, layout, twin_sql)
        second.execute(f"UPDATE {twin_sql} SET dpduck_rows_of_unit = 1 WHERE dpduck_unit IS NOT NULL")

    monkeypatch.setattr(prepared_writer, "_rank_again", careless)
    with open_stays() as connection, pytest.raises(InternalError, match="does not say of its units what it holds"):
        prepared(connection)


TIED = {
    "HUGEINT": ("0", "-1"),
    "DECIMAL(38,0)": ("0", "-1"),
    "DOUBLE": ("'0.0'::DOUBLE", "'-0.0'::DOUBLE"),
    "FLOAT": ("'0.0'::FLOAT", "'-0.0'::FLOAT"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("type_name", sorted(TIED))
@pytest.mark.parametrize("most", [1, 2])
def test_rows_that_the_order_leaves_tied(type_name: str, most: int) -> None:
    """Unlike rows of one hash are kept by the outputs of the statement, whatever rows lie beside them."""
    low, high = TIED[type_name]
    assert duckdb.sql(f"SELECT hash(7, {low}::{type_name}) = hash(7, {high}::{type_name})").fetchall() == [(True,)]
    with dpduck.connect() as connection:
        connection.execute(f"CREATE TABLE ties (u INTEGER, x {type_name}, k INTEGER)")
        connection.execute(f"INSERT INTO ties SELECT i // 4, [{low}, {high}][i % 2 + 1], 1 FROM range(4000) AS r(i)")
        domain = f"DOMAIN k IN (1), DOMAIN x IN ({low}, {high})" if type_name not in ("DOUBLE", "FLOAT") else ""
        policy = f"PRIVACY UNIT u MAX ROWS {most}, BUDGET (epsilon = 9), {domain or 'DOMAIN k IN (1)'}"
        connection.execute(f"FROM dp($$CREATE PRIVACY POLICY ON ties ({policy})$$)")
        flag = "CAST(x AS VARCHAR) IN ('-0.0', '-1')"
        statements = [f"k, count(*) FILTER (WHERE {flag}) AS n FROM ties GROUP BY k"]
        statements += ["x, k, count(*) AS n FROM ties GROUP BY x, k"] if "x IN" in domain else []
        assert differing(connection, statements, "ties") == []
        connection.execute("DELETE FROM ties WHERE u % 7 = 3")
        assert differing(connection, statements, "ties") == []


def test_rows_that_are_alike_need_no_rank() -> None:
    """Rows that are the same in all columns are interchangeable, so that their unit needs no ranking."""
    with dpduck.connect() as connection:
        connection.execute(
            "CREATE TABLE same AS SELECT i // 3 AS u, 'a' AS t, 0.5 AS x, 1 AS k FROM range(300) AS r(i)"
        )
        policy = "PRIVACY UNIT u MAX ROWS 2, BUDGET (epsilon = 9), DOMAIN k IN (1)"
        connection.execute(f"FROM dp($$CREATE PRIVACY POLICY ON same ({policy})$$)")
        other, _ = prepared(connection, "same")
        found = other.execute("SELECT DISTINCT dpduck_place, dpduck_open_rows FROM same_twin ORDER BY ALL").fetchall()
        assert found == [(1, 0), (2, 0), (3, 0)]
        assert differing(connection, ["k, count(*) AS n FROM same GROUP BY k"], "same") == []


def test_unlike_rows_of_one_place_open_their_unit() -> None:
    """0 and -0 have one hash: their unit counts as one with rows outside of a domain, and is ranked anew."""
    with dpduck.connect() as connection:
        connection.execute(
            "CREATE TABLE ties AS SELECT i // 2 AS u, ['0.0'::DOUBLE, '-0.0'::DOUBLE][i % 2 + 1] AS x, 1 AS k "
            "FROM range(100) AS r(i)"
        )
        policy = "PRIVACY UNIT u MAX ROWS 1, BUDGET (epsilon = 9), DOMAIN k IN (1)"
        connection.execute(f"FROM dp($$CREATE PRIVACY POLICY ON ties ({policy})$$)")
        other, _ = prepared(connection, "ties")
        assert other.execute("SELECT DISTINCT dpduck_open_rows, dpduck_place FROM ties_twin").fetchall() == [(1, 1)]


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("placed", [False, True])
def test_no_more_rows_of_a_unit_are_kept(once: bool, placed: bool) -> None:
    """At most three rows of each unit are kept, in order of place, whether a place, a number or a rank decides."""
    rows = (
        "SELECT u AS dpduck_unit, p AS dpduck_order, u AS dpduck_of_unit, u % 2 AS dpduck_open "
        "FROM range(1, 9) AS units(u), LATERAL range(1, u + 1) AS places(p)"
    )
    sql = bound_rows_sql(rows, ["dpduck_unit", "dpduck_order"], 3, BoundingFacts(once, placed))
    found = duckdb.sql(
        f"SELECT dpduck_unit, list(dpduck_order ORDER BY dpduck_order) FROM ({sql}) GROUP BY 1"
    ).fetchall()
    assert dict(found) == {unit: list(range(1, min(unit, 3) + 1)) for unit in range(1, 9)}


def test_rows_that_are_repeated_are_not_taken_for_counted_ones() -> None:
    """A job whose join repeats rows is not counted over prepared rows, since they record each unit's number of rows."""
    with open_stays() as connection:
        other, twins = prepared(connection)
        other.execute("CREATE TABLE wards AS FROM (VALUES ('w0', 1), ('w0', 2), ('w1', 1)) AS w(name, floor)")
        statement = "floor, count(*) AS n FROM stays JOIN wards ON ward = name GROUP BY floor"
        (job,) = jobs_of(connection, statement.replace("floor, count", "sex, count").replace("BY floor", "BY sex"))
        twin = over_prepared(job, twins, {'"memory"."main"."wards"': '"memory"."main"."wards"'}, asked(other))
        assert twin.place == LIVE
        with connection.cursor() as cursor, other.cursor() as second:
            assert cells(cursor, job) == cells(second, twin)
        with pytest.raises(InternalError, match="repeat rows"):
            replace(twin, place=numbered(twins, connection))


FAMILY = (
    "CREATE TABLE patients (id INTEGER PRIMARY KEY, sex VARCHAR)",
    "INSERT INTO patients SELECT i, ['F', 'M', 'x'][i % 3 + 1] FROM range(20) AS r(i)",
    "CREATE TABLE visits (visit UUID PRIMARY KEY, patient INTEGER, ward VARCHAR)",
    "INSERT INTO visits SELECT CAST(md5(CAST(i AS VARCHAR)) AS UUID), i * i % 23, ['a', 'b'][i % 2 + 1] "
    "FROM range(60) AS r(i)",
    "CREATE TABLE items (item INTEGER, visit UUID, kind HUGEINT)",
    "INSERT INTO items SELECT i, CAST(md5(CAST(i * i % 67 AS VARCHAR)) AS UUID), i % 4 FROM range(300) AS r(i)",
)
POLICIES = (
    "patients (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 9), DOMAIN sex IN ('F', 'M') WITH OTHER)",
    "visits (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2, DOMAIN ward IN ('a', 'b') WITH NULL)",
    "items (PRIVACY UNIT visit REFERENCES visits.visit MAX ROWS 5, DOMAIN kind IN (0, 1, 2))",
)
FAMILY_STATEMENTS = (
    "kind, count(*) AS n FROM items GROUP BY kind",
    "kind, count(*) AS n FROM items WHERE item % 3 = 0 GROUP BY kind",
    "ward, kind, count(*) AS n FROM items JOIN visits ON items.visit = visits.visit GROUP BY ward, kind",
    "sex, ward, count(*) AS n FROM patients JOIN visits ON patient = id GROUP BY sex, ward",
    "sex, count(*) AS n FROM patients LEFT JOIN visits ON patient = id GROUP BY sex",
    "ward, count(*) AS n FROM patients LEFT JOIN visits ON patient = id GROUP BY ward",
    "count(*) AS n FROM patients LEFT JOIN visits ON patient = id WHERE ward IS NULL OR ward = 'a'",
    "sex, count(*) AS n FROM patients JOIN visits ON patient = id WHERE lower(ward) = 'a' OR upper(sex) > 'F' "
    "GROUP BY sex",
    "sex, ward, count(*) AS n FROM patients JOIN visits ON patient = id AND upper(ward) = 'B' GROUP BY sex, ward",
    "ward, count(*) AS n FROM visits SEMI JOIN patients ON id = patient GROUP BY ward",
    "kind, count(*) AS n FROM (SELECT kind FROM items UNION ALL SELECT kind FROM items WHERE item > 9) GROUP BY kind",
    "n, count(*) AS m FROM (SELECT patient, count(*) AS n FROM visits GROUP BY patient) GROUP BY n",
    "w, count(*) AS m FROM (SELECT id, any_value(ward) AS w, count(*) FILTER (WHERE ward = 'a') AS n FROM patients "
    "JOIN visits ON patient = id GROUP BY id) WHERE n > 0 GROUP BY w",
    "ward, before, count(*) AS m FROM (SELECT ward, lag(ward) OVER (PARTITION BY id ORDER BY upper(ward)) AS before "
    "FROM patients JOIN visits ON patient = id) GROUP BY ward, before",
    "count(*) AS n FROM (SELECT item, visit FROM items UNION ALL SELECT item, visit FROM items) AS i "
    "JOIN visits ON i.visit = visits.visit",
)


@pytest.mark.slow
def test_units_are_found_through_references() -> None:
    """Items of visits of patients: the writer of a twin looks up units, and finds none for rows without a parent."""
    with dpduck.connect() as connection:
        for statement in (*FAMILY, *(f"FROM dp($$CREATE PRIVACY POLICY ON {policy}$$)" for policy in POLICIES)):
            connection.execute(statement)
        jobs = [job for statement in FAMILY_STATEMENTS for job in jobs_of(connection, statement)]
        assert any(isinstance(job.unit, Referenced) for job in jobs)
        assert differing(connection, FAMILY_STATEMENTS, "patients", "visits", "items") == []


def groups(cursor: duckdb.DuckDBPyConnection, job: object) -> list[tuple[object, ...]]:
    """Returns exact counts by groups with private keys."""
    assert isinstance(job, CountingJob)
    with read_groups(cursor, job, KEY, WORKERS) as batches:
        return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)


@pytest.mark.parametrize("most", [1, 2, 9])
def test_groups_with_private_keys_are_those_of_the_table(most: int) -> None:
    """Twins and tables choose the same groups of a unit, one, two or all: its number in the twin has no part in it."""
    with open_stays("who MAX ROWS 3", 60) as connection:
        other, twins = prepared(connection)
        aggregates = adds(""), compiled(adds('"r0"."flag"'), STAYS)
        for statement in (STATEMENTS[0], STATEMENTS[5], STATEMENTS[7]):
            rows = replace(jobs_of(connection, statement)[0], aggregates=aggregates)
            for text in ('CAST("r0"."text" AS VARCHAR)', 'lower("r0"."text")'):
                job = selected(rows, (text_of(text, STAYS),), most)
                with connection.cursor() as cursor, other.cursor() as second:
                    found = groups(cursor, job)
                    assert len(found) > 3
                    assert groups(second, over_prepared(job, twins, {}, asked(second))) == found


BIG, DEC = 'CAST("r0"."big" AS DOUBLE)', 'CAST("r0"."dec" AS DOUBLE)'
WRITTEN = (
    adds(""),
    adds('"r0"."flag"', "sum", BIG, Fraction(-50), Fraction(100), 150, centre=Fraction(25)),
    adds("", "valued", DEC, Fraction(0), Fraction(10), 10_000),
)
SUMMED = tuple(compiled(one, STAYS) for one in WRITTEN)
TEXT = text_of('CAST("r0"."text" AS VARCHAR)', STAYS)


@pytest.mark.parametrize("by_group", ["", "sum", "average"])
@pytest.mark.parametrize(("most", "norm"), [(1, 0), (9, 0), (9, 1)])
def test_sums_by_private_keys_are_those_of_the_table(most: int, norm: int, by_group: str) -> None:
    """Sums and counts of values are equal over twins, by rows and by group, for some groups or all, weighted or not."""
    with open_stays("who MAX ROWS 3", 60) as connection:
        other, twins = prepared(connection)
        summed = (SUMMED[0], *(replace(one, per_group=by_group) for one in SUMMED[1:]))
        aggregates = tuple(replace(one, norm=norm * 2 * one.bound**2) for one in summed)
        rows = replace(jobs_of(connection, STATEMENTS[0])[0], aggregates=aggregates)
        job = selected(rows, (TEXT,), most)
        with connection.cursor() as cursor, other.cursor() as second:
            found = groups(cursor, job)
            assert len(found) > 3
            assert groups(second, over_prepared(job, twins, {}, asked(second))) == found


def test_counts_by_digests_of_keys_are_those_of_the_table() -> None:
    """Projections, histograms and sessions, which count by the digest of a key, have the counts of the table."""
    with open_stays("who MAX ROWS 2", 60) as connection:
        other, twins = prepared(connection)
        rows = replace(jobs_of(connection, STATEMENTS[6])[0], keys=(), attributes=())
        job = by_digest(rows, own_of('CAST("r0"."text" AS VARCHAR)', STAYS))
        with connection.cursor() as cursor, other.cursor() as second:
            plain = count_keys(cursor, job, KEY, WORKERS)
            twin = count_keys(second, over_prepared(job, twins, {}, asked(second)), KEY, WORKERS)
        assert len(plain._exact_counts) > 2
        for name in ("_exact_high", "_exact_low", "_exact_counts"):
            assert getattr(plain, name).tolist() == getattr(twin, name).tolist()


def numbered(twins: dict[str, PreparedTable], connection: duckdb.DuckDBPyConnection) -> LiveRows:
    """Returns the facts about prepared rows that a job without joins relies on."""
    return over_prepared(jobs_of(connection, STATEMENTS[0])[0], twins, {}, asked(connection)).place


def test_another_units_rows_are_what_they_were() -> None:
    """On neighbouring tables, everything that is written of the other units' rows is the same."""
    with open_stays("who MAX ROWS 3") as connection:
        rows = "(SELECT * EXCLUDE (dpduck_unit) FROM stays_twin WHERE who <> {}) AS t"
        texts = f"SELECT CAST(t AS VARCHAR) FROM {rows} ORDER BY 1"
        found = connection.execute("SELECT who FROM stays WHERE who IS NOT NULL GROUP BY who ORDER BY count(*) DESC")
        for (who,) in found.fetchall()[:2]:
            before = prepared(connection)[0].execute(texts.format(who)).fetchall()
            assert len(before) > 30
            connection.execute(f"DELETE FROM stays WHERE who = {who}")
            assert prepared(connection)[0].execute(texts.format(who)).fetchall() == before
