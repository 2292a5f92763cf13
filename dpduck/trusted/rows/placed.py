"""Where rows come from: stored tables, joined along equal columns; what an analyst wrote about them is set apart.

A Source is rendered as SQL of which the database's process evaluates stored columns, their comparisons (plain) and
constant SQL of ours (features), and nothing else. Of each table that is joined it reads rows that are short (held).
Every other expression goes one of two ways. Where it may be asked of the joined row instead, it is moved behind the
joins, to the worker. Where it may not, because an outer, SEMI or ANTI join, a UNION ALL or a feature of each unit
depends on it, it is asked of the rows of the one table that it is about, beforehand (Stage): the worker's answers come
back by row number, and are then a stored column like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpduck.frontend.rows.parts import (
    Branch,
    Coded,
    Join,
    Lookup,
    Operand,
    Source,
    Stored,
    Union,
    Units,
    most_copies,
    repeats,
)
from dpduck.trusted.conditions import beyond_scans, where_sql
from dpduck.trusted.private.contributions import order_sql
from dpduck.trusted.private.features import comparable_sql, feature_sql, texts_held, without_signs
from dpduck.trusted.rows.answered import ROW
from dpduck.trusted.rows.held import Held, apart_sql, cut_sql, held_by, longest_made, nothing_held
from dpduck.trusted.rows.plain import columns_of, is_plain, without_try
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.sqltypes import sql_type

Types = Mapping[str, str]
INNER = "JOIN"
_COMPARISON = re.compile(r'("(?:[^"]|"")*")\."(?:[^"]|"")*" (?:=|<|>|<=|>=) ("(?:[^"]|"")*")\."(?:[^"]|"")*"')
EXTENDING = frozenset(("RIGHT JOIN", "FULL JOIN"))
"""After these a condition of an earlier join is no condition of the joined row."""


@dataclass(frozen=True)
class Stage:
    """What is asked of the rows of one table beforehand. flags, values: SQL by the name of their column; types of both.

    name: of the table that the answers are put into. extended: columns that are read where an outer join may have
        made the table's row NULL: their answer for a row of NULLs must be no answer, which is all that is read there.
    where: which rows are asked, "" for all. longest: bytes of a text that is answered, where each is held beside a row.
    """

    table_sql: str
    alias: str
    name: str
    flags: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, Lookup], ...]
    types: tuple[tuple[str, str], ...] = field(repr=False)
    extended: frozenset[str] = frozenset()
    where: str = ""
    longest: int | None = None


@dataclass(frozen=True)
class Placed:
    """SQL of a source: what follows FROM, plain conditions of WHERE, conditions that were moved, stages in order.

    order: what tells the rows of a unit apart, as hashes of what is stored; () where the content itself does.
    """

    from_sql: str
    where: tuple[str, ...]
    moved: tuple[str, ...]
    stages: tuple[Stage, ...]
    order: tuple[str, ...] = ()


def placed(
    source: Source,
    filters: Sequence[str],
    types: Types,
    *,
    copied: bool = False,
    joined: bool = False,
    read: Sequence[str] = (),
    content: Sequence[str] = (),
) -> Placed:
    """Returns SQL of a source, with further conditions of WHERE.

    copied: whether public tables are cut to so many rows for one key as the price says: where rows are the privacy
    units, what one of them becomes through joins is then bounded by the SQL itself. joined: whether rows are joined
    with anything later. read: what else is read of rows. content: what their order is by, which is hashed where rows
    are joined.
    """
    bounds, made = (most_copies(source), repeats(source)), texts_held(source)
    scope = _Scope(types, [], copied, coded=dict(source.coded), bounds=bounds, made=made)
    if joined or source.joins:
        scope.held = _held(source, scope, (*filters, *read), content)
    parts = _parts(source, scope, True)
    kept = [scope.condition(text, True) for text in (*source.filters, *filters)]
    where = tuple(text for text in kept if text is not None)
    from_sql, stages = parts.render(scope), (*scope.stages, *scope.own_stages())
    return Placed(from_sql, where, tuple(dict.fromkeys(scope.moved)), stages, scope.held.order)


def _held(source: Source, scope: _Scope, read: Sequence[str], content: Sequence[str] = (), made: int = 0) -> Held:
    """Returns what is held of the rows of one level, beside a join or for each unit. made: texts beside those read."""
    texts = [*source.filters, *_conditions(source), *read]
    asked = [scope.coded[text].asked(text) if text in scope.coded else text for text in texts]
    return held_by(asked, content, scope.types, scope.bounds, made)


def _tables(source: Source) -> list[Stored]:
    """Lists the stored tables of a level."""
    found = [source.first] if isinstance(source.first, Stored) else []
    for join in source.joins:
        found += _tables(join.right)
    return found


def _conditions(source: Source) -> list[str]:
    """Lists what is written of a level's joins: conditions, and equalities with columns."""
    found = []
    for join in source.joins:
        for one in join.on:
            found += [one] if isinstance(one, str) else [one.value_sql, one.column_sql]
        found += [*join.right.filters, *_conditions(join.right)]
    return found


def _compares_tables(condition: str) -> bool:
    """Tells whether a condition is one comparison of columns of two tables. No scan is given such a condition."""
    aliases = _COMPARISON.fullmatch(condition)
    return aliases is not None and aliases[1] != aliases[2]


def outer(source: Source) -> bool:
    """Tells whether some join adds rows of NULLs."""
    return any(join.kind in ("LEFT JOIN", *EXTENDING) for join in source.joins)


@dataclass
class _Asked:
    """What is asked of one table of a scope. where: of which of its rows, "" for all."""

    stored: Stored
    name: str
    where: str = ""
    flags: dict[str, str] = field(default_factory=dict)
    values: dict[Lookup, str] = field(default_factory=dict)
    extended: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)


@dataclass
class _Scope:
    """One level of a statement: its columns, what is asked of its tables, and stages of the levels inside it.

    made: texts that features of all levels hold of a row.
    """

    types: Types
    stages: list[Stage]
    copied: bool = False
    numbers: list[int] = field(default_factory=lambda: [0])
    moved: list[str] = field(default_factory=list)
    tables: dict[str, Stored] = field(default_factory=dict)
    asked: dict[tuple[str, str], _Asked] = field(default_factory=dict)
    cut: dict[str, tuple[list[str], str]] = field(default_factory=dict)
    extended: set[str] = field(default_factory=set)
    coded: Mapping[str, Coded] = field(default_factory=dict)
    bounds: tuple[int, bool] = (1, False)
    made: int = 0
    held: Held = field(default_factory=nothing_held)

    def inside(self, source: Source, read: Sequence[str], *, held: bool, made: int = 0) -> _Scope:
        """Returns a level inside this one. held: whether its rows are joined, or held for a unit. made: see _held."""
        found = _Scope(dict(source.types), self.stages, numbers=self.numbers, coded=dict(source.coded))
        found.bounds, found.made = self.bounds, self.made
        if held:
            found.held = _held(source, found, read, made=made)
        return found

    def condition(self, text: str, movable: bool) -> str | None:
        """Returns a condition as the database may evaluate it; None where it was moved."""
        coded = self.coded.get(text)
        if coded is not None:
            here = not coded.outside or is_plain(text, self.types)
            return coded.condition(text if here else self._flag(text, coded.outside))
        if is_plain(text, self.types):
            return without_try(text, self.types)
        if movable:
            self.moved.append(text)
            return None
        return self._flag(text)

    def on(self, text: str, movable: bool) -> str | None:
        """Returns a condition of a join. Only comparisons of columns of two tables may decide how the join is done."""
        condition = self.condition(text, movable)
        return condition if condition is None or _compares_tables(condition) else beyond_scans(condition)

    def _flag(self, text: str, where: str = "") -> str:
        """Returns the worker's answer to a condition about one table, as a column of it."""
        asked = self._about(text, where)
        name = asked.flags.setdefault(text, f"{asked.name}_f{len(asked.flags)}")
        self._note_extended(asked, name)
        return f'"{asked.stored.alias}"."{name}"'

    def equality(self, lookup: Lookup) -> str:
        """Returns an equality of stored columns."""
        alias, name = self._answered(lookup)
        column, type_name = lookup.column_sql, lookup.type_name
        right = column if sql_type(type_name).travels else f"CAST({column} AS VARCHAR)"
        return f'"{alias}"."{name}" = {right}'

    def value(self, operand: Operand) -> str:
        """Returns a value that a unit's features are made of: as stored, or the worker's answer as a column."""
        stored = self.types.get(operand.sql)
        if stored is not None and stored != operand.type_name:
            raise InternalError("a value of another type")
        if stored is not None:
            return operand.sql
        text, kind = operand.sql, operand.type_name
        if kind == "BOOLEAN":  # a flag says TRUE or nothing
            alias, name = self._answered(Lookup(f"CAST({text} AS TINYINT)", "TINYINT", ""))
            return f'CAST("{alias}"."{name}" AS BOOLEAN)'
        if not sql_type(kind).travels:
            raise InternalError("a value of a type that no worker gives")
        alias, name = self._answered(Lookup(text, kind, ""))
        if kind == "VARCHAR":
            self.asked[alias, ""].texts.add(name)
        return f'"{alias}"."{name}"'

    def _answered(self, lookup: Lookup) -> tuple[str, str]:
        """Returns the table, and its column that holds a worker's answers."""
        asked = self._about(lookup.value_sql)
        name = asked.values.setdefault(lookup, f"{asked.name}_v{len(asked.values)}")
        self._note_extended(asked, name)
        return asked.stored.alias, name

    def _note_extended(self, asked: _Asked, name: str) -> None:
        if asked.stored.alias in self.extended:
            asked.extended.add(name)

    def _about(self, text: str, where: str = "") -> _Asked:
        """Returns the one table that an expression is about, and which of its rows."""
        aliases = {name.partition(".")[0].strip('"') for name in columns_of(text, self.types)}
        stored = self.tables.get(next(iter(aliases))) if len(aliases) == 1 else None
        if stored is None or not stored.numbered:
            raise Refusal(
                "an outer, SEMI or ANTI join, a UNION ALL or a count for each unit depends on an expression over "
                "more than one table, or over a table of PostgreSQL, whose rows have no number",
                accepted="comparisons of columns there, such as a.day < b.day; or the condition in WHERE",
            )
        if (stored.alias, where) not in self.asked:
            self.numbers[0] += 1
            self.asked[stored.alias, where] = _Asked(stored, f"dpduck_stage_{self.numbers[0]}", where)
        return self.asked[stored.alias, where]

    def table_sql(self, stored: Stored) -> str:
        """Renders a table under its alias, with what was asked of it as further columns."""
        found = [asked for (alias, _), asked in self.asked.items() if alias == stored.alias]
        names = [
            f'{asked.name}."{name}"' for asked in found for name in (*asked.flags.values(), *asked.values.values())
        ]
        joined = "".join(f" LEFT JOIN {asked.name} ON dpduck_t.rowid = {asked.name}.{ROW}" for asked in found)
        return self.relation_sql(stored.sql, stored.alias, names, joined)

    def relation_sql(self, rows: str, alias: str, names: Sequence[str] = (), joined: str = "") -> str:
        """Renders rows under an alias: those that are short, cut, with further columns."""
        changed, added, conditions = self.held.of(alias)
        before, cut = self.cut.get(alias, ([], ""))
        if not (joined or cut or changed or added or conditions):
            return f'{rows} AS "{alias}"'
        replaced = f" REPLACE ({', '.join(changed)})" if changed else ""
        listed = ", ".join([f"dpduck_t.*{replaced}", *names, *added, *before])
        where = where_sql(conditions)
        short = f"(SELECT {listed} FROM {rows} AS dpduck_t{joined}{where})"
        return f'{f"(SELECT * FROM {short} AS dpduck_t {cut})" if cut else short} AS "{alias}"'

    def own_stages(self) -> list[Stage]:
        longest = longest_made(sum(len(asked.texts) for asked in self.asked.values()), self.held)
        return [
            Stage(
                asked.stored.sql,
                asked.stored.alias,
                asked.name,
                tuple((name, text) for text, name in asked.flags.items()),
                tuple((name, lookup) for lookup, name in asked.values.items()),
                tuple(self.types.items()),
                frozenset(asked.extended),
                asked.where,
                longest if asked.texts else None,
            )
            for asked in self.asked.values()
        ]


@dataclass(frozen=True)
class _Parts:
    """A source whose conditions are placed; its tables are rendered once all of them are."""

    first: Stored | str
    joins: tuple[tuple[str, _Parts, tuple[str, ...]], ...]

    def render(self, scope: _Scope) -> str:
        text = self.first if isinstance(self.first, str) else scope.table_sql(self.first)
        for kind, right, on in self.joins:
            inner = right.render(scope)
            text += f" {kind} {f'({inner})' if right.joins else inner} ON {' AND '.join(on) or 'TRUE'}"
        return text


def _parts(source: Source, scope: _Scope, movable: bool) -> _Parts:
    scope.tables |= {one.alias: one for one in _tables(source)}
    first = source.first if isinstance(source.first, Stored) else _nested_sql(source.first, scope)
    joins = []
    for number, join in enumerate(source.joins):
        later = {other.kind for other in source.joins[number + 1 :]}
        free = movable and join.kind == INNER and not later & EXTENDING
        if join.copies and (join.content or (scope.copied and isinstance(join.right.first, Stored))):
            cut = (source if join.first else join.right).first.alias
            scope.cut[cut] = cut_sql(cut, join, scope.types)
        left = _aliases(source.first, source.joins[:number])
        right = _parts(join.right, scope, free)
        conditions = [scope.equality(one) if isinstance(one, Lookup) else scope.on(one, free) for one in join.on]
        joins.append((join.kind, right, tuple(condition for condition in conditions if condition is not None)))
        if join.kind in ("LEFT JOIN", "FULL JOIN"):
            scope.extended |= _aliases(join.right.first, join.right.joins)
        if join.kind in EXTENDING:
            scope.extended |= left
    return _Parts(first, tuple(joins))


def _aliases(first: Stored | Union | Units, joins: Sequence[Join]) -> set[str]:
    """Returns the tables of a part of FROM."""
    found = {first.alias}
    for join in joins:
        found |= _aliases(join.right.first, join.right.joins)
    return found


def _nested_sql(relation: Union | Units, outer: _Scope) -> str:
    if isinstance(relation, Union):
        branches = " UNION ALL ".join(_branch_sql(branch, outer) for branch in relation.branches)
        return outer.relation_sql(f"({branches})", relation.alias)
    read = [relation.unit_sql, *(sql for sql, _ in relation.outputs), *relation.conditions]
    read += [one.sql for one in relation.operands if one.sql not in read]
    scope = outer.inside(relation.source, read, held=True, made=outer.made)
    parts, where = _level(relation.source, scope)
    counts = [_count_sql(condition, name, scope) for condition, name in relation.counts]
    outputs = [f"{without_signs(sql, scope.types.get(sql, ''))} AS {name}" for sql, name in relation.outputs]
    listed = ", ".join([*outputs, *counts, *_features(relation, scope)])
    rows = f"{parts.render(scope)}{where_sql([*where, f'{relation.unit_sql} IS NOT NULL'])}"
    outer.stages.extend(scope.own_stages())
    grouping = "" if relation.windowed else f" GROUP BY {relation.unit_sql}"
    return outer.relation_sql(f"(SELECT {listed} FROM {rows}{grouping})", relation.alias)


def _features(relation: Units, scope: _Scope) -> list[str]:
    """Returns the columns that are made of a unit's rows. Rows that are tied are in an order by all that is read of
    them here, so that those which are still tied are the same.
    """
    if any(sql not in scope.types and sql != relation.unit_sql for sql, _ in relation.outputs):
        raise InternalError("a column that nobody stored")
    values = {operand: comparable_sql(operand, scope.value(operand)) for operand in relation.operands}
    read = dict(values)
    if relation.windowed:
        stored = (Operand(sql, scope.types[sql]) for sql, _ in relation.outputs if sql != relation.unit_sql)
        read |= {one: without_signs(one.sql, one.type_name) for one in stored}
    apart = list(dict.fromkeys(apart_sql(value, one.type_name) for one, value in read.items()))
    tied = (order_sql([relation.unit_sql, *apart]), *apart)
    made = []
    for one in relation.features:
        condition = scope.condition(one.condition, False) if one.condition else ""
        made.append(f"{feature_sql(one, values, condition or '', relation, tied)} AS {one.name}")
    return made


def _count_sql(condition: str, name: str, scope: _Scope) -> str:
    if not condition:
        return f"count(*) AS {name}"
    return f"count(CASE WHEN {scope.condition(condition, False)} THEN 1 END) AS {name}"


def _branch_sql(branch: Branch, outer: _Scope) -> str:
    scope = outer.inside(branch.source, [sql for sql, _ in branch.outputs], held=bool(branch.source.joins))
    scope.held = replace(scope.held, whole=False)  # a column of a UNION ALL keeps its type
    parts, where = _level(branch.source, scope)
    listed = ", ".join(f"{sql} AS {name}" for sql, name in branch.outputs)
    outer.stages.extend(scope.own_stages())
    return f"SELECT {listed} FROM {parts.render(scope)}{where_sql(where)}"


def _level(source: Source, scope: _Scope) -> tuple[_Parts, list[str]]:
    """Returns a source inside another one, none of whose conditions can be moved out of it."""
    parts = _parts(source, scope, False)
    conditions = (scope.condition(text, False) for text in source.filters)
    return parts, [condition for condition in conditions if condition is not None]
