"""The rows of dp_trial: a line for each answer and size of cells, and one for the rows that a statement shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dpduck.language.text.dialect import exact_number
from dpduck.mechanisms.batch import numbered, split_statements
from dpduck.store.cursors import Caller
from dpduck.store.tables import Value, rows_sql
from dpduck.trial.statement_trial import Trial
from dpduck.trial.trial import Trials
from dpduck.values.errors import Refusal

COLUMNS = (
    ("statement", "INTEGER"), ("epsilon", "DOUBLE"), ("answer", "VARCHAR"), ("size", "VARCHAR"), ("cells", "BIGINT"),
    ("median_error", "DOUBLE"), ("p90_error", "DOUBLE"), ("within_10", "DOUBLE"), ("within_50", "DOUBLE"),
    ("stderr", "DOUBLE"), ("bias_of_rows", "DOUBLE"), ("bias_of_clamps", "DOUBLE"), ("coverage", "DOUBLE"),
    ("dropped", "DOUBLE"), ("spurious", "DOUBLE"), ("swapped", "DOUBLE"), ("note", "VARCHAR"),
)  # fmt: skip
"""Columns of dp_trial. Errors, biases and shares are per cent, stderr has the unit of the answer."""

LARGEST_EPSILON = 100


def trial_sql(trials: Trials, argument: str, caller: Caller) -> str:
    """Returns SQL of dp_trial. argument: JSON of the statements, the number of runs, and an epsilon, a list or NULL."""
    text, runs, epsilon = json.loads(argument)
    if not isinstance(text, str) or not isinstance(runs, int):
        raise Refusal("a trial takes statements and a number of runs", accepted="dp_trial($$ .. $$, runs := 100)")
    listed = epsilon if isinstance(epsilon, list) else [epsilon]
    prices = [None if price is None else read_epsilon(str(price)) for price in listed]
    rows: list[list[Value]] = []
    for number, statement in enumerate(
        split_statements(text, "dp_trial($$ SELECT WITH DIFFERENTIAL_PRIVACY ..; .. $$)"), 1
    ):
        with numbered(number):
            results = trials.run(statement, runs, prices, caller)
        rows += [line for trial in results for line in lines_of(number, trial)]
    return rows_sql(COLUMNS, rows)


def read_epsilon(text: str) -> Fraction:
    """Reads an epsilon to try."""
    try:
        epsilon = Fraction(0) if "/" in text else exact_number(text.strip())  # a statement takes decimal numbers alone
    except ValueError:
        epsilon = Fraction(0)
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise Refusal(
            f"{text[:40]!r} is no epsilon to try", accepted=f"a number above 0, as 0.5, at most {LARGEST_EPSILON}"
        )
    return epsilon


def lines_of(number: int, trial: Trial) -> Iterator[list[Value]]:
    """Yields the lines of one statement at one price."""
    for figures in trial.answers:
        shares = (
            figures.median_error, figures.p90_error, figures.within_10, figures.within_50,
        )  # fmt: skip
        yield [
            number, trial.epsilon, figures.answer, figures.size, figures.cells, *_percent(shares), figures.stderr,
            *_percent((figures.bias_of_rows, figures.bias_of_clamps, figures.coverage)), None, None, None, None,
        ]  # fmt: skip
    if trial.rows is not None:
        left_out = "; ".join(f"{what}: {percent:.3g} % of all rows" for what, percent in trial.left_out)
        yield [
            number, trial.epsilon, None, "rows shown", trial.rows.rows, *[None] * 8,
            *_percent((trial.rows.dropped, trial.rows.spurious, trial.rows.swapped)), left_out,
        ]  # fmt: skip


def _percent(shares: Sequence[float | None]) -> list[float | None]:
    return [None if share is None else 100 * share for share in shares]
