"""Kill a process at every step of a session's answers. Run by test_session_kill in a process of its own.

Each child is forked clean, checks the state that earlier children left, and asks new questions. It reports each answer
through a pipe before anything else can happen. Arguments: an empty directory, the number of children.
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

MOST_STEPS = 8
POLICY = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (rho = 1000000))"
SESSION = "CREATE PRIVATE SESSION s OPTIONS (rho = 100, sparsity = 2, queries = 1000, updates = 100) ON visits (code)"


def make(directory: Path) -> None:
    with dpduck.connect(directory / "clinic.duckdb") as con:
        con.execute("CREATE TABLE visits AS SELECT range // 500 AS code FROM range(20000)")
        con.execute("FROM dp(?)", [POLICY]).fetchall()
        con.execute("FROM dp(?)", [SESSION]).fetchall()


def ask(con: duckdb.DuckDBPyConnection, question: int) -> str:
    return repr(con.execute("FROM dp_ask('s', [?, ?])", [question % 50, question]).fetchall())


def check(con: duckdb.DuckDBPyConnection, told: dict[int, str]) -> None:
    """Every earlier answer is still the answer. Updates, answers and the ledger agree with one another."""
    stored = con.execute(
        "SELECT number, source, updates FROM private.dpduck.session_answers ORDER BY number"
    ).fetchall()
    assert [number for number, _, _ in stored] == list(range(1, len(stored) + 1)), "an answer is lost or there twice"
    used = 0
    for _, source, updates in stored:
        used += source == "measured"
        assert updates == used, "an update was lost or repeated"
    state = con.execute("SELECT updates, commits FROM private.dpduck.session_states").fetchall()
    assert (state[0] if state else (0, 0)) == (used, len(stored)), "state and answers disagree"
    assert con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall() == [(1,)], "the ledger moved"
    for question, answer in list(told.items())[-4:]:
        assert ask(con, question) == answer, "an answer changed"


def child(directory: Path, pipe: int, kill_at: int, questions: list[int], told: dict[int, str]) -> None:
    seen, asking = 0, False

    def step(name: str) -> None:
        nonlocal seen
        seen += asking
        if asking and seen == kill_at:
            os.write(pipe, f"killed {name}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    con = duckdb.connect(str(directory / "clinic.duckdb"), config={"threads": 1})
    dpduck.load(con, steps=step)
    check(con, told)
    asking = True
    for question in questions:
        os.write(pipe, f"told {question} {ask(con, question)}\n".encode())


def main(directory: Path, children: int) -> None:
    run_child(lambda _: make(directory))
    told: dict[int, str] = {}
    killed: Counter[str] = Counter()
    for number in range(children + 1):
        questions = [3 * number + place for place in range(3)] if number < children else []
        kill_at = 1 + number % MOST_STEPS  # each step in turn, and none
        report = run_child(
            lambda pipe, kill_at=kill_at, questions=questions: child(  # type: ignore[misc]
                directory, pipe, kill_at, questions, told
            )
        )
        for line in report:
            word, _, rest = line.partition(" ")
            if word == "killed":
                killed[rest] += 1
            else:
                question, _, answer = rest.partition(" ")
                told[int(question)] = answer
    print_account(killed, "told", len(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
