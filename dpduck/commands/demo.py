"""dpduck demo: a made-up clinic, its policy, a released count beside the exact one, and the remaining budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb

from dpduck.database.connection import connect
from dpduck.store.attaching import open_database
from dpduck.values.errors import Refusal

MARK = "made_by_dpduck_demo"
VISITS, PATIENTS = 1_000_000, 200_000
WARDS = ("cardiology", "emergency", "geriatrics", "maternity", "neurology", "oncology", "orthopaedics", "paediatrics")

_WARD_ROWS = ", ".join(f"('{name}', '{'north' if number % 2 else 'south'}')" for number, name in enumerate(WARDS))
CLINIC = (
    f"CREATE TABLE wards AS SELECT * FROM (VALUES {_WARD_ROWS}) AS t(name, building)",
    # some patients come often, most come seldom, and wards differ in size
    f"""
    CREATE TABLE visits AS
    SELECT patient_id,
           CASE WHEN hash(patient_id, 'sex') % 100 < 54 THEN 'F' ELSE 'M' END AS sex,
           least(104, CAST(20 + 70 * sqrt((hash(patient_id, 'age') % 10000) / 10000.0) AS INTEGER)) AS age,
           (SELECT list(name ORDER BY name) FROM wards)
               [1 + CAST(floor({len(WARDS)} * pow((hash(visit, 'ward') % 10000) / 10000.0, 1.7)) AS INTEGER)] AS ward,
           CAST(20 + hash(visit, 'charge') % 90000 / 100.0 AS DECIMAL(9, 2)) AS charge
    FROM (SELECT range AS visit,
                 CAST(floor({PATIENTS} * pow((hash(range, 'patient') % 1000000) / 1000000.0, 1.2)) AS INTEGER)
                     AS patient_id
          FROM range({VISITS}))
    """,
)
POLICY = """CREATE PRIVACY POLICY ON visits (
    PRIVACY UNIT patient_id MAX ROWS 30,
    BUDGET (epsilon = 3),
    DOMAIN sex  IN ('F', 'M'),
    DOMAIN age  RANGE 0 TO 100 STEP 10 WITH EDGES,
    DOMAIN ward FROM wards.name,
    CLAMP  charge BETWEEN 0 AND 1000 STEP 0.01,
    EXPECT ROWS 1000000
)"""
COUNT = """SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)
       ward, count(*) AS n, dp_interval_low(n) AS low, dp_interval_high(n) AS high
FROM visits GROUP BY ward ORDER BY ward"""
CUBE = "SELECT sex, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, ward)"
VIEW = f"CREATE PRIVATE VIEW ward_cube OPTIONS (epsilon = 1) AS {CUBE}"
EXACT_BESIDE_PRIVATE = """
SELECT ward, exact, private, low, high, exact BETWEEN low AND high AS covered
FROM (SELECT ward, count(*) AS exact FROM visits GROUP BY ward)
JOIN (SELECT ward, n AS private, low, high FROM dp($1)) USING (ward) ORDER BY ward
"""


def run_demo(directory: Path, say: Callable[[str], None], steps: Callable[[str], None]) -> None:
    """Makes the clinic in a directory, and shows each step. say: prints a line. steps: reports progress."""
    _make_room(directory)
    steps("making 1,000,000 visits of 200,000 patients")
    with open_database(directory / "clinic.duckdb") as clinic:
        for statement in CLINIC:
            clinic.execute(statement)
    with connect(directory / "clinic.duckdb") as con:
        steps("declaring what is public and what is protected")
        con.execute("FROM dp('DECLARE PUBLIC TABLE wards')").fetchall()
        con.execute("FROM dp($1)", [POLICY]).fetchall()
        say(POLICY)
        title = "what the owner may look at before opening the table to others (exact, not private)"
        _show(con, title, "SELECT finding, value FROM dp_check('visits')", [], say)
        steps("explaining a cube (spends nothing)")
        _show(con, "the strategies for CUBE (sex, ward), least total variance first",
              "SELECT strategy, chosen, round(total_variance) AS total_variance, worst_stderr, cells "
              "FROM dp_explain($1)", [VIEW], say)  # fmt: skip
        steps("releasing counts")
        say(f"\n{COUNT}")
        _show(con, "exact beside private, with 95 % intervals", EXACT_BESIDE_PRIVATE, [COUNT], say)
        con.execute("FROM dp($1)", [VIEW]).fetchall()
        _show(con, "private.ward_cube: an ordinary table from now on, every margin adds up",
              "FROM private.ward_cube WHERE ward IS NULL ORDER BY sex", [], say)  # fmt: skip
        _show(con, "the budget", "SELECT table_name, measure, budget, spent, remaining FROM dp_budget()", [], say)
        steps("done")
    say(f"\nAsk on: dpduck shell {directory}/clinic.duckdb")
    say(f"Open what was released in any DuckDB shell: duckdb {directory}/clinic_private.duckdb 'FROM ward_cube'")


def _make_room(directory: Path) -> None:
    """Makes a directory, or deletes an earlier demo's files in it. Refuses a directory with files and no demo."""
    directory.mkdir(parents=True, exist_ok=True)
    present = sorted(path.name for path in directory.iterdir())
    if present and MARK not in present:
        raise Refusal(f"the directory {directory} is not empty", accepted="an empty or new directory")
    for path in directory.iterdir():
        if path.is_file() and (path.name == MARK or path.name.startswith("clinic")):
            path.unlink()
    (directory / MARK).write_text("dpduck demo replaces this directory's clinic* files when it runs again\n")


def _show(
    con: duckdb.DuckDBPyConnection, title: str, sql: str, parameters: list[str], say: Callable[[str], None]
) -> None:
    say(f"\n-- {title}")
    say(con.sql(sql, params=parameters).__repr__() if parameters else con.sql(sql).__repr__())
