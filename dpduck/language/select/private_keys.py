"""Keys with private values: the columns and expressions that a threshold may select, and the SQL that reads them.

The values are released as texts that are cast to the key's type. A type must have one text for all equal values:
otherwise a group would show how one person writes the value.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod

from sqlglot import exp

from dpduck.language.rows.facts import Policy, PublicFacts, RequestRows
from dpduck.language.rows.functions import check_row_local
from dpduck.language.rows.periods import within_one
from dpduck.language.rows.sql import bound_type
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.request import Aggregate, Key, KeySelection, Operand, Question, SelectRequest
from dpduck.language.text.positions import position_of, refusal
from dpduck.values.errors import Refusal
from dpduck.values.sqltypes import sql_type

COUNTED = (
    "keys are selected for counts, sums and averages alone",
    "count(*), count(x), sum(x), avg(x), each with FILTER (WHERE ..), count(DISTINCT unit)",
)
SELECTED = ("count", "sum", "avg")  # the aggregate functions of selected keys
FURTHER = "rows of a unit in further groups are left out"  # the effect of max_groups_contributed

ONE_PER_GROUP = Operand("", Fraction(0), Fraction(1), Fraction(1), "sum")
SELECTING = "group_selection_strategy = GAUSSIAN_THRESHOLD with a delta"


def groups_text(request: SelectRequest) -> str:
    """Describes the effect of max_groups_contributed on counts by public keys, "" if it has none."""
    groups = request.question.treatment.groups
    cells = prod(source.domain.size for source in request.question.sources)
    bounds = 0 < groups < min(request.rows.max_rows, cells)
    return f", in at most {groups} groups: {FURTHER}, so counts are too low" if bounds else ""


def selection_of(asked: KeySelection, policy: Policy, unit_bound: int, place: exp.Expr) -> KeySelection:
    """Returns the selection of groups, with the bound on a unit's groups.

    A unit of m rows is in at most m groups. If the unit is a row, nothing tells which joined rows are copies of one
    row.
    """
    if policy.unit.column is None and unit_bound > 1:
        if 0 < asked.groups < unit_bound:
            raise refusal(
                place,
                f"one row is in up to {unit_bound} groups through the joins, and PRIVACY UNIT ROW cannot bound them",
                f"max_groups_contributed of at least {unit_bound}, or none",
            )
        if asked.least_units > 1:
            raise refusal(
                place,
                "min_privacy_units_per_group needs rows that joins do not multiply, or a unit's column",
                "the statement without it",
            )
    return replace(asked, groups=min(asked.groups or unit_bound, unit_bound))


def require_selectable(keys: tuple[Key, ...], sets: tuple[tuple[int, ...], ...], place: exp.Expr) -> None:
    """Refuses selected keys unless they are the keys of one plain GROUP BY."""
    if not keys:
        raise refusal(place, "there are no groups to select", "GROUP BY, or the statement without a threshold")
    if len(sets) != 1 or len(sets[0]) != len(keys):
        raise refusal(place, "grouping sets of selected keys are refused", "one plain GROUP BY with a threshold")
    if any(key.shape for key in keys):
        raise refusal(place, "PREFIXES and RANGES of selected keys are refused", "one plain GROUP BY with a threshold")


def counts_units(aggregate: Aggregate, unit_sql: str | None) -> bool:
    """Tells whether an aggregate counts a group's units: count(DISTINCT unit), or a count of one row of each unit."""
    every = ("", f"(NOT {unit_sql} IS NULL)")  # rows without a unit are not counted at all
    return unit_sql is not None and aggregate.operand == ONE_PER_GROUP and aggregate.condition in every


def require_persons(rows: RequestRows, question: Question, place: exp.Expr) -> None:
    """Refuses a count of privacy units over several periods: a person is a different unit in each period."""
    counted = [item for item in question.aggregates if item.operand == ONE_PER_GROUP]
    if not counted or rows.periods is None:
        return
    alone = [within_one(rows, question.sources, key.codes, key.sources) for key in question.keys]
    alone = [item and not key.row_sql for item, key in zip(alone, question.keys, strict=True)]
    single = rows.periods.periods.count == 1
    if not single and not all(any(alone[key] for key in keys) for keys in question.grouping_sets):
        word = rows.periods.periods.word.lower()
        raise refusal(
            place,
            f"{counted[0].text[:60]} would count somebody once for each {word} with rows of theirs",
            f"one {word} in WHERE, or every grouping set by a DOMAIN of {rows.periods.sql.rpartition('.')[2]} whose "
            f"values lie in one {word} each",
        )


def require_counts(request: SelectRequest, place: exp.Expr) -> None:
    """Refuses aggregates that do not go with selected keys, or that other = TRUE cannot add up over groups."""
    aggregates, selection = request.question.aggregates, request.question.selection
    distinct = next((aggregate for aggregate in aggregates if aggregate.distinct is not None), None)
    if distinct is not None:
        what = f"{distinct.text[:60]} is not answered for selected keys"
        raise refusal(place, what, "count(DISTINCT unit), or keys with a DOMAIN")
    if any(aggregate.function not in SELECTED for aggregate in aggregates):
        raise refusal(place, *COUNTED)
    if selection is None or not selection.other or request.rows.max_rows == 1:
        return
    if any(aggregate.operand == ONE_PER_GROUP for aggregate in aggregates):
        raise refusal(place, "units of several groups do not add up to units", "count(*) beside other = TRUE")
    by_group = next((aggregate for aggregate in aggregates if aggregate.operand_by_group), None)
    if by_group is not None:
        what = f"{by_group.text[:60]} bounds what a unit adds to one group, and other = TRUE is of many"
        raise refusal(place, what, "contribution_bounds_per_row, or the statement without other")


def build_private_key(name: str, text: str, expression: exp.Expr, source: RowSource, facts: PublicFacts) -> Key:
    """Returns the key for a column without a domain, or for an expression over such columns."""
    if not isinstance(expression, exp.Column):
        check_row_local(expression)
        _require_free_columns(expression, source)
    try:
        kind = sql_type(bound_type(expression, source, facts))
    except Refusal as error:
        raise error.at(position_of(expression)) from None
    if not kind.is_selectable:
        raise refusal(
            expression,
            f"a key of type {kind.word} has several texts for one value, or parts, and is not selected",
            "VARCHAR, whole numbers, DECIMAL, BOOLEAN, DATE, TIMESTAMP, TIME or UUID; or a CAST to one of them",
        )
    released = "VARCHAR" if kind.is_enum else kind.name
    row_sql, plain = f"CAST({text} AS VARCHAR)", isinstance(expression, exp.Column)
    return Key(name, text, released, (), (), (), row_sql=row_sql if plain else f"try({row_sql})")


def _require_free_columns(expression: exp.Expr, source: RowSource) -> None:
    """Refuses an expression over public domains and private values: it is unclear which rows a domain would drop."""
    for column in expression.find_all(exp.Column):
        if source.relation(column.table) is None or source.domain(column) is not None:
            raise refusal(
                column,
                f"an expression over {column.name!r}, which is public or has a domain, and columns without one",
                "keys over columns with a domain, and others over columns without",
            )
