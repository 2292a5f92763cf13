"""The rows of a statement as frozen parts: stored tables, how they are joined, and what was written about them.

Trusted code renders them. Texts here are canonical SQL over the columns that `types` names: a condition, an equality
or an output may be an analyst's expression, and trusted code finds out by itself which of them are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

from dpduck.values.sqltypes import sql_type


def text_sql(value: str, type_name: str) -> str:
    """Returns SQL of a stored value's text, total for every value of its type: NULL for moments that have no text."""
    kind = sql_type(type_name)
    if kind.is_float:
        return f"CAST({without_sign(value, type_name)} AS VARCHAR)"
    if kind.is_decimal:
        return f"CASE WHEN {digits_fit(value, type_name)} THEN CAST({value} AS VARCHAR) END"
    if kind.calendar is None:
        return f"CAST({value} AS VARCHAR)"
    low, high = (f"CAST('{end}' AS {type_name})" for end in kind.calendar)
    ends = ("infinity", "-infinity") if kind.has_infinity else ()
    endless = "".join(f" OR {value} = CAST('{end}' AS {type_name})" for end in ends)
    return f"CASE WHEN {value} BETWEEN {low} AND {high}{endless} THEN CAST({value} AS VARCHAR) END"


def without_sign(value: str, type_name: str) -> str:
    """Returns a stored FLOAT or DOUBLE in which zero has no sign, and NaN none.

    DuckDB stores -0.0 as 0.0 where rows around it hold 0.0, since RLE and constant segments compare values: a sign
    would be what other people's rows make of it.
    """
    zero, nan = (f"CAST('{text}' AS {type_name})" for text in ("0", "nan"))
    return f"CASE WHEN {value} = 0 THEN {zero} WHEN isnan({value}) THEN {nan} ELSE {value} END"


def digits_fit(value: str, type_name: str) -> str:
    """Tells whether a stored decimal has no more digits than its type; from Arrow and Parquet DuckDB keeps others."""
    kind = sql_type(type_name)
    most = f"{'9' * (kind.digits - kind.scale) or '0'}.{'9' * kind.scale}"
    low, high = (f"CAST('{sign}{most}' AS {type_name})" for sign in ("-", ""))
    return f"{value} BETWEEN {low} AND {high}"


LONGEST_JOINED = 4096
"""Bytes of the texts of a row that stand beside a join; rows with longer ones are left out there."""


def fits_sql(value: str, type_name: str, longest: int) -> str:
    """Returns a condition that leaves out a row whose text is too long; "" for other types."""
    length = sql_type(type_name).length_function
    return f"({value} IS NULL OR {length}({value}) <= {longest})" if length else ""


LONGEST_AS_IT_IS, LONGEST_UNIT = 64, 65_535
"""Bytes of a privacy unit that stands beside each of its rows; a longer one is known by its SHA-256 there, and rows of
one that is longer than the second are nobody's."""


def shortened_sql(value: str, type_name: str) -> str:
    """Returns SQL of a privacy unit in at most 65 bytes: equal for equal units, and for no others.

    What a row says of its unit is held for each of the unit's rows, of which joins and references make many: one long
    name would fill the memory. A digest has 65 bytes, and so is no unit that is written out.
    """
    kind = sql_type(type_name)
    if not kind.is_shortened:
        return value
    length = f"{kind.length_function}({value})"
    digest = f"'~' || sha256({value})"
    written = digest if kind.is_text else f"encode({digest})"
    short, hashed = f"WHEN {length} <= {LONGEST_AS_IT_IS} THEN {value}", f"WHEN {length} <= {LONGEST_UNIT}"
    return f"CASE {short} {hashed} THEN {written} END"


def together_sql(columns: Sequence[tuple[str, str]]) -> str:
    """Returns SQL of a privacy unit that columns hold together, as a text: equal for equal units, and for no others.

    columns: SQL and types, whose values are equal if and only if their texts are. First stand those whose texts hold no
    slash, each with one behind it; then the others, made short since DuckDB may hold them for all rows, each behind the
    number of its bytes and a colon. Where two such texts are equal, so are the parts before the first slash, and so on;
    then the first numbers, the parts that are as long as they say, and so on. NULL where a part is, or is too long.
    """
    texts = [(name if kind == "VARCHAR" else f"CAST({name} AS VARCHAR)", kind) for name, kind in columns]
    ended = [f"{text} || '/'" for text, kind in texts if not sql_type(kind).has_any_letters]
    short = [shortened_sql(text, "VARCHAR") for text, kind in texts if sql_type(kind).has_any_letters]
    told = [f"CAST(strlen({text}) AS VARCHAR) || ':' || {text}" for text in short]
    parts = " || ".join((*ended, *told))
    fits = " AND ".join(f"strlen({name}) <= {LONGEST_JOINED}" for name, kind in columns if kind == "VARCHAR")
    return f"{_TOGETHER} {fits or 'TRUE'} THEN {parts} END"


def is_together(unit_sql: str) -> bool:
    """Tells whether a unit is such a text, and not a stored column, or the first of several that is there."""
    return unit_sql.startswith(_TOGETHER)


_TOGETHER = "CASE WHEN"


def instant_sql(value: str) -> str:
    """Returns SQL of a TIMESTAMP WITH TIME ZONE as microseconds: two instants may have one text, where clocks went
    back.
    """
    most = (1 << 63) - 1
    ends = f"WHEN {value} = 'infinity' THEN {most} WHEN {value} = '-infinity' THEN -{most}"
    return f"CASE {ends} ELSE epoch_us({value}) END"


@dataclass(frozen=True)
class Stored:
    """A table under an alias. sql: its name, or a SELECT of its columns. numbered: whether rowid tells rows apart."""

    sql: str
    alias: str
    numbered: bool = True


@dataclass(frozen=True)
class Lookup:
    """An equality of an expression, cast to a column's type where that is possible, with that column."""

    value_sql: str
    type_name: str
    column_sql: str


@dataclass(frozen=True)
class Join:
    """kind: JOIN, or LEFT, RIGHT, FULL, SEMI or ANTI before it. on: all of its conditions.

    copies: of a table that rows are repeated by, the most rows that are joined for one key; else 0.
    keys: its columns that rows are joined by. content: of a private table, by whose keyed order its rows are chosen.
    first: whether it is the first table of the source that is cut so, in place of the joined one.
    """

    kind: str
    right: Source
    on: tuple[str | Lookup, ...]
    copies: int = 0
    keys: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    first: bool = False


@dataclass(frozen=True)
class Coded:
    """A condition over codes of prepared rows. outside: rows of which it is asked as it is written, "" for none."""

    outside: str
    test: str

    def asked(self, written: str) -> str:
        """Returns all that may be asked of a row."""
        return f"{self.outside} {written} {self.test}" if self.outside else self.test

    def condition(self, written: str) -> str:
        """Writes the condition of a row. written: for rows outside."""
        return f"CASE WHEN {self.outside} THEN {written} ELSE {self.test} END" if self.outside else f"({self.test})"


@dataclass(frozen=True)
class Cut:
    """A column that prepared rows hold cut to bounds, too, as a whole number of units of 10^-scale.

    steps_sql: the same in steps from its lower bound, "" where that is not held.
    """

    column_sql: str
    low: Fraction
    high: Fraction
    step: Fraction
    scale: int
    units_sql: str
    steps_sql: str


@dataclass(frozen=True)
class Source:
    """A FROM with its WHERE. types: DuckDB's type of each column, by its SQL; of joined sources, too.

    coded: of prepared rows, conditions that are asked of codes in place of values, by their text. cuts: of these rows.
    """

    first: Stored | Union | Units
    joins: tuple[Join, ...] = ()
    filters: tuple[str, ...] = ()
    types: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    coded: tuple[tuple[str, Coded], ...] = field(default=(), repr=False)
    cuts: tuple[Cut, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Branch:
    """One SELECT of a UNION ALL. outputs: SQL of stored columns or constants, with names."""

    source: Source
    outputs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Union:
    """A UNION ALL under an alias."""

    branches: tuple[Branch, ...]
    alias: str


@dataclass(frozen=True)
class Operand:
    """A value of a row: a stored column, or an expression of an analyst's. type_name: DuckDB's type of it."""

    sql: str
    type_name: str


@dataclass(frozen=True)
class Place:
    """A value that a unit's rows are ordered by."""

    operand: Operand
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Feature:
    """A column that is made of the rows of one privacy unit, and of no others. name: as written in SQL.

    form: a name of trusted/private/features.py. condition: of the rows that take part, "" for all. order: of them; rows
    that are tied are in keyed order. distance: of lag and lead, in rows.
    """

    form: str
    name: str
    operand: Operand | None = None
    condition: str = ""
    order: tuple[Place, ...] = ()
    distance: int = 1

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Returns all values of rows that it is made of."""
        own = () if self.operand is None else (self.operand,)
        return (*own, *(place.operand for place in self.order))


@dataclass(frozen=True)
class Units:
    """One row for each privacy unit, under an alias. outputs: SQL and names; counts: conditions and names.

    A condition "" counts every row. features: what else is made of a unit's rows. windowed: whether every row is there,
    with the features beside it, in place of one row of the unit.
    """

    source: Source
    unit_sql: str
    outputs: tuple[tuple[str, str], ...]
    counts: tuple[tuple[str, str], ...]
    alias: str
    features: tuple[Feature, ...] = ()
    windowed: bool = False

    @property
    def conditions(self) -> tuple[str, ...]:
        """Returns the conditions of rows that are counted, or that a feature is made of."""
        found = (*(condition for condition, _ in self.counts), *(one.condition for one in self.features))
        return tuple(condition for condition in found if condition)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Returns the values of rows that features are made of, once each."""
        return tuple(dict.fromkeys(operand for one in self.features for operand in one.operands))


def _rows_inside(first: Stored | Union | Units) -> list[Source]:
    """Returns the sources inside of one each row of which is there as one row."""
    if isinstance(first, Union):
        return [branch.source for branch in first.branches]
    return [first.source] if isinstance(first, Units) and first.windowed else []


def most_copies(source: Source) -> int:
    """Returns the most rows that joins, inner ones too, make of one row; of a UNION ALL those of all its tables."""
    inside = sum(map(most_copies, _rows_inside(source.first))) or 1
    joined = (one for one in source.joins if one.kind not in ("SEMI JOIN", "ANTI JOIN"))
    return inside * prod(max(1, one.copies) * most_copies(one.right) for one in joined)


def repeats(source: Source) -> bool:
    """Tells whether a stored row may stand beside very many others: of a private table that is joined, whatever by."""
    if any(map(repeats, _rows_inside(source.first))):
        return True
    joined = [one for one in source.joins if one.kind not in ("SEMI JOIN", "ANTI JOIN")]
    return any(one.copies == 0 or one.content or repeats(one.right) for one in joined)


# How rows that hold no privacy unit find it: by a reference, and joins that do nothing else.

ROWS, REFERENCE = "dpduck_rows", "dpduck_reference"
"""What joins_sql calls the rows, and the column of theirs that holds the reference."""


@dataclass(frozen=True)
class UnitLookup:
    """A row source in two parts: its rows, and the hidden joins along the references of one of its relations.

    rows_sql: what follows FROM without those joins. reference_sql: the first reference, an expression over the rows.
    joins_sql: the joins of ROWS, by their REFERENCE. A parent's column is a key: a row finds one unit, or is dropped.
    """

    rows_sql: str
    reference_sql: str
    joins_sql: str
