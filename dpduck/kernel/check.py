"""Verifies that the rows of a statement carry their privacy unit, by facts about their tables.

docs/privacy.md, section 3, has the theorem, a rule for each node, and the proof. A function here is named by its node.
Everything that no rule covers is refused: rows of SQL, other joins, tables without facts, and columns of other types
than they are stored with. Tables are named as facts name them, and columns and aliases are plain or quoted names. So no
other text of a statement is in the kernel's SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import NoneType

from dpduck.kernel.columns.expressions import (
    MOST_HEIGHT,
    Coded,
    Column,
    Comparison,
    Condition,
    Expression,
    Literal,
    Lookup,
    Own,
    Program,
    nodes_of,
)
from dpduck.kernel.facts import RESERVED, Facts, TableFacts, UnitFacts, is_reserved
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
    SamePeriod,
    Step,
    Together,
    first_of,
    held_in,
    period_of,
    person_of,
    unit_type,
)
from dpduck.values.errors import InternalError
from dpduck.values.periods import Periods
from dpduck.values.quoting import fold, quote_identifier, unquoted
from dpduck.values.sqltypes import decimal_name, sql_type

_PUBLIC = ("JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN")
_PRIVATE = (*_PUBLIC, "RIGHT JOIN", "FULL JOIN")

_NO_VALUES = (Coded, Referenced, Together, FirstOf, InPeriod, Numbered, SamePeriod)
"""Nodes that the kernel alone puts where they belong."""

_FIELDS = (Expression, tuple, str, int, Fraction, NoneType)
"""What a field of a node holds: nodes_of looks into nodes and tuples alone."""

Named = tuple[str, str]
"""A column of a relation: its alias, and its folded name."""

Choice = tuple[Expression, ...]
"""Units of which the first that is not NULL is the unit of a row."""


class NotVerified(InternalError):
    """Refuses rows that are not shown to carry their unit."""


def verified(holds: bool, what: str) -> None:
    """Refuses rows that break a rule."""
    if not holds:
        raise NotVerified(f"{what}; nothing was charged")


@dataclass(frozen=True)
class Carried:
    """The privacy unit of the rows of a source. key: its name in the ledger, "" of a source of public rows alone.

    choices: each of them is the unit of a row; () where rows are units. links: columns, and names under which
    equal values tell one unit. types: of all columns. word: of PER, "" where units are for all time.
    collated: whether a collation compares some text. aliases: of all relations, also of those that are looked at alone.
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
        """Returns the expressions that a job may have for its unit."""
        return tuple(map(first_of, self.choices))

    @property
    def periods(self) -> tuple[Expression, ...]:
        """Returns what tells the period of a row: numbers that are equal in each row."""
        return tuple(number for number in map(period_of, self.units) if number is not None)


def require_carried(
    source: Source,
    unit: Expression | None,
    periods: Periods | None,
    read: Iterable[Expression],
    facts: Facts,
    conditions: Iterable[Expression] = (),
) -> str:
    """Refuses rows that do not carry this unit, and returns its name in the ledger.

    read, conditions: values and conditions that a job reads of a row.
    """
    deepest = max(level for _, level in every_source(source))
    verified(deepest <= MOST_LEVELS, f"more than {MOST_LEVELS} relations inside of each other")
    carried = carried_by(source, facts)
    verified(carried.key != "", "rows of no privacy unit")
    held = unit is None and not carried.choices
    verified(held or unit in carried.units, "rows of another privacy unit than their policies say")
    _require_columns(read, carried)
    _require_conditions(conditions, carried)
    _require_free(unit, carried)
    word = "" if periods is None else periods.word
    verified(word == carried.word, "periods of another word than their policies say")
    return carried.key


def _require_free(unit: Expression | None, carried: Carried) -> None:
    """Refuses other relations and columns under the names of the tables that a reference leads through."""
    person = person_of(unit)
    if isinstance(person, Referenced):
        steps = {fold(step.key.relation) for step in person.steps}
        verified(steps.isdisjoint(carried.aliases), "a relation under the name of a reference")
        verified(not any(map(_is_reserved, carried.types)), "a reference beside names of the kernel's own")


def carried_by(source: Source, facts: Facts) -> Carried:
    """Returns the unit of a source's rows, from facts alone."""
    verified(not source.cuts, "columns that no stored table holds")
    found = _first(source, facts)
    for join in source.joins:
        found = _joined(found, join, source.first, facts)
    _require_conditions(source.filters, found)
    return found


def _first(source: Source, facts: Facts) -> Carried:
    first = source.first
    if isinstance(first, Stored):
        return _stored(first, facts)
    if isinstance(first, Union):
        return _united(first, facts)
    if isinstance(first, Units):
        return _of_units(first, facts)
    raise NotVerified("rows of SQL that nobody checked; nothing was charged")


def _stored(stored: Stored, facts: Facts) -> Carried:
    known = facts.get(stored.table)
    if known is None:
        raise NotVerified("a table without facts; nothing was charged")
    verified(known.is_table, "a view in place of a table")
    numbered = known.is_numbered and not stored.selected
    verified(numbered or not stored.numbered, "numbers of rows that have none")
    names = stored.selected or tuple((name, name) for name in known.types)
    types = {(stored.alias, fold(shown)): known.types.get(fold(own), "") for shown, own in names}
    verified(len(types) == len(names) and "" not in types.values(), "a selection of no columns, or of two of one name")
    unit = known.unit
    moment = None if unit is None or unit.period is None else _column(stored.alias, unit.period[1], known)
    verified(stored.moment == moment, "periods of another column than their policies say")
    if unit is None:
        return Carried("", (), {}, types, collated=known.collated, aliases=_alias(stored.alias))
    verified(not (stored.selected or stored.distinct), "a selection of private columns")
    links = {(stored.alias, key): f"{stored.table}.{key}" for key in known.keys}
    if unit.reference is not None:
        own, parent, key = unit.reference
        links[stored.alias, fold(own)] = f"{parent}.{fold(key)}"
    elif len(unit.columns) == 1:
        links[stored.alias, fold(unit.columns[0])] = unit.key
    held = _unit_of(stored.alias, unit, known, facts)
    word = "" if unit.period is None else unit.period[0]
    if moment is not None:
        verified(sql_type(moment.type_name).is_moment, "periods of a column that is no moment")
        verified(unit.reference is None, "periods of rows that refer to those of another period")
    if held is not None and moment is not None:
        verified(sql_type(unit_type(held)).is_unit_part, "a unit that pairs do not tell apart")
        held = InPeriod(held, Numbered(moment, word))
    choices = () if held is None else ((held,),)
    return Carried(unit.key, choices, links, types, word, known.collated, _alias(stored.alias))


def _is_reserved(column: Named) -> bool:
    """Tells whether a name could hide a column that the kernel adds beside: dpduck_0 and so on are the language's."""
    _, name = column
    own = name in (UNIT_COLUMN, PERIOD_COLUMN, LOOKED_UP) or name[len(RESERVED) :].isdigit()
    return is_reserved(name) and not own


def _alias(alias: str) -> frozenset[str]:
    """Returns the name of a relation, which is written between quotes."""
    verified('"' not in alias, "a name of a relation that is more than a name")
    return frozenset((fold(alias),))


def _column(alias: str, name: str, table: TableFacts) -> Column:
    type_name = table.types.get(fold(name), "")
    verified(type_name != "", "a unit, a key or a reference that is gone")
    return Column(alias, name, type_name)


def _unit_of(alias: str, unit: UnitFacts, table: TableFacts, facts: Facts) -> Expression | None:
    """Returns the unit of a row, as it or the last of the tables that its references lead to holds it."""
    steps, reference, own, known = list[Step](), None, alias, table
    key = unit.key
    while unit.reference is not None:
        column, parent, parent_key = unit.reference
        start = _column(own, column, known)
        reference = start if reference is None else reference
        if steps:
            steps[-1] = replace(steps[-1], reference=start)
        verified(parent in facts, "a reference to a table without facts")
        own, child, known = f"{alias}_{len(steps) + 1}", known, facts[parent]
        verified(known.is_table, "a reference to a view")
        verified(known.unit is not None and known.unit.key == key, "a reference to rows of another unit")
        verified(known.unit is None or known.unit.period is None, "a reference to rows by periods")
        verified(fold(parent_key) in known.keys, "a reference that leads to no key")
        verified(not (child.collated or known.collated), "a reference that a collation compares")
        steps.append(Step(parent, _column(own, parent_key, known)))
        verified(_are_keys(start, steps[-1].key), "a reference of another type than its key")
        verified(len(steps) < 64 and known.unit is not None, "references in a circle")
        unit = known.unit or unit
    columns = tuple(_column(own, name, known) for name in unit.columns)
    verified(not (known.collated and any(one.type_name == "VARCHAR" for one in columns)), "units under a collation")
    verified(all(sql_type(one.type_name).is_unit for one in columns), "a unit of a type with two forms of one value")
    verified(len(columns) < 2 or all(sql_type(one.type_name).has_one_form for one in columns), "a part of a unit")
    if not columns:
        verified(not steps, "a reference to rows that are units")
        return None
    held = Together(columns) if len(columns) > 1 else columns[0]
    return held if reference is None else Referenced(reference, tuple(steps), held)


def _joined(left: Carried, join: Join, first: First, facts: Facts) -> Carried:
    right = carried_by(join.right, facts)
    types = {**left.types, **right.types}
    verified(left.aliases.isdisjoint(right.aliases), "two relations of one name")
    collated, aliases = left.collated or right.collated, left.aliases | right.aliases
    both = replace(left, types=types, collated=collated, aliases=aliases)
    verified(not any(map(_is_reserved, types)), "a join of columns with names of the kernel's own")
    if not right.key:
        verified(left.key != "" and join.kind in _PUBLIC, "a join that keeps rows of a public table")
        _require_conditions([one for one in join.on if not isinstance(one, Lookup)], both)
        _require_columns([one for one in join.on if isinstance(one, Lookup)], both)
        verified(not (join.content or join.first), "a private table that is cut by keys of a public one")
        _require_columns(join.keys, right)
        verified(not (collated and join.keys), "keys of a public table that a collation compares")
        return replace(both, types=left.types) if join.kind in LOOKING else both
    verified(join.kind in _PRIVATE and left.key == right.key, "a join of two kinds of units")
    verified(bool(left.choices and right.choices) and not collated, "a join of rows that are units, or of collations")
    verified(left.word == right.word, "a join of rows by periods and of others")
    both = replace(both, choices=(), links={**left.links, **right.links})
    same = [one for one in join.on if isinstance(one, SamePeriod)]
    verified(all(_of_both(one, left, right) for one in same), "an equality of other periods than those of the rows")
    verified(bool(same) or not left.word, "rows of two periods")
    _require_conditions([one for one in join.on if not isinstance(one, SamePeriod)], both)
    linked = any(_is_link(one, left, right) for one in join.on) or _are_linked(join, left, right)
    verified(linked, "rows of two units")
    _require_cut(join, *((left, first) if join.first else (right, join.right.first)))
    return _kept(join.kind, left, right, both)


def _require_cut(join: Join, side: Carried, first: First) -> None:
    """Refuses a cut of a private table by columns that do not tell one unit, or not all of its rows apart."""
    alias, cut = "" if isinstance(first, Grouped) else fold(first.alias), (*join.keys, *join.content)
    verified(all(fold(one.relation) == alias for one in cut), "a cut by another table's columns")
    alone = bool(join.copies) == bool(join.content) >= bool(join.keys)
    verified(alone, "a cut of private rows by nothing of their own")
    own = any(named(one) in side.links for one in join.keys) or any(
        {named(part) for part in unit.parts} <= {named(one) for one in join.keys} for unit in _held_together(side)
    )
    verified(own or not join.content, "a table that is cut by columns of several units")
    beside = (UNIT_COLUMN, PERIOD_COLUMN)
    _require_columns([one for one in cut if fold(one.name) not in beside], side)
    every = {name for relation, name in side.types if fold(relation) == alias} - set(beside)
    whole = not join.content or every <= {fold(one.name) for one in join.content}
    verified(whole, "a cut by less than all columns of a table")


def _kept(kind: str, left: Carried, right: Carried, both: Carried) -> Carried:
    """Returns the rows of a join: an outer one keeps those of one side alone, with the unit of that side."""
    if kind in LOOKING:
        return replace(both, choices=left.choices, links=left.links, types=left.types)
    if kind == "JOIN":
        return replace(both, choices=left.choices + right.choices)
    if kind != "FULL JOIN":
        return replace(both, choices=right.choices if kind == "RIGHT JOIN" else left.choices)
    pairs = [one + other for one in left.choices for other in right.choices]
    direct = [one for one in pairs if not any(isinstance(person_of(unit), Referenced) for unit in one)]
    types = [{sql_type(unit_type(unit)) for unit in one} for one in direct]
    alike = [one for one, own in zip(direct, types, strict=True) if len(own) == 1 or all(t.is_integer for t in own)]
    verified(bool(alike), "a FULL JOIN of units that cannot be compared")
    return replace(both, choices=tuple(alike))


def _of_both(same: SamePeriod, left: Carried, right: Carried) -> bool:
    """Tells whether an equality of periods is of those of both sides."""
    return same.ours in left.periods and same.theirs in right.periods


def _is_link(condition: Expression, left: Carried, right: Carried) -> bool:
    """Tells whether a condition is an equality of two columns by which rows of both sides are of one unit."""
    if not isinstance(condition, Comparison) or condition.sign != "=" or not isinstance(condition.other, Column):
        return False
    for one, other in ((condition.column, condition.other), (condition.other, condition.column)):
        link = left.links.get(named(one))
        if link is not None and link == right.links.get(named(other)) and _are_keys(one, other):
            return True
    return False


def _are_keys(one: Column, other: Column) -> bool:
    """Tells whether values of two columns are compared without a cast, and equality is that of keys."""
    own, theirs = sql_type(one.type_name), sql_type(other.type_name)
    return (own == theirs and own.is_key and own.is_unit) or (own.is_integer and theirs.is_integer)


def _are_linked(join: Join, left: Carried, right: Carried) -> bool:
    """Tells whether ON has equalities of all columns that hold a unit together on both sides."""
    said = {frozenset(one.columns) for one in join.on if isinstance(one, Comparison) and one.sign == "="}
    ours, theirs = map(_held_together, (left, right))
    return any(
        [column.name for column in one.parts] == [column.name for column in other.parts]
        and all(frozenset(pair) in said and _are_keys(*pair) for pair in zip(one.parts, other.parts, strict=True))
        for one in ours
        for other in theirs
    )


def _held_together(side: Carried) -> list[Together]:
    """Lists the units of a side that several columns hold together."""
    found = (person_of(unit) for (unit, *_) in side.choices)
    return [unit for unit in found if isinstance(unit, Together)]


def _united(union: Union, facts: Facts) -> Carried:
    found = [_branch(branch, facts) for branch in union.branches]
    keys, kinds = {one.key for one in found}, {unit_type(branch.unit) for branch in union.branches}
    verified(len(keys) == 1 and "" not in keys, "a UNION ALL of two kinds of units")
    verified(len(kinds) == 1 or all(sql_type(one).is_integer for one in kinds), "a UNION ALL of units of two types")
    verified(len({_together(branch.unit) for branch in union.branches}) == 1, "a UNION ALL of units of other columns")
    verified(len({len(branch.outputs) for branch in union.branches}) == 1, "a UNION ALL of columns that differ")
    _require_names([name for _, name in union.branches[0].outputs], found[0].word)
    types, links = dict[Named, str](), dict[Named, str]()
    for place, (_, name) in enumerate(union.branches[0].outputs):
        outputs = [branch.outputs[place] for branch in union.branches]
        shown = {_shown_type(one) for one, _ in outputs}
        verified(len(shown) == 1 and all(of == name for _, of in outputs), "a UNION ALL of columns that differ")
        column = Column(union.alias, unquoted(name), shown.pop())
        types[named(column)] = column.type_name
        told = {
            one.links.get(named(output)) if isinstance(output, Column) else None
            for one, (output, _) in zip(found, outputs, strict=True)
        }
        link = told.pop()
        if not told and link is not None:
            links[named(column)] = link
    unit = Column(union.alias, UNIT_COLUMN, unit_type(union.branches[0].unit))
    if len(kinds) == 1:  # DuckDB has the wider of two types, of which no expression is made
        types[named(unit)] = unit.type_name
    verified(len({one.word for one in found}) == 1, "a UNION ALL of rows by periods and of others")
    collated = any(one.collated for one in found)
    every, word = {**links, named(unit): found[0].key}, found[0].word
    return Carried(keys.pop(), ((_of_relation(unit, word),),), every, types, word, collated, _alias(union.alias))


def _of_relation(unit: Column, word: str) -> Expression:
    """Returns the unit of a relation's rows, which stands beside them: by periods with the number of the period."""
    return InPeriod(unit, Column(unit.relation, PERIOD_COLUMN, NUMBER_TYPE)) if word else unit


def _together(unit: Expression) -> tuple[tuple[str, str], ...]:
    """Returns the columns that hold a unit together, by names and types, () of other units. Integers are alike."""
    held = held_in(unit)
    parts = held.parts if isinstance(held, Together) else ()
    return tuple((fold(one.name), "" if sql_type(one.type_name).is_integer else one.type_name) for one in parts)


def _shown_type(output: Expression) -> str:
    """Returns the type of an output of a UNION ALL."""
    if isinstance(output, Column):
        return output.type_name
    verified(isinstance(output, Literal) and output.kind == "text", "an output that is no column and no text")
    return "VARCHAR"


def _require_names(names: Iterable[str], word: str) -> None:
    """Refuses names that are more than names, that are there twice, or that are the unit's. word: of its period."""
    folded = [fold(UNIT_COLUMN), *([fold(PERIOD_COLUMN)] if word else [])]
    for name in names:
        bare = unquoted(name)
        plain = name == bare and bare.isascii() and bare.isidentifier()
        verified(plain or name == quote_identifier(bare), "a name of a column that is more than a name")
        verified(not _is_reserved(("", fold(bare))), "a name of the kernel's own")
        folded.append(fold(bare))
    verified(len(set(folded)) == len(folded), "two columns of one name")


def _branch(branch: Branch, facts: Facts) -> Carried:
    found = carried_by(branch.source, facts)
    verified(branch.unit in found.units, "a UNION ALL without the unit of its rows")
    _require_free(branch.unit, found)
    _require_columns([one for one, _ in branch.outputs], found)
    return found


def _of_units(units: Units, facts: Facts) -> Carried:
    found = carried_by(units.source, facts)
    verified(units.unit in found.units, "rows grouped by something else than their unit")
    _require_free(units.unit, found)
    verified(not any(map(_is_reserved, found.types)), "rows of units with names of the kernel's own")
    _require_conditions(units.conditions, found)
    _require_columns([*(one for one, _ in units.outputs), *(one.value for one in units.operands)], found)
    texts = any(one.type_name == "VARCHAR" for one in units.operands)
    verified(not (found.collated and texts), "features of texts that a collation compares")
    names = [name for _, name in (*units.outputs, *units.counts)] + [one.name for one in units.features]
    _require_names(names, found.word)
    unit = Column(units.alias, UNIT_COLUMN, unit_type(units.unit))
    made = {Column(units.alias, unquoted(name), "BIGINT") for _, name in units.counts}
    made |= {Column(units.alias, unquoted(one.name), _made_type(one)) for one in units.features}
    links = {named(unit): found.key}
    persons = list(map(person_of, found.units))
    for output, name in units.outputs:
        verified(isinstance(output, Column), "an output that nobody stored")
        if isinstance(output, Column):
            column = Column(units.alias, unquoted(name), output.type_name)
            made.add(column)
            link = found.links.get(named(output)) if units.windowed else None
            link = found.key if output in persons else link
            verified(units.windowed or link is not None, "a column of single rows beside a unit")
            links |= {named(column): link} if link is not None else {}
    types = {named(column): column.type_name for column in (*made, *(() if _is_mixed(units.unit) else (unit,)))}
    own = _of_relation(unit, found.word)
    return Carried(found.key, ((own,),), links, types, found.word, found.collated, _alias(units.alias))


def _is_mixed(unit: Expression) -> bool:
    """Tells whether a unit is the first of several of two types. DuckDB has the wider, which no expression reads."""
    unit = person_of(unit) or unit
    return isinstance(unit, FirstOf) and len({unit_type(one) for one in unit.choices}) > 1


def _made_type(feature: Feature) -> str:
    """Returns DuckDB's type of a feature."""
    operand = "" if feature.operand is None else feature.operand.type_name
    if feature.form in ("any", "all"):
        return "BOOLEAN"
    if feature.form == "sum":
        added = sql_type(operand)
        verified(added.fits_64_bits, "a sum that could overflow")
        return decimal_name(38, added.scale) if added.is_decimal else "HUGEINT"
    return operand if feature.form in ("min", "max", "first", "lag", "lead") else "BIGINT"


def _require_conditions(conditions: Iterable[Expression], carried: Carried) -> None:
    """Refuses all but the database's conditions and the worker's programs."""
    listed = list(conditions)
    verified(all(isinstance(one, Condition | Program) for one in listed), "a condition that is none")
    _require_columns(listed, carried)


def _require_columns(expressions: Iterable[Expression], carried: Carried) -> None:
    """Refuses columns of no relation, or of another type than they have there, and SQL that is not a program's."""
    for expression in expressions:
        nodes = [*nodes_of(expression)]
        height = max(level for _, level in nodes)
        verified(height <= MOST_HEIGHT + 1, f"more than {MOST_HEIGHT} nodes of an expression inside of each other")
        for part, _ in nodes:
            verified(isinstance(part, Program) or not isinstance(part, Own), "SQL that nobody checked")
            verified(not isinstance(part, _NO_VALUES), "a node that is no expression here")
            plain = all(isinstance(value, _FIELDS) for value in vars(part).values())
            verified(plain, "a node that hides others")
            for column in part.columns:
                verified(
                    carried.types.get(named(column)) == column.type_name,
                    "a column of another type than it is stored with",
                )


def named(column: Column) -> Named:
    """Returns a column as DuckDB tells it from others."""
    return column.relation, fold(column.name)
