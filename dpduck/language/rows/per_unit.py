"""Subqueries over one privacy unit's rows at a time: one row by GROUP BY, or windows by PARTITION BY.

The values of a unit are computed from its rows alone. So the removal of another unit changes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpduck.kernel.columns.expressions import RelationColumn as RowColumn
from dpduck.kernel.relations import PERIOD_COLUMN, UNIT_COLUMN, Units
from dpduck.kernel.units import person_of, unit_type
from dpduck.language.rows.compiled import condition_of
from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import CatalogColumn, Clamp
from dpduck.language.rows.features import FeatureColumn, FeatureReader, is_made
from dpduck.language.rows.functions import check_row_local
from dpduck.language.rows.moments import MomentColumn, moments_of, names_period
from dpduck.language.rows.periods import is_one_period
from dpduck.language.rows.relation import PrivateRelation, RowReading, unit_beside
from dpduck.language.rows.scope import Relation, Scope, base_column, resolve
from dpduck.language.rows.sql import base, compile_rows, plain_sql
from dpduck.language.rows.tree import MOST_NESTED, RowSource, choices_of, require_free_names
from dpduck.language.text.positions import refusal
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.periods import Period
from dpduck.values.privacy import PrivacyUnit
from dpduck.values.quoting import fold, quote_identifier

_ACCEPTED = "GROUP BY the privacy unit's column alone, with it and count, min, max, sum, first, bool_or selected"
_PARTITION = "OVER (PARTITION BY the privacy unit's column alone ORDER BY ..)"
_LARGEST_COUNT = 10_000


@dataclass(frozen=True)
class _Output:
    """Selected column: its SQL over the rows, and the public domain of its values."""

    column: CatalogColumn
    sql: str
    domain: Domain | None
    made: FeatureColumn | None = None  # the feature that computes the column, None for a plain column
    clamp: Clamp | None = None
    begins: bool = False  # whether the column gives the period of each new row


def read_per_unit(query: exp.Select, source: RowSource, reading: RowReading) -> RowSource:
    """Reads a GROUP BY of the unit as a relation with one row for each unit, from that unit's rows alone."""
    unit = _unit_column(query.args["group"], source)
    alias = f"r{next(reading.private)}"
    outputs, shown = _read_grouping(query, source, unit, FeatureReader(source, reading.facts), alias)
    return _relation(query, source, outputs, shown, alias, windowed=False)


def has_windows(query: exp.Select) -> bool:
    """Tells whether a SELECT has windows in its columns or in QUALIFY."""
    return any(node.find(exp.Window) for node in (*query.expressions, query.args.get("qualify")) if node is not None)


def read_windowed(query: exp.Select, source: RowSource, reading: RowReading) -> RowSource:
    """Reads rows with windows as a relation. Each row gets columns that are computed from its own unit's rows."""
    alias = f"r{next(reading.private)}"
    windows = _Windows(source, FeatureReader(source, reading.facts), alias)
    shown = [(name, windows.over(expression)) for name, expression in resolve_selection(query, source.scope)]
    qualify = query.args.get("qualify")
    condition = None
    if qualify is not None:
        condition = windows.over(resolve(_without_aliases(qualify.this, query, source), source.scope)).unnest()
    rows = _relation(query, source, windows.outputs, shown, alias, windowed=True)
    if condition is None:
        return rows
    conjuncts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    return replace(rows, filters=tuple(conjuncts))


def resolve_selection(query: exp.Select, scope: Scope) -> tuple[tuple[str, exp.Expr], ...]:
    """Returns the name and the resolved expression of each selected column. * stands for all columns."""
    columns: list[tuple[str, exp.Expr]] = []
    if not query.expressions:
        raise refusal(query, "nothing is selected", "* or a list of columns")
    for item in query.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star) and not any(star.args.values()):
            table = item.table if isinstance(item, exp.Column) else ""
            listed = list(scope.columns(table))
            if not listed:
                raise refusal(item, f"there is no table {table!r} in FROM", "a table of FROM before .*")
            columns.extend(listed)
        else:
            columns.append((item.alias_or_name or sql_of(item), resolve(item.unalias(), scope)))
    return tuple(columns)


def _relation(
    query: exp.Select,
    source: RowSource,
    outputs: Sequence[_Output],
    shown: Sequence[tuple[str, exp.Expr]],
    alias: str,
    *,
    windowed: bool,
) -> RowSource:
    require_free_names((column.name for column in source.columns.values()), query)
    require_free_names((output.column.name for output in outputs), query)
    names = [fold(output.column.name) for output in outputs]
    if source.nesting_depth >= MOST_NESTED:
        what = f"more than {MOST_NESTED} subqueries by privacy unit inside of each other are refused"
        raise refusal(query, what, f"at most {MOST_NESTED} levels of GROUP BY or PARTITION BY the privacy unit")
    policy, kind = source.policy, unit_type(source.unit)
    taken = {UNIT_COLUMN} if policy.unit.period is None else {UNIT_COLUMN, PERIOD_COLUMN}
    if len(set(names)) < len(names) or taken & set(names):
        raise refusal(query, "two columns of a subquery have one name", "a name for each column")
    most = source.usual_rows if windowed else 1
    columns = tuple(output.column for output in outputs)
    policy = replace(
        policy,
        unit=PrivacyUnit(policy.unit.key, UNIT_COLUMN, most, period=_period(source, outputs)),
        domains=tuple((output.column.name, output.domain) for output in outputs if output.domain is not None),
        clamps=tuple(output.clamp for output in outputs if output.clamp is not None),
        expect_rows=policy.expect_rows if windowed else None,
    )
    node, sql = _units(source, outputs, alias, windowed)
    relation = PrivateRelation(
        node,
        source.table,
        sql,
        policy,
        (*columns, CatalogColumn(UNIT_COLUMN, kind)),
        unit_beside(alias, kind, policy),
        _links(source, outputs, windowed),
        tuple(column.name for column in columns) if windowed else (UNIT_COLUMN,),
        source.reads,
    )
    written = tuple(expression for output in outputs if output.made is not None for expression in output.made.written)
    branch = replace(source, counted=written)
    return RowSource(relation, (), Scope((Relation("", tuple(shown)),)), (), choices_of(relation), (branch,))


def _period(source: RowSource, outputs: Sequence[_Output]) -> Period | None:
    """Returns the period of the new rows. Its column is the output that gives the period, "" for none."""
    own = source.first.policy.unit.period
    moments = {base(moment.alias, moment.name) for moment in _moments(source)}
    shown = (item.column.name for item in outputs if item.begins or (item.made is None and item.sql in moments))
    return None if own is None else replace(own, column=next(shown, ""))


def _moments(source: RowSource) -> list[MomentColumn]:
    return moments_of(source.always_there)


def _names_period(node: exp.Expr, source: RowSource) -> bool:
    """Tells whether an expression is the period of a row, if units are by period."""
    period = source.first.policy.unit.period
    return period is not None and names_period(node, _moments(source), period.word)


def _without_period(nodes: Sequence[exp.Expr], source: RowSource, place: exp.Expr, clause: str) -> list[exp.Expr]:
    """Lists the nodes without the row's period. Refuses a clause without the period if rows are of several periods."""
    period = source.first.policy.unit.period
    rest = [node for node in nodes if not _names_period(node, source)]
    if period is None or len(rest) < len(nodes) or is_one_period(source, period.word):
        return rest
    word = period.word.lower()
    raise refusal(
        place,
        f"features of each unit are made of its rows of one {word}, and {clause} does not say so",
        f"{clause} the privacy unit's column, date_trunc('{word}', {period.column or '..'}); or one {word} in WHERE of "
        "the subquery",
    )


def _most(source: RowSource) -> int:
    """Returns the largest count that has its own bin: the most rows of a unit in the source, within a limit."""
    return min(source.usual_rows, _LARGEST_COUNT)


def _counts(source: RowSource) -> RangeDomain:
    """Returns the domain of counts, 0 .. m. Counts above m are in the bin of m."""
    most = _most(source)
    return RangeDomain("BIGINT", tuple(map(str, range(most + 1))), str(most + 1), "1", "", 1, with_edges=True)


def _made_output(name: str, feature: FeatureColumn, source: RowSource) -> _Output:
    """Returns the output for a feature. Counts get a new domain and clamp, other features keep their own."""
    domain = _counts(source) if feature.counts else feature.domain
    clamp = Clamp(name, "0", str(_most(source)), "1") if feature.counts else feature.clamp
    clamp = None if clamp is None else replace(clamp, column=name)
    return _Output(CatalogColumn(name, feature.type_name), feature.sql, domain, feature, clamp)


def _read_grouping(
    query: exp.Select, source: RowSource, unit: exp.Column | None, features: FeatureReader, alias: str
) -> tuple[list[_Output], list[tuple[str, exp.Expr]]]:
    """Returns the features, and the columns computed from features. unit: None for a unit of several columns."""
    outputs, shown = list[_Output](), list[tuple[str, exp.Expr]]()
    for name, expression in resolve_selection(query, source.scope):
        if _names_period(expression, source):
            feature = features.read_aggregate(exp.AnyValue(this=expression.copy()))
            outputs.append(replace(_made_output(name, feature, source), begins=True))
        elif isinstance(expression, exp.Column):
            if unit is None or sql_of(expression) != sql_of(unit):
                raise _not_the_unit(expression, unit)
            outputs.append(
                _Output(CatalogColumn(name, source.types[sql_of(unit)]), plain_sql(unit), source.domain(unit))
            )
        elif is_made(expression):
            outputs.append(_made_output(name, features.read_aggregate(expression), source))
        else:
            shown.append((name, _over_features(expression, source, unit, features, alias, outputs)))
            continue
        shown.append((name, base_column(alias, name)))
    return outputs, shown


def _over_features(
    expression: exp.Expr,
    source: RowSource,
    unit: exp.Column | None,
    features: FeatureReader,
    alias: str,
    outputs: list[_Output],
) -> exp.Expr:
    """Reads an expression over features such as max(day) - min(day). Adds the features to `outputs`."""
    tree = exp.Paren(this=expression.copy())
    parts, beside = _parts(tree, is_made)
    if not parts:
        raise refusal(expression, "this is refused in a subquery with a row for each privacy unit", _ACCEPTED)
    for node in parts:
        feature, name = features.read_aggregate(node), f"dpduck_{len(outputs)}"
        outputs.append(_made_output(name, feature, source))
        node.replace(base_column(alias, name))
    for column in beside:
        if unit is None or sql_of(column) != sql_of(unit):
            raise _not_the_unit(column, unit)
        column.replace(base_column(alias, UNIT_COLUMN))
    return _taken_out(tree)


def _not_the_unit(place: exp.Expr, unit: exp.Column | None) -> Refusal:
    if unit is not None:
        return refusal(place, "a column that is not the privacy unit's", _ACCEPTED)
    return refusal(
        place,
        "with a privacy unit of several columns, other columns of the row are refused here",
        "what is made of its rows alone: SELECT count(*) AS k, max(x) AS m .. GROUP BY these columns",
    )


def _parts(tree: exp.Expr, is_part: Callable[[exp.Expr], bool]) -> tuple[list[exp.Expr], list[exp.Column]]:
    """Returns the nodes of a tree for which `is_part` holds, such as aggregates, and the columns outside of them."""
    parts = [node for node in tree.walk(prune=is_part) if is_part(node)]
    inside = {id(column) for node in parts for column in node.find_all(exp.Column)}
    return parts, [column for column in tree.find_all(exp.Column) if id(column) not in inside]


def _taken_out(tree: exp.Paren) -> exp.Expr:
    """Takes an expression out of its brackets. Refuses an expression that is not computed from one row."""
    expression: exp.Expr = tree.this
    if not isinstance(expression, exp.Column):
        check_row_local(expression)
    expression.pop()
    return expression


class _Windows:
    """Rewriter that replaces windows, and columns outside of windows, by columns of a new relation."""

    def __init__(self, source: RowSource, features: FeatureReader, alias: str) -> None:
        self.outputs: list[_Output] = []
        self._source, self._features, self._alias = source, features, alias
        self._stored: dict[str, str] = {}
        self._made: dict[str, str] = {}

    def over(self, expression: exp.Expr) -> exp.Expr:
        tree = exp.Paren(this=expression.copy())
        windows, beside = _parts(tree, lambda node: isinstance(node, exp.Window))
        for node in windows:
            node.replace(base_column(self._alias, self._window(node)))
        for column in beside:
            column.replace(base_column(self._alias, self._column(column)))
        return _taken_out(tree)

    def _window(self, node: exp.Expr) -> str:
        text = sql_of(node)
        if text not in self._made:
            written, what = node.args.get("partition_by") or [], "a window over rows of several privacy units"
            partition = _without_period(written, self._source, node, "PARTITION BY")
            if not _hold_unit(partition, self._source):
                if len(partition) != 1:
                    raise refusal(node, f"{what} is refused", _by(self._source, "PARTITION BY") or _PARTITION)
                _require_unit(partition[0], self._source, what, _by(self._source, "PARTITION BY") or _PARTITION)
            feature, name = self._features.window(node), f"dpduck_{len(self.outputs)}"
            self.outputs.append(_made_output(name, feature, self._source))
            self._made[text] = name
        return self._made[text]

    def _column(self, column: exp.Column) -> str:
        sql = plain_sql(column)
        if sql not in self._stored:
            taken = [fold(item.column.name) for item in self.outputs]
            is_taken = fold(column.name) in taken or fold(column.name).startswith("dpduck_")
            name = f"dpduck_{len(self.outputs)}" if is_taken else column.name
            clamp = self._source.clamp(column)
            output = _Output(CatalogColumn(name, self._source.types[sql]), sql, self._source.domain(column))
            self.outputs.append(replace(output, clamp=None if clamp is None else replace(clamp, column=name)))
            self._stored[sql] = name
        return self._stored[sql]


def _without_aliases(condition: exp.Expr, query: exp.Select, source: RowSource) -> exp.Expr:
    """Replaces the aliases of selected columns in the condition of QUALIFY by their expressions."""
    tree = exp.Paren(this=condition.copy())
    aliases = {fold(item.alias): item.unalias() for item in query.expressions if item.alias}
    for column in list(tree.find_all(exp.Column)):
        if not column.table and fold(column.name) in aliases and not source.scope.find(column):
            column.replace(exp.Paren(this=aliases[fold(column.name)].copy()))
    return tree


def _unit_column(group: exp.Expr, source: RowSource) -> exp.Column | None:
    """Returns the unit's column in GROUP BY, None if several columns identify the unit. Refuses other keys."""
    keys, what = group.expressions, "GROUP BY over private rows inside a subquery"
    accepted = _by(source, "GROUP BY") or _ACCEPTED
    other = {part for part, value in group.args.items() if value} - {"expressions"}
    resolved = _without_period([resolve(key, source.scope) for key in keys], source, group, "GROUP BY")
    if not other and _hold_unit(resolved, source):
        return None
    if other or len(resolved) != 1 or not isinstance(resolved[0], exp.Column):
        raise refusal(group, f"{what} is refused", accepted)
    return _require_unit(resolved[0], source, what, accepted, keys[0])


def _hold_unit(nodes: Sequence[exp.Expr], source: RowSource) -> bool:
    """Tells whether columns are exactly the columns that together identify every row's unit."""
    written = sorted(sql_of(node.unnest()) for node in nodes)
    return any(written == sorted(column.quoted_name for column in unit.parts) for unit in source.together)


def _by(source: RowSource, word: str) -> str:
    """Returns the clause that a refusal suggests if several columns identify the unit, "" if one column does."""
    names = (", ".join(column.name for column in unit.parts) for unit in source.together)
    return next((f"{word} {listed}, which hold the privacy unit together" for listed in names), "")


def _require_unit(
    column: exp.Expr, source: RowSource, what: str, accepted: str, place: exp.Expr | None = None
) -> exp.Column:
    """Returns a column that holds the unit of every row. Refuses any other expression."""
    node, columns = column.unnest(), {person.quoted_name for person in source.persons if isinstance(person, RowColumn)}
    if not isinstance(node, exp.Column) or sql_of(node) not in columns:
        raise refusal(place or column, f"{what} is refused", accepted)
    return node


def _links(source: RowSource, outputs: Sequence[_Output], windowed: bool) -> tuple[tuple[str, str], ...]:
    """Returns the new columns in which equal values prove that units are equal, each with its link."""
    if not windowed:
        return tuple((fold(output.column.name), source.policy.unit.key) for output in outputs if output.made is None)
    shown = ((fold(output.column.name), source.columns[output.sql]) for output in outputs if output.made is None)
    relations = ((name, column, source.relation(column.relation)) for name, column in shown)
    links = ((name, relation.link(column.name)) for name, column, relation in relations if relation is not None)
    return tuple((name, link) for name, link in links if link is not None)


def _units(source: RowSource, selected: Sequence[_Output], alias: str, windowed: bool) -> tuple[Units, str]:
    """Returns the subquery with a row for each unit, or with windows, as a kernel node and as SQL."""
    named = [(item, quote_identifier(item.column.name)) for item in selected]
    columns, unit, rows = source.columns, source.unit, compile_rows(source)
    if unit is None:
        raise InternalError("features of rows that are units")
    outputs = tuple((columns[item.sql], name) for item, name in named if item.made is None)
    written = ((item.made.condition, name) for item, name in named if item.made and item.made.feature is None)
    counts = tuple((condition_of(text, columns) if text else None, name) for text, name in written)
    features = tuple(replace(item.made.feature, name=name) for item, name in named if item.made and item.made.feature)
    person = (person_of(unit) or unit).sql
    listed = ", ".join((*(f"{item.sql} AS {name}" for item, name in named), f"{person} AS {UNIT_COLUMN}"))
    where = " AND ".join((*rows.where, f"{person} IS NOT NULL"))
    grouping = "" if windowed else f" GROUP BY {person}"
    sql = f"(SELECT {listed} FROM {rows.from_sql} WHERE {where}{grouping})"
    return Units(rows.source, unit, outputs, counts, alias, features, windowed), sql
