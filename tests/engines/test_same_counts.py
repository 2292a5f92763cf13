"""An engine counts what DuckDB counts, cell by cell."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.database.functions import database_of
from tests.engines.conftest import Lake
from tests.engines.corpus import POLICY, STATEMENTS, rows
from tests.test_sql_reference import PAGES


def visits(lake: Lake, unit: str, count: int = 1500) -> None:
    lake.public("wards", "FROM (VALUES ('north'), ('south'), ('west'), ('nörth')) AS t(name)")
    lake.put(2, visits=rows(count), files=2)
    lake.dp(POLICY.format(unit=unit))


@pytest.mark.slow
def test_every_form_of_statement(lake: Lake) -> None:
    """Awkward values, texts, moments, sums, quantiles, joins, keys, summaries, synthetic data and projections."""
    visits(lake, "patient_id MAX ROWS 3")
    found = {title: lake.same(statement) for title, statement in STATEMENTS.items()}
    assert all(found.values()), "each counts something"


@pytest.mark.slow
def test_more_rows_of_a_unit_and_rows_that_are_units(lake: Lake) -> None:
    """MAX ROWS 40 counts crowded units first. Where each row is a unit nothing is bounded."""
    visits(lake, "patient_id MAX ROWS 40", 1000)
    for title in ("three keys", "texts", "sums", "keys"):
        assert lake.same(STATEMENTS[title]) is not None, title
    lake.put(2, "pond", files=2, alone=rows(500))
    lake.dp(POLICY.format(unit="ROW").replace("lake.db.visits", "pond.db.alone"))
    for title in ("three keys", "texts", "public join"):
        assert lake.same(STATEMENTS[title].replace("lake.db.visits", "pond.db.alone")) is not None, title


@pytest.mark.slow
def test_statements_of_the_reference(lake: Lake) -> None:
    """All that docs/sql.md asks, over tables of one engine. There lines name the customer, for want of a key."""
    made = [
        "CREATE TABLE customers AS SELECT i AS id, ['north', 'south'][i % 2 + 1] AS region FROM range(300) AS r(i)",
        "CREATE TABLE orders AS SELECT i AS order_id, i // 3 AS customer, i % 5 AS priority FROM range(900) AS r(i)",
        "CREATE TABLE lines AS SELECT i // 4 AS of_order, i // 12 AS buyer, ['pen', 'ink'][i % 2 + 1] AS item, "
        "i % 100 AS price, 'note ' || i % 3 AS note FROM range(3600) AS r(i)",
        "CREATE TABLE stays AS SELECT i AS guest, DATE '2014-01-01' + CAST(i % 365 AS INTEGER) AS arrived "
        "FROM range(500) AS r(i)",
    ]
    for sql in made:
        lake.here.execute(sql)
    names = ("customers", "orders", "lines", "stays")
    lake.put(2, files=2, **{name: lake.here.execute(f"FROM main.{name}").to_arrow_table() for name in names})
    lake.public("items", "FROM (VALUES ('pen', 'tool'), ('ink', 'fluid'), ('nib', 'part')) AS i(item, kind)")
    asked = 0
    for text in re.findall(r"FROM dp\(\$\$(?! \.\. )(.*?)\$\$\)", PAGES["sql"], re.DOTALL):
        statement = text.replace("of_order REFERENCES orders.order_id", "buyer REFERENCES lake.db.customers.id")
        statement = statement.replace("REFERENCES customers.id", "REFERENCES lake.db.customers.id")
        statement = statement.replace("of_order = order_id", "of_order = order_id AND buyer = customer")
        statement = statement.replace("(SELECT of_order FROM", "(SELECT of_order, buyer FROM")
        statement = re.sub(r"(ON|FROM|JOIN) (customers|orders|lines|stays)\b(?!\.)", r"\1 lake.db.\2", statement)
        if "WITH DIFFERENTIAL" in statement or "PRIVATE VIEW" in statement:
            lake.same(statement)
            asked += 1
        elif "PUBLIC" not in statement:
            lake.dp(statement)
    assert asked > 14
    assert lake.con.execute("FROM dp_check('lake.db.lines')").fetchall()


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 4)),
        st.one_of(st.none(), st.sampled_from(["a", "b", "ä", "", "12", " 7"])),
        st.one_of(st.none(), st.floats(width=64), st.sampled_from([0.0, -0.0, 1e300])),
    ),
    min_size=1,
    max_size=25,
)


def test_any_rows(lake: Lake) -> None:
    """Whatever rows there are, an order over them adds up to what DuckDB counts."""
    kinds = {"u": pa.int64(), "t": pa.string(), "x": pa.float64()}
    lake.put(4, made=pa.table({name: pa.array([], kind) for name, kind in kinds.items()}))
    lake.dp(
        "CREATE PRIVACY POLICY ON lake.db.made (PRIVACY UNIT u MAX ROWS 2, BUDGET (epsilon = 1000000), "
        "DOMAIN t IN ('a', 'ä', '') WITH OTHER 'rest', CLAMP x BETWEEN -1 AND 1 STEP 0.1)"
    )
    statement = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = '{}') t, count(*), sum(x) "
        "FROM lake.db.made WHERE x > 0.5 OR try_cast(t AS INTEGER) > 6 OR x IS NULL GROUP BY t"
    )
    loaded = database_of(lake.con)
    assert loaded is not None
    engine = loaded.engines._engines["lake"][0]
    number = 0

    @settings(max_examples=5)
    @given(ROWS)
    def check(made: list[tuple[int | None, str | None, float | None]]) -> None:
        nonlocal number
        number += 1
        columns = list(zip(*made, strict=True)) or [(), (), ()]
        table = pa.table({n: pa.array(c, kinds[n]) for n, c in zip("utx", columns, strict=True)})
        lake.here.register("given", table)
        lake.here.execute("DELETE FROM lake.db.made; INSERT INTO lake.db.made FROM given")
        frame = engine.made_up(table, 3)
        object.__setattr__(engine, "carry", lambda places, buckets, order: engine.carry_frames(
            dict.fromkeys(places, frame), places, buckets, order))  # fmt: skip
        lake.same(statement.format(number))

    check()
