"""Figures of a trial: how far noisy answers are from the true answer, and which rows are dropped or spurious."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from dpduck.language.select.outer import OuterQuery
from dpduck.language.text.names import answer_column, high_column, low_column
from dpduck.trial.labels import is_ordered
from dpduck.values.quoting import fold, quote_identifier

CELLS, SHOWN = "cells", "shown"
"""Tables of a trial's database: a row for each cell of each run, and for each row that the statement shows."""

NOISY, TRUE, MORE = "noisy_", "true_", "more_"
"""Prefixes of tables: the noisy runs, the true answer, and the answer in which only MAX ROWS is lifted."""

SIZES = (
    (0, "no rows"),
    (1, "1 to 9 rows"),
    (10, "10 to 99 rows"),
    (100, "100 to 999 rows"),
    (1000, "1,000 rows and more"),
)
"""Sizes of cells in rows: the least number of each, and its name."""

ROWS_BY_RUN = "dpduck_rows_by_run"
"""Table with the dropped, spurious and swapped rows of each run."""

MOST_PLACES = 1_000
"""Pairs of rows are compared up to this place of the true answer."""


@dataclass(frozen=True)
class AnswerFigures:
    """Errors of an answer over the cells of one size, in all runs. Errors are relative to the true answer.

    within_10, within_50: shares of the cells with an error of at most 10 or 50 %.
    stderr: the standard deviation of the noise, in the unit of the answer.
    bias_of_rows, bias_of_clamps: the share of the true total that MAX ROWS and norms, or clamps, take away or add.
    coverage: the share of intervals that contain the true answer.
    bias_noise: the standard error of bias_of_rows, from the differences between runs.
    """

    answer: str
    size: str
    cells: int
    median_error: float | None
    p90_error: float | None
    within_10: float | None
    within_50: float | None
    stderr: float | None = None
    bias_of_rows: float | None = None
    bias_of_clamps: float | None = None
    coverage: float | None = None
    bias_noise: float | None = None


@dataclass(frozen=True)
class RowFigures:
    """Rows that a statement shows.

    dropped: the share of true rows that a release lacks. spurious: the share of a release's rows that are not true.
    swapped: the share of pairs of rows in another order. None if the statement has no ORDER BY.
    """

    rows: int
    dropped: float
    spurious: float
    swapped: float | None


def errors_sql(answer: int, rows: int) -> str:
    """Returns SQL with a row for each cell of each run: its size, true and noisy answer, and relative error.

    The error of an answer of NULL has no bound. Cells without a true answer are left out.

    answer, rows: the numbers of the aggregate, and of the aggregate that counts rows in the true answer.
    """
    value, low, high = answer_column(answer), low_column(answer), high_column(answer)
    buckets = " ".join(
        f"WHEN size >= {least} - 0.5 THEN {place}" for place, (least, _) in reversed([*enumerate(SIZES)])
    )
    return (
        "SELECT *, CASE WHEN noisy = truth THEN 0 WHEN truth = 0 OR noisy IS NULL THEN 'inf'::DOUBLE "
        f"ELSE abs(noisy - truth) / abs(truth) END AS error, CASE {buckets} ELSE 0 END AS bucket FROM ("
        f"SELECT t.cell, n.dpduck_run AS run, CAST(t.{answer_column(rows)} AS DOUBLE) AS size, "
        f"CAST(t.{value} AS DOUBLE) AS truth, CAST(m.{value} AS DOUBLE) AS more, CAST(n.{value} AS DOUBLE) AS noisy, "
        f"t.{value} BETWEEN n.{low} - 1e-6 * abs(n.{low}) AND n.{high} + 1e-6 * abs(n.{high}) AS covered "
        f"FROM {TRUE}{CELLS} t JOIN {NOISY}{CELLS} n USING (cell) LEFT JOIN {MORE}{CELLS} m USING (cell)) "
        "WHERE truth IS NOT NULL"
    )


def answer_figures(scratch: duckdb.DuckDBPyConnection, number: int, answer: str, rows: int) -> list[AnswerFigures]:
    """Returns the errors of an aggregate by size of cell. number, rows: as in errors_sql."""
    found = scratch.execute(
        f"WITH errors AS ({errors_sql(number, rows)}), "
        "by_cell AS (SELECT bucket, cell, avg(noisy) AS mean, var_samp(noisy) AS variance, any_value(more) AS more, "
        "any_value(truth) AS truth FROM errors GROUP BY ALL), "
        "biases AS (SELECT bucket, count(*) AS cells, sqrt(avg(variance)) AS stderr, "
        "sum(mean - more) / nullif(sum(abs(truth)), 0) AS of_rows, "
        "sum(more - truth) / nullif(sum(abs(truth)), 0) AS of_clamps, sum(abs(truth)) AS size "
        "FROM by_cell GROUP BY ALL), "
        "by_run AS (SELECT bucket, sum(noisy) AS total FROM errors GROUP BY bucket, run), "
        "noises AS (SELECT bucket, stddev_samp(total) / sqrt(count(*)) AS noise FROM by_run GROUP BY bucket) "
        "SELECT bucket, any_value(cells), quantile_disc(error, 0.5), quantile_disc(error, 0.9), "
        "avg(CAST(error <= 0.1 AS INTEGER)), avg(CAST(error <= 0.5 AS INTEGER)), any_value(stderr), "
        "any_value(of_rows), any_value(of_clamps), avg(CAST(covered AS INTEGER)), "
        "any_value(noise / nullif(biases.size, 0)) "
        "FROM errors JOIN biases USING (bucket) JOIN noises USING (bucket) GROUP BY bucket ORDER BY bucket"
    ).fetchall()
    return [AnswerFigures(answer, SIZES[bucket][1], *figures) for bucket, *figures in found]


def shown_columns(scratch: duckdb.DuckDBPyConnection) -> list[str]:
    """Lists the columns of the rows that a statement shows."""
    described = scratch.execute(f"DESCRIBE {NOISY}{SHOWN}").fetchall()
    return [str(name) for name, *_ in described[2:]]  # after the run and the place


def row_figures(scratch: duckdb.DuckDBPyConnection, labels: Sequence[str], outer: OuterQuery) -> RowFigures:
    """Compares the rows that the noisy runs and the true answer show.

    labels: the folded names of the columns that are no answers. Without any, only the number of rows is compared.
    Rows with equal labels are numbered.
    """
    parts = [f"CAST({quote_identifier(name)} AS VARCHAR)" for name in shown_columns(scratch) if fold(name) in labels]
    row = f"CAST([{', '.join(parts)}] AS VARCHAR[])"
    for prefix in (NOISY, TRUE):
        scratch.execute(
            f"CREATE OR REPLACE TEMP TABLE {prefix}rows AS SELECT dpduck_run AS run, dpduck_place AS place, {row} AS "
            f"label, row_number() OVER (PARTITION BY dpduck_run, {row} ORDER BY dpduck_place) AS copy "
            f"FROM {prefix}{SHOWN}"
        )
    swapped = "NULL"
    if is_ordered(outer):
        swapped = (
            f"(SELECT avg(CAST(b.noisy < a.noisy AS INTEGER)) FROM places a JOIN places b "
            f"ON a.run = b.run AND a.truth < b.truth AND b.truth <= {MOST_PLACES} WHERE a.run = runs.run)"
        )
    scratch.execute(
        f"CREATE OR REPLACE TEMP TABLE {ROWS_BY_RUN} AS WITH places AS "
        f"(SELECT n.run, n.place AS noisy, t.place AS truth FROM {NOISY}rows n JOIN {TRUE}rows t USING (label, copy)), "
        f"runs AS (SELECT run, (SELECT count(*) FROM {TRUE}rows) AS true_rows, "
        f"(SELECT count(*) FROM {NOISY}rows n WHERE n.run = r.run) AS shown, "
        f"(SELECT count(*) FROM places p WHERE p.run = r.run) AS shared "
        f"FROM (SELECT DISTINCT dpduck_run AS run FROM {NOISY}{CELLS}) r) "
        "SELECT *, coalesce(1 - shared / nullif(true_rows, 0), 0) AS dropped, "
        f"coalesce(1 - shared / nullif(shown, 0), 0) AS spurious, {swapped} AS swapped FROM runs"
    )
    (figures,) = scratch.execute(
        "SELECT any_value(true_rows), coalesce(1 - sum(shared) / nullif(sum(true_rows), 0), 0), "
        f"coalesce(1 - sum(shared) / nullif(sum(shown), 0), 0), avg(swapped) FROM {ROWS_BY_RUN}"
    ).fetchall()
    return RowFigures(*figures)
