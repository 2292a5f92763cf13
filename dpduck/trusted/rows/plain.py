"""Which conditions the database's own process may evaluate: comparisons of stored columns with constants.

A condition is plain where it is made of AND, OR, NOT, TRY and brackets over comparisons of a stored column with a
literal of its own kind, or with a stored column of the same type, and of LIKE of a stored text and a literal whose only
wildcard is %, which DuckDB matches in one pass: nothing is cast or computed, so nothing can raise, allocate or take
long. All else that an analyst wrote is left to a worker process. What this reads is the very text that would run;
whatever it does not know is not plain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime

import duckdb

from dpduck.values.errors import InternalError, Refusal
from dpduck.values.sqltypes import SqlType, sql_type

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*"(?:\."(?:[^"]|"")*")*)|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)|(?P<sign><=|>=|<>|!=|[=<>(),+*-]))""",
    re.ASCII,
)
_ANY_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*"(?:\s*\.\s*"(?:[^"]|"")*")*)|(?P<other>[^'"]+)""", re.ASCII
)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{6}|\.\d{3})?)?", re.ASCII)
_COMPARES = frozenset(("=", "<>", "!=", "<", ">", "<=", ">="))
_LARGEST_LITERAL = 9
_LONGEST_PATTERN, LONGEST_NUMBER = 100, 16
Types = Mapping[str, str]


class NotPlain(Exception):
    """What was read is not plain."""


def is_plain(condition: str, types: Types) -> bool:
    """Tells whether a condition is plain. types: of every column that may occur, by its text.

    >>> is_plain('("r0"."age" BETWEEN 1 AND 9) AND NOT "r0"."age" IS NULL', {'"r0"."age"': "INTEGER"})
    True
    >>> is_plain("CAST(\\"r0\\".\\"note\\" AS INTEGER) > 1", {'"r0"."note"': "VARCHAR"})
    False
    """
    try:
        reader = Reader(tokens_of(condition), types)
        reader.condition()
        reader.end()
    except (NotPlain, RecursionError):
        return False
    return True


def without_try(condition: str, types: Types) -> str:
    """Returns the condition without TRY around what is plain by itself, and cannot raise: DuckDB then computes less.

    >>> without_try('try("r0"."a" < "r0"."b")', {'"r0"."a"': "DATE", '"r0"."b"': "DATE"})
    '"r0"."a" < "r0"."b"'
    """
    inside = condition.removeprefix("try(").removesuffix(")")
    return inside if condition == f"try({inside})" and is_plain(inside, types) else condition


def plain_number(value: str, types: Types) -> bool:
    """Tells whether a DOUBLE is no more than a stored number as such.

    >>> plain_number('CAST("r0"."age" AS DOUBLE)', {'"r0"."age"': "INTEGER"})
    True
    """
    inside = value.removeprefix("CAST(").removesuffix(" AS DOUBLE)")
    stored = sql_type(types.get(inside, "") if value == f"CAST({inside} AS DOUBLE)" else "")
    return stored.is_float or stored.fits_64_bits


def plain_text(value: str, types: Types) -> str | None:
    """Returns the column whose stored value as a text this is, None for anything else.

    >>> plain_text('CAST("r0"."ward" AS VARCHAR)', {'"r0"."ward"': "VARCHAR"})
    '"r0"."ward"'
    """
    inside = value.removeprefix("CAST(").removesuffix(" AS VARCHAR)")
    known = value == f"CAST({inside} AS VARCHAR)" and sql_type(types.get(inside, "")).is_selectable
    return inside if known else None


def columns_of(sql: str, types: Types) -> list[str]:
    """Returns the columns that an expression reads, in the order in which they come first."""
    found = (match["name"] for match in _ANY_TOKEN.finditer(sql) if match["name"])
    return list(dict.fromkeys(name for name in found if name in types))


def renamed(sql: str, names: Mapping[str, str]) -> str:
    """Returns the expression with other names for its columns; literals are left alone."""
    return _ANY_TOKEN.sub(lambda match: names.get(match[0], match[0]), sql)


def tokens_of(text: str) -> list[tuple[str, str]]:
    """Returns kinds and texts of tokens."""
    tokens, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise NotPlain
        tokens.append((match.lastgroup, match[match.lastgroup]))
        place = match.end()
    return tokens


class Reader:
    """Reads the tokens of one condition."""

    def __init__(self, tokens: Sequence[tuple[str, str]], types: Types) -> None:
        self.tokens = tokens
        self.types = types
        self.place = 0

    def condition(self) -> None:
        self._conjunction()
        while self.word("OR"):
            self._conjunction()

    def end(self) -> None:
        if self.place != len(self.tokens):
            raise NotPlain

    def _conjunction(self) -> None:
        self._negation()
        while self.word("AND"):
            self._negation()

    def _negation(self) -> None:
        while self.word("NOT"):
            pass
        self._predicate()

    def _predicate(self) -> None:
        if self.word("TRUE") or self.word("FALSE") or self.word("NULL"):
            return
        column = self.column()
        if column is not None:
            self._compared(column)
            return
        if self.word("TRY") and self.peek()[1] != "(":
            raise NotPlain
        if self.sign("("):
            self.condition()
            self.expect(")")
            return
        literal = self._literal()
        sign = self.peek()
        if sign[1] not in _COMPARES:
            raise NotPlain
        self.place += 1
        column = self.column()
        if column is None or not _alike(literal, self.types[column]):
            raise NotPlain

    def _compared(self, column: str) -> None:
        """Reads what follows a column: nothing after a BOOLEAN, else one comparison."""
        type_name = self.types[column]
        if self.word("IS"):
            self._after_is(type_name)
            return
        negated = self.word("NOT")
        if self.word("BETWEEN"):
            self._operand(type_name)
            if not self.word("AND"):
                raise NotPlain
            self._operand(type_name)
            return
        if self.word("IN"):
            self.expect("(")
            self._operand(type_name)
            while self.sign(","):
                self._operand(type_name)
            self.expect(")")
            return
        if self.word("LIKE"):
            self._pattern(type_name)
            return
        if negated:
            raise NotPlain
        if self.peek()[1] in _COMPARES:
            self.place += 1
            self._operand(type_name)
        elif type_name != "BOOLEAN":
            raise NotPlain

    def _pattern(self, type_name: str) -> None:
        """Reads a short pattern for a text, without the wildcard _ that would be tried at every place."""
        kind, text = self.next()
        if type_name != "VARCHAR" or kind != "text" or "_" in text or len(text) > _LONGEST_PATTERN:
            raise NotPlain

    def _after_is(self, type_name: str) -> None:
        if sql_type(type_name).mentions("VARIANT"):  # of these other rows decide whether they are NULL
            raise NotPlain
        self.word("NOT")
        if self.word("NULL"):
            return
        if self.word("DISTINCT"):
            if not self.word("FROM"):
                raise NotPlain
            self._operand(type_name)
            return
        if type_name != "BOOLEAN" or not (self.word("TRUE") or self.word("FALSE")):
            raise NotPlain

    def _operand(self, type_name: str) -> None:
        """Reads a literal of the column's kind, or a column of its type."""
        other = self.column()
        if other is not None:
            own, theirs = sql_type(type_name), sql_type(self.types[other])
            if not (own.is_integer and theirs.is_integer) and (own != theirs or not own.is_comparable):
                raise NotPlain
        elif not _alike(self._literal(), type_name):
            raise NotPlain

    def _literal(self) -> tuple[str, str]:
        """Returns kind and text of a literal: text, number, boolean, DATE or TIMESTAMP."""
        kind, text = self.next()
        if kind == "text":
            return "text", text[1:-1].replace("''", "'")
        if text == "-":
            kind, text = self.next()
        if kind == "number":
            return "number", text
        if kind == "word" and text.upper() in ("TRUE", "FALSE"):
            return "boolean", text
        if kind == "word" and text.upper() == "CAST":
            return self._cast()
        raise NotPlain

    def _cast(self) -> tuple[str, str]:
        self.expect("(")
        kind, text = self.next()
        if kind != "text" or not self.word("AS"):
            raise NotPlain
        _, named = self.next()
        self.expect(")")
        if not sql_type(named).is_moment or not _is_moment(text[1:-1], named):
            raise NotPlain
        return named, text[1:-1]

    def column(self) -> str | None:
        """Returns a column, in brackets or not; nothing is read where there is none."""
        depth = 0
        while self.peek(depth)[1] == "(":
            depth += 1
        name = self.peek(depth)[1]
        if name not in self.types:
            return None
        if any(self.peek(depth + 1 + closing)[1] != ")" for closing in range(depth)):
            return None
        self.place += 2 * depth + 1
        return name

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else ("", "")

    def next(self) -> tuple[str, str]:
        token = self.peek()
        self.place += 1
        return token

    def word(self, word: str) -> bool:
        kind, text = self.peek()
        found = kind == "word" and text.upper() == word
        self.place += found
        return found

    def sign(self, sign: str) -> bool:
        found = self.peek() == ("sign", sign)
        self.place += found
        return found

    def expect(self, sign: str) -> None:
        if not self.sign(sign):
            raise NotPlain


def _alike(literal: tuple[str, str], type_name: str) -> bool:
    """Tells whether a column of this type is compared with the literal without a cast of the column."""
    (kind, text), stored = literal, sql_type(type_name)
    if sql_type(kind).is_moment:
        return kind == type_name
    if kind == "text":
        return type_name == "VARCHAR" or (stored.is_moment and _is_moment(text, type_name))
    if kind == "boolean":
        return type_name == "BOOLEAN"
    if stored.is_integer:
        return text.isdigit() and len(text) <= _LARGEST_LITERAL
    if stored.is_float:  # beside a number too long for HUGEINT, DuckDB 2.0 casts the column, and raises for NaN
        return len(text) <= LONGEST_NUMBER
    return stored.is_decimal and _fits_decimal(text, stored)


def _fits_decimal(number: str, stored: SqlType) -> bool:
    whole, _, part = number.partition(".")
    return len(part) <= stored.scale and len(whole) <= stored.digits - stored.scale


def _is_moment(text: str, type_name: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        (date if type_name == "DATE" else datetime).fromisoformat(text)
    except ValueError:
        return False
    return True


# DuckDB's plans over private rows keep every expression where it was written, and read no statistics of a
# column.
#
# TRY catches what is computed inside it. Some passes of DuckDB's optimizer compute an expression elsewhere:
# IN with five or more literals becomes a join below the TRY, what occurs twice is computed once below it.
# Another one computes the range of a function from the exact least and largest value of a column, and raises
# while it plans where that range cannot be: one row then decides whether the statement fails. So these passes
# are switched off.
#
# DuckDB has one such setting for a whole database instance, and reads it without a lock while other
# connections plan: to set it for a count and to restore it afterwards could crash a statement beside it. It
# is set when dpduck is loaded, and stays. Whoever takes it back has it set again before the next count; where
# the configuration is locked meanwhile, nothing is counted.

STAY = """expression_rewriter filter_pullup filter_pushdown empty_result_pullup cte_filter_pusher regex_range join_order
    deliminator unnest_rewriter unused_columns common_aggregate column_lifetime limit_pushdown top_n
    build_side_probe_side duplicate_groups reorder_filter
    sampling_pushdown materialized_cte late_materialization cte_inlining common_subplan
    join_elimination window_self_join sum_rewriter aggregate_function_rewriter outer_join_simplification
    window_rewriter partitioned_execution partial_aggregate_pushdown grouping_sets distinct_aggregate_rewrite
    aggregate_reuse redundant_order_keys"""
"""Passes of 1.5 and 2.0 that stay on. All others are off, also those that nobody has heard of: in_clause (a list as a
join below the expression), common_subexpressions (what occurs twice, computed once below), statistics_propagation
(raises by the least and largest value of a column), compressed_materialization (packs values by these),
row_group_pruner and join_filter_pushdown (leave out parts of a table by these: conditions.py), top_n_window_elimination
(raises where a row has a rank of a million), extension; of 2.0 those that move projections or casts."""


def keep_plans_plain(cursor: duckdb.DuckDBPyConnection) -> str:
    """Switches off the passes that are on; Refusal where they are on and the configuration is locked.

    Returns the setting with which none is on that must be off.
    """
    running = _running(cursor)
    row = cursor.execute("SELECT current_setting('disabled_optimizers')").fetchall()
    if not running:
        return str(row[0][0])
    known = [row[0][0]] if row[0][0] else []
    setting = ",".join([*known, *running])
    try:
        cursor.execute(f"SET GLOBAL disabled_optimizers = '{setting}'")
    except duckdb.Error:
        raise Refusal(
            "DuckDB's configuration is locked with optimizer passes on that may raise on a private row",
            accepted="dpduck.load before SET lock_configuration, and disabled_optimizers left as it sets them",
        ) from None
    return setting


def passes_that_are_off(cursor: duckdb.DuckDBPyConnection) -> str:
    """Returns the passes that are off, for a DuckDB elsewhere; none may be on that must be off."""
    if _running(cursor):
        raise InternalError("plans are not plain")
    row = cursor.execute("SELECT current_setting('disabled_optimizers')").fetchall()
    return str(row[0][0])


def _running(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    """Returns the passes of this DuckDB that must be off and are on."""
    listed = ", ".join(f"'{name}'" for name in STAY.split())  # a parameter costs 0.1 ms where pandas is not installed
    rows = cursor.execute(
        f"SELECT name FROM duckdb_optimizers() WHERE name NOT IN ({listed}) "
        "AND NOT list_contains(string_split(current_setting('disabled_optimizers'), ','), name)"
    ).fetchall()
    return [name for (name,) in rows]
