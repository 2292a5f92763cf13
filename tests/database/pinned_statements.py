"""Values that a restructuring must keep: digests, ledger rows and a store of an earlier commit.

`python -m tests.database.pinned_statements pins` writes the values of this commit to pinned/releases.json.
`python -m tests.database.pinned_statements counts` writes the exact counts of these statements to pinned/counts.json.
`python -m tests.database.pinned_statements store` writes a small store of this commit to pinned/store.zip.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb

import dpduck
from tests.language.full_clinic import open_full_clinic
from tests.language.golden_files import read_golden
from tests.support.clinics import Clinic
from tests.support.exact import noted_counts

FOLDER = Path(__file__).parent / "pinned"
PINS, STORE, COUNTS = FOLDER / "releases.json", FOLDER / "store.zip", FOLDER / "counts.json"
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4,
    BUDGET (epsilon = 1000000, delta = 1e-3, delta_keys = 5e-4), DOMAIN sex IN (0, 1),
    DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN ward FROM wards.name, CLAMP age BETWEEN 0 AND 100 STEP 5,
    EXPECT ROWS 1000)"""
PURE = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 1000000),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN ward FROM wards.name,
    CLAMP age BETWEEN 0 AND 100 STEP 5, EXPECT ROWS 1000)"""
SUMMARY = "AS SELECT sex, age, count(*) AS n FROM visits GROUP BY sex, age"
KEYS = "group_selection_strategy = LAPLACE_THRESHOLD"


def asked(price: str, rest: str) -> str:
    """An annotated SELECT."""
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) {rest}"


def every_mechanism(price: str) -> list[str]:
    """Statements of every mechanism that either kind of price can buy."""
    cube = "sex, age, ward, count(*) AS n FROM visits GROUP BY"
    return [
        asked(price, f"{cube} CUBE (sex, age, ward)"),
        *(asked(f"{price}, strategy = '{name}'", f"{cube} CUBE (sex, age, ward)") for name in ("F", "I", "C", "Q")),
        asked(f"{price}, budgets = 'uniform', strategy = 'F'", f"{cube} MARGINALS (2, sex, age, ward)"),
        asked(price, "age, count(*) AS n FROM visits GROUP BY RANGES(age)"),
        asked(price, "sex, sum(age) AS s, count(*) AS n, avg(age) AS a, stddev_pop(age) AS d FROM visits GROUP BY sex"),
        # the mechanism has a name here since another is the default: the digest is that of the statement without it
        asked(
            f"{price}, quantiles = 'tree'",
            "sex, quantile_cont(age, 0.5) AS q, count(DISTINCT ward) AS w FROM visits GROUP BY sex",
        ),
        asked(price, "sex, count(*) FILTER (WHERE age > 30) AS n FROM visits GROUP BY ROLLUP (sex)"),
        f"CREATE PRIVATE TABLE asked_t OPTIONS ({price}, mechanism = 'mwem', rows = 10) "
        "AS SELECT sex, age, ward FROM visits WORKLOAD MARGINALS (2)",
        f"CREATE PRIVATE TABLE adaptive_t OPTIONS ({price}, mechanism = 'mwem', rows = 10, rounds = 4, "
        "adaptive = true) AS SELECT sex, age, ward FROM visits WORKLOAD MARGINALS (2)",
        f"CREATE PRIVATE TABLE first_t OPTIONS ({price}, mechanism = 'mwem', rows = 10, first = 'marginals') "
        "AS SELECT sex, age FROM visits WORKLOAD RANGES",
        f"CREATE PRIVATE TABLE cubed_t OPTIONS ({price}, mechanism = 'cube', rows = 10) "
        "AS SELECT sex, age FROM visits WORKLOAD MARGINALS (2)",
        f"CREATE PRIVATE TABLE barak_t OPTIONS ({price}, mechanism = 'barak', rows = 10) "
        "AS SELECT sex, age FROM visits WORKLOAD MARGINALS (1)",
        f"CREATE PRIVATE PROJECTION projected OPTIONS ({price}, sparsity = 2, queries = 5) AS SELECT ward FROM visits",
        f"CREATE PRIVATE HISTOGRAM lazy OPTIONS ({price}, queries = 5) ON visits (ward)",
        f"CREATE PRIVATE SESSION talk OPTIONS ({price}, sparsity = 2, queries = 5) ON visits (ward)",
        f"CREATE PRIVATE SESSION few OPTIONS ({price}, sparsity = 2, queries = 5, updates = 3) ON visits (ward)",
    ]


def approximate_only() -> list[str]:
    """Statements that a delta for keys pays for."""
    rows = "ward, count(*) AS n, count(DISTINCT patient) AS p FROM visits GROUP BY ward"
    prices = ("epsilon = 1, delta = 1e-6", "epsilon = 2, delta = 1e-7, min_privacy_units_per_group = 5")
    return [
        *(asked(f"{price}, {KEYS}", rows) for price in prices),
        *(asked(f"{price}, group_selection_strategy = GAUSSIAN_THRESHOLD", rows) for price in prices),
    ]


def pure_only() -> list[str]:
    """Summaries, which cost a pure epsilon."""
    sized, dyadic = "summary_size = 10", "range_summary = 'dyadic'"
    options = {
        "s1": "summary = 'filter', theta = 2",
        "s2": "summary = 'filter_priority', summary_size = 10",
        "s3": f"summary = 'threshold', {sized}, total_epsilon = 0.1",
        "s4": f"summary = 'sketch', {sized}, sketch_rows = 3",
        "s5": f"summary = 'priority', {sized}",
    }
    ranged = f"OPTIONS (epsilon = 1, summary = 'filter', theta = 1, {dyadic})"
    return [
        *(f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = 1, {more}) {SUMMARY}" for name, more in options.items()),
        f"CREATE PRIVATE VIEW s6 {ranged} AS SELECT age, count(*) AS n FROM visits GROUP BY RANGES(age)",
    ]


STATEMENTS = {
    "pure": (PURE, [*every_mechanism("epsilon = 1"), *pure_only()]),
    "zCDP": (POLICY, [*every_mechanism("epsilon = 1, delta = 1e-6"), *approximate_only(), *pure_only()]),
}


def releases(connection: duckdb.DuckDBPyConnection) -> dict[str, list[Any]]:
    """For each charged statement its digest, its kind of release, and its row of the ledger."""
    found = connection.execute(
        "SELECT l.statement, r.digest, r.strategy, l.table_name, l.mechanism, CAST(l.epsilon AS VARCHAR), "
        "CAST(l.rho AS VARCHAR), CAST(l.delta AS VARCHAR) FROM dp_ledger() l "
        "JOIN private.dpduck.releases r ON r.ledger_id = l.id AND r.kind = 'answer' ORDER BY l.id"
    ).fetchall()
    return {str(row[0]): list(row[1:]) for row in found}


def made(
    policy: str, statements: list[str], database: str | Path = ":memory:", counts: dict[str, str] | None = None
) -> duckdb.DuckDBPyConnection:
    """A clinic in which these statements have been released. counts: takes the exact counts of each."""
    connection = dpduck.connect(database)
    clinic = Clinic(connection)
    clinic.fill()
    clinic.protect(policy)
    _release(connection, statements, counts)
    return connection


def golden(counts: dict[str, str] | None = None) -> duckdb.DuckDBPyConnection:
    """The clinic of the golden files, every accepted statement of theirs released."""
    connection = open_full_clinic()
    _release(connection, [one.statement for one in read_golden("accepted_*.sql") if not one.before], counts)
    return connection


def _release(connection: duckdb.DuckDBPyConnection, statements: list[str], counts: dict[str, str] | None) -> None:
    """Releases statements in order, and writes down the exact counts of statements that count anything."""
    with noted_counts() as seen:
        for statement in statements:
            seen.clear()
            connection.execute("FROM dp(?)", [statement]).fetchall()
            if counts is not None and seen:
                counts[statement] = "; ".join(seen)


def pins() -> dict[str, dict[str, list[Any]]]:
    """Everything that is pinned."""
    found: dict[str, dict[str, list[Any]]] = {}
    for name, (policy, statements) in STATEMENTS.items():
        with made(policy, statements) as connection:
            found[name] = releases(connection)
    with golden() as connection:
        found["golden"] = releases(connection)
    return found


def exact_counts() -> dict[str, dict[str, str]]:
    """The exact counts of the same statements."""
    found: dict[str, dict[str, str]] = {name: {} for name in (*STATEMENTS, "golden")}
    for name, (policy, statements) in STATEMENTS.items():
        made(policy, statements, counts=found[name]).close()
    golden(found["golden"]).close()
    return found


def stored() -> list[str]:
    """The statements of the stored clinic: few, since a file of DuckDB is not small."""
    chosen = every_mechanism("epsilon = 1, delta = 1e-6")
    words = ("CUBE (sex, age, ward)", "asked_t", "projected", "lazy", "few")
    found = [next(text for text in chosen if word in text) for word in words]
    return [*found, approximate_only()[0], pure_only()[0]]


def write_store(folder: Path) -> None:
    """Writes a closed clinic with its store, secrets and witness, packed, and the answer to each statement."""
    os.environ["DPDUCK_STATE_DIR"] = str(folder / "state")
    with made(POLICY, stored(), folder / "clinic.duckdb") as connection:
        answers = {text: answer(connection, text) for text in stored()}
        asked_once = connection.execute("FROM dp_ask('few', ['w1'])").fetchall()
        releases_made = releases(connection)
    kept = {"answers": answers, "asked": repr(asked_once), "releases": releases_made}
    (folder / "answers.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
    shutil.make_archive(str(STORE.with_suffix("")), "zip", folder)


def answer(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """Returns a statement's answer, in a sorted order."""
    return repr(sorted(map(repr, connection.execute("FROM dp(?)", [text]).fetchall())))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    if sys.argv[1] == "pins":
        PINS.write_text(json.dumps(pins(), indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    elif sys.argv[1] == "counts":
        COUNTS.write_text(json.dumps(exact_counts(), indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        with tempfile.TemporaryDirectory() as directory:
            write_store(Path(directory))
