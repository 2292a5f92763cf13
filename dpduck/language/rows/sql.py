"""SQL of a row source: FROM with its joins, the privacy unit of a row, and what tells a unit's rows apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from dpduck.kernel.columns.expressions import Column as RowColumn
from dpduck.kernel.columns.expressions import Expression, Lookup
from dpduck.kernel.relations import NUMBER_TYPE, PERIOD_COLUMN, Join, Source, Stored, Union, Units
from dpduck.kernel.units import FirstOf, InPeriod, Numbered, Referenced, SamePeriod, Step, Together
from dpduck.language.rows.compiled import condition_of, program_of
from dpduck.language.rows.expressions import safe_sql, sql_of
from dpduck.language.rows.facts import Column, PublicFacts, Rows
from dpduck.language.rows.joins import ANTI, SEMI, PublicJoin
from dpduck.language.rows.moments import is_exactly, moment_of, moments_of
from dpduck.language.rows.relation import PrivateRelation, comparable
from dpduck.language.rows.tree import (
    MOST_BRANCHES,
    MOST_FOUND,
    PrivateJoin,
    RowSource,
    equal_columns,
    require_free_names,
)
from dpduck.language.text.positions import refusal
from dpduck.values.quoting import fold, quote_identifier, quote_text

MAX_ROW_BOUND = 10**9


def column_types(source: RowSource) -> Mapping[str, str]:
    """DuckDB type of each column of the row source, by its SQL."""
    return {base(alias, column.name): column.type_name for alias, column in source.columns()}


def row_columns(source: RowSource) -> dict[str, RowColumn]:
    """Returns the columns of the row source, by their SQL."""
    found = (RowColumn(alias, column.name, column.type_name) for alias, column in source.columns())
    return {column.quoted: column for column in found}


def base(alias: str, name: str) -> str:
    """Returns a column of the row source."""
    return f"{quote_identifier(alias)}.{quote_identifier(name)}"


def stored_sql(node: exp.Expr) -> str:
    """Returns a column of the row source, or a text, exactly: what the database reads itself."""
    if isinstance(node, exp.Column):
        return base(node.table, node.name)
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise refusal(node, "an expression is refused here", "a column or a text")
    return quote_text(node.name)


def from_sql(source: RowSource) -> str:
    """Writes what follows FROM, the hidden joins that find the unit included."""
    parts = [_tree_sql(source, column_types(source))]
    for relation in _chosen_unit(source):
        if relation.parents:  # rows without a parent belong to nobody
            parts += _chain_sql(relation, _reference(relation))
    return " ".join(parts)


def _tree_sql(source: RowSource, types: Mapping[str, str]) -> str:
    parts = [_named(source.first)]
    for join in source.joins:
        if isinstance(join, PublicJoin):
            on = " AND ".join(_pair_sql(private, base(join.alias, public), types) for private, public in join.pairs)
            parts.append(f"{join.kind} {join.sql} AS {quote_identifier(join.alias)} ON {on}")
        else:
            on = " AND ".join(_condition_sql(condition, types) for condition in join.conditions)
            inner = _tree_sql(join.source, types)
            parts.append(f"{join.kind} {f'({inner})' if join.source.joins else inner} ON {on}")
    return " ".join(parts)


def _named(relation: PrivateRelation) -> str:
    return f"{relation.sql} AS {quote_identifier(relation.alias)}"


def _pair_sql(private: exp.Expr, column: str, types: Mapping[str, str]) -> str:
    """Returns an equality that no private value makes raise: TRY is outermost, as casts raise under TRY_CAST too."""
    same_type = isinstance(private, exp.Column) and types.get(sql_of(private)) == types[column]
    left = sql_of(private) if same_type else f"try(try_cast({sql_of(private)} AS {types[column]}))"
    return f"{left} = {column}"


def _condition_sql(condition: exp.Expr, types: Mapping[str, str]) -> str:
    """Returns a condition of ON: plain where it compares keys, so that DuckDB can hash them, and unable to raise."""
    node = condition.unnest()
    if isinstance(node, exp.EQ):
        columns = [side.unnest() for side in (node.left, node.right)]
        sides = [stored_sql(side) if isinstance(side, exp.Column) else "" for side in columns]
        known = [types.get(side) for side in sides]
        if known[0] is not None and known[1] is not None and comparable(known[0], known[1]):
            return f"{sides[0]} = {sides[1]}"
    return safe_sql(condition, types)


def _chosen_unit(source: RowSource) -> tuple[PrivateRelation, ...]:
    """Returns the relations that the unit is taken from: those that hold it in a column, where there are such."""
    direct = (choice for choice in source.units if not any(relation.parents for relation in choice))
    return next(direct, source.units[0])


def with_units_sql(relation: PrivateRelation) -> tuple[str, Expression | None]:
    """Returns a relation with the unit of each of its rows, which is NULL where there is no parent; and the unit."""
    joins = [f"LEFT {part}" for part in _chain_sql(relation, _reference(relation))] if relation.parents else []
    return " ".join([_named(relation), *joins]), _held(relation)


def _held(relation: PrivateRelation) -> RowColumn | Together | Referenced | None:
    """Returns the unit of a relation's rows as it, or the last of its parents, holds it; None for rows as units."""
    alias = f"{relation.alias}_{len(relation.parents)}" if relation.parents else relation.alias
    name: str | None = relation.unit_of_parent if relation.parents else relation.unit
    held: RowColumn | Together | None = None
    if relation.together:
        held = Together(tuple(RowColumn(alias, column.name, column.type_name) for column in relation.together))
    elif name is not None:
        held = RowColumn(alias, name, relation.unit_type)
    if held is None or not relation.parents:
        return held
    own = relation.parents[0].reference.column
    return Referenced(RowColumn(relation.alias, own, relation.type_of(own)), tuple(_steps(relation)), held)


def _steps(relation: PrivateRelation) -> Iterator[Step]:
    """Yields the tables that references lead to."""
    references = [parent.reference.column for parent in relation.parents[1:]]
    for number, parent in enumerate(relation.parents, start=1):
        alias, types = f"{relation.alias}_{number}", {fold(one.name): one.type_name for one in parent.columns}
        key, *found = (
            RowColumn(alias, name, types.get(fold(name), ""))
            for name in (parent.reference.parent_column, *references[number - 1 : number])
        )
        yield Step(parent.table.sql, key, *found)


def _chain_sql(relation: PrivateRelation, reference: str) -> list[str]:
    """Returns the joins along a relation's references, the first of which stands in `reference`."""
    parts = []
    for number, parent in enumerate(relation.parents, start=1):
        alias, key = f"{relation.alias}_{number}", parent.reference.parent_column
        parts.append(f"JOIN {parent.table.sql} AS {quote_identifier(alias)} ON {reference} = {base(alias, key)}")
        if number < len(relation.parents):
            reference = base(alias, relation.parents[number].reference.column)
    return parts


def _reference(relation: PrivateRelation) -> str:
    return base(relation.alias, relation.parents[0].reference.column)


def source_of(source: RowSource, *, filtered: bool = False) -> Source:
    """Returns the row source as the kernel has it. filtered: with its conditions."""
    types, columns = column_types(source), row_columns(source)
    written = sorted({safe_sql(condition, types) for condition in source.filters}) if filtered else ()
    conditions = tuple(condition_of(text, columns) for text in written)
    return Source(_first(source), _joined(source, types, columns), conditions)


def _first(source: RowSource) -> Stored | Union | Units:
    relation = source.first
    stored = Stored(relation.sql, relation.alias, _numbered(relation.columns), moment=_moment(relation))
    return relation.nested or stored


def _moment(relation: PrivateRelation) -> RowColumn | None:
    """Returns the column of a stored table that says of which period a row is."""
    moment = None if relation.nested else moment_of(relation)
    return None if moment is None else RowColumn(relation.alias, moment.name, relation.type_of(moment.name))


def period_number(relation: PrivateRelation) -> Expression | None:
    """Returns the number of the period of a relation's rows, None where units are for all time."""
    period = relation.policy.unit.period
    if period is None:
        return None
    moment = _moment(relation)
    return RowColumn(relation.alias, PERIOD_COLUMN, NUMBER_TYPE) if moment is None else Numbered(moment, period.word)


def _numbers(source: RowSource, joined: int) -> tuple[Expression, ...]:
    """Returns numbers of the period of a row after so many joins, of which the first that is not NULL is its own."""
    own = period_number(source.first)
    found: tuple[Expression, ...] = () if own is None else (own,)
    for join in source.joins[:joined]:
        if isinstance(join, PrivateJoin) and join.kind in ("RIGHT JOIN", "FULL JOIN"):
            theirs = _numbers(join.source, len(join.source.joins))
            found = theirs if join.kind == "RIGHT JOIN" else (*found, *theirs)
    return found


def always_there(source: RowSource, joined: int) -> list[PrivateRelation]:
    """Lists relations that have a row in each row after so many joins: those that no outer join makes NULL."""
    found = [source.first]
    for join in source.joins[:joined]:
        if isinstance(join, PrivateJoin) and join.kind not in ("LEFT JOIN", "SEMI JOIN", "ANTI JOIN"):
            theirs = always_there(join.source, len(join.source.joins))
            found = {"JOIN": [*found, *theirs], "RIGHT JOIN": theirs}.get(join.kind, [])
    return found


def _same_period(source: RowSource, number: int) -> list[Expression]:
    """Returns the condition that both rows of a join are of one period, where units are by periods."""
    join = source.joins[number]
    if not isinstance(join, PrivateJoin):
        return []
    ours, theirs = _numbers(source, number), _numbers(join.source, len(join.source.joins))
    return [SamePeriod(_first_of(ours), _first_of(theirs))] if ours and theirs else []


def _first_of(found: tuple[Expression, ...]) -> Expression:
    return found[0] if len(found) == 1 else FirstOf(found)


def _says_more(source: RowSource, number: int, condition: exp.Expr) -> bool:
    """Tells whether a condition of a join says more than that both rows are of one period, which the kernel says."""
    join, period = source.joins[number], source.first.policy.unit.period
    if period is None or not isinstance(join, PrivateJoin):
        return True
    ours = moments_of(always_there(source, number))
    theirs = moments_of(always_there(join.source, len(join.source.joins)))
    return not is_exactly(condition, ours, theirs, period.word)


def _numbered(columns: tuple[Column, ...]) -> bool:
    """Tells whether rowid is the number of a row, and no column has that name or one of dpduck's own."""
    return not any(fold(column.name) == "rowid" or fold(column.name).startswith("dpduck_") for column in columns)


def _joined(source: RowSource, types: Mapping[str, str], columns: Mapping[str, RowColumn]) -> tuple[Join, ...]:
    joins = []
    for number, join in enumerate(source.joins):
        if isinstance(join, PublicJoin):
            numbered = not join.names and _numbered(join.columns)
            stored = Stored(join.table.sql, join.alias, numbered, join.names, join.distinct)
            keys = tuple(columns[base(join.alias, public)] for _, public in join.pairs)
            pairs = (_pair(private, key, columns) for (private, _), key in zip(join.pairs, keys, strict=True))
            copies = 0 if join.kind in (SEMI, ANTI) else join.multiplicity
            joins.append(Join(join.kind, Source(stored), tuple(pairs), copies, keys))
        else:
            right = Source(_first(join.source), _joined(join.source, types, columns))
            said = (one for one in join.conditions if _says_more(source, number, one))
            on = tuple(condition_of(_condition_sql(condition, types), columns) for condition in said)
            on += tuple(_same_period(source, number))
            nested = join.source.first.nested
            one_row = isinstance(nested, Units) and not nested.windowed
            many = source.multiplies(number) and (join.private_joins or not one_row)
            cut = source if join.private_joins else join.source
            bound = (source.rows_for_a_key, *_cut_by(source, join, cut, columns), cut is source) if many else ()
            joins.append(Join(join.kind, right, on, *bound))
    return tuple(joins)


def _cut_by(
    source: RowSource, join: PrivateJoin, cut: RowSource, columns: Mapping[str, RowColumn]
) -> tuple[tuple[RowColumn, ...], tuple[RowColumn, ...]]:
    """Returns the columns that a join is by of the first table of one side, and those that tell its rows apart."""
    pairs = [pair for condition in join.conditions for pair in equal_columns(condition, source, join.source)]
    alias = cut.first.alias
    keys = (columns[base(alias, name)] for relation, name in pairs if relation.alias == alias)
    return tuple(dict.fromkeys(keys)), tuple(columns[base(alias, column.name)] for column in cut.first.columns)


def _pair(private: exp.Expr, key: RowColumn, columns: Mapping[str, RowColumn]) -> Expression:
    """Returns an equality of a public column with a stored one as such, or with what an expression is cast to."""
    own = stored_sql(private) if isinstance(private, exp.Column) else sql_of(private)
    known = columns.get(own) if isinstance(private, exp.Column) else None
    if known is not None and (known.type_name == key.type_name or comparable(known.type_name, key.type_name)):
        return condition_of(f"{own} = {key.quoted}", columns)
    return Lookup(program_of(own, columns) if known is None else known, key)


def unit_of(source: RowSource) -> Expression | None:
    """Returns the privacy unit of a row; None for PRIVACY UNIT ROW."""
    units = [unit for unit in map(_held, _chosen_unit(source)) if unit is not None]
    return FirstOf(tuple(units)) if len(units) > 1 else next(iter(units), None)


def carried_unit(source: RowSource) -> Expression | None:
    """Returns the privacy unit of a row with its period, where units are by periods."""
    unit, relations = unit_of(source), _chosen_unit(source)
    numbers = tuple(number for number in map(period_number, relations) if number is not None)
    return unit if unit is None or not numbers else InPeriod(unit, _first_of(numbers))


def unit_sql(source: RowSource) -> str | None:
    """Writes the privacy unit of a row; None for PRIVACY UNIT ROW."""
    unit = unit_of(source)
    return None if unit is None else unit.sql


def _content(source: RowSource) -> list[str]:
    """Returns columns that tell the rows of a unit apart; every one of them is the row's own content.

    A public row that is the only one for its key adds nothing; nor does what a SEMI or ANTI JOIN only looks at.
    """
    found = [base(source.first.alias, column) for column in source.first.row_key]
    for join in source.joins:
        if join.kind in (SEMI, ANTI):
            continue
        if isinstance(join, PrivateJoin):
            found += _content(join.source)
        elif join.multiplicity > 1:
            found += [base(join.alias, column.name) for column in join.columns]
    return found


def places_sql(source: RowSource) -> list[str]:
    """Returns every relation by itself, under its alias."""
    named = [_named(relation) for relation in source.relations]
    return named + [f"{join.sql} AS {quote_identifier(join.alias)}" for join in source.public_joins]


def written_conditions(source: RowSource) -> list[exp.Expr]:
    """Lists all that the statement lets run over rows while they are joined, filtered and counted for each unit."""
    found = [*source.filters, *source.counted]
    for join in source.joins:
        if isinstance(join, PublicJoin):
            found += [private for private, _ in join.pairs]
        else:
            found += [*join.conditions, *written_conditions(join.source)]
    return found


def _without_numbers(source: Source, tables: frozenset[str]) -> Source:
    """Returns a source in which rowid identifies no row of the given tables."""
    first = source.first
    if not tables:
        return source
    if isinstance(first, Stored):
        first = replace(first, numbered=first.numbered and first.table not in tables)
    elif isinstance(first, Union):
        branches = (replace(one, source=_without_numbers(one.source, tables)) for one in first.branches)
        first = replace(first, branches=tuple(branches))
    elif isinstance(first, Units):
        first = replace(first, source=_without_numbers(first.source, tables))
    joins = (replace(join, right=_without_numbers(join.right, tables)) for join in source.joins)
    return replace(source, first=first, joins=tuple(joins))


def rows_of(source: RowSource, facts: PublicFacts, max_rows: int, place: exp.Expr) -> Rows:
    """Describes the rows of a request, with at most `max_rows` of each unit."""
    policy, types = source.policy, column_types(source)
    unit_bound = max_rows if policy.unit.column is not None else source.multiplicity
    if source.found > MOST_FOUND or source.leaves > MOST_BRANCHES:
        raise refusal(
            place, "too many tables are united, or joined inside of UNION ALL", f"at most {MOST_BRANCHES}, fewer joins"
        )
    if unit_bound > MAX_ROW_BOUND:
        raise refusal(
            place, f"one row may be multiplied {unit_bound} times by the joins", "joins on keys that repeat less"
        )
    for one in (source, *source.all_branches):
        if one.joins or one.first.parents or one.first.nested is not None:
            require_free_names((column.name for _, column in one.columns()), place)
    tables = dict.fromkeys((source.table, *(read.table for read in source.reads), *source.every_table))
    public = sorted({join.table for join in source.every_public_join}, key=lambda table: table.parts)
    return Rows(
        table=source.table,
        revision=policy.revision,
        epoch=policy.epoch,
        from_sql=from_sql(source),
        filters=tuple(sorted({safe_sql(condition, types) for condition in source.filters})),
        unit_key=policy.unit.key,
        max_rows=max_rows,
        unit_bound=unit_bound,
        content_sql=tuple(sorted(_content(source))),
        public_digests=tuple((table, facts.public_digest(table)) for table in public),
        reads=source.reads,
        shapes=tuple((table, facts.columns(table), facts.has_collations(table)) for table in tables),
        source=_without_numbers(
            source_of(source),
            frozenset(table.sql for table in tables if not facts.numbers_rows(table)),
        ),
        parts=tuple(column.type_name for column in _chosen_unit(source)[0].together),
        unit=carried_unit(source),
        columns=row_columns(source),
    )
