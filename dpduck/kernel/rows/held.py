"""Values of a private row that DuckDB holds in memory for a join: short values, and a hash of all stored values.

DuckDB keeps either side of a join in memory. A few long texts of one person, or their copies, could fill the memory.
The statement would then fail after its charge, and so reveal them. So if rows are joined or counted for each unit, each
table is read in a SELECT of its own, which leaves out a row with too long a text. It also computes the hash that orders
a unit's rows. A value that no expression can read becomes TRUE, or stays NULL. Public tables are read in the same
way, since private rows decide how often a public row is held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpduck.kernel.columns.expressions import Expression, RelationColumn, columns_of
from dpduck.kernel.columns.stored import LONGEST_JOINED, fits_sql, shorten_sql
from dpduck.kernel.relations import Join
from dpduck.kernel.rows.bounding import order_sql, rank_sql
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

ORDER_OF_TABLE = "dpduck_order_of_table"

REPEATED, SHORTEST_READ = 16, 64
"""Number of copies above which a row's texts must be shorter. Bytes that each text must have room for."""

LONGEST_MADE = 256


def hash_input_sql(column: str, type_name: str) -> str:
    """Writes the part of a stored column that the hash for the order of a unit's rows uses.

    The stored form of a VARIANT or a GEOMETRY depends on neighbouring rows. If neighbouring rows have fields, {} is
    read as NULL: one person decided whether `x IS NULL` counted 40,000 others. If all values of a part are of one kind,
    a zero of a GEOMETRY loses its sign. So of a GEOMETRY only IS NULL is hashed, and of a VARIANT nothing.
    """
    kind = sql_type(type_name)
    if kind.mentions("VARIANT"):
        return "TRUE"
    return f"{column} IS NULL" if kind.mentions("GEOMETRY") else column


@dataclass(frozen=True)
class Held:
    """Columns of one FROM that DuckDB holds in memory. Without joins and features, DuckDB holds no columns.

    read: columns with values that may be long. longest: most bytes of each text. content: by alias, the columns that
    order a table's rows. whole: whether values of nested types may be replaced by TRUE, since nothing else reads them.
    """

    read: tuple[RelationColumn, ...] = ()
    longest: int = 0
    content: Mapping[str, Sequence[RelationColumn]] = field(default_factory=dict)
    whole: bool = True

    @property
    def order(self) -> tuple[str, ...]:
        """Returns SQL of the hashes, one for each table, that order a unit's rows."""
        return tuple(f"{quote_identifier(alias)}.{ORDER_OF_TABLE}" for alias in self.content)

    def of(self, alias: str) -> tuple[list[str], list[str], list[str]]:
        """Returns changed columns, added columns, and conditions for one table. Their SQL calls the table dpduck_t."""
        changed, conditions = [], []
        for stored in (stored for stored in self.read if stored.relation == alias):
            column, kind = quote_identifier(stored.name), stored.type_name
            if sql_type(kind).length_function:
                conditions.append(fits_sql(stored.of("dpduck_t"), kind, self.longest))
            elif not (sql_type(kind).is_nested and self.whole):
                raise Refusal(
                    f"a join holds values of {column}, a {sql_type(kind).word}, which may be long",
                    accepted="numbers, texts, BOOLEAN, dates, times, BLOB, ENUM and UUID of rows that are joined",
                )
            else:
                changed.append(f"CASE WHEN dpduck_t.{column} IS NOT NULL THEN TRUE END AS {column}")
        content = [hash_input_sql(stored.of("dpduck_t"), stored.type_name) for stored in self.content.get(alias, ())]
        added = [f"{order_sql(content)} AS {ORDER_OF_TABLE}"] if content else []
        return changed, added, conditions


def held_by(
    expressions: Sequence[Expression], content: Sequence[Expression], bounds: tuple[int, bool], made: int = 0
) -> Held:
    """Returns the columns that are held if these expressions are read. made: number of further texts (texts_held)."""
    read = tuple(expr for expr in columns_of(expressions) if not sql_type(expr.type_name).is_short)
    by_table: dict[str, list[RelationColumn]] = {}
    for column in columns_of(content):
        by_table.setdefault(column.relation, []).append(column)
    outputs = sum(
        isinstance(expr, RelationColumn) and bool(sql_type(expr.type_name).length_function) for expr in expressions
    )
    several = sum(bool(sql_type(expr.type_name).length_function) for expr in read)
    return Held(read, longest_joined(max(outputs, several) + made, *bounds), by_table)


def longest_joined(texts: int, copies: int, repeated: bool) -> int:
    """Returns the most bytes of each text of a joined row. repeated: whether a private join may repeat it often."""
    together = LONGEST_JOINED * REPEATED // max(REPEATED, copies)
    return max(SHORTEST_READ, together // max(4 if repeated else 1, texts))


def longest_made(texts: int, held: Held) -> int:
    """Returns the most bytes of each text that a worker computes from a row, if DuckDB holds it for every row."""
    # a worker can make one byte a long text: with 4,096 bytes each, one person's 70,000 rows filled 300 MB
    return min(held.longest, LONGEST_MADE, LONGEST_MADE * 4 // max(4, texts))


def apart_sql(value: str, type_name: str) -> str:
    """Writes a short value that differs for different values. For types that no expression reads, only NULL differs."""
    kind = sql_type(type_name)
    if kind.mentions("VARIANT"):
        return "TRUE"  # no part of a VARIANT is read
    if kind.form_apart:
        return f"CAST({value} AS {kind.form_apart})"
    if kind.length_function and not kind.is_shortened:
        return f"sha256(CAST({value} AS VARCHAR))"
    return shorten_sql(value, type_name) if kind.is_short or kind.is_shortened else f"{value} IS NULL"


def cut_sql(join: Join, number: Expression | None = None) -> tuple[list[str], str]:
    """Writes SQL that keeps at most join.copies rows of a table for each value of its keys.

    Returns columns to add to the table first, and a QUALIFY over them. In a private table, rows of one key are of one
    unit. A keyed hash of their own content orders the rows, and the first are kept: neither other units nor chance
    decide. Tied rows are equal, bit by bit, in all that may be read. number: the number of a private row's period, for
    a limit in each period.
    """
    keys, content = ([column.of("dpduck_t") for column in columns] for columns in (join.keys, join.content))
    apart = [apart_sql(own, column.type_name) for own, column in zip(content, join.content, strict=True)]
    hashed = [hash_input_sql(own, column.type_name) for own, column in zip(content, join.content, strict=True)]
    order = [order_sql(hashed), *apart] if content else []
    names = [f"dpduck_cut_{number}" for number in range(len(order))]
    added = [f"{sql} AS {name}" for sql, name in zip(order, names, strict=True)]
    nobody = "".join(f" OR {key} IS NULL" for key in keys) if content else ""
    by = keys if number is None else [*keys, number.write(lambda column: column.of("dpduck_t"))]
    return added, f"QUALIFY {rank_sql(by, names)} <= {int(join.copies)}{nobody}"
