"""Further columns of the SELECT over a release, for views and known answers: errors, levels and sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp, parse_one

from dpduck.language.select.answers import AnswerReader, alias_item, column_of_release
from dpduck.language.select.outer import SelectItem
from dpduck.language.text.names import (
    GROUPING_ID,
    GROUPING_LEVEL,
    KNOWN_FROM,
    TOTAL,
    high_column,
    low_column,
    stderr_column,
)
from dpduck.values.quoting import fold, plain_name, quote_text


@dataclass(frozen=True)
class PlainViewColumn:
    """Column of a view that contains no aggregate."""

    name: str
    reads: frozenset[str]  # the columns of the released table that it reads. A constant reads none
    plain: bool  # whether it is one released column unchanged
    every: bool = False  # whether it is a GROUPING of all keys


def with_view_columns(
    select: exp.Select, items: Sequence[SelectItem], answers: AnswerReader, *, levels: bool
) -> exp.Select:
    """Adds to the SELECT of a view the errors of its answers, and with `levels` the grouping set of each row."""
    shown = _with_errors(select, items, answers)
    return _with_level(shown, items, answers) if levels else shown


def _with_errors(select: exp.Select, items: Sequence[SelectItem], answers: AnswerReader) -> exp.Select:
    """Adds to the SELECT of a view the standard error of each answer, unless a column shows it already.

    A later reader of the view, or of its published copy, cannot ask for a standard error.
    """
    taken = {fold(item.name) for item in items}
    shown = {item.this.name for item in select.expressions if isinstance(item.this, exp.Column)}
    for item in items:
        number, name = answers.number_of(item.expression), f"{item.name}_stderr"
        if number is not None and fold(name) not in taken and stderr_column(number) not in shown:
            taken.add(fold(name))
            select.append("expressions", alias_item(column_of_release(stderr_column(number)), name))
    return select


def items_without_answers(
    select: exp.Select, items: Sequence[SelectItem], answers: AnswerReader
) -> tuple[PlainViewColumn, ...]:
    """Describes the items of a view that are no answers. select: the result of select_over_release."""
    descriptions = []
    for item, shown in zip(items, select.expressions, strict=False):
        expression, written = shown.unalias(), item.expression.unnest()
        if expression.find(exp.Window) is not None or answers.number_of(item.expression) is not None:
            continue
        looked_at = written.expressions if isinstance(written, (exp.Grouping, exp.GroupingId)) else ()
        every = {answers.key_of(argument) for argument in looked_at} == set(answers.key_order)
        reads = frozenset(column.name for column in expression.find_all(exp.Column))
        descriptions.append(PlainViewColumn(item.name, reads, isinstance(expression, exp.Column), every))
    return tuple(descriptions)


def _with_level(select: exp.Select, items: Sequence[SelectItem], answers: AnswerReader) -> exp.Select:
    """Adds to the SELECT of a view a last column, which names the grouping columns of each row.

    The names are the view's own. Without this column, a total would look like the group of NULL.
    """
    if any(fold(item.name) == GROUPING_LEVEL for item in items):
        return select
    shown = dict[str, str]()
    computed = zip(items, select.expressions, strict=False)
    for item, key in [(item, answers.key_of(item.expression)) for item in items] + [
        (item, _only_column(written)) for item, written in computed
    ]:
        if key in answers.key_order:
            shown.setdefault(key or "", item.name)
    places = {fold(item.name): place for place, item in enumerate(items)}
    keys = [(name, shown.get(name, name), bit) for bit, name in enumerate(answers.key_order)]
    grouping = column_of_release(GROUPING_ID).sql("duckdb")
    listed = ", ".join(
        f"CASE WHEN ({grouping} >> {bit}) & 1 = 0 THEN {quote_text(plain_name(name))} END"
        for _, name, bit in sorted(keys, key=lambda column: places.get(fold(column[1]), len(places)))
    )
    level = parse_one(f"coalesce(nullif(concat_ws(', ', {listed}), ''), '{TOTAL}')", dialect="duckdb")
    return select.select(alias_item(level, GROUPING_LEVEL), copy=False)


def _only_column(written: exp.Expr) -> str | None:
    """Returns the only released column that an expression reads. None if it reads several or none."""
    names = {column.name for column in written.find_all(exp.Column)}
    return names.pop() if len(names) == 1 else None


def with_intervals_of(select: exp.Select, items: Sequence[SelectItem], answers: AnswerReader) -> exp.Select:
    """Adds columns to the SELECT of known answers: the errors of each answer, and the names of the releases behind it.

    The errors are stderr, interval_low and interval_high, after the name of the answer if there are several.
    """
    numbers = [(item.name, answers.number_of(item.expression)) for item in items]
    shown = [(name, number) for name, number in numbers if number is not None]
    columns = []
    for name, number in shown:
        before = f"{name}_" if len(shown) > 1 else ""
        columns += [(f"{before}stderr", stderr_column(number)), (f"{before}interval_low", low_column(number))]
        columns += [(f"{before}interval_high", high_column(number))]
    taken = {fold(item.name) for item in items}
    for name, column in (*columns, (KNOWN_FROM, KNOWN_FROM)):
        if fold(name) not in taken:
            select.append("expressions", alias_item(column_of_release(column), name))
    return select
