"""Labels of the rows that a statement shows: its output columns that no answer decides.

Rows of a noisy and of a true answer are the same row if their labels are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp, parse_one

from dpduck.language.select.outer import OuterQuery
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.language.text.names import GROUPING_ID, GROUPING_SET, HOLE, is_reserved
from dpduck.values.quoting import fold

Outputs = Mapping[str, bool]
"""The output columns of a query by folded name, each with whether it is a label. Columns of * are among them."""

_DECIDED = (exp.Window, exp.AggFunc, exp.Query)
"""Expressions over several rows. Answers decide which rows there are."""


def labels_of(outer: OuterQuery) -> tuple[str, ...]:
    """Returns the folded names of the output columns that are labels."""
    outputs = _outputs(parse_one(outer.sql, dialect=PrivateDuckDB), {})
    return tuple(name for name, is_label in outputs.items() if is_label)


def is_ordered(outer: OuterQuery) -> bool:
    """Tells whether a statement orders its rows. An order inside a window or a subquery is none of the statement."""
    query = parse_one(outer.sql, dialect=PrivateDuckDB)
    while isinstance(query, exp.Subquery) and query.args.get("order") is None:
        query = query.this
    return query.args.get("order") is not None


@dataclass(frozen=True)
class _Source:
    """A source of FROM. hole: whether it is the released table, in which names tell answers from labels."""

    outputs: Outputs
    hole: bool = False

    def is_label(self, name: str) -> bool | None:
        """Tells whether a column is a label, None if the source may not have it."""
        if self.hole:
            return not is_reserved(name) or name in (GROUPING_ID, GROUPING_SET)
        return self.outputs.get(fold(name))


def _outputs(query: exp.Expr, tables: Mapping[str, Outputs]) -> dict[str, bool]:
    with_ = query.args.get("with_")
    for table in with_.expressions if with_ is not None else ():
        tables = {**tables, fold(table.alias): _rename(_outputs(table.this, tables), table)}
    if isinstance(query, exp.Subquery):
        return _outputs(query.this, tables)
    if isinstance(query, exp.SetOperation):
        first, second = (_outputs(side, tables) for side in (query.this, query.expression))
        places = [*second.values()]
        if len(places) != len(first):
            return dict.fromkeys(first, False)
        return {name: is_label and places[place] for place, (name, is_label) in enumerate(first.items())}
    if not isinstance(query, exp.Select):
        return {}
    sources, outputs = dict(_sources(query, tables)), dict[str, bool]()
    for item in query.expressions:
        if item.is_star:
            outputs |= _columns_of_star(item, sources)
        else:
            outputs[fold(item.alias_or_name)] = _is_label(item, sources, outputs)
    return outputs


def _columns_of_star(item: exp.Expr, sources: Mapping[str, _Source]) -> Outputs:
    """Returns the columns of * or of a table's *. With REPLACE or RENAME, none of them is known to be a label."""
    star = item.this if isinstance(item, exp.Column) else item
    qualifier = item.table if isinstance(item, exp.Column) else ""
    chosen = [source for name, source in sources.items() if not qualifier or name == fold(qualifier)]
    known = not any(star.args.get(part) for part in ("replace", "rename"))
    return {name: known and is_label for source in chosen for name, is_label in source.outputs.items()}


def _sources(select: exp.Select, tables: Mapping[str, Outputs]) -> Iterator[tuple[str, _Source]]:
    first = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or ()]
    for number, source in enumerate([*([] if first is None else [first.this]), *joined]):
        name = fold(source.alias_or_name) or f" {number}"
        if isinstance(source, exp.Table) and source.name == HOLE:
            yield name, _Source({}, hole=True)
        elif isinstance(source, exp.Table):
            yield name, _Source(_rename(tables.get(fold(source.name), {}), source))
        elif isinstance(source, exp.Subquery):
            yield name, _Source(_rename(_outputs(source.this, tables), source))


def _rename(outputs: Outputs, source: exp.Expr) -> Outputs:
    """Returns outputs under the names of a list, as in t(a, b)."""
    alias = source.args.get("alias")
    names = [fold(column.name) for column in (alias.columns if isinstance(alias, exp.TableAlias) else ())]
    given = [*outputs.items()]
    return dict([(name, is_label) for name, (_, is_label) in zip(names, given, strict=False)] + given[len(names) :])


def _is_label(item: exp.Expr, sources: Mapping[str, _Source], aliases: Outputs) -> bool:
    if item.find(*_DECIDED) is not None:
        return False
    for column in item.find_all(exp.Column):
        qualified = [sources[fold(column.table)]] if fold(column.table) in sources else list(sources.values())
        told = [known for source in qualified if (known := source.is_label(column.name)) is not None]
        if not (all(told) if told or column.table else aliases.get(fold(column.name), True)):
            return False
    return True
