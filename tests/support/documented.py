"""Stores of every kind that documents are written about, on made-up visits with values that no document may show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main

CANARY = "canary"
ROWS = (
    f"CREATE TABLE visits AS SELECT '{CANARY} ' || i // 3 AS patient_id, ['F', 'M', NULL][i % 3 + 1] AS sex, "
    "['north', 'south'][i % 2 + 1] AS ward, DATE '2024-01-01' + CAST(i % 366 AS INTEGER) AS day, i % 90 AS age, "
    f"'{CANARY}' || i AS note FROM range(3000) AS r(i)"
)
DOMAINS = (
    "DOMAIN sex IN ('F', 'M') WITH NULL, DOMAIN ward IN ('north', 'south'), "
    "DOMAIN day RANGE 2024-01-01 TO 2025-01-01 STEP MONTH, DOMAIN age RANGE 0 TO 90 STEP 10, "
    "CLAMP age BETWEEN 0 AND 90 STEP 1"
)
PATIENT = "PRIVACY UNIT patient_id MAX ROWS 3"
JANUARY = "day >= DATE '2024-01-01' AND day < DATE '2024-02-01'"
FEBRUARY = "day >= DATE '2024-02-01' AND day < DATE '2024-03-01'"
BY_WARD = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"


@dataclass(frozen=True)
class Kind:
    """A policy without its domains, and the statements that follow it."""

    policy: str
    statements: tuple[str, ...]


KINDS = {
    "pure": Kind(
        f"{PATIENT}, BUDGET (epsilon = 10)",
        (
            "CREATE PRIVATE VIEW cube OPTIONS (epsilon = 1, title = 'Visits by ward', description = 'All of 2024.', "
            "answer_units = ('visits', 'years', 'years')) AS SELECT ward, sex, count(*) AS n, sum(age) AS ages, "
            "avg(age) AS mean FROM visits GROUP BY CUBE (ward, sex)",
            "CREATE PRIVATE VIEW total OPTIONS (epsilon = 0.3) AS SELECT count(*) AS n FROM visits",
        ),
    ),
    "approximate": Kind(
        f"{PATIENT}, BUDGET (epsilon = 3, delta = 1e-6)",
        (
            f"CREATE PRIVATE VIEW by_ward OPTIONS (epsilon = 0.5, delta = 1e-6) AS {BY_WARD}",
            "CREATE PRIVATE VIEW total OPTIONS (epsilon = 0.1) AS SELECT count(*) AS n FROM visits",
        ),
    ),
    "rho": Kind(f"{PATIENT}, BUDGET (rho = 1)", (f"CREATE PRIVATE VIEW by_ward OPTIONS (rho = 0.125) AS {BY_WARD}",)),
    "month": Kind(
        "PRIVACY UNIT patient_id PER MONTH OF day MAX ROWS 3, BUDGET (epsilon = 1) PER MONTH, LIFETIME (epsilon = 12)",
        tuple(
            f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = {price}) AS SELECT ward, count(*) AS n FROM visits "
            f"WHERE {when} GROUP BY ward"
            for name, price, when in (("january", 0.5, JANUARY), ("february", 0.25, FEBRUARY))
        ),
    ),
    "stream": Kind(
        f"{PATIENT}, BUDGET (epsilon = 10)",
        (
            "CREATE PRIVATE STREAM monthly OPTIONS (epsilon = 1, periods = 12) AS SELECT day, ward, count(*) AS n "
            "FROM visits GROUP BY day, ward",
            "REFRESH PRIVATE STREAM monthly UNTIL '2024-03-01'",
        ),
    ),
    "synthetic": Kind(
        f"{PATIENT}, BUDGET (epsilon = 10)",
        (
            "-- rows to test with\nCREATE PRIVATE TABLE made_up OPTIONS (epsilon = 1) AS SELECT ward, sex FROM visits "
            "WORKLOAD MARGINALS (1)",
        ),
    ),
    "keys": Kind(
        f"{PATIENT}, BUDGET (epsilon = 10, delta = 1e-5, delta_keys = 5e-6)",
        (
            "CREATE PRIVATE VIEW selected OPTIONS (epsilon = 2, delta = 1e-6, "
            "group_selection_strategy = LAPLACE_THRESHOLD, max_groups_contributed = 3) AS SELECT age, count(*) AS n "
            "FROM visits GROUP BY age",
            "CREATE PRIVATE VIEW notes OPTIONS (epsilon = 1, delta = 1e-6, "
            "group_selection_strategy = LAPLACE_THRESHOLD, max_groups_contributed = 1) AS SELECT note, count(*) AS n "
            "FROM visits GROUP BY note",
        ),
    ),
    "row_month": Kind(
        "PRIVACY UNIT ROW PER MONTH OF day, BUDGET (epsilon = 1) PER MONTH",
        tuple(
            f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = {price}) AS SELECT ward, count(*) AS n FROM visits "
            f"WHERE {when} GROUP BY ward HAVING n > 100"
            for name, price, when in (("january", 0.5, JANUARY), ("february", 0.25, FEBRUARY))
        ),
    ),
    "rows": Kind(
        "PRIVACY UNIT ROW, BUDGET (epsilon = 10)", (f"CREATE PRIVATE VIEW by_ward OPTIONS (epsilon = 1) AS {BY_WARD}",)
    ),
}


def make_store(folder: Path, kind: Kind) -> Path:
    """Makes a database with its store. Returns the database. DPDUCK_STATE_DIR must be set."""
    folder.mkdir(parents=True, exist_ok=True)
    with dpduck.connect(folder / "clinic.duckdb") as owner:
        owner.execute(ROWS)
        for statement in (f"CREATE PRIVACY POLICY ON visits ({kind.policy}, {DOMAINS})", *kind.statements):
            owner.execute("FROM dp(?)", [statement])
    return folder / "clinic.duckdb"


def written(database: Path, document: str, *words: str) -> str:
    """Runs dpduck document, and returns what it printed."""
    ran = CliRunner().invoke(main, ["document", document, str(database), *words])
    assert ran.exit_code == 0, ran.output
    return ran.output


def refused(database: Path, document: str, *words: str) -> str:
    """Runs dpduck document, which must refuse, and returns the message."""
    ran = CliRunner().invoke(main, ["document", document, str(database), *words])
    assert ran.exit_code == 1 and ran.output.startswith("Error: "), ran.output
    return ran.output


def label_of(database: Path, *words: str) -> str:
    """Returns the page of the label."""
    target = database.parent / "label.html"
    written(database, "label", "--to", str(target), *words)
    return target.read_text(encoding="utf-8")
