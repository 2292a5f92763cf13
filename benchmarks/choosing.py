"""Prints what answers miss at several prices, the tables of docs/choosing.md: `python -m benchmarks.choosing`.

All figures are dp_explain's, for a made-up table: they follow from the policy and the price alone, no row is read.
"""

from __future__ import annotations

import os
import tempfile

import duckdb

import dpduck

PRICES = ("0.1", "0.5", "1", "2")
MOST_ROWS = (1, 4, 30)
QUESTIONS = {
    "a count by ward": "ward, count(*) AS n FROM visits GROUP BY ward",
    "a sum of charge by ward": "ward, sum(charge) AS s FROM visits GROUP BY ward",
    "a cell of a 3-way cube": "sex, age, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, age, ward)",
}
BINS = {"5 bins": "20", "20 bins": "5", "100 bins": "1"}


def policy(most_rows: int, step: str = "5") -> str:
    """A clinic's: 8 wards, 2 sexes, ages in bins, charges from 0 to 1000."""
    wards = ", ".join(f"'ward {number}'" for number in range(8))
    return (
        f"CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS {most_rows}, "
        f"BUDGET (epsilon = 10, delta = 1e-6), DOMAIN ward IN ({wards}), DOMAIN sex IN ('F', 'M'), "
        f"DOMAIN age RANGE 0 TO 100 STEP {step}, CLAMP charge BETWEEN 0 AND 1000 STEP 1)"
    )


def missed(connection: duckdb.DuckDBPyConnection, question: str, price: str) -> float:
    """The standard error of the worst answer."""
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) {question}"
    rows = connection.execute("SELECT worst_stderr FROM dp_explain(?) WHERE chosen", [statement]).fetchall()
    return float(rows[0][0])


def shown(number: float) -> str:
    """Two significant digits, and no exponent.

    >>> shown(0.1234), shown(1234.5)
    ('0.12', '1,200')
    """
    rounded = float(f"{number:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def tables() -> list[str]:
    """Lines of Markdown: questions and MAX ROWS against prices, and bins against prices."""
    with dpduck.connect() as connection:
        connection.execute(
            "CREATE TABLE visits (patient INTEGER, ward VARCHAR, sex VARCHAR, age INTEGER, charge INTEGER)"
        )
        heads = [*(f"epsilon = {price}" for price in PRICES), "epsilon = 1, delta = 1e-6"]
        lines = [f"| what | MAX ROWS | {' | '.join(heads)} |", "|---|---:|" + "---:|" * len(heads)]
        for name, question in QUESTIONS.items():
            for most_rows in MOST_ROWS:
                connection.execute("FROM dp(?)", [policy(most_rows)]).fetchall()
                figures = [shown(missed(connection, question, head)) for head in heads]
                lines.append(f"| {name} | {most_rows} | {' | '.join(figures)} |")
        lines += [
            "",
            f"| at MAX ROWS 4 | {' | '.join(f'epsilon = {price}' for price in PRICES)} |",
            "|---|" + "---:|" * 4,
        ]
        for name, step in BINS.items():
            connection.execute("FROM dp(?)", [policy(4, step)]).fetchall()
            cube = "age, ward, sex, count(*) AS n FROM visits GROUP BY CUBE (age, ward, sex)"
            figures = [shown(missed(connection, cube, f"epsilon = {price}")) for price in PRICES]
            lines.append(f"| worst cell of a cube of age in {name}, ward and sex | {' | '.join(figures)} |")
    return lines


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = folder
        print("\n".join(tables()))


if __name__ == "__main__":
    main()
