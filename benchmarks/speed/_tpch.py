"""TPC-H for differential privacy: dbgen's tables, policies with the customer as privacy unit, and annotated queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import duckdb_extension_tpch

TABLES = ("customer", "orders", "lineitem", "supplier", "nation", "region", "part")
PUBLIC = ("supplier", "nation", "region", "part")
KEYS = {
    "customer": "c_custkey",
    "orders": "o_orderkey",
    "lineitem": "l_orderkey, l_linenumber",
    "supplier": "s_suppkey",
    "nation": "n_nationkey",
    "region": "r_regionkey",
    "part": "p_partkey",
}
POLICIES = (
    """CREATE PRIVACY POLICY ON customer (PRIVACY UNIT c_custkey MAX ROWS 1, BUDGET (epsilon = 100000),
        DOMAIN c_mktsegment IN ('AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'))""",
    """CREATE PRIVACY POLICY ON orders (PRIVACY UNIT o_custkey REFERENCES customer.c_custkey MAX ROWS 32,
        DOMAIN o_orderpriority IN ('1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'),
        DOMAIN o_orderdate RANGE '1992-01-01' TO '1999-01-01' STEP INTERVAL 1 MONTH, DOMAIN o_shippriority IN (0))""",
    """CREATE PRIVACY POLICY ON lineitem (PRIVACY UNIT l_orderkey REFERENCES orders.o_orderkey MAX ROWS 128,
        DOMAIN l_returnflag IN ('A', 'N', 'R'), DOMAIN l_linestatus IN ('F', 'O'),
        DOMAIN l_shipmode IN ('AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK'),
        CLAMP l_quantity BETWEEN 0 AND 50 STEP 1, CLAMP l_extendedprice BETWEEN 0 AND 105000 STEP 1,
        CLAMP l_discount BETWEEN 0 AND 0.1 STEP 0.01, CLAMP l_tax BETWEEN 0 AND 0.08 STEP 0.01)""",
)
_REVENUE = "sum(l_extendedprice * (1 - l_discount))"
_OWN_MONTH = "CAST(date_trunc('month', o_orderdate) AS DATE)"


@dataclass(frozen=True)
class Query:
    """A query of TPC-H: its text before FROM, and everything from FROM on.

    exact_rest, exact_select: DuckDB's own form, where the annotated one differs. keys: leading columns that group.
    max_rows: rows of a customer that the conditions on dates and modes can be expected to leave, 0 for MAX ROWS.
    """

    number: int
    select: str
    rest: str
    keys: int
    exact_select: str = ""
    exact_rest: str = ""
    max_rows: int = 0

    def annotated(self, tag: str, epsilon: str = "1") -> str:
        """The statement at a price. Another tag makes another release."""
        options = f"epsilon = {epsilon}, refresh = '{tag}'"
        if self.max_rows:
            options += f", max_rows_contributed = {self.max_rows}"
        return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) {self.select} {self.rest}"

    @property
    def exact(self) -> str:
        return f"SELECT {self.exact_select or self.select} {self.exact_rest or self.rest}"


QUERIES = (
    Query(
        1,
        f"l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), {_REVENUE}, "
        "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice), "
        "avg(l_discount), count(*)",
        "FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus "
        "ORDER BY l_returnflag, l_linestatus",
        2,
    ),
    Query(
        3,
        f"o_orderdate, o_shippriority, {_REVENUE} AS revenue",
        "FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey "
        "WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15' "
        "GROUP BY o_orderdate, o_shippriority ORDER BY revenue DESC LIMIT 4",
        2,
        exact_select=f"{_OWN_MONTH}, o_shippriority, {_REVENUE} AS revenue",
        exact_rest="FROM customer, orders, lineitem WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND "
        "l_orderkey = o_orderkey AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15' "
        "GROUP BY ALL ORDER BY revenue DESC LIMIT 4",
        max_rows=12,
    ),
    Query(
        4,
        "o_orderpriority, count(*)",
        "FROM orders SEMI JOIN (SELECT l_orderkey FROM lineitem WHERE l_commitdate < l_receiptdate) AS l "
        "ON l_orderkey = o_orderkey WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01' "
        "GROUP BY o_orderpriority ORDER BY o_orderpriority",
        1,
        exact_rest="FROM orders WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01' AND EXISTS "
        "(SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) "
        "GROUP BY o_orderpriority ORDER BY o_orderpriority",
        max_rows=4,
    ),
    Query(
        5,
        f"n_name, {_REVENUE} AS revenue",
        "FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey "
        "JOIN supplier ON l_suppkey = s_suppkey AND c_nationkey = s_nationkey JOIN nation ON s_nationkey = n_nationkey "
        "JOIN region ON n_regionkey = r_regionkey WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' "
        "AND o_orderdate < DATE '1995-01-01' GROUP BY n_name",
        1,
        max_rows=4,
    ),
    Query(
        6,
        "sum(l_extendedprice * l_discount)",
        "FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' "
        "AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
        0,
        max_rows=4,
    ),
    Query(
        12,
        "l_shipmode, sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END), "
        "sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END)",
        "FROM orders JOIN lineitem ON o_orderkey = l_orderkey WHERE l_shipmode IN ('MAIL', 'SHIP') "
        "AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01' "
        "AND l_receiptdate < DATE '1995-01-01' GROUP BY l_shipmode ORDER BY l_shipmode",
        1,
        max_rows=4,
    ),
    Query(
        13,
        "c_count, count(*) AS custdist",
        "FROM (SELECT c_custkey, count(o_orderkey) AS c_count FROM customer LEFT JOIN orders ON c_custkey = o_custkey "
        "AND o_comment NOT LIKE '%special%requests%' GROUP BY c_custkey) AS c_orders GROUP BY c_count "
        "ORDER BY custdist DESC, c_count DESC",
        1,
    ),
    Query(
        14,
        "100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END) / "
        f"{_REVENUE} AS promo_revenue",
        "FROM lineitem JOIN part ON l_partkey = p_partkey WHERE l_shipdate >= DATE '1995-09-01' "
        "AND l_shipdate < DATE '1995-10-01'",
        0,
        max_rows=8,
    ),
)


def make_database(path: Path, scale: str) -> None:
    """dbgen's tables in a file of their own, with the primary keys of the TPC-H specification (1.4.2).

    Chains of references need that of orders. Keys tell a customer's rows apart without their other columns, and say
    that a join finds one row.
    """
    (extension,) = Path(duckdb_extension_tpch.__file__).parent.rglob("tpch.duckdb_extension")
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"CALL dbgen(sf = {scale})")
        for table, key in KEYS.items():
            connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY ({key})")


def protect(connection: duckdb.DuckDBPyConnection) -> None:
    """Declares the public columns and puts the policies in force."""
    for table in PUBLIC:
        connection.execute("FROM dp(?)", [f"DECLARE PUBLIC TABLE {table}"])
    for policy in POLICIES:
        connection.execute("FROM dp(?)", [policy])
