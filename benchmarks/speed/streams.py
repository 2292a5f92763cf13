"""A stream of 36 months of a million rows each: what the first refresh takes, and what the last.

Rows are loaded month by month, then the month is refreshed. People have one row in most months. Times of a refresh in
one run, wall-clock: the median of the first three beside that of the last three. Gate: the last take at most 1.5 times
the first. Beside them the time of DuckDB's exact count of one month informs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import dpduck

MONTHS, ROWS, PEOPLE, LIMIT = 36, 1_000_000, 3_000_000, 1.5


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DPDUCK_STATE_DIR"] = directory
        with dpduck.connect(Path(directory) / "clinic.duckdb") as con:
            con.execute("CREATE TABLE visits (person BIGINT, came DATE, ward VARCHAR)")
            end = f"{2020 + MONTHS // 12 + 1}-01-01"
            con.execute(
                "FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS 12, BUDGET (epsilon = 1), "
                f"DOMAIN ward IN ('north', 'south', 'west'), DOMAIN came RANGE 2020-01-01 TO {end} STEP MONTH) $$)"
            )
            con.execute(
                f"FROM dp($$ CREATE PRIVATE STREAM by_month OPTIONS (epsilon = 1, periods = {MONTHS}) AS "
                "SELECT came, ward, count(*) AS n FROM visits GROUP BY came, ward $$)"
            )
            times = []
            for month in range(MONTHS):
                first, end = (f"{2020 + one // 12}-{one % 12 + 1:02}-01" for one in (month, month + 1))
                con.execute(
                    f"INSERT INTO visits SELECT (i * 7919 + {month} * 104729) % {max(1, PEOPLE * rows // ROWS)}, "
                    f"DATE '{first}' + (i % 28)::INTEGER, ['north', 'south', 'west'][i % 3 + 1] FROM range({rows}) r(i)"
                )
                begin = perf_counter()
                con.execute(f"FROM dp($$ REFRESH PRIVATE STREAM by_month UNTIL '{end}' $$)").fetchall()
                times.append(perf_counter() - begin)
            begin = perf_counter()
            con.execute(f"SELECT ward, count(*) FROM visits WHERE came >= '{first}' GROUP BY ward").fetchall()
            exact = perf_counter() - begin
    early, late = median(times[:3]), median(times[-3:])
    ratio = late / early
    print(" ".join(f"{one:.2f}" for one in times))
    print(f"first {early:.3f} s, last {late:.3f} s, DuckDB's count of one month {exact:.3f} s")
    print(f"last to first {ratio:.2f}  gate: {LIMIT}  {'PASS' if ratio <= LIMIT else 'FAIL'}")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
