"""Kill a process at every step of a release. Run by test_release_kill in a process of its own.

The parent never opens DuckDB. Each child is forked clean, checks the state that the child before it left, and asks new
questions. It reports each step through a pipe before anything else can happen. Arguments: an empty directory, "steps"
or "moments", the number of children. Prints where children were killed.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb

import dpduck
from tests.support.kills import print_account, run_child

MOST_STEPS = 19  # one more than a release has: some children live
AFTER_THE_CHARGE = (
    *("charge returns", "after the charge", "after the count"),
    *("after the noise", "before it is stored", "charge ended", "after the release"),
)
POLICY = (
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (rho = 1000000), DOMAIN sex IN (0, 1))"
)


def statement(tag: str) -> str:
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = '{tag}') sex, count(*) AS n "
        "FROM visits GROUP BY sex ORDER BY sex"
    )


def make(directory: Path) -> None:
    with dpduck.connect(directory / "clinic.duckdb") as con:
        con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex, range // 4 AS patient FROM range(200)")
        con.execute("FROM dp(?)", [POLICY]).fetchall()


def check(con: duckdb.DuckDBPyConnection, answers: dict[str, str], paid: set[str], begun: int) -> None:
    """Every answer is there for nothing, every noise that could have left is paid for, and no release is half there."""
    ledger = con.execute("SELECT id, statement FROM dp_ledger() WHERE rho > 0").fetchall()
    statements = Counter(text for _, text in ledger)
    assert all(statements[statement(tag)] == 1 for tag in paid), "noise was drawn that nobody paid for"
    assert len(ledger) <= begun, "a charge appeared that nobody asked for"
    listed = con.execute("SELECT name, ledger_id, rows FROM dp_releases()").fetchall()
    tables = con.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'private' AND schema_name = 'main'"
    ).fetchall()
    assert {name for (name,) in tables} == {name for name, _, _ in listed}, "tables and releases disagree"
    assert len(tables) == len(listed)
    assert {entry for _, entry, _ in listed} <= {entry for entry, _ in ledger}, "a release that nobody paid for"
    for name, _, rows in listed[-5:]:
        assert con.execute(f"SELECT count(*) FROM private.{name}").fetchall() == [(rows,)], "half a release"
    for tag, answer in list(answers.items())[-3:]:
        assert repr(con.execute("FROM dp(?)", [statement(tag)]).fetchall()) == answer, "an answer changed"
    assert con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall() == [(len(ledger),)]


def child(
    directory: Path, pipe: int, kill_at: int, tags: list[str], known: Callable[[duckdb.DuckDBPyConnection], None]
) -> None:
    seen, tag = 0, ""

    def say(text: str) -> None:
        os.write(pipe, f"{text}\n".encode())

    def step(name: str) -> None:
        nonlocal seen
        if not tag:
            return
        seen += 1
        if name in AFTER_THE_CHARGE:
            say(f"paid {tag}")
        if seen == kill_at:
            say(f"killed {name}")
            os.kill(os.getpid(), signal.SIGKILL)

    con = duckdb.connect(str(directory / "clinic.duckdb"), config={"threads": 1})
    dpduck.load(con, steps=step)
    known(con)
    say("ready")
    for one in tags:
        tag = one
        say(f"begun {tag}")
        answer = con.execute("FROM dp(?)", [statement(tag)]).fetchall()
        say(f"answered {tag} {answer!r}")


def main(directory: Path, mode: str, children: int) -> None:
    run_child(lambda _: make(directory))
    answers: dict[str, str] = {}
    paid: set[str] = set()
    killed: Counter[str] = Counter()
    begun = 0
    for number in range(children + 1):
        tags = [f"{number} {question}" for question in range(1 if mode == "steps" else 1000)]
        kill_at = 1 + number % MOST_STEPS if mode == "steps" and number < children else 0  # each step in turn
        word = ("answered", "ready")[number % 2] if mode == "moments" and number < children else ""
        patience = secrets.randbelow(500_000) / 1e6
        asked = tags if number < children else []
        report = run_child(
            lambda pipe, kill_at=kill_at, asked=asked, begun=begun: child(  # type: ignore[misc]
                directory, pipe, kill_at, asked, lambda con: check(con, answers, paid, begun)
            ),
            word,
            patience,
        )
        for line in report:
            told, _, rest = line.partition(" ")
            if told == "killed":
                killed[rest] += 1
            elif told == "begun":
                begun += 1
            elif told == "paid":
                paid.add(rest)
            elif told == "answered":
                first, second, answer = rest.split(" ", 2)
                answers[f"{first} {second}"] = answer
                paid.add(f"{first} {second}")
    print_account(killed, "answered", len(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
