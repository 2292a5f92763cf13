"""The owner's shell as a person has it, on a pseudo-terminal: keys, history, completion, Ctrl-C and a lost server."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from dpduck.commands.shell.prompt import HISTORY
from tests.commands.shell.terminal import terminal
from tests.server.doors import door_process
from tests.server.served import CANARY

ASKED = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}) sex, count(*) AS n FROM visits GROUP BY sex ORDER BY sex;"
)
SLOW = """
import time
from dpduck.mechanisms.synthetic import mwem
made, begun = mwem._fit_parts, []
def slowly(*arguments, **named):
    if not begun:
        begun.append(True)
        print("fitting now", flush=True)
        time.sleep(300)
    return made(*arguments, **named)
mwem._fit_parts = slowly
"""
"""Makes the first round of synthetic data slow, and tells when it begins."""

IGNORED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


def test_history_completion_and_several_lines(clinic: Path) -> None:
    """Names and declared values are completed by Tab. The next shell has the history, for its owner alone."""
    with terminal(clinic) as shell:
        shell.type("SELECT count(*) AS c\r")
        shell.see("->")
        shell.type("FROM vis\t")
        shell.see("visits")
        shell.type(" WHERE wa\t")
        shell.see("ward")
        shell.type(" = 'w3\t")
        shell.see("w3'")
        answer = shell.ask(";", r"known_from.*┘")
        assert re.search(r"│ +\d+\.0 │", answer)
        typed = ASKED.format("0.5").replace("OPTIONS (epsilon", "OPTIONS (epsi\t").replace("\t = ", "\t")
        released = shell.ask(typed, r"│ +1 │ +-?\d+ │.*┘")
        assert shell.leave() == 0
        counts = re.findall(r"│ +[01] │ +(-?\d+) │", released)
        assert CANARY not in shell.shown and len(counts) == 1
    history = Path(os.environ["DPDUCK_STATE_DIR"]) / HISTORY
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    kept = history.read_text("utf-8")
    assert "FROM visits WHERE ward = 'w3';" in kept and "OPTIONS (epsilon = 0.5) sex" in kept
    assert CANARY not in kept and "interval" not in kept and "┌" not in kept
    with terminal(clinic) as shell:
        shell.type("\x1b[A")
        shell.see("SELECT WITH DIFFERENTIAL_PRIVACY")
        shell.ask("", rf"│ +1 │ +{counts[0]} │")
        spent = shell.ask(".budget", r"epsilon = 10 │ (\d+) %")
        assert spent.endswith("25 %"), "it is the same answer, and was paid once"
        assert shell.leave() == 0


@pytest.mark.parametrize("before", ["", IGNORED], ids=["heard", "ignored"])
def test_ctrl_c_at_the_prompt_and_in_a_query(clinic: Path, before: str) -> None:
    """At the prompt it clears the line. A query that runs is ended in one line, and the shell goes on.

    It is so, too, where the shell began with the signal ignored, as a script starts programs in the background.
    """
    with terminal(clinic, before) as shell:
        shell.type("SELECT nonsense FROM\r")
        shell.see("->")
        shell.type("\x03")
        shell.see("clinic>")
        shell.ask("SELECT 41 + 1 AS c;", r"│ +42 │")
        long = "SELECT count(*) FROM range(1000000) a, range(1000000) b, ages WHERE a.range * b.range = age;"
        shell.type(f"SELECT 7 AS begun; {long}\r")
        shell.see(r"│ +7 │.*┘")  # from here on no prompt hears the key
        shell.type("\x03")
        shell.see(r"Error: interrupted; nothing more was charged than dp_ledger\(\) shows[^\n]*\n")
        shell.see("clinic>")
        shell.ask("SELECT 8 + 1 AS c;", r"│ +9 │")
        assert shell.leave() == 0


@pytest.mark.slow
def test_ctrl_c_in_a_statement_says_what_stays_charged(clinic: Path) -> None:
    """The line names the charge. The same statement goes on for it. Nothing of an unfinished table is there."""
    made = (
        "CREATE PRIVATE TABLE made OPTIONS (rho = 0.1, mechanism = 'mwem', rounds = 1, rows = 30) AS "
        "SELECT sex, ward FROM visits WORKLOAD MARGINALS (1);"
    )
    with terminal(clinic, SLOW) as shell:
        shell.ask(
            "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (rho = 5), "
            "DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN ward FROM wards.name, EXPECT ROWS 1000);",
            "in force",
        )
        shell.type(f"{made}\r")
        shell.see("fitting now")
        shell.type("\x03")
        line = shell.see(r"Error: [^\n]*\n")
        assert re.search(r"interrupted; ledger entry \d+, rho = 0\.1, stays charged; asked again", line), line
        shell.ask("FROM made LIMIT 1;", "there is no private view 'made'")
        shell.ask(made, "private.made is ready")
        shell.ask("SELECT count(*) AS c FROM dp_ledger() WHERE rho > 0.09 AND rho < 0.11;", r"│ +1 │")
        assert shell.leave() == 0


def test_a_full_budget_is_one_line(clinic: Path) -> None:
    """The price says so beforehand, the refusal is one line, and a paid answer is still free."""
    with terminal(clinic) as shell:
        shell.ask(f".price {ASKED.format(9)}", r"90 % of your budget \(epsilon = 9\); costs more than what is left")
        line = shell.ask(ASKED.format(9), r"Error: [^\n]*\n")
        assert "accepted: " in line
        shell.ask("SELECT count(*) AS c FROM private.ages;", r"│ +10 │")
        assert shell.leave() == 0


def test_a_lost_server_is_one_line(clinic: Path) -> None:
    """The shell asks the server, says when it has ended, and opens the store itself."""
    with door_process(clinic) as server, terminal(clinic) as shell:
        assert "the server answers" in shell.shown
        shell.ask("PIVOT (FROM ward_cube WHERE grouping_level = 'sex') ON sex USING first(n);", r"│ +0 +│ +1 +│.*┘")
        shell.type("FROM ag\t")
        shell.see("ages")
        shell.ask(" LIMIT 1;", "n_stderr.*┘")
        server.kill()
        server.wait(600)
        shell.ask("FROM ages LIMIT 1;", "Error: the server ended meanwhile; dp_ledger")
        shell.ask("FROM ages LIMIT 1;", "n_stderr.*┘")
        shell.ask(".budget", "epsilon = 10 │ 20 %")
        assert shell.leave() == 0


@pytest.mark.parametrize("word", [".quit", "exit;"])
def test_words_leave(clinic: Path, word: str) -> None:
    """.quit, exit and quit leave, as Ctrl-D does."""
    with terminal(clinic) as shell:
        shell.type(f"{word}\r")
        shell.child.wait()
        assert shell.child.exitstatus == 0
