"""One client of benchmarks/speed/server_load.py and server_start.py: it asks, reads at a pace or reads without a pause,
and times it. It attaches again where it has lost its server.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

import duckdb

READ = "FROM clinic.query('SELECT ward, n FROM by_ward WHERE n > 0')"
QUESTION = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {epsilon}) {keys}, count(*) AS n FROM visits GROUP BY {keys}"
)
PACE = 0.25  # seconds between two reads of one client, as of a dashboard
KEYS = ("ward", "age", "sex", "ward, sex", "age, sex")


def main(address: str, token: str, what: str, number: str, seconds: str, *extensions: str) -> None:
    with duckdb.connect() as con:
        for file in extensions:
            con.execute(f"LOAD '{file}'")
        end, turn = time.monotonic() + float(seconds), 0
        attached = False
        while not attached and time.monotonic() < end:  # a machine with much to do may have no place at first
            with suppress(duckdb.Error):
                con.execute(f"ATTACH '{address}' AS clinic (TOKEN '{token}')")
                attached = True
        while time.monotonic() < end:
            turn += 1
            begin = time.perf_counter()
            try:
                found = con.execute(question(int(number), turn) if what == "ask" else READ).fetchall()
            except duckdb.Error as error:
                print("error", " ".join(str(error).split()))
                with suppress(duckdb.Error):
                    time.sleep(PACE)
                    con.execute("DETACH DATABASE IF EXISTS clinic")
                    con.execute(f"ATTACH '{address}' AS clinic (TOKEN '{token}')")
                continue
            if not found:
                print("error: no rows")
            print("answer" if what == "ask" else "read", time.perf_counter() - begin, flush=True)
            if what == "read":
                time.sleep(PACE)


def question(number: int, turn: int) -> str:
    """A question that nobody asked before, at about the least price that a server takes."""
    epsilon = f"0.010{number:02d}{turn:05d}"
    asked = QUESTION.format(epsilon=epsilon, keys=KEYS[turn % len(KEYS)])
    return f"FROM clinic.query($$ FROM dp($q$ {asked} $q$) $$)"


if __name__ == "__main__":
    main(*sys.argv[1:])
