"""Kill a process at every step of a stream's refreshes. Run by test_stream_kill in a process of its own.

The parent never opens DuckDB. Each child is forked clean, reports the state that the child before it left, goes on and
is killed at one step. Arguments: an empty directory, the number of children, and the stream's answer: count, or cube.
Prints where they were killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

import dpduck
from tests.support.kills import print_account, run_child

STEPS = (
    *("stream counted", "stream measured", "stream written"),
    *("row not committed", "row committed", "counters written", "stream published"),
)
"""Of a refresh, in order."""

WHILE_MADE = (
    *("charge begins", "row not committed", "row committed", "counters written"),
    *("charge returns", "charge ended"),
)
"""Of the statement that makes a stream, in order."""

CREATE = {
    "count": "CREATE PRIVATE STREAM days OPTIONS (epsilon = 1, strategy = 'tree') AS "
    "SELECT came, count(*) AS n FROM visits GROUP BY came",
    "cube": "CREATE PRIVATE STREAM days OPTIONS (epsilon = 1, strategy = 'tree') AS "
    "SELECT came, ward, count(*) AS n, avg(charge) AS mean FROM visits GROUP BY came, CUBE (ward)",
}
ROWS_A_DAY = {"count": 1, "cube": 3}
AT_ONCE = 2
"""Days that each child is asked to publish more."""


@dataclass
class Left:
    """The published rows, and the noisy answers in the stream's file, version by version."""

    published: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)


def make(directory: Path, kind: str, budget: int = 1) -> None:
    with dpduck.connect(directory / "clinic.duckdb") as con:
        con.execute(
            "CREATE TABLE visits AS SELECT range % 50 AS person, DATE '2024-01-01' + (range // 5)::INTEGER AS came, "
            "range % 2 AS ward, range % 7 AS charge FROM range(200)"
        )
        con.execute(
            "FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS 3, "
            f"BUDGET (epsilon = {budget}), "
            "DOMAIN came RANGE 2024-01-01 TO 2024-02-10 STEP DAY, DOMAIN ward IN (0, 1), "
            "CLAMP charge BETWEEN 0 AND 6) $$)"
        ).fetchall()
        con.execute("FROM dp(?)", [CREATE[kind]]).fetchall()


def held(directory: Path) -> list[str]:
    """The versions that the stream's file has, with their noisy answers."""
    for path in (directory / "clinic_streams").glob("*.duckdb"):
        with duckdb.connect(str(path)) as con:
            if con.execute("SELECT count(*) FROM duckdb_tables()").fetchall() != [(0,)]:
                return [repr(row) for row in con.execute("FROM versions ORDER BY version").fetchall()]
    return []


def looked(con: duckdb.DuckDBPyConnection, kind: str) -> list[str]:
    """Checks the published rows: each listed day once, and one charge paid for all."""
    rows = con.execute("FROM private.days").fetchall()
    days = len({row[0] for row in rows})
    assert days * ROWS_A_DAY[kind] == len(rows), "a day was published twice"
    assert con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall() == [(1,)]
    assert con.execute("SELECT published FROM dp_streams()").fetchall() == [(days,)], "half a refresh is published"
    return [repr(row) for row in rows]


def child(directory: Path, pipe: int, kill_at: str, kind: str) -> None:
    """Reports the state that it finds, refreshes, and is killed."""

    def say(text: str) -> None:
        os.write(pipe, f"{text}\n".encode())

    def step(name: str) -> None:
        if working and name == kill_at:
            say(f"killed {name}")
            os.kill(os.getpid(), signal.SIGKILL)

    working, versions = False, held(directory)
    with duckdb.connect(str(directory / "clinic.duckdb")) as con:
        dpduck.load(con, steps=step)
        published = looked(con, kind)
        say(json.dumps([published, versions]))
        days, working = len(published) // ROWS_A_DAY[kind] + AT_ONCE, True
        until = f"DATE '2024-01-01' + {days}"
        ((day,),) = con.execute(f"SELECT CAST(CAST({until} AS DATE) AS VARCHAR)").fetchall()
        con.execute("FROM dp(?)", [f"REFRESH PRIVATE STREAM days UNTIL '{day}'"]).fetchall()
        assert looked(con, kind)[: len(published)] == published, "a published day changed"


def run(directory: Path, children: int, kind: str) -> None:
    run_child(lambda pipe: make(directory, kind))
    killed: Counter[str] = Counter()
    left = Left()
    for number in range(children + 1):
        kill_at = "nothing" if number == children else STEPS[number % len(STEPS)]

        def work(pipe: int, at: str = kill_at) -> None:
            child(directory, pipe, at, kind)

        said, *more = run_child(work)
        published, versions = json.loads(said)
        assert published[: len(left.published)] == left.published, "a published day changed, or is lost"
        assert versions[: len(left.versions)] == left.versions, "measured answers were drawn anew"
        left = Left(published, versions)
        killed.update(line.removeprefix("killed ") for line in more)
    print_account(killed, "published", len(left.published) // ROWS_A_DAY[kind])


def made(directory: Path, pipe: int, kill_at: str, number: int) -> None:
    """Makes a stream and is killed at a step. Asked again, it is there once, was paid for once, and is refreshed."""

    def step(name: str) -> None:
        if name == kill_at:
            os.write(pipe, f"killed {name}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    with duckdb.connect(str(directory / "clinic.duckdb")) as con:
        dpduck.load(con, steps=step)
        statement = CREATE["count"].replace("STREAM days", f"STREAM s{number}")
        con.execute("FROM dp(?)", [statement]).fetchall()
        con.execute("FROM dp(?)", [f"REFRESH PRIVATE STREAM s{number} UNTIL '2024-01-04'"]).fetchall()
        assert con.execute(f"SELECT count(*) FROM private.s{number}").fetchall() == [(3,)]
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall() == [(number + 2,)]
        assert con.execute("SELECT count(*) FROM dp_streams()").fetchall() == [(number + 2,)]


def run_made(directory: Path) -> None:
    run_child(lambda pipe: make(directory, "count", len(WHILE_MADE) + 1))
    killed: Counter[str] = Counter()
    for number, kill_at in enumerate(WHILE_MADE):
        for at in (kill_at, "nothing"):

            def work(pipe: int, at: str = at, number: int = number) -> None:
                made(directory, pipe, at, number)

            killed.update(line.removeprefix("killed ") for line in run_child(work))
    print_account(killed, "made", len(WHILE_MADE))


if __name__ == "__main__":
    if sys.argv[3] == "made":
        run_made(Path(sys.argv[1]))
    else:
        run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
