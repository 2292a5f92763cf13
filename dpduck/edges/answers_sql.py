"""SQL over a released table: half-widths of intervals, and a copy without rows to bind the analyst's SQL against."""

from __future__ import annotations

from collections.abc import Sequence

from dpduck.edges.key_release import key_laws, planned_keys
from dpduck.edges.planned import AnyPlan, answers_are_whole, error_laws
from dpduck.edges.released_rows import released_columns
from dpduck.frontend.analyse import Analysis
from dpduck.frontend.names import quote_identifier
from dpduck.frontend.public_facts import Column
from dpduck.frontend.released_columns import GROUPING_SET, margin_column, stderr_column
from dpduck.recovery.intervals import JUMPY, ErrorLaw, margin, rounded_margin, sum_margin


def margins_sql(table_sql: str, laws: Sequence[Sequence[ErrorLaw]], analysis: Analysis) -> str:
    """The released table with half-widths of intervals for the confidence that was asked, where they are asked."""
    rounded = analysis.request.treatment.integer
    half_width = rounded_margin if rounded else margin
    margins = []
    for number, of_aggregate in enumerate(laws):
        if f'"{margin_column(number)}"' in analysis.outer.sql:
            if analysis.request.has_ranges:
                margins.append(f"{_by_cell(of_aggregate[0], number, analysis)} AS {margin_column(number)}")
                continue
            widths = ", ".join(repr(half_width(law, analysis.confidence)) for law in of_aggregate)
            margins.append(f"(CAST([{widths}] AS DOUBLE[]))[{GROUPING_SET} + 1] AS {margin_column(number)}")
    return f"(SELECT *, {', '.join(margins)} FROM {table_sql})" if margins else table_sql


def _by_cell(law: ErrorLaw, number: int, analysis: Analysis) -> str:
    """The margin of cells whose standard errors differ, as SumMargin.of gives it."""
    of_sum, stderr = sum_margin(law.noise, analysis.confidence), stderr_column(number)
    jump = f"CASE WHEN {stderr} < {JUMPY} THEN 1.0 ELSE 0.5 END"
    width = f"least({of_sum.farthest!r} * {stderr}, {of_sum.usual!r} * {stderr} + {jump})"
    return f"ceil({width} + 0.5)" if analysis.request.treatment.integer else width


def empty_release_sql(columns: Sequence[Column], laws: Sequence[Sequence[ErrorLaw]], analysis: Analysis) -> str:
    """The whole statement over a release of these columns without rows."""
    nothing = ", ".join(f"CAST(NULL AS {column.type_name}) AS {quote_identifier(column.name)}" for column in columns)
    return analysis.outer.over(margins_sql(f"(SELECT {nothing} WHERE false)", laws, analysis))


def outer_check_sql(analysis: Analysis, plan: AnyPlan) -> str:
    """The whole statement over an empty release: DuckDB binds it as it will bind the answer, before the charge."""
    columns = released_columns(analysis.request, answers_are_whole(analysis.request, plan))
    laws = (error_laws(plan),) * len(analysis.request.aggregates)
    return empty_release_sql([Column(name, type_name) for name, type_name in columns], laws, analysis)


def selected_check_sql(analysis: Analysis) -> str:
    """The same for a release of selected keys."""
    columns = released_columns(analysis.request, True)
    laws = key_laws(planned_keys(analysis.request))
    return empty_release_sql([Column(name, type_name) for name, type_name in columns], laws, analysis)
