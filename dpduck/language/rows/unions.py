"""UNION ALL of private rows that share a privacy unit, as one relation with the unit beside its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dpduck.kernel.columns.comparisons import Literal
from dpduck.kernel.columns.expressions import Expression
from dpduck.kernel.relations import PERIOD_COLUMN, UNIT_COLUMN, Branch, Union
from dpduck.kernel.units import person_of, unit_type
from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import CatalogColumn, Clamp, Policy
from dpduck.language.rows.moments import moments_of
from dpduck.language.rows.relation import PrivateRelation, RowReading, comparable, unit_beside
from dpduck.language.rows.scope import Relation, Scope, base_column
from dpduck.language.rows.sql import compile_rows, plain_sql
from dpduck.language.rows.tree import RowSource, choices_of, require_free_names, require_one_unit
from dpduck.language.text.positions import refusal
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.errors import InternalError
from dpduck.values.periods import Period
from dpduck.values.privacy import PrivacyUnit
from dpduck.values.quoting import fold, quote_identifier

LONGEST_TEXTS = 512  # most bytes of all constant texts in one SELECT of a UNION ALL
_ACCEPTED = "UNION ALL of SELECTs over tables with one privacy unit"
ReadBranch = Callable[[exp.Expr, RowReading], RowSource]


def read_union(query: exp.SetOperation, reading: RowReading, read_branch: ReadBranch) -> RowSource:
    """Reads a UNION ALL as one source. The rows of a unit are its rows in all branches."""
    nodes = _branches(query)
    branches = [read_branch(node, RowReading(reading.facts, reading.common)) for node in nodes]
    require_one_unit(branches, nodes, "UNION ALL of it", "policies with PRIVACY UNIT column")
    columns = _columns(branches, nodes)
    outputs = ([(branch, expression.unnest()) for _, expression in branch.scope.columns()] for branch in branches)
    shown, kind = [list(column) for column in zip(*outputs, strict=True)], _unit_type(branches, query)
    alias, first = f"r{next(reading.private)}", branches[0]
    most = sum(branch.usual_rows for branch in branches)
    unit = PrivacyUnit(first.policy.unit.key, UNIT_COLUMN, most, period=_period(shown, columns))
    reads = tuple(dict.fromkeys(read for branch in branches for read in branch.reads))
    policy, pairs = _policy(shown, columns, unit), [_branch(branch, columns) for branch in branches]
    relation = PrivateRelation(
        Union(tuple(branch for branch, _ in pairs), alias),
        first.table,
        "(" + " UNION ALL ".join(sql for _, sql in pairs) + ")",
        policy,
        (*columns, CatalogColumn(UNIT_COLUMN, kind)),
        unit_beside(alias, kind, policy),
        _links(shown, columns),
        tuple(column.name for column in columns),
        reads,
    )
    scope = Scope((Relation("", tuple((column.name, base_column(alias, column.name)) for column in columns)),))
    return RowSource(relation, (), scope, (), choices_of(relation), tuple(branches))


def _branches(query: exp.Expr) -> list[exp.Expr]:
    if not isinstance(query, exp.SetOperation):
        return [query]
    plain = {"this", "expression", "distinct", "with_"}
    other = {part for part, value in query.args.items() if value} - plain
    if not isinstance(query, exp.Union) or query.args.get("distinct") or other or query.args.get("with_"):
        words = query.key.upper() + (" BY NAME" if "by_name" in other else "")
        raise refusal(query, f"{words} over private rows is refused", _ACCEPTED)
    return [*_branches(query.this), *_branches(query.expression)]


Shown = list[tuple[RowSource, exp.Expr]]  # A column of a UNION ALL: each branch, with its expression for the column


def _columns(branches: Sequence[RowSource], nodes: Sequence[exp.Expr]) -> tuple[CatalogColumn, ...]:
    """Returns the columns under the first branch's names. Branches must agree in the number and types of columns."""
    columns: list[CatalogColumn] = []
    for branch, node in zip(branches, nodes, strict=True):
        outputs = list(branch.scope.columns())
        own = [CatalogColumn(name, _type(expression, branch.types, node)) for name, expression in outputs]
        _require_short_texts([expression.unnest() for _, expression in outputs], node)
        columns = columns or own
        if [column.type_name for column in own] != [column.type_name for column in columns]:
            raise refusal(node, "the columns of UNION ALL differ in number or type", "the same types in every branch")
    require_free_names((column.name for column in columns), nodes[0])
    names = [fold(column.name) for column in columns]
    taken = {UNIT_COLUMN} if branches[0].first.policy.unit.period is None else {UNIT_COLUMN, PERIOD_COLUMN}
    if len(set(names)) < len(names) or taken & set(names):
        raise refusal(nodes[0], "two columns of UNION ALL have one name", "a name for each column")
    return tuple(columns)


def _require_short_texts(outputs: Sequence[exp.Expr], node: exp.Expr) -> None:
    """Refuses long constants: each row of a unit holds a copy of these if a row limit cuts a joined UNION ALL."""
    texts = [output.name.encode("utf-8", "surrogatepass") for output in outputs if isinstance(output, exp.Literal)]
    if sum(map(len, texts)) > LONGEST_TEXTS:
        raise refusal(node, "the texts inside UNION ALL are too long", f"at most {LONGEST_TEXTS} bytes together")


def _type(expression: exp.Expr, types: Mapping[str, str], node: exp.Expr) -> str:
    plain = expression.unnest()
    if isinstance(plain, exp.Column):
        return types[sql_of(plain)]
    if isinstance(plain, exp.Literal) and plain.is_string:
        return "VARCHAR"
    raise refusal(node, "an expression inside UNION ALL is refused", "columns and texts; expressions around UNION ALL")


def _branch(branch: RowSource, columns: Sequence[CatalogColumn]) -> tuple[Branch, str]:
    """Returns one SELECT of a UNION ALL as a kernel node, and as SQL."""
    rows, unit, outputs, listed = compile_rows(branch), branch.unit, list[tuple[Expression, str]](), list[str]()
    for (_, expression), column in zip(branch.scope.columns(), columns, strict=True):
        node, name = expression.unnest(), quote_identifier(column.name)
        text = isinstance(node, exp.Literal) and node.is_string
        outputs.append((Literal("text", node.name) if text else branch.columns[plain_sql(node)], name))
        listed.append(f"{sql_of(node)} AS {name}")
    if unit is None:
        raise InternalError("a UNION ALL of rows that are units")
    person = person_of(unit) or unit
    sql = f"SELECT {', '.join((*listed, f'{person.sql} AS {UNIT_COLUMN}'))} FROM {rows.from_sql}"
    sql += f" WHERE {' AND '.join(rows.where)}" if rows.where else ""
    return Branch(rows.source, unit, tuple(outputs)), sql


def _unit_type(branches: Sequence[RowSource], query: exp.Expr) -> str:
    """Returns the type of the units. Refuses branches with units that do not compare as keys do."""
    types = [unit_type(branch.units[0][0]) for branch in branches]
    if not all(comparable(types[0], other) for other in types):
        raise refusal(query, "the privacy units of UNION ALL differ in type", "units of one type")
    return types[0]


def _period(shown: Sequence[Shown], columns: Sequence[CatalogColumn]) -> Period | None:
    """Returns the period of a row. Its column gives the period in every table, and is "" if no column does."""
    branches = [branch for branch, _ in shown[0]]
    own = branches[0].first.policy.unit.period
    if own is None:
        return None
    moments = [moments_of(branch.always_there) for branch in branches]
    for column, name in zip(shown, columns, strict=True):
        if all(any(of.is_column(node) for of in group) for (_, node), group in zip(column, moments, strict=True)):
            return replace(own, column=name.name)
    return replace(own, column="")


def _links(shown: Sequence[Shown], columns: Sequence[CatalogColumn]) -> tuple[tuple[str, str], ...]:
    """Returns the columns that have the same link in every branch, each with its link."""
    pairs = []
    for column, name in zip(shown, columns, strict=True):
        links = {branch.link(node) for branch, node in column}
        link = links.pop()
        if not links and link is not None:
            pairs.append((fold(name.name), link))
    return tuple(pairs)


def _policy(shown: Sequence[Shown], columns: Sequence[CatalogColumn], unit: PrivacyUnit) -> Policy:
    domains = [(name.name, _domain(column)) for column, name in zip(shown, columns, strict=True)]
    clamps = [_clamp(column, name.name) for column, name in zip(shown, columns, strict=True)]
    policies = [branch.policy for branch, _ in shown[0]]
    expected = [policy.expect_rows for policy in policies]
    counts = [number for number in expected if number is not None]
    return replace(
        policies[0],
        unit=unit,
        domains=tuple((name, domain) for name, domain in domains if domain is not None),
        clamps=tuple(clamp for clamp in clamps if clamp is not None),
        max_epsilon=min((rule.max_epsilon for rule in policies if rule.max_epsilon is not None), default=None),
        min_epsilon=max((rule.min_epsilon for rule in policies if rule.min_epsilon is not None), default=None),
        expect_rows=sum(counts) if len(counts) == len(expected) else None,
    )


def _domain(column: Shown) -> Domain | None:
    """Returns the common domain of all branches. Unites domains that differ but all list values. Else None."""
    domains = [
        ValueDomain("VARCHAR", (node.name,)) if isinstance(node, exp.Literal) else branch.domain(node)
        for branch, node in column
    ]
    first = domains[0]
    if first is None or all(domain == first for domain in domains):
        return first
    listed = [domain for domain in domains if isinstance(domain, ValueDomain) and domain.other is None]
    if len(listed) < len(domains) or len({domain.type_name for domain in listed}) != 1:
        return None
    values = tuple(dict.fromkeys(value for domain in listed for value in domain.values))
    return ValueDomain(listed[0].type_name, values, any(domain.with_null for domain in listed))


def _clamp(column: Shown, name: str) -> Clamp | None:
    clamps = [branch.clamp(node) for branch, node in column]
    first = clamps[0]
    if first is None:
        return None
    alike = all(clamp is not None and replace(clamp, column=first.column) == first for clamp in clamps)
    return replace(first, column=name) if alike else None
