"""Printed tables of the command line: rounded boxes as wide as the terminal for people, CSV and JSON for programs."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import click

from dpduck.values.quoting import printable, quote_identifier
from dpduck.values.sqltypes import sql_type

if TYPE_CHECKING:
    import duckdb

MOST_ROWS = 200
"""Largest number of rows that a box shows."""

WIDTH = 80
"""Characters of a line of text."""

PIPE_WIDTH = 200
"""Characters of a line of a box, if the output is no terminal."""

DIGITS = 6
"""Digits of a number with fractions in a box. Whole parts are never rounded."""

MOST_RECORDS = 20
"""Largest number of rows that are printed one below the other."""

RECORDS, ALL_COLUMNS = "records", "--format csv"
"""Shape of rows one below the other, and the words that ask for all columns of a box."""

LEFT_OUT = "│ … │"
"""Mark that DuckDB's box has in the place of columns that do not fit."""

USUAL = (None, "", "in force", "owner", 0)
"""Usual values. A narrow box leaves out a column that has only such values."""

ALWAYS = frozenset({"spent"})
"""Columns that are never left out, since their 0 says something."""

ADVICE_AT = 20
"""Place in a line where the words of a finding begin, after its value and its percentage."""


MOST_SHOWN = 80
"""Largest number of characters that a box shows of a statement."""

_LINE = "trim(regexp_replace(regexp_replace(statement, '(^|\\n)\\s*--[^\\n]*', ' ', 'g'), '\\s+', ' ', 'g'))"
SHORT_STATEMENT = (
    f"CASE WHEN length({_LINE}) > {MOST_SHOWN} THEN {_LINE}[:{MOST_SHOWN}] || ' ..' ELSE {_LINE} END AS statement"
)
"""SQL of the beginning of a statement on one line, without comment lines."""


def views_in_words(views: int) -> str:
    """Returns a number of private views in words, as in "3 private views"."""
    return f"{views} private view{'' if views == 1 else 's'}"


def moment(column: str) -> str:
    """Returns SQL of a column of times, as texts to the minute."""
    return f"strftime({column}, '%Y-%m-%d %H:%M') AS {column}"


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Prints a text that may hold words of others. A terminal shows their control characters, and obeys none."""
    click.echo(printable(text), nl=nl, err=err)


def give(text: str) -> None:
    """Prints a document as it is to a file or a pipe, and as `say` does to a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


def print_relation(
    relation: duckdb.DuckDBPyRelation, shape: str, narrow: Sequence[str] = (), all_columns: str = ALL_COLUMNS
) -> None:
    """Prints rows as a box, as records, as CSV or as JSON.

    narrow: SQL of the columns of a box, in place of all columns. Such a box leaves out a column if all its values are
    USUAL. all_columns: what prints all columns if a box has no room for them.
    """
    if shape in ("box", RECORDS):
        rows = _telling(relation.project(", ".join(narrow))) if narrow else relation
        if shape == "box":
            print_box(rows, all_columns)
        else:
            print_records(rows)
        return
    print_rows(relation.columns, relation.fetchall(), shape)


def print_rows(columns: Sequence[str], rows: Sequence[tuple[object, ...]], shape: str) -> None:
    """Prints rows for programs: as CSV, or as JSON."""
    if shape == "csv":
        written = StringIO()
        writer = csv.writer(written if sys.stdout.isatty() else sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        say(written.getvalue(), nl=False)
        return
    for row in rows:
        say(json.dumps(dict(zip(columns, row, strict=True)), default=str))


def print_records(relation: duckdb.DuckDBPyRelation) -> None:
    """Prints rows one below the other, each column on a line of its own."""
    shown = _round_floats(relation)
    rows = shown.limit(MOST_ROWS + 1).fetchall()
    _print_records(shown.columns, rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        click.echo(f"\nthe first {MOST_ROWS} rows; LIMIT and OFFSET show others")


def _round_floats(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    return relation.project(
        ", ".join(_column_sql(*column) for column in zip(relation.columns, relation.types, strict=True))
    )


def print_box(relation: duckdb.DuckDBPyRelation, all_columns: str = ALL_COLUMNS) -> None:
    """Prints a box as wide as the terminal. If not all columns fit, up to MOST_RECORDS rows are printed as records."""
    shown = _round_floats(relation)
    box, room = StringIO(), width()
    with redirect_stdout(box):
        shown.show(max_rows=MOST_ROWS, max_width=room)
    text = box.getvalue()
    if LEFT_OUT not in text.split("\n", 2)[1]:
        say(text, nl=False)
    elif len(rows := shown.limit(MOST_RECORDS + 1).fetchall()) <= MOST_RECORDS:
        _print_records(shown.columns, rows)
    else:
        say(f"{text.rstrip()}\n  {all_columns} has all columns: {', '.join(shown.columns)}")


def width() -> int:
    """Returns the number of characters that a line of a box may have."""
    return shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() else PIPE_WIDTH


def _telling(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    rows = relation.fetchall()
    telling = {name for place, name in enumerate(relation.columns) if any(row[place] not in USUAL for row in rows)}
    names = [name for name in relation.columns if name in telling | ALWAYS]
    return relation.project(", ".join(map(quote_identifier, names))) if names else relation


def _print_records(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    columns = [printable(name).replace("\n", "\\n") for name in columns]
    room = max(map(len, columns))
    for number, row in enumerate(rows):
        if number:
            click.echo()
        for name, value in zip(columns, row, strict=True):
            text = "NULL" if value is None else printable(str(value))
            first, *others = text.split("\n")
            indent = " " * (room + 2)
            lines = textwrap.wrap(first, max(WIDTH, width()) - len(indent)) or [""]
            click.echo(f"{name:>{room}}: " + f"\n{indent}".join([*lines, *others]))


def _column_sql(name: str, type_name: object) -> str:
    """Returns SQL of a column for a box. It rounds floats to DIGITS digits, but never rounds their whole part."""
    column = quote_identifier(name)
    if not sql_type(str(type_name)).is_float:
        return column
    whole = f"CAST(floor(log10(abs({column}))) AS INTEGER)"
    digits = f"greatest(0, {DIGITS - 1} - {whole})"
    rounded = f"round({column}, {digits})"
    return f"CASE WHEN isfinite({column}) AND {column} <> 0 THEN {rounded} ELSE {column} END AS {column}"


def print_findings(relation: duckdb.DuckDBPyRelation) -> None:
    """Prints each exact finding of dp_check on lines of its own, with advice about findings that are not 0."""
    before = ""
    for finding, value, advice, percent in relation.project("finding, value, advice, percent").fetchall():
        number = "unknown" if value is None else f"{value:,.6g}" if value % 1 else f"{value:,.0f}"
        part = "" if percent is None else f"{percent:.1f} %"
        say(f"{number:>11}{part:>8} {finding}")
        if value and advice and advice != before:
            indent = " " * ADVICE_AT
            say(textwrap.fill(advice, WIDTH, initial_indent=indent, subsequent_indent=indent))
        before = advice
