"""The cost of a process before it has done anything: commands, dpduck.load, and the memory of a first count.

Gates, processor seconds of whole processes, with the import of DuckDB beside them: dpduck --help at most 0.15, dpduck
budget at most 0.45, dpduck.load on a new store at most 0.35 and on one that exists 0.25. Memory of a process that
has counted once, at most 180 MiB where pandas is not imported. DuckDB's client imports it, where it is installed, for
the first text that a function of Python answers, as dp()'s does: what it adds is printed beside, without a gate.
Traps avoided: processor time, user and system, which others on the machine do not lengthen much. The medians of nine
processes, the cases in turn. Modules are compiled before. A new store is on the disk, with its ledger. pandas is
installed where the first line says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import duckdb

import dpduck

ROUNDS = 9
COMMAND = "from dpduck.commands.command_line import run; run()"
LOAD = "import sys, duckdb, dpduck; con = duckdb.connect(sys.argv[1]); dpduck.load(con)"
POLICY = (
    "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 100), DOMAIN sex IN (0, 1))"
)
OPTIONS = "epsilon = 0.01, refresh = $$"
"""A new count in each process: $$ tells them apart."""

COUNT = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({OPTIONS}) sex, count(*) AS n FROM visits GROUP BY sex"
COUNTED = f"""{LOAD}
con.sql("FROM dp('" + "{COUNT}".replace("$$", "''" + sys.argv[2] + "''") + "')").fetchall()
print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS:')))"""
WITHOUT_PANDAS = f"from dpduck.values.no_pandas import do_without_pandas; do_without_pandas(); {COUNTED}"
MOST = {"--help": 0.15, "budget": 0.45, "a new store": 0.35, "a store that exists": 0.25}
MOST_MEMORY = 180.0
"""MiB."""


def seconds(words: list[str]) -> tuple[float, str]:
    """Processor seconds of one process, user and system, and its output."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        printed = output.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return used.ru_utime + used.ru_stime, printed


def make_clinic(folder: Path) -> Path:
    """1,000 visits of 250 patients, with a policy and one charge."""
    database = folder / "clinic.duckdb"
    with dpduck.connect(database) as connection:
        connection.execute("CREATE TABLE visits AS SELECT range // 4 AS patient, range % 2 AS sex FROM range(1000)")
        for statement in (POLICY, COUNT.replace("$$", "'first'")):
            connection.execute("FROM dp(?)", [statement]).fetchall()
    return database


def taken(database: Path, folder: Path, number: int) -> dict[str, float]:
    """Each case once: seconds, and the memory of a count in MiB."""
    new = folder / f"new{number}"
    new.mkdir()
    with duckdb.connect(str(new / "new.duckdb")) as connection:
        connection.execute("CREATE TABLE visits AS SELECT range AS patient FROM range(1000)")
    _, printed = seconds(["-c", WITHOUT_PANDAS, str(database), f"a{number}"])
    _, with_pandas = seconds(["-c", COUNTED, str(database), f"b{number}"])
    return {
        "import duckdb": seconds(["-c", "import duckdb"])[0],
        "--help": seconds(["-c", COMMAND, "--help"])[0],
        "budget": seconds(["-c", COMMAND, "budget", str(database)])[0],
        "a new store": seconds(["-c", LOAD, str(new / "new.duckdb")])[0],
        "a store that exists": seconds(["-c", LOAD, str(database)])[0],
        "memory": int(printed.splitlines()[-1]) / 1024,
        "memory with pandas": int(with_pandas.splitlines()[-1]) / 1024,
    }


def main() -> int:
    """All cases in turn, as often as ROUNDS says."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["DPDUCK_STATE_DIR"] = name
        os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # processes read what the first one compiled
        database = make_clinic(folder)
        taken(database, folder, ROUNDS)
        rounds = [taken(database, folder, number) for number in range(ROUNDS)]
    found = {case: median(one[case] for one in rounds) for case in rounds[0]}
    print(
        f"pandas is {'installed' if find_spec('pandas') else 'not installed'}; processor seconds, medians of {ROUNDS}"
    )
    print(f"import duckdb, the unit: {found['import duckdb']:.3f} s")
    passed = True
    for case, most in MOST.items():
        what = f"dpduck {case}" if case in ("--help", "budget") else f"dpduck.load on {case}"
        passed &= found[case] <= most
        verdict = "PASS" if found[case] <= most else "FAIL"
        print(f"{what}: {found[case]:.3f} s, {found[case] / found['import duckdb']:.1f} units (gate: {most}) {verdict}")
    passed &= found["memory"] <= MOST_MEMORY
    verdict = "PASS" if found["memory"] <= MOST_MEMORY else "FAIL"
    print(f"memory after a count: {found['memory']:.0f} MiB (gate: {MOST_MEMORY:.0f}) {verdict}")
    print(f"memory after a count where DuckDB imports what is installed: {found['memory with pandas']:.0f} MiB")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
