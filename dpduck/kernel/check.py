"""Check that the rows of a statement carry their privacy unit, from facts about the stored tables alone.

docs/privacy.md, section 3, has the theorem, a rule for each node, and the proof. Functions are named after their nodes.
Everything that no rule covers is refused: rows of free SQL, other joins, tables without facts, and columns with another
type than the stored type. Tables are named as in the facts. Columns and aliases are plain or quoted names. So no
other text of a statement is in the kernel's SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import NoneType

from dpduck.kernel.columns.comparisons import Coded, Comparison, Literal, RowCondition
from dpduck.kernel.columns.expressions import MOST_HEIGHT, AnalystSql, Expression, Lookup, Own, RelationColumn, nodes_of
from dpduck.kernel.facts import RESERVED, Facts, PolicyUnit, TableFacts, is_reserved
from dpduck.kernel.relations import (
    LOOKED_UP,
    LOOKING,
    MOST_LEVELS,
    NUMBER_TYPE,
    PERIOD_COLUMN,
    UNIT_COLUMN,
    Branch,
    Feature,
    First,
    Grouped,
    Join,
    Source,
    Stored,
    Union,
    Units,
    every_source,
)
from dpduck.kernel.units import (
    FirstOf,
    InPeriod,
    Numbered,
    Referenced,
    ReferenceStep,
    SamePeriod,
    UnitTuple,
    first_of,
    held_in,
    period_of,
    person_of,
    unit_type,
)
from dpduck.values.errors import InternalError
from dpduck.values.periods import Periods
from dpduck.values.quoting import fold, quote_identifier, unquote_identifier
from dpduck.values.sqltypes import decimal_name, sql_type

_PUBLIC = ("JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN")
_PRIVATE = (*_PUBLIC, "RIGHT JOIN", "FULL JOIN")

_NO_VALUES = (Coded, Referenced, UnitTuple, FirstOf, InPeriod, Numbered, SamePeriod)
"""Nodes of units, periods and codes. They have rules of their own, and are refused in values and conditions."""

_FIELDS = (Expression, tuple, str, int, Fraction, NoneType)
"""Allowed types of a node's fields. nodes_of looks into nodes and tuples alone, so other types could hide a node."""

Named = tuple[str, str]
"""A column: the alias of its relation, and its folded name."""

Choice = tuple[Expression, ...]
"""Units in the order in which they are tried. The first that is not NULL is the unit of a row."""


class NotVerified(InternalError):
    """Refusal of rows without proof that they carry their unit."""


def demand(holds: bool, what: str) -> None:
    """Refuses rows unless a rule holds. what: message about the breach."""
    if not holds:
        raise NotVerified(f"{what}; nothing was charged")


@dataclass(frozen=True)
class Carried:
    """Privacy unit of a source's rows. key: its name in the ledger, "" if all rows are public.

    choices: expressions that each give a row's unit, () if each row is a unit. links: link names of columns. Rows with
    equal values under one link name are of one unit. word: the word after PER, "" without PER.
    collated: whether a collation compares some text. aliases: aliases of all relations, also in SEMI and ANTI joins.
    """

    key: str
    choices: tuple[Choice, ...]
    links: Mapping[Named, str]
    types: Mapping[Named, str]
    word: str = ""
    collated: bool = False
    aliases: frozenset[str] = frozenset()

    @property
    def units(self) -> tuple[Expression, ...]:
        """Lists the expressions that a job may name as its unit."""
        return tuple(map(first_of, self.choices))

    @property
    def periods(self) -> tuple[Expression, ...]:
        """Lists expressions for the number of a row's period. All are equal in each row."""
        return tuple(number for number in map(period_of, self.units) if number is not None)


def require_carried(
    source: Source,
    unit: Expression | None,
    periods: Periods | None,
    read: Iterable[Expression],
    facts: Facts,
    conditions: Iterable[Expression] = (),
) -> str:
    """Refuses rows that do not carry this unit. Returns the unit's name in the ledger.

    read, conditions: values and conditions that a job reads from a row.
    """
    deepest = max(level for _, level in every_source(source))
    demand(deepest <= MOST_LEVELS, f"more than {MOST_LEVELS} relations inside of each other")
    carried = derive_unit(source, facts)
    demand(carried.key != "", "rows of no privacy unit")
    rows_are_units = unit is None and not carried.choices
    demand(rows_are_units or unit in carried.units, "rows of another privacy unit than their policies say")
    _require_columns(read, carried)
    _require_conditions(conditions, carried)
    _require_free(unit, carried)
    word = "" if periods is None else periods.word
    demand(word == carried.word, "periods of another word than their policies say")
    return carried.key


def _require_free(unit: Expression | None, carried: Carried) -> None:
    """Refuses aliases and column names that the joins to a Referenced unit need for themselves."""
    person = person_of(unit)
    if isinstance(person, Referenced):
        steps = {fold(step.key.relation) for step in person.steps}
        demand(steps.isdisjoint(carried.aliases), "a relation under the name of a reference")
        demand(not any(map(_is_reserved, carried.types)), "a reference beside names of the kernel's own")


def derive_unit(source: Source, facts: Facts) -> Carried:
    """Computes the unit of a source's rows from facts alone."""
    demand(not source.cuts, "columns that no stored table holds")
    carried = _first(source, facts)
    for join in source.joins:
        carried = _derive_join(carried, join, source.first, facts)
    _require_conditions(source.filters, carried)
    return carried


def _first(source: Source, facts: Facts) -> Carried:
    first = source.first
    if isinstance(first, Stored):
        return _derive_stored(first, facts)
    if isinstance(first, Union):
        return _derive_union(first, facts)
    if isinstance(first, Units):
        return _of_units(first, facts)
    raise NotVerified("rows of SQL that nobody checked; nothing was charged")


def _derive_stored(stored: Stored, facts: Facts) -> Carried:
    table = facts.get(stored.table)
    if table is None:
        raise NotVerified("a table without facts; nothing was charged")
    demand(table.is_table, "a view in place of a table")
    numbered = table.is_numbered and not stored.selected
    demand(numbered or not stored.numbered, "numbers of rows that have none")
    names = stored.selected or tuple((name, name) for name in table.types)
    types = {(stored.alias, fold(shown)): table.types.get(fold(own), "") for shown, own in names}
    demand(len(types) == len(names) and "" not in types.values(), "a selection of no columns, or of two of one name")
    unit = table.unit
    moment = None if unit is None or unit.period is None else _column(stored.alias, unit.period[1], table)
    demand(stored.moment == moment, "periods of another column than their policies say")
    if unit is None:
        return Carried("", (), {}, types, collated=table.collated, aliases=_alias(stored.alias))
    demand(not (stored.selected or stored.distinct), "a selection of private columns")
    links = {(stored.alias, key): f"{stored.table}.{key}" for key in table.keys}
    if unit.reference is not None:
        own, parent, key = unit.reference
        links[stored.alias, fold(own)] = f"{parent}.{fold(key)}"
    elif len(unit.columns) == 1:
        links[stored.alias, fold(unit.columns[0])] = unit.key
    own_unit = _unit_of(stored.alias, unit, table, facts)
    word = "" if unit.period is None else unit.period[0]
    if moment is not None:
        demand(sql_type(moment.type_name).is_moment, "periods of a column that is no moment")
        demand(unit.reference is None, "periods of rows that refer to those of another period")
    if own_unit is not None and moment is not None:
        demand(sql_type(unit_type(own_unit)).is_unit_part, "a unit that pairs do not tell apart")
        own_unit = InPeriod(own_unit, Numbered(moment, word))
    choices = () if own_unit is None else ((own_unit,),)
    return Carried(unit.key, choices, links, types, word, table.collated, _alias(stored.alias))


def _is_reserved(column: Named) -> bool:
    """Tells whether a name could hide a column that the kernel adds. The language may use names such as dpduck_0."""
    _, name = column
    own = name in (UNIT_COLUMN, PERIOD_COLUMN, LOOKED_UP) or name[len(RESERVED) :].isdigit()
    return is_reserved(name) and not own


def _alias(alias: str) -> frozenset[str]:
    """Returns the alias of a relation in small letters. Refuses one with a quote, since SQL puts it in quotes."""
    demand('"' not in alias, "a name of a relation that is more than a name")
    return frozenset((fold(alias),))


def _column(alias: str, name: str, table: TableFacts) -> RelationColumn:
    type_name = table.types.get(fold(name), "")
    demand(type_name != "", "a unit, a key or a reference that is gone")
    return RelationColumn(alias, name, type_name)


def _unit_of(alias: str, unit: PolicyUnit, table: TableFacts, facts: Facts) -> Expression | None:
    """Returns the unit of a row, from its own table or the last table of its references. None: each row is a unit."""
    steps, reference, relation, last = list[ReferenceStep](), None, alias, table
    key = unit.key
    while unit.reference is not None:
        column, parent, parent_key = unit.reference
        start = _column(relation, column, last)
        reference = start if reference is None else reference
        if steps:
            steps[-1] = replace(steps[-1], reference=start)
        demand(parent in facts, "a reference to a table without facts")
        relation, child, last = f"{alias}_{len(steps) + 1}", last, facts[parent]
        demand(last.is_table, "a reference to a view")
        demand(last.unit is not None and last.unit.key == key, "a reference to rows of another unit")
        demand(last.unit is None or last.unit.period is None, "a reference to rows by periods")
        demand(fold(parent_key) in last.keys, "a reference that leads to no key")
        demand(not (child.collated or last.collated), "a reference that a collation compares")
        steps.append(ReferenceStep(parent, _column(relation, parent_key, last)))
        demand(_are_keys(start, steps[-1].key), "a reference of another type than its key")
        demand(len(steps) < 64 and last.unit is not None, "references in a circle")
        unit = last.unit or unit
    columns = tuple(_column(relation, name, last) for name in unit.columns)
    demand(not (last.collated and any(part.type_name == "VARCHAR" for part in columns)), "units under a collation")
    demand(all(sql_type(part.type_name).is_unit for part in columns), "a unit of a type with two forms of one value")
    demand(len(columns) < 2 or all(sql_type(part.type_name).has_one_form for part in columns), "a part of a unit")
    if not columns:
        demand(not steps, "a reference to rows that are units")
        return None
    stored_unit = UnitTuple(columns) if len(columns) > 1 else columns[0]
    return stored_unit if reference is None else Referenced(reference, tuple(steps), stored_unit)


def _derive_join(left: Carried, join: Join, first: First, facts: Facts) -> Carried:
    right = derive_unit(join.right, facts)
    types = {**left.types, **right.types}
    demand(left.aliases.isdisjoint(right.aliases), "two relations of one name")
    collated, aliases = left.collated or right.collated, left.aliases | right.aliases
    both = replace(left, types=types, collated=collated, aliases=aliases)
    demand(not any(map(_is_reserved, types)), "a join of columns with names of the kernel's own")
    if not right.key:
        demand(left.key != "" and join.kind in _PUBLIC, "a join that keeps rows of a public table")
        _require_conditions([term for term in join.on if not isinstance(term, Lookup)], both)
        _require_columns([term for term in join.on if isinstance(term, Lookup)], both)
        demand(not (join.content or join.first), "a private table that is cut by keys of a public one")
        _require_columns(join.keys, right)
        demand(not (collated and join.keys), "keys of a public table that a collation compares")
        return replace(both, types=left.types) if join.kind in LOOKING else both
    demand(join.kind in _PRIVATE and left.key == right.key, "a join of two kinds of units")
    demand(bool(left.choices and right.choices) and not collated, "a join of rows that are units, or of collations")
    demand(left.word == right.word, "a join of rows by periods and of others")
    both = replace(both, choices=(), links={**left.links, **right.links})
    same = [term for term in join.on if isinstance(term, SamePeriod)]
    demand(all(_of_both(term, left, right) for term in same), "an equality of other periods than those of the rows")
    demand(bool(same) or not left.word, "rows of two periods")
    _require_conditions([term for term in join.on if not isinstance(term, SamePeriod)], both)
    linked = any(_is_link(term, left, right) for term in join.on) or _are_linked(join, left, right)
    demand(linked, "rows of two units")
    _require_cut(join, *((left, first) if join.first else (right, join.right.first)))
    return _combine_sides(join.kind, left, right, both)


def _require_cut(join: Join, side: Carried, first: First) -> None:
    """Refuses a row limit on a private table unless the keys determine the unit, and all columns the order."""
    alias, cut = "" if isinstance(first, Grouped) else fold(first.alias), (*join.keys, *join.content)
    demand(all(fold(column.relation) == alias for column in cut), "a cut by another table's columns")
    alone = bool(join.copies) == bool(join.content) >= bool(join.keys)
    demand(alone, "a cut of private rows by nothing of their own")
    own = any(column_key(column) in side.links for column in join.keys) or any(
        {column_key(part) for part in unit.parts} <= {column_key(column) for column in join.keys}
        for unit in _held_together(side)
    )
    demand(own or not join.content, "a table that is cut by columns of several units")
    beside = (UNIT_COLUMN, PERIOD_COLUMN)
    _require_columns([column for column in cut if fold(column.name) not in beside], side)
    every = {name for relation, name in side.types if fold(relation) == alias} - set(beside)
    whole = not join.content or every <= {fold(column.name) for column in join.content}
    demand(whole, "a cut by less than all columns of a table")


def _combine_sides(kind: str, left: Carried, right: Carried, both: Carried) -> Carried:
    """Returns the unit of a join's rows. Rows of one side alone, in an outer join, have the unit of that side."""
    if kind in LOOKING:
        return replace(both, choices=left.choices, links=left.links, types=left.types)
    if kind == "JOIN":
        return replace(both, choices=left.choices + right.choices)
    if kind != "FULL JOIN":
        return replace(both, choices=right.choices if kind == "RIGHT JOIN" else left.choices)
    pairs = [units + other for units in left.choices for other in right.choices]
    direct = [units for units in pairs if not any(isinstance(person_of(unit), Referenced) for unit in units)]
    types = [{sql_type(unit_type(unit)) for unit in units} for units in direct]
    alike = [units for units, own in zip(direct, types, strict=True) if len(own) == 1 or all(t.is_integer for t in own)]
    demand(bool(alike), "a FULL JOIN of units that cannot be compared")
    return replace(both, choices=tuple(alike))


def _of_both(same: SamePeriod, left: Carried, right: Carried) -> bool:
    """Tells whether an equality compares a period of the left rows with a period of the right rows."""
    return same.ours in left.periods and same.theirs in right.periods


def _is_link(condition: Expression, left: Carried, right: Carried) -> bool:
    """Tells whether a condition equates two columns with the same link name. Then joined rows are of one unit."""
    if (
        not isinstance(condition, Comparison)
        or condition.sign != "="
        or not isinstance(condition.other, RelationColumn)
    ):
        return False
    for ours, theirs in ((condition.column, condition.other), (condition.other, condition.column)):
        link = left.links.get(column_key(ours))
        if link is not None and link == right.links.get(column_key(theirs)) and _are_keys(ours, theirs):
            return True
    return False


def _are_keys(left: RelationColumn, right: RelationColumn) -> bool:
    """Tells whether two columns compare without a cast: both are integers, or have one type that keys may have."""
    first, second = sql_type(left.type_name), sql_type(right.type_name)
    return (first == second and first.is_key and first.is_unit) or (first.is_integer and second.is_integer)


def _are_linked(join: Join, left: Carried, right: Carried) -> bool:
    """Tells whether ON equates each column of a unit of several columns with the other side's column of that name."""
    pairs = {frozenset(node.columns) for node in join.on if isinstance(node, Comparison) and node.sign == "="}
    ours, theirs = map(_held_together, (left, right))
    return any(
        [column.name for column in node.parts] == [column.name for column in other.parts]
        and all(frozenset(pair) in pairs and _are_keys(*pair) for pair in zip(node.parts, other.parts, strict=True))
        for node in ours
        for other in theirs
    )


def _held_together(side: Carried) -> list[UnitTuple]:
    units = (person_of(unit) for (unit, *_) in side.choices)
    return [unit for unit in units if isinstance(unit, UnitTuple)]


def _derive_union(union: Union, facts: Facts) -> Carried:
    branches = [_branch(branch, facts) for branch in union.branches]
    keys, kinds = {item.key for item in branches}, {unit_type(branch.unit) for branch in union.branches}
    demand(len(keys) == 1 and "" not in keys, "a UNION ALL of two kinds of units")
    demand(len(kinds) == 1 or all(sql_type(item).is_integer for item in kinds), "a UNION ALL of units of two types")
    demand(len({_together(branch.unit) for branch in union.branches}) == 1, "a UNION ALL of units of other columns")
    demand(len({len(branch.outputs) for branch in union.branches}) == 1, "a UNION ALL of columns that differ")
    _require_names([name for _, name in union.branches[0].outputs], branches[0].word)
    types, links = dict[Named, str](), dict[Named, str]()
    for place, (_, name) in enumerate(union.branches[0].outputs):
        outputs = [branch.outputs[place] for branch in union.branches]
        shown = {_shown_type(item) for item, _ in outputs}
        demand(len(shown) == 1 and all(of == name for _, of in outputs), "a UNION ALL of columns that differ")
        column = RelationColumn(union.alias, unquote_identifier(name), shown.pop())
        types[column_key(column)] = column.type_name
        link_names = {
            item.links.get(column_key(output)) if isinstance(output, RelationColumn) else None
            for item, (output, _) in zip(branches, outputs, strict=True)
        }
        link = link_names.pop()
        if not link_names and link is not None:
            links[column_key(column)] = link
    unit = RelationColumn(union.alias, UNIT_COLUMN, unit_type(union.branches[0].unit))
    if len(kinds) == 1:  # else DuckDB's column has the wider type, and no expression reads it
        types[column_key(unit)] = unit.type_name
    demand(len({item.word for item in branches}) == 1, "a UNION ALL of rows by periods and of others")
    collated = any(item.collated for item in branches)
    every, word = {**links, column_key(unit): branches[0].key}, branches[0].word
    return Carried(keys.pop(), ((_of_relation(unit, word),),), every, types, word, collated, _alias(union.alias))


def _of_relation(unit: RelationColumn, word: str) -> Expression:
    """Returns the unit that a relation has as a column, with the period's number if the unit has a PER (`word`)."""
    return InPeriod(unit, RelationColumn(unit.relation, PERIOD_COLUMN, NUMBER_TYPE)) if word else unit


def _together(unit: Expression) -> tuple[tuple[str, str], ...]:
    """Returns names and types of a UnitTuple's columns, () for other units. All integer types count as one type."""
    person = held_in(unit)
    parts = person.parts if isinstance(person, UnitTuple) else ()
    return tuple((fold(part.name), "" if sql_type(part.type_name).is_integer else part.type_name) for part in parts)


def _shown_type(output: Expression) -> str:
    if isinstance(output, RelationColumn):
        return output.type_name
    demand(isinstance(output, Literal) and output.kind == "text", "an output that is no column and no text")
    return "VARCHAR"


def _require_names(names: Iterable[str], word: str) -> None:
    """Refuses reserved names, duplicates, names of the unit's columns, and text that is no name. word: that of PER."""
    folded = [fold(UNIT_COLUMN), *([fold(PERIOD_COLUMN)] if word else [])]
    for name in names:
        bare = unquote_identifier(name)
        plain = name == bare and bare.isascii() and bare.isidentifier()
        demand(plain or name == quote_identifier(bare), "a name of a column that is more than a name")
        demand(not _is_reserved(("", fold(bare))), "a name of the kernel's own")
        folded.append(fold(bare))
    demand(len(set(folded)) == len(folded), "two columns of one name")


def _branch(branch: Branch, facts: Facts) -> Carried:
    carried = derive_unit(branch.source, facts)
    demand(branch.unit in carried.units, "a UNION ALL without the unit of its rows")
    _require_free(branch.unit, carried)
    _require_columns([output for output, _ in branch.outputs], carried)
    return carried


def _of_units(units: Units, facts: Facts) -> Carried:
    carried = derive_unit(units.source, facts)
    demand(units.unit in carried.units, "rows grouped by something else than their unit")
    _require_free(units.unit, carried)
    demand(not any(map(_is_reserved, carried.types)), "rows of units with names of the kernel's own")
    _require_conditions(units.conditions, carried)
    _require_columns([*(item for item, _ in units.outputs), *(item.value for item in units.operands)], carried)
    texts = any(item.type_name == "VARCHAR" for item in units.operands)
    demand(not (carried.collated and texts), "features of texts that a collation compares")
    names = [name for _, name in (*units.outputs, *units.counts)] + [item.name for item in units.features]
    _require_names(names, carried.word)
    unit = RelationColumn(units.alias, UNIT_COLUMN, unit_type(units.unit))
    columns = {RelationColumn(units.alias, unquote_identifier(name), "BIGINT") for _, name in units.counts}
    columns |= {RelationColumn(units.alias, unquote_identifier(item.name), _made_type(item)) for item in units.features}
    links = {column_key(unit): carried.key}
    persons = list(map(person_of, carried.units))
    for output, name in units.outputs:
        demand(isinstance(output, RelationColumn), "an output that nobody stored")
        if isinstance(output, RelationColumn):
            column = RelationColumn(units.alias, unquote_identifier(name), output.type_name)
            columns.add(column)
            link = carried.links.get(column_key(output)) if units.windowed else None
            link = carried.key if output in persons else link
            demand(units.windowed or link is not None, "a column of single rows beside a unit")
            links |= {column_key(column): link} if link is not None else {}
    types = {column_key(column): column.type_name for column in (*columns, *(() if _is_mixed(units.unit) else (unit,)))}
    own = _of_relation(unit, carried.word)
    return Carried(carried.key, ((own,),), links, types, carried.word, carried.collated, _alias(units.alias))


def _is_mixed(unit: Expression) -> bool:
    """Tells whether a unit is the first of units of several types. Its column is never read."""
    unit = person_of(unit) or unit
    return isinstance(unit, FirstOf) and len({unit_type(choice) for choice in unit.choices}) > 1


def _made_type(feature: Feature) -> str:
    operand = "" if feature.operand is None else feature.operand.type_name
    if feature.form in ("any", "all"):
        return "BOOLEAN"
    if feature.form == "sum":
        added = sql_type(operand)
        demand(added.fits_64_bits, "a sum that could overflow")
        return decimal_name(38, added.scale) if added.is_decimal else "HUGEINT"
    return operand if feature.form in ("min", "max", "first", "lag", "lead") else "BIGINT"


def _require_conditions(conditions: Iterable[Expression], carried: Carried) -> None:
    """Refuses a condition that is neither typed nor an analyst's expression for the worker (AnalystSql)."""
    listed = list(conditions)
    demand(all(isinstance(condition, RowCondition | AnalystSql) for condition in listed), "a condition that is none")
    _require_columns(listed, carried)


def _require_columns(expressions: Iterable[Expression], carried: Carried) -> None:
    """Refuses unknown columns, wrong types, SQL text of another origin, and nodes that are too deep or not allowed."""
    for expression in expressions:
        nodes = [*nodes_of(expression)]
        height = max(level for _, level in nodes)
        demand(height <= MOST_HEIGHT + 1, f"more than {MOST_HEIGHT} nodes of an expression inside of each other")
        for node, _ in nodes:
            demand(isinstance(node, AnalystSql) or not isinstance(node, Own), "SQL that nobody checked")
            demand(not isinstance(node, _NO_VALUES), "a node that is no expression here")
            plain = all(isinstance(value, _FIELDS) for value in vars(node).values())
            demand(plain, "a node that hides others")
            for column in node.columns:
                demand(
                    carried.types.get(column_key(column)) == column.type_name,
                    "a column of another type than it is stored with",
                )


def column_key(column: RelationColumn) -> Named:
    """Returns the identity of a column in DuckDB: its relation, and its name in small letters."""
    return column.relation, fold(column.name)
