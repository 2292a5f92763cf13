"""Renders a Source as the SQL of a FROM, and separates the analyst's expressions, which a worker evaluates.

The database's process evaluates stored columns, plain comparisons and constant SQL of the kernel (features), and
nothing else. From each joined table it reads only short rows (held).

A worker evaluates every other expression: behind the joins if the joined row is enough, and before the joins if an
outer, SEMI or ANTI join, a UNION ALL or a feature of each unit depends on it. It then gets the rows of the one table
that the expression is about (Stage). Its answers come back by row number, and form a column like any stored column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dpduck.kernel.columns.comparisons import Coded, Comparison
from dpduck.kernel.columns.conditions import beyond_scans, where_sql
from dpduck.kernel.columns.expressions import AnalystSql, Expression, Lookup, RelationColumn
from dpduck.kernel.columns.periods import inside_sql
from dpduck.kernel.relations import (
    EXTENDING,
    NUMBER_TYPE,
    PERIOD_COLUMN,
    UNIT_COLUMN,
    Branch,
    First,
    Grouped,
    Join,
    RowValue,
    Source,
    Stored,
    Union,
    Units,
    conditions_of,
    most_copies,
    repeats,
    tables_of,
)
from dpduck.kernel.rows.bounding import order_sql
from dpduck.kernel.rows.features import column_operands, comparable_sql, feature_sql, texts_held, without_signs
from dpduck.kernel.rows.held import Held, apart_sql, cut_sql, held_by, longest_made
from dpduck.kernel.units import Numbered, SamePeriod, held_in, parts_of, period_of
from dpduck.kernel.worker.answered import ROW
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.periods import Periods
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

INNER = "JOIN"


@dataclass
class Stage:
    """Expressions that the worker evaluates on one table before the joins, with the names of the answers' columns.

    name: the table that the answers are put into. where: an SQL filter of its rows, "" for all. For units by periods it
    selects the periods that are read. flags: conditions. values: expressions, with the types that they are cast to.
    extended: answers that an outer join may read as NULL, so that the expression must give NULL for a row of NULLs.
    texts: answers that are texts, which DuckDB holds for each row, with `longest` bytes at most.
    """

    stored: Stored
    name: str
    where: str = ""
    flags: dict[Expression, str] = field(default_factory=dict)
    values: dict[tuple[Expression, str], str] = field(default_factory=dict)
    extended: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    longest: int | None = None


@dataclass(frozen=True)
class SourceSql:
    """SQL of a source: FROM, plain conditions, moved conditions, stages, and hashes that order rows, if any."""

    from_sql: str
    where: tuple[str, ...]
    moved: tuple[Expression, ...]
    stages: tuple[Stage, ...]
    order: tuple[str, ...] = ()


def render_source(
    source: Source,
    filters: Sequence[Expression],
    *,
    copied: bool = False,
    joined: bool = False,
    read: Sequence[Expression] = (),
    content: Sequence[Expression] = (),
    periods: Periods | None = None,
) -> SourceSql:
    """Renders a source, with further conditions of WHERE.

    copied: whether public tables are limited to as many rows for one key as the price assumes. joined: whether rows are
    joined with anything later. read: further expressions that are read from rows. content: expressions that order rows,
    which are hashed if rows are joined. periods: the periods that are read from each table with a column of periods.
    """
    bounds, texts = (most_copies(source), repeats(source)), texts_held(source)
    scope = _Scope([], copied, bounds=bounds, made=texts, periods=periods)
    if joined or source.joins:
        scope.held = held_by([*conditions_of(source), *filters, *read], content, bounds)
    parts = _parts(source, scope, True)
    conditions = [scope.condition(condition, True) for condition in (*source.filters, *filters)]
    where = tuple(text for text in conditions if text is not None)
    from_sql, stages = parts.render(scope), (*scope.stages, *scope.own_stages())
    return SourceSql(from_sql, where, tuple(dict.fromkeys(scope.moved)), stages, scope.held.order)


@dataclass
class _Scope:
    """State of rendering one FROM: the stages of its tables (asked), and those of sources nested in it (stages).

    made: number of texts of a row that features of all sources hold. periods: the periods of the rows that are read.
    """

    stages: list[Stage]
    copied: bool = False
    numbers: list[int] = field(default_factory=lambda: [0])
    moved: list[Expression] = field(default_factory=list)
    tables: dict[str, Stored] = field(default_factory=dict)
    asked: dict[tuple[str, str], Stage] = field(default_factory=dict)
    cut: dict[str, tuple[list[str], str]] = field(default_factory=dict)
    extended: set[str] = field(default_factory=set)
    bounds: tuple[int, bool] = (1, False)
    made: int = 0
    held: Held = field(default_factory=Held)
    periods: Periods | None = None

    def inside(self, source: Source, read: Sequence[Expression], *, held: bool, made: int = 0) -> _Scope:
        """Returns the scope of a nested source. held: whether DuckDB holds the source's rows in memory."""
        level = _Scope(self.stages, numbers=self.numbers, periods=self.periods)
        level.bounds, level.made = self.bounds, self.made
        if held:
            level.held = held_by([*conditions_of(source), *read], (), self.bounds, made)
        return level

    def condition(self, condition: Expression, movable: bool) -> str | None:
        """Writes a condition as SQL for the database. None if it was moved behind the joins."""
        if condition.plain:
            return condition.sql
        if isinstance(condition, Coded):
            outside = "" if condition.outside is None else condition.outside.sql
            return condition.condition_sql(self._flag(condition.written, outside))
        if movable:
            self.moved.append(condition)
            return None
        return self._flag(condition)

    def on(self, condition: Expression, movable: bool) -> str | None:
        """Writes a condition of a join. Only comparisons of two tables' columns may decide how DuckDB joins."""
        if isinstance(condition, Lookup):
            return self._equality(condition)
        written = self.condition(condition, movable)
        joins = isinstance(condition, SamePeriod) or (isinstance(condition, Comparison) and condition.is_join)
        return written if written is None or joins else beyond_scans(written)

    def _flag(self, condition: Expression, where: str = "") -> str:
        stage = self._about(condition, where)
        name = stage.flags.setdefault(condition, f"{stage.name}_f{len(stage.flags)}")
        return self._column(stage, name)

    def _equality(self, lookup: Lookup) -> str:
        """Writes a Lookup as an equality between a stored column and the column with the worker's answers."""
        column = lookup.column
        answer = self._answer_column(lookup.value, column.type_name)
        name = column.quoted_name
        return f"{answer} = {name if sql_type(column.type_name).travels else f'CAST({name} AS VARCHAR)'}"

    def value(self, operand: RowValue) -> str:
        value, kind = operand.value, operand.type_name
        if isinstance(value, RelationColumn):
            if value.type_name != kind:
                raise InternalError("a value of another type")
            return value.sql
        if not isinstance(value, AnalystSql) or not sql_type(kind).travels:
            raise InternalError("a value of a type that no worker gives")
        if kind == "BOOLEAN":  # a flag says TRUE or nothing
            return f"CAST({self._answer_column(value.cast('TINYINT'), 'TINYINT')} AS BOOLEAN)"
        return self._answer_column(value, kind, held=kind == "VARCHAR")

    def _answer_column(self, value: Expression, type_name: str, *, held: bool = False) -> str:
        """Returns the column with a worker's answers. held: whether these are texts that DuckDB holds for each row."""
        stage = self._about(value)
        name = stage.values.setdefault((value, type_name), f"{stage.name}_v{len(stage.values)}")
        if held:
            stage.texts.add(name)
        return self._column(stage, name)

    def _column(self, asked: Stage, name: str) -> str:
        """Writes a column of answers, and notes the name if an outer join may add NULLs for the table."""
        if asked.stored.alias in self.extended:
            asked.extended.add(name)
        return f"{quote_identifier(asked.stored.alias)}.{quote_identifier(name)}"

    def _about(self, expression: Expression, where: str = "") -> Stage:
        """Returns the stage of the one table that an expression is about. where: an SQL filter of its rows."""
        aliases = {column.relation for column in expression.columns}
        stored = self.tables.get(next(iter(aliases))) if len(aliases) == 1 else None
        if stored is None or not stored.numbered:
            raise Refusal(
                "an outer, SEMI or ANTI join, a UNION ALL or a count for each unit depends on an expression over "
                "more than one table, or over a table of PostgreSQL, whose rows have no number",
                accepted="comparisons of columns there, such as a.day < b.day; or the condition in WHERE",
            )
        if (stored.alias, where) not in self.asked:
            self.numbers[0] += 1
            listed = [*self._inside(stored, quote_identifier(stored.alias)), *([where] if where else [])]
            rows = listed[0] if len(listed) == 1 else " AND ".join(f"({part})" for part in listed)
            self.asked[stored.alias, where] = Stage(stored, f"dpduck_stage_{self.numbers[0]}", rows)
        return self.asked[stored.alias, where]

    def table_sql(self, stored: Stored) -> str:
        stages = [stage for (alias, _), stage in self.asked.items() if alias == stored.alias]
        names = [
            f'{stage.name}."{name}"' for stage in stages for name in (*stage.flags.values(), *stage.values.values())
        ]
        joined = "".join(f" LEFT JOIN {stage.name} ON dpduck_t.rowid = {stage.name}.{ROW}" for stage in stages)
        return self.relation_sql(stored.sql, stored.alias, names, joined, self._inside(stored, "dpduck_t"))

    def _inside(self, stored: Stored, alias: str) -> list[str]:
        """Writes conditions that select the periods to read. These apply before any join, window or GROUP BY."""
        if stored.moment is None:
            return []
        if self.periods is None or stored.moment.relation != stored.alias or stored.selected:
            raise InternalError("a table by periods of which none is read")
        return inside_sql(stored.moment.of(alias), stored.moment, self.periods)

    def number(self, first: First) -> Expression | None:
        if self.periods is None or isinstance(first, Grouped):
            return None
        if isinstance(first, Stored):
            return None if first.moment is None else Numbered(first.moment, self.periods.word)
        return RelationColumn(first.alias, PERIOD_COLUMN, NUMBER_TYPE)

    def relation_sql(
        self, rows: str, alias: str, names: Sequence[str] = (), joined: str = "", inside: Sequence[str] = ()
    ) -> str:
        """Renders rows under an alias, within limits of texts and joins. names: answers' columns. joined: joins."""
        changed, added, conditions = self.held.of(alias)
        conditions = [*inside, *conditions]
        before, cut = self.cut.get(alias, ([], ""))
        if not (joined or cut or changed or added or conditions):
            return f'{rows} AS "{alias}"'
        replaced = f" REPLACE ({', '.join(changed)})" if changed else ""
        listed = ", ".join([f"dpduck_t.*{replaced}", *names, *added, *before])
        where = where_sql(conditions)
        short = f"(SELECT {listed} FROM {rows} AS dpduck_t{joined}{where})"
        return f'{f"(SELECT * FROM {short} AS dpduck_t {cut})" if cut else short} AS "{alias}"'

    def own_stages(self) -> list[Stage]:
        texts = [asked for asked in self.asked.values() if asked.texts]
        for asked in texts:
            asked.longest = longest_made(sum(len(stage.texts) for stage in texts), self.held)
        return list(self.asked.values())


@dataclass(frozen=True)
class _Parts:
    """A source with all conditions in SQL. Its tables are rendered later, when all stages are known."""

    first: Stored | str
    joins: tuple[tuple[str, _Parts, tuple[str, ...]], ...]

    def render(self, scope: _Scope) -> str:
        text = self.first if isinstance(self.first, str) else scope.table_sql(self.first)
        for kind, right, on in self.joins:
            inner = right.render(scope)
            text += f" {kind} {f'({inner})' if right.joins else inner} ON {' AND '.join(on) or 'TRUE'}"
        return text


def _parts(source: Source, scope: _Scope, movable: bool) -> _Parts:
    scope.tables |= {node.alias: node for node in tables_of(source)}
    first = source.first if isinstance(source.first, Stored) else _inner_sql(source.first, scope)
    joins = []
    for number, join in enumerate(source.joins):
        later = {other.kind for other in source.joins[number + 1 :]}
        free = movable and join.kind == INNER and not later & EXTENDING
        if join.copies and (join.content or (scope.copied and isinstance(join.right.first, Stored))):
            cut = (source if join.first else join.right).first
            scope.cut[cut.alias] = cut_sql(join, scope.number(cut) if join.content else None)
        left = _aliases(source.first, source.joins[:number])
        right = _parts(join.right, scope, free)
        conditions = [scope.on(node, free) for node in join.on]
        joins.append((join.kind, right, tuple(condition for condition in conditions if condition is not None)))
        if join.kind in ("LEFT JOIN", "FULL JOIN"):
            scope.extended |= _aliases(join.right.first, join.right.joins)
        if join.kind in EXTENDING:
            scope.extended |= left
    return _Parts(first, tuple(joins))


def _aliases(first: First, joins: Sequence[Join]) -> set[str]:
    aliases = {first.alias}
    for join in joins:
        aliases |= _aliases(join.right.first, join.right.joins)
    return aliases


def _inner_sql(relation: Grouped | Union | Units, outer: _Scope) -> str:
    if isinstance(relation, Grouped):
        return relation.sql
    if isinstance(relation, Union):
        branches = " UNION ALL ".join(_branch_sql(branch, outer) for branch in relation.branches)
        return outer.relation_sql(f"({branches})", relation.alias)
    rows_of = relation.rows
    read = [*parts_of(relation.unit), *(node for node, _ in relation.outputs), *relation.conditions]
    read += [node.value for node in relation.operands if node.value not in read]
    scope = outer.inside(rows_of, read, held=True, made=outer.made)
    parts, where = _level(rows_of, scope)
    counts = [_count_sql(condition, name, scope) for condition, name in relation.counts]
    outputs = [f"{_output(node)} AS {name}" for node, name in (*relation.outputs, *_unit_columns(relation.unit))]
    listed = ", ".join([*outputs, *counts, *_features(relation, scope)])
    rows = f"{parts.render(scope)}{where_sql([*where, f'{relation.unit.sql} IS NOT NULL'])}"
    outer.stages.extend(scope.own_stages())
    grouping = "" if relation.windowed else f" GROUP BY {', '.join(node.sql for node in parts_of(relation.unit))}"
    return outer.relation_sql(f"(SELECT {listed} FROM {rows}{grouping})", relation.alias)


def _features(relation: Units, scope: _Scope) -> list[str]:
    """Writes the columns that are computed from a unit's rows. All values that are read order tied rows."""
    if any(not isinstance(node, RelationColumn) for node, _ in relation.outputs):
        raise InternalError("a column that nobody stored")
    values = {operand: comparable_sql(operand, scope.value(operand)) for operand in relation.operands}
    read = dict(values)
    if relation.windowed:
        read |= {node: without_signs(node.value.sql, node.type_name) for node in column_operands(relation)}
    apart = list(dict.fromkeys(apart_sql(value, node.type_name) for node, value in read.items()))
    tied = (order_sql([*(node.sql for node in parts_of(relation.unit)), *apart]), *apart)
    columns = []
    for node in relation.features:
        condition = None if node.condition is None else scope.condition(node.condition, False)
        columns.append(f"{feature_sql(node, values, condition or '', relation, tied)} AS {node.name}")
    return columns


def _unit_columns(unit: Expression) -> list[tuple[Expression, str]]:
    """Returns the unit as a column with its name, and for units by periods the period's number as a second column."""
    number = period_of(unit)
    return [(held_in(unit), UNIT_COLUMN), *([] if number is None else [(number, PERIOD_COLUMN)])]


def _output(output: Expression) -> str:
    return without_signs(output.sql, output.type_name) if isinstance(output, RelationColumn) else output.sql


def _count_sql(condition: Expression | None, name: str, scope: _Scope) -> str:
    if condition is None:
        return f"count(*) AS {name}"
    return f"count(CASE WHEN {scope.condition(condition, False)} THEN 1 END) AS {name}"


def _branch_sql(branch: Branch, outer: _Scope) -> str:
    source, outputs = branch.rows, (*branch.outputs, *_unit_columns(branch.unit))
    scope = outer.inside(source, [output for output, _ in outputs], held=bool(source.joins))
    scope.held = replace(scope.held, whole=False)  # a column of a UNION ALL keeps its type
    parts, where = _level(source, scope)
    listed = ", ".join(f"{output.sql} AS {name}" for output, name in outputs)
    outer.stages.extend(scope.own_stages())
    return f"SELECT {listed} FROM {parts.render(scope)}{where_sql(where)}"


def _level(source: Source, scope: _Scope) -> tuple[_Parts, list[str]]:
    parts = _parts(source, scope, False)
    conditions = (scope.condition(predicate, False) for predicate in source.filters)
    return parts, [condition for condition in conditions if condition is not None]
