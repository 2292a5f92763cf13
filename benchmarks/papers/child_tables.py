"""Made-up customers with made-up orders: margins across the reference, beside two tables drawn apart.

Each epsilon (delta 1e-6) is that of each of both statements. The error is total variation from the data: of the number
of orders by each column of the customer, and of every pair of a customer's and an order's column, as the mean over
pairs. Beside it stands the error of orders drawn without regard to the customer, from both tables' exact margins.

Gates (exit status 1): at epsilon 1 and 5 both are below a half of what independent tables have, at 0.2 below all of it.
Traps avoided: both sides are held against the same exact margins. Orders beyond MAX ROWS are counted in neither.
"""

from __future__ import annotations

import sys
from itertools import product

import duckdb
import numpy as np

import dpduck

CUSTOMERS, MOST = 20_000, 8
PARENT, CHILD = ("region", "age", "member"), ("item", "month", "paid")
COUNTED = "(SELECT id AS whose, count(number) AS n FROM customers LEFT JOIN orders ON id = customer GROUP BY id)"
Shares = dict[tuple[object, ...], float]


def shop() -> duckdb.DuckDBPyConnection:
    """Orders of which number, item, month and price depend on the customer."""
    connection = dpduck.connect()
    connection.execute(
        f"""CREATE TABLE customers AS SELECT i AS id, ['north', 'south', 'west', 'east'][1 + i % 4] AS region,
               20 + 10 * (hash(i) % 5)::INTEGER AS age, hash(i, 1) % 10 < 2 + 2 * (i % 4) AS member
               FROM range({CUSTOMERS}) AS r(i);
           ALTER TABLE customers ADD PRIMARY KEY (id);
           CREATE TABLE orders AS SELECT 100 * id + j AS number, id AS customer,
               'item ' || (CASE WHEN hash(id, j) % 3 = 0 THEN hash(j, id) % 12
                                ELSE (age // 10 + 3 * (id % 4)) % 12 END) AS item,
               (CASE WHEN member THEN 1 + hash(j, id, 1) % 4 ELSE 1 + hash(j, id, 2) % 12 END)::INTEGER AS month,
               (hash(j, id, 3) % 40 + CASE WHEN member THEN 20 ELSE 0 END + age // 2)::INTEGER AS paid
               FROM customers, range({MOST}) AS s(j)
               WHERE j < hash(id, 5) % 2 + (CASE WHEN member THEN 3 ELSE 0 END) + (age // 20)"""
    )
    for policy in (
        "ON customers (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 100, delta = 1e-4), "
        f"EXPECT ROWS {CUSTOMERS}, DOMAIN region IN ('north', 'south', 'west', 'east'), "
        "DOMAIN age IN (20, 30, 40, 50, 60), DOMAIN member BOOLEAN)",
        f"ON orders (PRIVACY UNIT customer REFERENCES customers.id MAX ROWS {MOST}, EXPECT ROWS 80000, "
        f"DOMAIN item IN ({', '.join(repr(f'item {one}') for one in range(12))}), DOMAIN month RANGE 1 TO 13 STEP 1, "
        "DOMAIN paid RANGE 0 TO 100 STEP 10)",
    ):
        connection.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY {policy}"])
    return connection


def made(connection: duckdb.DuckDBPyConnection, epsilon: str, number: int) -> str:
    """Makes both tables, and returns their join."""
    price = f"epsilon = {epsilon}, delta = 1e-6"
    parents, children = f"customers_{number}", f"orders_{number}"
    connection.execute(
        "FROM dp(?)",
        [
            f"CREATE PRIVATE TABLE {parents} OPTIONS ({price}, key = id) AS SELECT {', '.join(PARENT)}, n "
            f"FROM customers JOIN {COUNTED} ON id = whose WORKLOAD MARGINALS (2)"
        ],
    ).fetchall()
    sets = ", ".join(f"({one}, {other})" for one, other in product(PARENT, CHILD))
    connection.execute(
        "FROM dp(?)",
        [
            f"CREATE PRIVATE TABLE {children} OPTIONS ({price}) AS SELECT {', '.join((*PARENT, *CHILD))} "
            f"FROM customers JOIN orders ON id = customer FOR EACH ROW OF {parents} (customer = id) TIMES n "
            f"WORKLOAD GROUPING SETS ({sets})"
        ],
    ).fetchall()
    return f"private.{parents} LEFT JOIN private.{children} ON customer = id"


def shares(connection: duckdb.DuckDBPyConnection, columns: tuple[str, ...], source: str) -> Shares:
    shown = ", ".join(f"paid // 10 * 10 AS {one}" if one == "paid" else one for one in columns)
    found = connection.execute(f"SELECT {shown}, count(*) FROM {source} GROUP BY ALL").fetchall()
    total = sum(row[-1] for row in found)
    return {row[:-1]: row[-1] / total for row in found}


def distance(one: Shares, other: Shares) -> float:
    return sum(abs(one.get(cell, 0.0) - other.get(cell, 0.0)) for cell in {*one, *other}) / 2


def apart(one: Shares, other: Shares) -> Shares:
    return {(*a, *b): p * q for a, p in one.items() for b, q in other.items()}


def main() -> int:
    connection, passed = shop(), True
    numbers, rows = f"customers JOIN {COUNTED} ON id = whose", "customers JOIN orders ON id = customer"
    exact = {(one, "n"): shares(connection, (one, "n"), numbers) for one in PARENT}
    exact |= {pair: shares(connection, pair, rows) for pair in product(PARENT, CHILD)}
    customers = {one: shares(connection, (one,), "customers") for one in PARENT}
    single = {one: shares(connection, (one,), rows) for one in CHILD} | {"n": shares(connection, ("n",), numbers)}
    base = {pair: distance(exact[pair], apart(customers[pair[0]], single[pair[1]])) for pair in exact}
    for place, (epsilon, most) in enumerate((("0.2", 1.0), ("1", 0.5), ("5", 0.5))):
        joined = made(connection, epsilon, place)
        parents = joined.split(" LEFT JOIN ")[0]
        near = {
            pair: distance(
                exact[pair], shares(connection, pair, parents if pair[1] == "n" else joined.replace("LEFT ", ""))
            )
            for pair in exact
        }
        for what, pairs in (
            ("number of orders", [pair for pair in exact if pair[1] == "n"]),
            ("across the reference", [pair for pair in exact if pair[1] != "n"]),
        ):
            ours, theirs = (float(np.mean([of[pair] for pair in pairs])) for of in (near, base))
            good = ours <= most * theirs
            passed &= good
            print(
                f"{'PASS' if good else 'FAIL'}  epsilon {epsilon}, {what}: {ours:.4f}, drawn apart {theirs:.4f}",
                flush=True,
            )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
