"""dpduck on the questions of the table: python -m benchmarks.peers._asked_dpduck FOLDER."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import dpduck
from benchmarks.peers._asked_data import (
    BINS,
    CHARGES,
    DELTA,
    EPSILON,
    KEYS,
    MOST,
    PLACES,
    QUARTERS,
    SETS,
    STATEMENTS,
    SYNTHETIC,
    WARDS,
    Key,
    asked_in_turn,
    block_error,
    counts_of,
    cube_error,
    error,
    range_error,
    tell,
    variation,
)

WHOLE = f""", DOMAIN charge RANGE 0 TO {CHARGES} STEP 1, CLAMP charge BETWEEN 0 AND {CHARGES - 1} STEP 1,
    DOMAIN home RANGE 0 TO {PLACES} STEP 1, DOMAIN work RANGE 0 TO {PLACES} STEP 1"""
POLICY = f"""CREATE PRIVACY POLICY ON visits (PRIVACY UNIT id MAX ROWS 1, BUDGET ({{budget}}),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO {BINS} STEP 1, DOMAIN ward RANGE 0 TO {WARDS} STEP 1,
    EXPECT ROWS {{rows}}{{whole}})"""
STAYS = f"""CREATE PRIVACY POLICY ON stays (PRIVACY UNIT id REFERENCES visits.id MAX ROWS {MOST},
    DOMAIN stay_ward RANGE 0 TO {WARDS} STEP 1)"""
ROOMY = "epsilon = 100000, delta = 1e-3, delta_keys = 9e-4"
SELECT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS"


class Asked:
    """A database with the tables of a folder, and their policies."""

    def __init__(self, folder: Path, budget: str = ROOMY) -> None:
        self.con, self.number = dpduck.connect(), count()
        self.con.register("given", pq.read_table(folder / "table.parquet"))
        text = " REPLACE (CAST(word AS VARCHAR) AS word)" if (folder / "stays.parquet").exists() else ""
        self.con.execute(f"CREATE TABLE visits AS SELECT *{text} FROM given")
        self.table = self.con.execute("FROM given").df()
        self.con.unregister("given")
        whole = WHOLE if "charge" in self.table else ""
        self.dp(POLICY.format(budget=budget, rows=len(self.table), whole=whole))
        if whole:
            self.con.register("given", pq.read_table(folder / "stays.parquet"))
            self.con.execute("ALTER TABLE visits ADD PRIMARY KEY (id)")
            self.con.execute("CREATE TABLE stays AS FROM given")
            self.stays = self.con.execute("FROM given").df()
            self.dp(STAYS)

    def dp(self, statement: str) -> list[tuple[object, ...]]:
        return self.con.execute("FROM dp($1)", [statement]).fetchall()

    def select(self, columns: str, tail: str = "", options: str = "", table: str = "visits") -> list[tuple[Any, ...]]:
        """Asks for the whole price. A fresh tag makes it a new release, not a stored answer."""
        fresh = f"epsilon = {EPSILON:g}{options}, refresh = 'r{next(self.number)}'"
        return self.dp(f"{SELECT} ({fresh}) {columns} FROM {table}{tail}")

    def counted(self, keys: list[str], what: str = "count(*)", tail: str = "", **more: str) -> dict[Key, float]:
        listed, by = "".join(f"{key}, " for key in keys), f" GROUP BY {', '.join(keys)}" if keys else ""
        rows = self.select(f"{listed}{what} AS a", f"{tail}{by}", **more)
        return {tuple(int(str(key)) for key in row[: len(keys)]): float(str(row[len(keys)] or 0)) for row in rows}

    def cube(self) -> float:
        rows = self.select("sex, ward, count(*) AS n", " GROUP BY CUBE (sex, ward)")
        found: dict[int, dict[tuple[int, ...], float]] = {}
        for sex, ward, n in rows:
            keys = [name for name, value in (("sex", sex), ("ward", ward)) if value is not None]
            cell = tuple(int(str(value)) for value in (sex, ward) if value is not None)
            found.setdefault(SETS.index(keys), {})[cell] = float(str(n))
        return cube_error(found, self.table)

    def quartiles(self) -> float:
        listed = ", ".join(f"quantile_cont(charge, {part}) AS q{place}" for place, part in enumerate(QUARTERS))
        rows = self.select(f"ward, {listed}", " GROUP BY ward")
        found = {(int(str(row[0])), place): float(str(row[place + 1])) for row in rows for place in range(3)}
        exact = self.table.groupby("ward").charge.quantile(list(QUARTERS))
        return error(found, {(ward, QUARTERS.index(part)): value for (ward, part), value in exact.items()})  # type: ignore

    def ranges(self) -> float:
        rows = self.select("charge, range_end(charge), count(*) AS n", " GROUP BY RANGES(charge)")
        return range_error({(int(str(row[0])), int(str(row[1]))): float(str(row[2])) for row in rows}, self.table)

    def pairs(self) -> dict[Key, float]:
        """A summary. Sums over its rows are right on average."""
        return self.counted(["home", "work"], options=", summary = 'auto', summary_size = 5000")

    def synthetic(self) -> float:
        name, listed = f"made_{next(self.number)}", ", ".join(SYNTHETIC)
        options = f"epsilon = {EPSILON:g}, delta = {DELTA:g}, rows = {len(self.table)}, refresh = '{name}'"
        select = f"SELECT {listed} FROM visits WORKLOAD MARGINALS (2)"
        self.dp(f"CREATE PRIVATE TABLE {name} OPTIONS ({options}) AS {select}")
        return variation(self.con.execute(f"FROM private.{name}").df(), self.table)


def in_turn(folder: Path, known: bool) -> tuple[float, str]:
    """A thousand statements on one budget: each for its part, or all known from one release that was paid with it."""
    asked = Asked(folder, f"epsilon = {EPSILON:g}, delta = {DELTA:g}")
    rho = Fraction(json.loads((folder / "statements.json").read_text())["rho"])
    price = f"{int(rho / STATEMENTS * 10**12)}e-12"
    if known:
        cells = "sex, ward, age, count(*) AS n FROM visits GROUP BY sex, ward, age"
        asked.dp(f"{SELECT} (rho = {int(rho * 10**12)}e-12) {cells}")

    def ask(condition: list[int]) -> float:
        s, t, w, v, a, b = condition
        where = f"sex >= {s} AND sex <= {t} AND ward >= {w} AND ward <= {v} AND age >= {a} AND age <= {b}"
        if known:
            sql = f"SELECT n FROM dp_known('SELECT count(*) AS n FROM visits WHERE {where}')"
            return float(str(asked.con.execute(sql).fetchall()[0][0]))
        return float(str(asked.dp(f"{SELECT} (rho = {price}) count(*) AS n FROM visits WHERE {where}")[0][0]))

    return asked_in_turn(ask, folder, asked.table)


def main() -> None:
    """Asks everything of one folder."""
    folder = Path(sys.argv[1])
    asked = Asked(folder)
    table = asked.table
    for name, keys in KEYS.items():
        exact = counts_of(table, keys)
        tell(name, lambda keys=keys, exact=exact: error(asked.counted(keys), exact))  # type: ignore[misc]
    by_sex = table.groupby("sex")
    if "charge" in table:
        texts = f", delta = {DELTA}, group_selection_strategy = LAPLACE_THRESHOLD, max_groups_contributed = 1"
        joined = asked.stays.merge(table, on="id")
        tell("cube", asked.cube)
        tell("sums", lambda: error(asked.counted(["sex"], "sum(charge)"), by_sex.charge.sum()))
        tell("averages", lambda: error(asked.counted(["sex"], "avg(charge)"), by_sex.charge.mean()))
        tell("quartiles", asked.quartiles)
        tell("free texts", lambda: error(asked.counted(["word"], "count(DISTINCT id)", options=texts),
                                         table.groupby("word").size()))  # fmt: skip
        tell("several rows", lambda: error(asked.counted(["stay_ward"], table="stays"),
                                           asked.stays.groupby("stay_ward").size()))  # fmt: skip
        tell("join", lambda: error(asked.counted(["sex", "stay_ward"], table="stays JOIN visits USING (id)"),
                                   joined.groupby(["sex", "stay_ward"]).size()))  # fmt: skip
        tell("ranges", asked.ranges)
        tell("pairs", lambda: error(asked.counted(["home", "work"], "count(DISTINCT id)", options=texts),
                                    table.groupby(["home", "work"]).size(), others=True))  # fmt: skip
        tell("pairs, added up", lambda: (block_error(asked.pairs(), table), "a summary, without a delta"))
        tell("synthetic rows", asked.synthetic)
    tell("1,000 statements", lambda: in_turn(folder, known=False))
    tell("1,000 statements, known", lambda: in_turn(folder, known=True))


if __name__ == "__main__":
    main()
