"""What takes long shows that it is alive: on a terminal and in a notebook, never in a pipe, and never a datum."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.database import connection, progress
from dpduck.database.progress import WORDS, Progress

SCRIPT = """
import sys, time
import dpduck
from dpduck.database import progress
progress.FIRST, progress.EVERY = 0.3, 0.1
with dpduck.connect() as con:
    con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex FROM range(100)")
    con.execute("FROM dp('CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 9))')").fetchall()
    from dpduck.mechanisms.release import Releaser
    made = Releaser.release
    def slow(self, *arguments):
        time.sleep(1.5)
        return made(self, *arguments)
    Releaser.release = slow
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits"
    assert len(con.execute("FROM dp(?)", [asked]).fetchall()) == 1
"""


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "DPDUCK_STATE_DIR": str(folder / "state")}


@pytest.mark.slow
def test_a_terminal_shows_a_line_that_goes_again(tmp_path: Path) -> None:
    """A pseudo-terminal shows the present step and its time, and the line is wiped out when it is done."""
    told, (ours, theirs) = "", pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], stderr=theirs, env=environment(tmp_path), timeout=120, check=False
        )
        os.close(theirs)
        told = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
    assert done.returncode == 0, told
    assert "dpduck: planning, 1 s" in told and told.endswith(" \r")
    words = {part.strip().rpartition(",")[0] for part in told.split("\r") if part.strip()}
    assert words <= {f"dpduck: {word}" for word in (*WORDS.values(), "planning")}


@pytest.mark.slow
def test_a_pipe_is_silent(tmp_path: Path) -> None:
    """With standard error in a pipe, the statement writes not one character."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, env=environment(tmp_path), timeout=120, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"")


def test_steps_are_told_in_fixed_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that stays below the first moment writes nothing. Each step has its word, an unknown one none."""
    shown = StringIO()
    line = Progress(shown)
    with line.working():
        line.note("after the charge")
        assert line._word == "measuring"
        line.note("E11.9 of patient 7")
        assert line._word == "measuring"
    assert shown.getvalue() == ""
    monkeypatch.setattr(progress, "FIRST", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    with line.working(), line.working():  # the second of two is silent
        threading.Event().wait(0.1)
    assert shown.getvalue().startswith("\rdpduck: planning, 0 s") and shown.getvalue().endswith("\r")
    shown.close()
    with line.working():  # a terminal that has gone stops nothing
        threading.Event().wait(0.05)


def test_who_is_told_of_steps_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that hands its own steps over has no second line. An error, and Ctrl-C, end the line too."""
    line = Progress(StringIO())
    monkeypatch.setattr(connection, "progress_here", lambda: line)
    told: list[str] = []
    with duckdb.connect() as plain:
        dpduck.load(plain, steps=told.append)
        assert plain.execute("FROM dp_policies()").fetchall() == []
    with dpduck.connect() as con, pytest.raises(duckdb.Error, match="there is no table"):
        con.execute("FROM dp_columns('nosuch')").fetchall()
    assert line._busy.acquire(blocking=False), "nothing is at work"
