"""dpduck on the questions of the table: python -m benchmarks.peers._asked_dpduck table.parquet."""

from __future__ import annotations

import sys
from itertools import count

import numpy as np
import pyarrow.parquet as pq

import dpduck
from benchmarks.peers._asked_data import BINS, DELTA, EPSILON, KEYS, WARDS, error, tell

POLICY = f"""CREATE PRIVACY POLICY ON visits (PRIVACY UNIT id MAX ROWS 1,
    BUDGET (epsilon = 1000, delta = 1e-3, delta_keys = 9e-4), DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO {BINS} STEP 1,
    DOMAIN ward RANGE 0 TO {WARDS} STEP 1, CLAMP charge BETWEEN 0 AND 100 STEP 1)"""
SELECT = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {EPSILON}"


def main() -> None:
    """Asks everything of one table."""
    con = dpduck.connect()
    con.register("given", pq.read_table(sys.argv[1]))
    con.execute("CREATE TABLE visits AS SELECT * REPLACE (CAST(word AS VARCHAR) AS word) FROM given")
    table = con.execute("FROM given").df()
    con.execute("FROM dp($1)", [POLICY]).fetchall()

    number = count()

    def asked(options: str, columns: str, tail: str = "") -> list[tuple[object, ...]]:
        fresh = f", refresh = 'r{next(number)}'"  # the same statement would be the same answer
        return con.execute("FROM dp($1)", [f"{SELECT}{options}{fresh}) {columns} FROM visits{tail}"]).fetchall()

    def counted(keys: list[str]) -> float:
        listed, by = "".join(f"{key}, " for key in keys), f" GROUP BY {', '.join(keys)}" if keys else ""
        rows = asked("", f"{listed}count(*) AS n", by)
        if not keys:
            return abs(float(str(rows[0][0])) - len(table))
        return error({tuple(map(int, row[:-1])): row[-1] for row in rows}, table.groupby(keys).size())  # type: ignore

    def cube() -> float:
        rows = asked("", "sex, ward, count(*) AS n", " GROUP BY CUBE (sex, ward)")
        exact = con.execute("SELECT sex, ward, count(*) FROM given GROUP BY CUBE (sex, ward)").fetchall()
        known = {row[:2]: row[2] for row in exact}
        return float(np.sqrt(np.mean([(float(str(row[2])) - known.get(row[:2], 0)) ** 2 for row in rows])))

    def summed() -> float:
        rows = asked("", "sex, sum(charge) AS s", " GROUP BY sex")
        return error({(int(str(row[0])),): float(str(row[1])) for row in rows}, table.groupby("sex").charge.sum())

    def words() -> float:
        options = f", delta = {DELTA}, group_selection_strategy = LAPLACE_THRESHOLD, max_groups_contributed = 1"
        rows = asked(options, "word, count(DISTINCT id) AS n", " GROUP BY word")
        return error({(int(str(row[0])),): float(str(row[1])) for row in rows}, table.groupby("word").size())

    for name, keys in KEYS.items():
        tell(name, lambda keys=keys: counted(keys))  # type: ignore[misc]
    tell("cube", cube)
    tell("sums", summed)
    tell("median", lambda: abs(float(str(asked("", "median(charge) AS m")[0][0])) - float(table.charge.median())))
    tell("free texts", words)


main()
