"""SQL over a released table: half-widths of intervals, and a copy without rows that binds the analyst's SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.select.analyse import Analysis
from dpduck.language.text.names import (
    GROUPING_SET,
    PRICE_EPSILON,
    PRICE_RHO,
    answer_column,
    chance_column,
    high_column,
    highs_column,
    low_column,
    lows_column,
    margin_column,
    raw_column,
    stderr_column,
)
from dpduck.strategies.recovery.curved import LEVELS
from dpduck.strategies.recovery.intervals import JUMPY, ErrorLaw, margin, margin_after_rounding, sum_margin
from dpduck.values.privacy import Charge
from dpduck.values.quoting import quote_identifier


def margins_sql(
    table_sql: str,
    laws: Sequence[Sequence[ErrorLaw]],
    analysis: Analysis,
    column_names: Sequence[str] | None = None,
    price: Charge | None = None,
) -> str:
    """Returns SQL over the released table with the half-widths, interval ends and prices that the statement reads.

    laws: for each aggregate, an error law for each grouping set.
    column_names: the table's columns, since an older release may lack some.
    """
    rounded = analysis.request.question.treatment.integer
    half_width = margin_after_rounding if rounded else margin
    asked = analysis.outer.sql
    amounts = (None, None) if price is None else (price.epsilon, price.rho)
    columns = [
        f"CAST({'NULL' if amount is None else repr(float(amount))} AS DOUBLE) AS {name}"
        for name, amount in zip((PRICE_EPSILON, PRICE_RHO), amounts, strict=True)
        if f'"{name}"' in asked
    ]
    for number, of_aggregate in enumerate(laws):
        if analysis.request.question.treatment.moves and of_aggregate:
            columns += _about_measured(of_aggregate, number, analysis, known=column_names)
            continue
        if analysis.request.question.summary is not None:
            columns += _of_summary(of_aggregate[0], number, analysis, column_names)
            continue
        if analysis.request.question.selection is not None and of_aggregate:
            columns += _of_selected(of_aggregate, number, analysis, column_names or ())
            continue
        names = (low_column(number), high_column(number), margin_column(number))
        if not any(f'"{name}"' in asked for name in names):
            continue
        width = ""
        if of_aggregate and (analysis.request.question.has_ranges or _is_constrained(number, analysis)):
            width = _by_cell(of_aggregate[0], number, analysis)
        elif of_aggregate:
            width = _by_set(of_aggregate, analysis, half_width)
        for stored, shown, sign in ((lows_column, low_column, "-"), (highs_column, high_column, "+")):
            if f'"{shown(number)}"' in asked:
                is_stored = stored(number) in column_names if column_names else not width
                end = f"{stored(number)}[{_level(analysis.confidence)}]"
                columns.append(f"{end if is_stored else f'{answer_column(number)} {sign} {width}'} AS {shown(number)}")
        if f'"{margin_column(number)}"' in asked:
            columns.append(f"{width} AS {margin_column(number)}")
    return f"(SELECT *, {', '.join(columns)} FROM {table_sql})" if columns else table_sql


def _about_measured(
    laws: Sequence[ErrorLaw], number: int, analysis: Analysis, known: Sequence[str] | None
) -> list[str]:
    """Returns SQL for interval ends if options changed the answers. Intervals are about the answers before the change.

    If a release lacks the answers before the change, ends are NULL: intervals about changed answers would be too short.
    """
    raw, answer = raw_column(number), answer_column(number)
    constrained = _is_constrained(number, analysis)
    half_width = _by_cell(laws[0], number, analysis) if constrained else _by_set(laws, analysis, margin)
    ends = {
        low_column(number): f"least({answer}, {raw} - {half_width})",
        high_column(number): f"greatest({answer}, {raw} + {half_width})",
    }
    if analysis.request.question.treatment.nonnegative:
        ends[low_column(number)] = f"least({answer}, greatest(0, {raw} - {half_width}))"
    measured = known is None or raw in known
    return [
        f"CAST({end if measured else 'NULL'} AS DOUBLE) AS {name}"
        for name, end in ends.items()
        if f'"{name}"' in analysis.outer.sql
    ]


def _of_summary(law: ErrorLaw, number: int, analysis: Analysis, column_names: Sequence[str] | None) -> list[str]:
    """Returns SQL for the interval ends of a summary's rows.

    An interval includes 0 if a cell without rows gets an answer of this size with a chance of 1 - confidence or more.
    If an older release lacks this chance, intervals ignore that cells were selected by their noisy counts.
    """
    answer, half_width = answer_column(number), _by_cell(law, number, analysis)
    ends = {low_column(number): f"{answer} - {half_width}", high_column(number): f"{answer} + {half_width}"}
    if column_names is None or chance_column(number) in column_names:
        likely = f"{chance_column(number)} >= {float(1 - analysis.confidence)!r}"
        ends = {
            name: f"CASE WHEN {likely} THEN {nearer}(0, {end}) ELSE {end} END"
            for (name, end), nearer in zip(ends.items(), ("least", "greatest"), strict=True)
        }
    return [f"{end} AS {name}" for name, end in ends.items() if f'"{name}"' in analysis.outer.sql]


def _of_selected(laws: Sequence[ErrorLaw], number: int, analysis: Analysis, column_names: Sequence[str]) -> list[str]:
    """Returns SQL for interval ends of groups that a noisy count selected. Lower ends allow for the selection."""
    half_width = _by_set(laws, analysis, margin)
    low = f", {lows_column(number)}[{_level(analysis.confidence)}]" if lows_column(number) in column_names else ""
    return [
        f"least({answer_column(number)} - {half_width}{low}) AS {low_column(number)}",
        f"{answer_column(number)} + {half_width} AS {high_column(number)}",
    ]


def _level(confidence: Fraction) -> int:
    """Returns the position in LEVELS, from 1, of the first level that is at least this confidence."""
    return next((place for place, level in enumerate(LEVELS, 1) if level >= confidence), len(LEVELS))


def _by_set(laws: Sequence[ErrorLaw], analysis: Analysis, half_width: Callable[[ErrorLaw, Fraction], float]) -> str:
    """Returns SQL for the half-width of a row's interval. All cells of a grouping set have the same half-width."""
    widths = ", ".join(repr(half_width(law, analysis.confidence)) for law in laws)
    return f"(CAST([{widths}] AS DOUBLE[]))[{GROUPING_SET} + 1]"


def _by_cell(law: ErrorLaw, number: int, analysis: Analysis) -> str:
    """Returns SQL for the half-width of a cell's interval, from the cell's standard error, as SumMargin.of does."""
    of_sum, stderr = sum_margin(law.noise, analysis.confidence), stderr_column(number)
    jump = f"CASE WHEN {stderr} < {JUMPY * law.step!r} THEN {law.step!r} ELSE {law.step / 2!r} END"
    width = f"least({of_sum.farthest!r} * {stderr}, {of_sum.usual!r} * {stderr} + {jump})"
    if _is_constrained(number, analysis):  # a cell that public totals determine has no error
        return f"CASE WHEN {stderr} = 0 THEN 0 ELSE {_round_width(width, analysis)} END"
    return _round_width(width, analysis)


def _round_width(width: str, analysis: Analysis) -> str:
    return f"ceil({width} + 0.5)" if analysis.request.question.treatment.integer else width


def _is_constrained(number: int, analysis: Analysis) -> bool:
    """Tells whether an aggregate is brought to public totals, so that every cell has its own error."""
    return any(total.aggregate == number for total in analysis.request.question.totals)


def empty_release_sql(columns: Sequence[CatalogColumn], laws: Sequence[Sequence[ErrorLaw]], analysis: Analysis) -> str:
    """Returns the whole statement as SQL over a released table that has these columns and no rows."""
    nothing = ", ".join(f"CAST(NULL AS {column.type_name}) AS {quote_identifier(column.name)}" for column in columns)
    return analysis.outer.over(
        margins_sql(f"(SELECT {nothing} WHERE false)", laws, analysis, [column.name for column in columns])
    )
