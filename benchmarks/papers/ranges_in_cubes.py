"""Ranges and running totals inside grouping sets as one plan, beside the finest set alone and each set by itself.

Through SQL: predicted errors of `dp_explain` at epsilon = 1 and at rho = 1/2, over two made tables. In one, rows are
units and keys are numbers. In the other, people have up to four rows, a key is text with NULLs, and rows are filtered.
"Alone" is the summed variance of all answers where the finest set is released by itself and its answers are added up.
"Apart" is that of the best plan with measurements of their own for each set.

Gates: ranges beside their margins at most 1.1 times alone. A whole cube at most 0.9 times the better of alone and
apart. Pairs of columns, which no set has together, at most 0.95 times apart under rho. Answers of two sets agree.
Trap avoided: summed variances are of the same answers on both sides.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import duckdb

import dpduck

PRICES = ("epsilon = 1", "rho = 0.5")
SIZES = {"x": 16, "y": 12, "a": 3, "b": 6}
APART = "every grouping set is measured by itself"


def open_rows(people: bool) -> duckdb.DuckDBPyConnection:
    """Rows with four keys. people: several rows are of one unit, and one key is text with NULLs."""
    connection = dpduck.connect()
    columns = ", ".join(f"CAST(hash(i, {number}) % {size} AS INTEGER) AS {name}" for number, (name, size) in SEEDED)
    connection.execute(f"CREATE TABLE visits AS SELECT i // 4 AS person, {columns} FROM range(20000) AS r(i)")
    domains = {name: f"RANGE 0 TO {size} STEP 1" for name, size in SIZES.items()}
    if people:
        connection.execute("ALTER TABLE visits ALTER a TYPE VARCHAR USING nullif('a' || a, 'a2')")
        domains["a"] = "IN ('a0', 'a1', 'a3') WITH NULL"
    unit = "person MAX ROWS 4" if people else "ROW"
    listed = ", ".join(f"DOMAIN {name} {domain}" for name, domain in domains.items())
    policy = f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT {unit}, BUDGET (epsilon = 1000, delta = 1e-6), {listed})"
    connection.execute("FROM dp(?)", [policy])
    return connection


SEEDED = tuple(enumerate(SIZES.items()))


def totals(connection: duckdb.DuckDBPyConnection, price: str, group: str) -> tuple[float, float]:
    """Returns the summed variance that is predicted for the chosen plan, and of the best plan of sets apart."""
    select = f"count(*) FROM visits WHERE b < 5 GROUP BY {group}"
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) {select}"
    found = connection.execute("SELECT total_variance, chosen, note FROM dp_explain(?)", [statement]).fetchall()
    chosen = next(total for total, best, _ in found if best)
    apart = [total for total, _, note in found if note and APART in note]
    return float(chosen), float(min(apart, default=chosen))


def disagreement(connection: duckdb.DuckDBPyConnection, price: str) -> float:
    """Returns the largest difference between an answer and the sum of the answers that it is the margin of."""
    rows = connection.execute(
        f"""FROM dp($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) x, range_end(x) AS until, a, count(*) AS n,
        GROUPING(a) AS margin FROM visits WHERE b < 5 GROUP BY GROUPING SETS ((RANGES(x), a), (RANGES(x))) $$)"""
    ).fetchall()
    sums: dict[object, float] = {}
    for x, until, _, answer, margin in rows:
        sums[(x, until)] = sums.get((x, until), 0.0) + (answer if margin == 0 else -answer)
    return max(map(abs, sums.values()))


def gates(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[bool, str]]:
    """Yields each gate with its line."""
    for price in PRICES:
        finest, _ = totals(connection, price, "RANGES(x), a")
        found, apart = totals(connection, price, "GROUPING SETS ((RANGES(x), a), (RANGES(x)))")
        yield (
            found <= 1.1 * 2 * finest,
            f"{price}: ranges with margins {found:.0f}, alone {2 * finest:.0f}, {apart:.0f} apart",
        )
        for keys, margins in (("RANGES(x), b", 4), ("PREFIXES(y), a", 4), ("RANGES(x), a, b", 8)):
            found, apart = totals(connection, price, f"CUBE ({keys})")
            yield found <= 0.9 * apart, f"{price}: {margins} sets of CUBE ({keys}) {found:.0f}, {apart:.0f} apart"
        found, apart = totals(connection, price, "MARGINALS (2, RANGES(x), RANGES(y), a, b)")
        best = 0.95 if price.startswith("rho") else 1.0
        yield found <= best * apart, f"{price}: pairs of four columns {found:.0f}, {apart:.0f} apart"
        worst = disagreement(connection, price)
        yield worst < 1e-6, f"{price}: sets differ by at most {worst:.1e}"


def main() -> int:
    failed = 0
    for people in (False, True):
        for passed, said in gates(open_rows(people)):
            failed += not passed
            print(f"{'PASS' if passed else 'FAIL'}  {'people' if people else 'rows'}, {said}", flush=True)
    print("all gates pass" if not failed else f"{failed} gates fail")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
