"""Kills a process at every step of preparing. test_prepared_tables runs this as a script.

The parent never opens DuckDB. Each child is forked clean and looks at the state that the child before it left: a table
that answers about the rows that were prepared last, and no file that nobody uses. Argument: an empty directory.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import duckdb

import dpduck
from tests.support.kills import print_account, run_child

MOST_STEPS = 9  # one step more than preparing has: the last child lives
STATEMENT = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, refresh = '{tag}') sex, count(*) AS n "
    "FROM visits GROUP BY sex"
)


def make(directory: Path) -> None:
    with dpduck.connect(directory / "clinic.duckdb") as con:
        con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex, range // 2 AS patient FROM range(2000)")
        policy = "PRIVACY UNIT patient MAX ROWS 2, BUDGET (epsilon = 1000000), DOMAIN sex IN (0, 1)"
        con.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON visits ({policy})"]).fetchall()
        con.execute("FROM dp('ALTER PRIVACY POLICY ON visits PREPARE')").fetchall()
        con.execute("INSERT INTO visits SELECT 0, 10000 + range FROM range(5000)")


def child(directory: Path, pipe: int, kill_at: int) -> None:
    """Prepares anew by a change of domains and back, and is killed at a step."""
    seen, armed = 0, False

    def step(name: str) -> None:
        nonlocal seen
        if armed and name in STEPS:
            seen += 1
            if seen == kill_at:
                os.write(pipe, f"killed {name}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)

    con = duckdb.connect(str(directory / "clinic.duckdb"), config={"threads": 1})
    dpduck.load(con, steps=step)
    files = sorted(path.name for path in directory.iterdir() if "_prepared_" in path.name)
    assert len(files) == 1, files
    rows = con.execute("SELECT value FROM dp_check('visits') WHERE finding = 'rows that were prepared'").fetchall()
    assert rows == [(2000.0,)], rows
    before = con.execute("FROM dp(?)", [STATEMENT.format(tag=kill_at)]).fetchall()
    assert all(abs(n - 1000) < 50 for _, n in before), before
    os.write(pipe, b"answered\n")
    (path,) = (path for path in directory.iterdir() if "_prepared_" in path.name)
    armed = True
    path.write_bytes(path.read_bytes()[:-4096])  # a damaged file: PREPARE reads the table anew
    con.execute("DELETE FROM visits WHERE patient >= 10000")
    con.execute("CHECKPOINT")
    con.close()
    con = duckdb.connect(str(directory / "clinic.duckdb"), config={"threads": 1})
    dpduck.load(con, steps=step)
    con.execute("FROM dp('ALTER PRIVACY POLICY ON visits PREPARE')").fetchall()
    os.write(pipe, b"lived\n")


STEPS = (
    *("preparing", "reading rows", "numbering units", "sorting rows", "counting again", "closing the file"),
    *("prepared, not yet in use", "prepared"),
)


def main(directory: Path) -> None:
    """Kills a child at each step. After each, the damaged file is still refused or the new one is used."""
    killed: Counter[str] = Counter()
    lived = 0
    for kill_at in range(1, MOST_STEPS + 1):
        place = directory / str(kill_at)
        place.mkdir()
        run_child(lambda pipe, place=place: make(place))  # type: ignore[misc]
        report = run_child(lambda pipe, place=place, kill_at=kill_at: child(place, pipe, kill_at))  # type: ignore[misc]
        killed.update(line.removeprefix("killed ") for line in report if line.startswith("killed"))
        lived += "lived" in report
        after = run_child(lambda pipe, place=place: look(place, pipe))  # type: ignore[misc]
        assert after == ["whole"], after
    print_account(killed, "answered", lived)


def look(directory: Path, pipe: int) -> None:
    """After a kill: refused in one line, or answered from the new file. PREPARE mends, and leaves no other file."""
    con = dpduck.connect(directory / "clinic.duckdb")
    spent = con.execute("SELECT count(*) FROM dp_ledger()").fetchall()
    try:
        con.execute("FROM dp(?)", [STATEMENT.format(tag="look")]).fetchall()
    except duckdb.Error as error:
        assert "is not whole" in str(error), error
        assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == spent, "charged for nothing"
        con.execute("FROM dp('ALTER PRIVACY POLICY ON visits PREPARE')").fetchall()
        con.execute("FROM dp(?)", [STATEMENT.format(tag="look")]).fetchall()
    left = [path.name for path in directory.iterdir() if "_prepared_" in path.name]
    assert len(left) == 1, left
    os.write(pipe, b"whole\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
