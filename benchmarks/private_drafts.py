"""Compares private drafts of real tables with the best choice in hindsight: `python -m benchmarks.private_drafts`.

For each column of numbers or dates: the part of its values within the suggested bounds, and how far clamping moves the
mean, in standard deviations; beside it both for the bounds that the same rule takes from exact quantiles (a hundredth
at each end, the same public grid), and how many times as wide the suggested bounds are. For texts: the part of the
rows that has one of the listed values; in hindsight an owner lists all. MAX ROWS: what was suggested and what it leaves
out, beside the least round number that leaves out a hundredth of the rows. Exact figures are this benchmark's, never a
draft's. Needs ../shared/data or $DPDUCK_DATA. It informs, and gates nothing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

import duckdb

import dpduck
from benchmarks.papers._synthetic_data import data_folder
from dpduck.language.statements.kinds import ClampClause, CreatePolicy, DomainClause
from dpduck.language.statements.parse import parse_statement
from dpduck.owner.draft_remarks import TODO
from dpduck.owner.private_draft import DROPPED, NICE, grid_of
from dpduck.values.quoting import fold, quote_identifier, quote_text
from dpduck.values.sqltypes import sql_type

TABLES = {
    "adult": ("FROM '{}/adult.parquet'", "ROW"),
    "nltcs": ("FROM '{}/nltcs.parquet'", "ROW"),
    "transfusion": ("FROM '{}/transfusion.csv'", "ROW"),
    "taxi": ("SELECT PULocationID || '-' || DOLocationID AS pair, * FROM '{}/nyc_green_taxi_2025_11.parquet'", "pair"),
    "flights": (
        "SELECT concat(CAST(date AS DATE), origin, destination) AS route, * FROM '{}/flights_3m.parquet'",
        "route",
    ),
    "commuting": ("FROM '{}/od_us_counties.parquet'", "home_county"),
    "lodes": ("FROM '{}/lodes_hamilton_tn.parquet'", "ROW"),
}
"""Each table with its privacy unit: where there is none in the data, columns that many rows share stand in for one."""

PRICES = ("0.05", "0.5")
BUDGET = "BUDGET (epsilon = 10, delta = 1e-6, delta_keys = 5e-7)"


OPEN = 999_999
"""MAX ROWS of a draft that leaves it to its owner."""


@dataclass
class Found:
    """Figures of one draft."""

    asked: int = 0
    covered: list[float] = field(default_factory=list)
    covered_best: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    moved_best: list[float] = field(default_factory=list)
    wider: list[float] = field(default_factory=list)
    texts: list[float] = field(default_factory=list)


def drafted(con: duckdb.DuckDBPyConnection, price: str) -> CreatePolicy:
    """The policy that a draft is, which must parse."""
    rows = con.execute("FROM dp_draft('t', privately := ?)", [price]).fetchall()
    text = "\n".join(row[0] for row in rows)
    statement = parse_statement(text.replace(f"MAX ROWS {TODO}", f"MAX ROWS {OPEN}"))
    assert isinstance(statement, CreatePolicy)
    return statement


def compared(con: duckdb.DuckDBPyConnection, policy: CreatePolicy, unit: str) -> Found:
    """All columns that a draft could have suggested something of."""
    found = Found()
    domains = {fold(one.column): one for one in policy.clauses.domains}
    clamps = {fold(one.column): one for one in policy.clauses.clamps}
    for name, type_name, *_ in con.execute("DESCRIBE t").fetchall():
        if fold(name) == fold(unit) or type_name == "BOOLEAN":
            continue
        found.asked += 1
        if type_name == "VARCHAR":
            found.texts.append(listed(con, name, domains.get(fold(name))))
        else:
            bounded(con, name, type_name, clamps.get(fold(name)) or domains.get(fold(name)), found)
    return found


def listed(con: duckdb.DuckDBPyConnection, name: str, domain: DomainClause | None) -> float:
    """The part of the rows that has a listed text."""
    values = ", ".join(map(quote_text, domain.values)) if domain is not None else "''"
    sql = f"SELECT avg(CAST({quote_identifier(name)} IN ({values}) AS INTEGER)) FROM t"
    return float(con.execute(sql).fetchall()[0][0] or 0)


def bounded(
    con: duckdb.DuckDBPyConnection, name: str, type_name: str, item: ClampClause | DomainClause | None, found: Found
) -> None:
    """The part of the values within bounds, and how far clamping moves the mean."""
    column = quote_identifier(name)
    value = f"CAST(year({column}) AS DOUBLE)" if sql_type(type_name).is_moment else f"CAST({column} AS DOUBLE)"
    low, high = con.execute(f"SELECT quantile_cont({value}, [0.01, 0.99]) FROM t").fetchall()[0][0]
    grid = list(map(float, grid_of(type_name)))
    best = (
        max([one for one in grid if one <= low], default=grid[0]),
        min([one for one in grid if one > high], default=grid[-1]),
    )
    found_best = figures(con, value, best)
    found.covered_best.append(found_best[0])
    found.moved_best.append(found_best[1])
    if item is None:
        return
    ends = (float(str(item.low)[:4]), float(str(item.high)[:4])) if sql_type(type_name).is_moment else ends_of(item)
    covered, moved = figures(con, value, ends)
    found.covered.append(covered)
    found.moved.append(moved)
    found.wider.append((ends[1] - ends[0]) / (best[1] - best[0]))


def ends_of(item: ClampClause | DomainClause) -> tuple[float, float]:
    return float(item.low), float(item.high)


def figures(con: duckdb.DuckDBPyConnection, value: str, ends: tuple[float, float]) -> tuple[float, float]:
    low, high = ends
    inside = f"avg(CAST({value} BETWEEN {low} AND {high} AS INTEGER))"
    moved = f"abs(avg(greatest(least({value}, {high}), {low})) - avg({value})) / nullif(stddev_pop({value}), 0)"
    row = con.execute(f"SELECT {inside}, {moved} FROM t").fetchall()[0]
    return float(row[0] or 0), float(row[1] or 0)


def max_rows(con: duckdb.DuckDBPyConnection, policy: CreatePolicy, unit: str) -> str:
    """MAX ROWS, suggested and in hindsight, with the rows that each leaves out."""
    clause = policy.clauses.unit
    if unit == "ROW" or clause is None:
        return "-"

    def dropped(most: int) -> float:
        sql = f"SELECT sum(greatest(k - {most}, 0)) / sum(k) FROM (SELECT count(*) AS k FROM t GROUP BY {unit})"
        return float(con.execute(sql).fetchall()[0][0])

    best = next((one for one in NICE if dropped(one) <= DROPPED), NICE[-1])
    if clause.max_rows == OPEN:
        return f"left open; best {best} ({dropped(best):.1%})"
    return f"{clause.max_rows} ({dropped(clause.max_rows):.1%} out); best {best} ({dropped(best):.1%})"


def measured(name: str, source: str, unit: str, folder: Path, price: str, most: int) -> str:
    """A line of the table."""
    with dpduck.connect() as con:
        rows = (
            f"({source.format(folder)})" if source.startswith("SELECT") else source.format(folder).removeprefix("FROM ")
        )
        con.execute(f"CREATE TABLE t AS SELECT * FROM {rows} LIMIT {most}")
        whose = "PRIVACY UNIT ROW" if unit == "ROW" else f"PRIVACY UNIT {unit} MAX ROWS 1"
        con.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON t ({whose}, {BUDGET})"]).fetchall()
        begin = time.perf_counter()
        policy = drafted(con, price)
        took = time.perf_counter() - begin
        found, most_rows = compared(con, policy, unit), max_rows(con, policy, unit)
        number = con.execute("SELECT count(*) FROM t").fetchall()[0][0]

    def shown(values: list[float]) -> str:
        return f"{mean(values):.1%} (least {min(values):.0%})" if values else "-"

    moved = f"{mean(found.moved):.3f} / {mean(found.moved_best):.3f}" if found.moved else "-"
    wider = f"{median(found.wider):.2g}" if found.wider else "-"
    cells = [
        name, f"{number:,}", price, f"{len(found.covered)} of {len(found.covered_best)}", shown(found.covered),
        shown(found.covered_best), moved, wider, shown(found.texts), most_rows,
    ]  # fmt: skip
    return "| " + " | ".join([*cells, f"{took:.0f} s"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**9, help="of each table")
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--prices", nargs="*", default=list(PRICES))
    words = parser.parse_args()
    heads = "table, rows, epsilon, bounds, within, best, mean moved / best (sd), width / best, texts, MAX ROWS, took"
    print(f"| {heads.replace(', ', ' | ')} |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|")
    with tempfile.TemporaryDirectory() as state:
        os.environ["DPDUCK_STATE_DIR"] = state
        for name in words.tables:
            source, unit = TABLES[name]
            for price in words.prices:
                print(measured(name, source, unit, data_folder(None), price, words.rows), flush=True)


if __name__ == "__main__":
    main()
