"""dpduck about people with several rows: python -m benchmarks.peers._several_dpduck FOLDER."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq

import dpduck
from benchmarks.peers._asked_data import DELTA, EPSILON
from benchmarks.peers._several_data import Question, Rows, questions, settings, tell

MOST_ROWS = 1000
AGGREGATES = {"counts": "count(*)", "persons": "count(DISTINCT id)", "averages": "avg(value)", "sums": "sum(value)"}


class Asked:
    """The tables of a folder with generous policies."""

    def __init__(self, folder: Path, asked: Iterable[Question]) -> None:
        self.con, self.number = dpduck.connect(":memory:"), 0
        domains: dict[str, dict[str, str]] = {}
        for question in asked:
            of = domains.setdefault(question.table, {"": f"CLAMP value BETWEEN 0 AND {question.width} STEP 1"})
            for key, (first, past) in zip(question.keys, question.cells, strict=True):
                of[key] = f"DOMAIN {key} RANGE {first} TO {past} STEP 1"
        for table, declared in domains.items():
            self.con.register("given", pq.read_table(folder / f"{table}.parquet"))
            self.con.execute(f"CREATE TABLE {table} AS FROM given")
            self.con.unregister("given")
            self.dp(
                f"CREATE PRIVACY POLICY ON {table} (PRIVACY UNIT id MAX ROWS {MOST_ROWS}, "
                f"BUDGET (epsilon = 1000000, delta = 1e-3), {', '.join(declared.values())})"
            )

    def dp(self, statement: str) -> list[tuple[object, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def error(self, rows: Rows, options: str) -> float:
        """Asks once, for the whole price."""
        question, self.number = rows.question, self.number + 1
        keys = ", ".join(question.keys)
        clause = f"OPTIONS (epsilon = {EPSILON:g}, refresh = 'r{self.number}'{options})"
        found = self.dp(
            f"SELECT WITH DIFFERENTIAL_PRIVACY {clause} {keys}, {AGGREGATES[question.kind]} AS a "
            f"FROM {question.table} GROUP BY {keys}"
        )
        return rows.error({tuple(int(str(key)) for key in row[:-1]): row[-1] for row in found})  # type: ignore[misc]


def grids(question: Question, given: dict[str, list[int]]) -> dict[str, dict[str, str]]:
    """The options of our ways by their names in the table: the private norm, public norms, and MAX ROWS."""
    delta = f", delta = {DELTA}"
    centre = f", centers = {question.guess}" if question.kind == "averages" else ""
    rows = {f"{noise}, {most} rows in all": f", max_rows_contributed = {most}{price}"
            for most, (noise, price) in product(given["rows"], (("Gaussian", delta), ("Laplace", "")))}  # fmt: skip
    norm = {f"norm {one}": f"{delta}, max_norm_contributed = {one}" for one in given["norms"]}
    if question.kind in ("averages", "sums"):
        norm = {
            f"norm {one}, of sums {sums * question.guess}": f"{delta}, max_norm_contributed = {one}, "
            f"max_sum_norm_contributed = {sums * question.guess}{centre}"
            for one, sums in product(given["few norms"], given["sum norms"])
        }
    return {"dpduck": {"private norm": f"{delta}, max_norm_contributed = 'private'{centre}"},
            "dpduck, best norm": norm, "dpduck, best MAX ROWS": rows}  # fmt: skip


def best(asked: Asked, rows: Rows, grid: dict[str, str]) -> str:
    """The bounds of the least error: each is asked once, and the best three are asked twice more."""
    if len(grid) == 1:
        return next(iter(grid))
    once = {name: asked.error(rows, options) for name, options in grid.items()}
    again = sorted(once, key=lambda name: once[name])[:3]
    more = {name: sum(asked.error(rows, grid[name]) for _ in range(2)) for name in again}
    return min(more, key=lambda name: more[name])


def main() -> None:
    """Asks every question in three ways, the second and third at their best bounds."""
    folder = Path(sys.argv[1])
    listed, given = questions(folder), settings(folder)
    asked = Asked(folder, listed)
    for question in listed:
        rows = Rows(question, folder)
        for system, grid in grids(question, given).items():
            name = best(asked, rows, grid)
            repeats = int(str(given["repeats"])) * (2 if len(grid) == 1 else 1)
            errors = [asked.error(rows, grid[name]) for _ in range(repeats)]
            tell(question, system, name, errors)


if __name__ == "__main__":
    main()
