"""Compares what private drafts say they leave out with what they do: `python -m benchmarks.draft_shares`.

Of each table and price the statements of a draft are planned once and measured --drafts times through the door, with
noise of its own each time. Every suggestion is compared with the rows: MAX ROWS by the share of the rows that it
leaves out, a clamp by the share of the sum, a list of whole numbers by the share of the units with another value. A
suggestion holds where the exact share is at most what the draft says. `open`: what the draft leaves to the owner.

Six tables: adult, taxi trips and flights, where ../shared/data or $DPDUCK_DATA has them, and three that are made, with
heavy tails, codes and years, and people with several rows. It informs, and gates nothing. In column `cut` stands the
exact share of the median and of the worst draft.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from statistics import median

import duckdb
import numpy as np

import dpduck
from benchmarks.papers._synthetic_data import data_folder
from dpduck.auditor.audit_plan import plan_statement
from dpduck.auditor.neighbours import require_database
from dpduck.auditor.runs import repeat_asks
from dpduck.database.functions import OWNER
from dpduck.kernel.door import Bill, open_door
from dpduck.kernel.ledger.secrets import no_step
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.price import price
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import CatalogColumn, Policy
from dpduck.mechanisms.mechanism import Tools
from dpduck.owner.column_values import clamp_of, codes_of, no_answer, seen
from dpduck.owner.noisy_shares import FRACTIONS
from dpduck.owner.private_draft import PrivateQuestion, questions
from dpduck.owner.unit_rows import unit_facts
from dpduck.store.policies import PolicyStore
from dpduck.store.sandbox import Sandbox
from dpduck.values.privacy import Charge
from dpduck.values.quoting import quote_identifier

PEOPLE = (
    "SELECT i // 1 AS line, CAST(floor(power(1 - (hash(i, 1) % 100000) / 100000, 2) * 6000) AS INTEGER) AS person, "
    "{} FROM range(60000) AS r(i)"
)
UNIFORM = "((hash(i, {0}) % 1000003 + 1) / 1000004)"
NORMAL = "(sqrt(-2 * ln(" + UNIFORM + ")) * cos(2 * pi() * " + UNIFORM.replace("{0}", "{1}") + "))"
HEAVY = PEOPLE.format(
    f"exp(3 + {NORMAL.format(2, 3)}) AS bill, power({UNIFORM.format(4)}, -0.4) * 10 AS size, "
    f"power({UNIFORM.format(5)}, -0.67) AS rare, -ln({UNIFORM.format(6)}) * 30 AS wait, "
    f"CASE WHEN hash(i, 7) % 10 < 9 THEN 0 ELSE exp(7 + {NORMAL.format(8, 9)}) END AS gain, "
    f"CASE WHEN hash(i, 10) % 200 = 0 THEN 99999 ELSE -ln({UNIFORM.format(11)}) * 3000 END AS topped"
)
CODES = PEOPLE.format(
    "CAST(1 + hash(i, 2) % 2 AS INTEGER) AS sex, CAST(2003 + hash(i, 3) % 10 AS INTEGER) AS year, "
    "CAST(CASE WHEN hash(i, 4) % 4 = 0 THEN 9999 ELSE 1960 + hash(i, 5) % 55 END AS INTEGER) AS since, "
    "CAST(1 + hash(i, 6) % 12 AS INTEGER) AS month, CAST(2 + 5 * (hash(i, 7) % 18) AS INTEGER) AS age_band, "
    "CAST(floor(power((hash(i, 8) % 1000) / 1000, 3) * 9) + 1 AS INTEGER) AS race, "
    "CAST(hash(i, 9) % 97 AS INTEGER) AS age"
)
PLANES = (
    "SELECT CAST(p AS INTEGER) AS plane, CAST(least(200, -ln("
    + UNIFORM.format(1).replace("i,", "p * 1000 + j,")
    + ") * 15) "
    "AS DOUBLE) AS delay "
    "FROM range(4000) AS a(p), range(150) AS b(j) "
    "WHERE j < 1 + 140 * power((hash(p, 3) % 1000) / 1000, 2.5)"
)
TABLES = {
    "adult": ("SELECT * FROM '{}/adult.parquet'", "ROW", ()),
    "taxi": (
        "SELECT fare_amount, tip_amount, PULocationID, total_amount FROM '{}/nyc_green_taxi_2025_11.parquet'",
        "ROW",
        (),
    ),
    "flights": (
        "SELECT concat(CAST(date AS DATE), origin, destination) AS route, delay, distance FROM "
        "'{}/flights_3m.parquet' LIMIT 300000",
        "route",
        (),
    ),
    "made: heavy tails": (HEAVY, "person", ("line",)),
    "made: codes, years": (CODES, "person", ("line",)),
    "made: planes": (PLANES, "plane", ()),
}
"""Each table, its privacy unit, and columns that are not asked about."""

PRICES = ("0.05", "0.2", "0.5")
BUDGET = "BUDGET (epsilon = 10, delta = 1e-6, delta_keys = 5e-7)"


@dataclass
class Line:
    """One suggestion in many drafts: how often it was left open, its stated shares and its exact shares."""

    left_open: int = 0
    held: list[bool] = field(default_factory=list)
    said: list[float] = field(default_factory=list)
    exact: list[float] = field(default_factory=list)

    def add(self, most: float, exact: float) -> None:
        self.held.append(exact <= most)
        self.said.append(most)
        self.exact.append(exact)

    def text(self) -> str:
        if not self.held:
            return f"{self.left_open} | - | - | -"
        exact = f"{100 * median(self.exact):.2f} %, {100 * max(self.exact):.2f} %"
        return f"{self.left_open} | {sum(self.held)} of {len(self.held)} | {100 * median(self.said):.1f} % | {exact}"


def answers(con: duckdb.DuckDBPyConnection, question: PrivateQuestion, drafts: int) -> Iterator[tuple[object, ...]]:
    """Yields the answer of a statement to each draft, as dp() gives it: through the door, charged, with new noise."""
    database, found = require_database(con), plan_statement(con, question.sql)
    plan = repeat_asks(found.plan, drafts, {})
    asks, rows = found.mechanism.asks(plan), plan.request.rows
    cost = price(asks)
    bill = Bill(
        rows.unit_key, str(rows.table), Charge(cost.epsilon, cost.rho, cost.delta), OWNER.name, question.sql,
        found.mechanism.name, None, None,
    )  # fmt: skip
    tools = Tools(Sandbox(), database.ledger.secrets, no_step)
    with open_door(
        asks, bill, database.ledger, database.connections.cursor, lambda cursor: None, operating_system_entropy(),
        no_step, Workers(),
    ) as door:  # fmt: skip
        for _ in range(drafts):
            released = found.mechanism.recover(plan, found.mechanism.measure(plan, door, tools), tools).rows
            values = [released.column(name)[0].as_py() for name in released.column_names if name.startswith("answer")]
            yield (values[: len(FRACTIONS)], *values[len(FRACTIONS) :])


def exact_rows(con: duckdb.DuckDBPyConnection, unit: str) -> list[int]:
    return [row[0] for row in con.execute(f"SELECT count(*) FROM t GROUP BY {quote_identifier(unit)}").fetchall()]


def exact_values(con: duckdb.DuckDBPyConnection, column: CatalogColumn) -> np.ndarray:
    """Returns all values of a column, of all rows of a unit."""
    name = quote_identifier(column.name)
    sql = f"SELECT CAST({name} AS DOUBLE) AS x FROM t WHERE {name} IS NOT NULL AND isfinite(CAST({name} AS DOUBLE))"
    return np.asarray(con.execute(sql).fetchnumpy()["x"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drafts", type=int, default=20)
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--prices", nargs="*", default=list(PRICES))
    words = parser.parse_args()
    print("| table | epsilon | suggestion | open | holds | said at most (median) | cut: median, worst |")
    print("|---|---:|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as state:
        os.environ["DPDUCK_STATE_DIR"] = state
        for name in words.tables:
            source, unit, beside = TABLES[name]
            if "'{}" in source and not (data_folder(None) / Path(source.split("'{}/")[1].split("'")[0])).is_file():
                print(f"| {name} | | skipped: not in the data folder | | | | |")
                continue
            for epsilon in words.prices:
                for said, line in compared(source.format(data_folder(None)), unit, beside, epsilon, words.drafts):
                    print(f"| {name} | {epsilon} | {said} | {line.text()} |", flush=True)


def compared(source: str, unit: str, beside: tuple[str, ...], epsilon: str, drafts: int) -> Iterator[tuple[str, Line]]:
    """Yields each suggestion about a table, and how it did."""
    with dpduck.connect() as con:
        con.execute(f"CREATE TABLE t AS {source}")
        whose = "PRIVACY UNIT ROW" if unit == "ROW" else f"PRIVACY UNIT {unit} MAX ROWS 1"
        con.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON t ({whose}, {BUDGET})"]).fetchall()
        policy = PolicyStore(con.cursor, "private", dict).policies()[0]
        columns = [
            CatalogColumn(name, type_name)
            for name, type_name, *_ in con.execute("DESCRIBE t").fetchall()
            if name not in (unit, *beside)
        ]
        asked = questions(policy, columns, Fraction(epsilon), None)
        units, line = units_of(con, asked[0], policy, unit, drafts)
        if unit != "ROW":
            yield "MAX ROWS", line
        for question in asked[1:]:
            if question.kind == "number" and question.column is not None:
                yield from of_column(con, question, question.column, units)


def units_of(
    con: duckdb.DuckDBPyConnection, question: PrivateQuestion, policy: Policy, unit: str, drafts: int
) -> tuple[list[float], Line]:
    """Returns how many units each draft takes there to be, and how MAX ROWS did."""
    if unit == "ROW":
        (number,) = con.execute("SELECT count(*) FROM t").fetchall()[0]
        return [float(number)] * drafts, Line()
    line, units, rows = Line(), [], np.array(exact_rows(con, unit))
    rank = require_database(con).foresight.rank_error(require_database(con).question_of(question.sql, OWNER)[0])
    for answer in answers(con, question, drafts):
        facts = unit_facts(policy, (answer[0], answer[1], 0.0), rank)
        units.append(facts.units)
        if facts.most_rows is None or facts.left is None:
            line.left_open += 1
        else:
            line.add(facts.left.most, float(np.maximum(rows - facts.most_rows, 0).sum() / rows.sum()))
    return units, line


def of_column(
    con: duckdb.DuckDBPyConnection, question: PrivateQuestion, column: CatalogColumn, units: list[float]
) -> Iterator[tuple[str, Line]]:
    """Yields the results of a column's clamp and list."""
    values = exact_values(con, column)
    rank = require_database(con).foresight.rank_error(require_database(con).question_of(question.sql, OWNER)[0])
    clamps, lists = Line(), Line()
    for number, answer in zip(units, answers(con, question, len(units)), strict=True):
        shares, known = seen(question, answer, number, rank), values
        place = None if shares is None else no_answer(shares)
        if shares is not None and place is not None:
            known = values[values != float(shares.edges[place])]
            shares = shares.without(place)
        codes = None if shares is None else codes_of(shares)
        if codes is not None:
            lists.add(codes[1].most, float((~np.isin(known, codes[0])).mean()))
            continue
        clamp = None if shares is None else clamp_of(shares)
        if clamp is None:
            clamps.left_open += 1
            continue
        low, high = float(clamp.low), float(clamp.high)
        cut = (np.maximum(known - high, 0).sum() + np.maximum(low - known, 0).sum()) / np.abs(known).sum()
        clamps.add(clamp.left.most, float(cut))
    if lists.held:
        yield f"IN {column.name}", lists
    if clamps.held or clamps.left_open:
        yield f"CLAMP {column.name}", clamps


if __name__ == "__main__":
    main()
