"""Criteria that a release must meet to be useful: a file in TOML, checked against the runs of a trial."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import duckdb

from dpduck.trial.figures import ROWS_BY_RUN, errors_sql
from dpduck.values.errors import Refusal

ACCEPTED = (
    "[[criteria]] with error = 0.1, share = 0.95 and least_rows = 100, or with dropped, spurious or swapped = 0.05; "
    "also statement, answer and runs"
)


@dataclass(frozen=True)
class Criterion:
    """One criterion of a release. It must hold in a share `runs` of the runs.

    - statement, answer: the number of the statement, from 1, and the name of an answer. None for all.
    - error, share, least_rows: at least this share of the cells with at least so many rows has at most this error.
    - dropped, spurious, swapped: the largest share of rows that are missing, are not true, or of pairs that swap.
    """

    statement: int | None = None
    answer: str | None = None
    error: float | None = None
    share: float = 0.95
    least_rows: float = 0
    dropped: float | None = None
    spurious: float | None = None
    swapped: float | None = None
    runs: float = 0.95

    def __str__(self) -> str:
        limits = [
            f"at most {100 * limit:g} % of the {what}"
            for what, limit in (
                ("true rows dropped", self.dropped), ("rows spurious", self.spurious), ("pairs swapped", self.swapped),
            )
            if limit is not None
        ]  # fmt: skip
        if self.error is not None:
            cells = f"cells of at least {self.least_rows:g} rows" if self.least_rows else "cells"
            limits.insert(0, f"{100 * self.share:g} % of the {cells} within {100 * self.error:g} %")
        where = "" if self.statement is None else f"statement {self.statement}: "
        answer = "" if self.answer is None else f"{self.answer}: "
        return f"{where}{answer}{', '.join(limits)}, in {100 * self.runs:g} % of the releases"


def read_criteria(path: Path, statements: int) -> list[Criterion]:
    """Reads the criteria of a file. statements: the number of statements that they may be of."""
    try:
        listed = tomllib.loads(path.read_text(encoding="utf-8")).get("criteria", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise Refusal(f"{str(path)!r} cannot be read as TOML", accepted=ACCEPTED) from None
    if not isinstance(listed, list) or not listed:
        raise Refusal(f"{str(path)!r} has no criteria", accepted=ACCEPTED)
    criteria = [_criterion(item) for item in listed]
    beyond = next((item.statement for item in criteria if (item.statement or 1) > statements), None)
    if beyond is not None:
        raise Refusal(f"a criterion is of statement {beyond}", accepted=f"1 to {statements}")
    return criteria


def _criterion(item: object) -> Criterion:
    known = {field.name: field.type for field in fields(Criterion)}
    if not isinstance(item, Mapping) or set(item) - set(known):
        raise Refusal("a criterion has an unknown entry", accepted=ACCEPTED)
    for name, value in item.items():
        kind = (str,) if name == "answer" else (int,) if name == "statement" else (int, float)
        least, most = {"statement": (1, 10**6), "least_rows": (0, 1e18), "error": (0, 1e6)}.get(name, (0, 1))
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or (not isinstance(value, str) and not least <= value <= most):
            raise Refusal(f"the entry {name} of a criterion is out of range", accepted=ACCEPTED)
    criterion = Criterion(**item)
    if all(limit is None for limit in (criterion.error, criterion.dropped, criterion.spurious, criterion.swapped)):
        raise Refusal("a criterion limits nothing", accepted=ACCEPTED)
    return criterion


def share_of_runs(
    scratch: duckdb.DuckDBPyConnection, criterion: Criterion, answers: Sequence[tuple[int, str]], rows: int
) -> float:
    """Returns the share of runs that meet a criterion. Runs without such cells or rows meet it.

    answers: the number and name of each answer. rows: the number of the aggregate that counts rows.
    """
    failing = []
    if criterion.error is not None:
        failing += [
            f"SELECT run FROM ({errors_sql(number, rows)}) WHERE size >= {criterion.least_rows} - 0.5 GROUP BY run "
            f"HAVING avg(CAST(error <= {criterion.error!r} AS INTEGER)) < {criterion.share!r} - 1e-9"
            for number, name in answers
            if criterion.answer in (None, name)
        ]
    for column, limit in (
        ("dropped", criterion.dropped), ("spurious", criterion.spurious), ("swapped", criterion.swapped),
    ):  # fmt: skip
        if limit is not None:
            failing.append(f"SELECT run FROM {ROWS_BY_RUN} WHERE {column} > {limit!r} + 1e-9")
    if not failing:
        raise Refusal(f"no answer is named {criterion.answer}", accepted=", ".join(name for _, name in answers))
    ((failed, runs),) = scratch.execute(
        f"SELECT (SELECT count(DISTINCT run) FROM ({' UNION ALL '.join(failing)})), "
        f"(SELECT count(*) FROM {ROWS_BY_RUN})"
    ).fetchall()
    return 1 - int(failed) / int(runs)
