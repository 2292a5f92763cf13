"""Synthetic data on a terminal: a line that says how far it is, and Ctrl-C that leaves nothing half done or unpaid."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpduck.database import functions
from dpduck.database.progress import ROUND, WORDS, Progress
from dpduck.store.cursors import Caller
from dpduck.values.errors import PermissionRefusal, Refusal
from tests.database.test_progress import environment
from tests.support.clinics import Clinic

ALICE = Caller("alice", owner=False)
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (rho = 50),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 20, DOMAIN ward FROM wards.name, EXPECT ROWS 1000)"""


@pytest.fixture
def gaussian(open_clinic: Callable[..., Clinic]) -> Clinic:
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(POLICY)
    return clinic


SCRIPT = """
import fcntl, json, signal, sys, termios, time
signal.signal(signal.SIGINT, signal.default_int_handler)
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
import duckdb, dpduck
from dpduck.database import progress
from dpduck.mechanisms.synthetic import mwem, recover
progress.EVERY = 0.05
def slowly(module, name):
    made = getattr(module, name)
    def slow(*arguments, **named):
        time.sleep(SLOW)
        return made(*arguments, **named)
    setattr(module, name, slow)
for module, name in ((mwem, "_fit_parts"), (recover, "fit_tables"), (recover, "sample_codes")):
    slowly(module, name)
con = dpduck.connect()
con.execute("CREATE TABLE people AS SELECT range // 2 AS person, range % 2 AS a, range % 3 AS b, range % 4 AS c "
            "FROM range(600)")
said = []
def ask(text):
    con.execute("FROM dp(?)", [text]).fetchall()
def stopped(text):
    global SLOW
    SLOW, progress.FIRST = 0.4, 0.2
    try:
        ask(text)
    except duckdb.Error as error:
        said.append(str(error).splitlines()[0])
    SLOW, progress.FIRST = 0, 60
    spent = con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchone()[0]
    made = con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'made'").fetchone()[0]
    ask(text)
    after = con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchone()[0]
    said.append([spent, made, after, con.execute("SELECT count(*) FROM private.made").fetchone()[0]])
    con.execute("FROM dp('DROP PRIVATE TABLE made')").fetchall()
SLOW = 0
ask("CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 2, BUDGET (epsilon = 100, delta = 1e-3), "
    "DOMAIN a IN (0, 1), DOMAIN b IN (0, 1, 2), DOMAIN c IN (0, 1, 2, 3), EXPECT ROWS 600)")
head = "CREATE PRIVATE TABLE made OPTIONS (rho = 1, mechanism = 'mwem', rounds = 3, rows = %d) AS SELECT a, b, c "
tail = "FROM people WORKLOAD MARGINALS (2)"
stopped(head % 50 + tail)
stopped(head % 60 + tail)
ask("CREATE PRIVATE VIEW cube OPTIONS (rho = 1) AS SELECT a, b, count(*) AS n FROM people GROUP BY CUBE (a, b)")
stopped("CREATE PRIVATE TABLE made AS SAMPLE 70 FROM private.cube")
print(json.dumps(said))
"""


def typed(folder: Path, moments: list[str]) -> tuple[str, list[Any]]:
    """Runs the script on a terminal of its own. Types Ctrl-C at each of these words, one after the other. Returns the
    terminal's text, and the script's own output.
    """
    ours, theirs = pty.openpty()
    told, left, deadline = "", list(moments), time.monotonic() + 60
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=environment(folder),
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        while child.poll() is None and time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.05)[0]:
                continue
            try:
                new = os.read(ours, 4096).decode()
            except OSError:  # the terminal has gone with the child
                break
            told += new
            if left and left[0] in new:
                left.pop(0)
                os.write(ours, b"\x03")
        out, _ = child.communicate(timeout=20)
    finally:
        child.kill()
        os.close(ours)
    assert child.returncode == 0, told
    return told, json.loads(out)


@pytest.mark.slow
def test_ctrl_c_on_a_terminal(tmp_path: Path) -> None:
    """Ctrl-C is typed in a round, while rows are drawn from stored answers, and in the fit of a free sample.

    The line counts rounds and has an estimate. What stays charged is said. No half table is left. The same statement
    again makes the table and is not charged again.
    """
    told, (rounds, first, drawing, second, sample, third) = typed(tmp_path, ["round 2", "drawing rows", "fitting"])
    assert "dpduck: measuring and fitting, round 1, " in told and " s of about 1 s" in told
    paid = re.search(
        r"interrupted; (ledger entry \d+, rho = 1), stays charged; asked again, it goes on for the", rounds
    )
    assert paid is not None
    assert first == [1, 0, 1, 50]
    assert f"interrupted; {paid[1]}, stays charged; what it paid for is stored: asking again is free" in drawing
    assert second == [1, 0, 1, 60]
    assert "interrupted; nothing more was charged than dp_ledger() shows; accepted: asking again" in sample
    assert third == [2, 0, 2, 70]
    assert "Traceback" not in told


def test_the_line_knows_rounds_and_the_rest() -> None:
    """Rounds are counted for one statement. An estimate counts from the end of the count, and ends with its
    statement."""
    shown: list[str] = []

    class Terminal:
        def write(self, text: str) -> None:
            shown.append(text)

        def flush(self) -> None:
            pass

    line = Progress(Terminal())  # type: ignore[arg-type]
    with line.working():
        line.expect(40.0, counted=False)
        assert line.text() == "dpduck: planning, 0 s"
        for step in ("after the count", ROUND, ROUND, "of no dictionary"):
            line.note(step)
        assert line.text() == "dpduck: measuring and fitting, round 2, 0 s of about 40 s"
        line.note("drawing rows")
        assert line.text() == f"dpduck: {WORDS['drawing rows']}, 0 s of about 40 s"
    with line.working():
        line.note(ROUND)
        assert line.text() == "dpduck: measuring and fitting, round 1, 0 s"
        line.expect(7.0, counted=True)
        assert line.text().endswith(" of about 7 s")
    assert shown == []


HEAD = "CREATE PRIVATE TABLE made OPTIONS (rho = 1, rows = {}, mechanism = '{}') AS SELECT sex, age, ward FROM visits"
WORKLOADS = [
    ("cube", "MARGINALS (2)"), ("barak", "MARGINALS (2)"), ("mwem", "MARGINALS (2)"), ("aim", "MARGINALS (2)"),
    ("mwem", "PARITIES (2)"), ("mwem", "RANGES"), ("mwem', update = 'paper', keep = 'average", "MARGINALS (1)"),
]  # fmt: skip


@pytest.mark.parametrize(("mechanism", "workload"), WORKLOADS)
def test_every_way_has_seconds(gaussian: Clinic, mechanism: str, workload: str) -> None:
    """For every mechanism dp_explain says how long it takes, longer for more rows, and spends nothing."""
    charged = gaussian.charges()
    few, many = (
        gaussian.value(f"SELECT seconds FROM dp_explain($q${HEAD.format(rows, mechanism)} WORKLOAD {workload}$q$)")
        for rows in (10, 1_000_000)
    )
    assert 0 < few < 2 and few + 0.3 < many < 10
    assert gaussian.charges() == charged


def test_a_sample_is_explained(gaussian: Clinic) -> None:
    """dp_explain says that a free sample is free, and its time, to principals who may read its sources."""
    gaussian.dp(
        "CREATE PRIVATE VIEW cube OPTIONS (rho = 1) AS SELECT sex, ward, count(*) AS n FROM visits GROUP BY ALL"
    )
    charged = gaussian.charges()
    text = "CREATE PRIVATE TABLE made AS SAMPLE {} FROM {}"
    ask = "SELECT strategy, chosen, price, rho, groups, seconds, note FROM dp_explain('{}')"
    cube = gaussian.rows(ask.format(text.format(10, "private.cube")))[0]
    assert cube[:5] == ("sample", True, "nothing: it reads released tables alone", 0.0, 1) and 0 < cube[5] < 0.1
    known = gaussian.rows(ask.format(text.format(1_000_000, "KNOWN visits (ward, sex)")))[0]
    assert known[4] == 1 and 0.3 < known[5] < 10 and "all that is known" in known[6]
    assert gaussian.charges() == charged
    database = functions.database_of(gaussian.con)
    assert database is not None
    with pytest.raises(Refusal):
        database.explain(text.format(10, "private.nothing"), ALICE)
    with pytest.raises(PermissionRefusal):
        database.explain(text.format(10, "KNOWN visits (sex, ward)"), replace(ALICE, tables=()))
