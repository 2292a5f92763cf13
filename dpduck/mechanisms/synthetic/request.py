"""Frozen request of CREATE PRIVATE TABLE, with the columns and conditions of a count by grouping sets."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from math import comb

from sqlglot import exp

from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.relation import table_name
from dpduck.language.select.analyse import row_count_request
from dpduck.language.select.impossible_cells import ImpossibleCells, impossible_cells
from dpduck.language.select.request import Key, SelectRequest
from dpduck.language.statements.synthetic import CreateSynthetic, ForEach, WorkloadClause
from dpduck.language.statements.synthetic_options import SyntheticOptions, split_options
from dpduck.language.text.positions import refusal
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

MOST_FAMILIES = 20_000
_CLAUSES = {"expressions", "from_", "joins", "where", "with_"}


@dataclass(frozen=True)
class SyntheticRequest:
    """Request of a synthetic table. base: its keys are the columns, its grouping sets the marginals of the workload.

    predicates: for each condition of the workload, a key with labels true, false and NULL.
    zeros: combinations of values that WHERE rules out, by public facts.
    pure_budget: whether the budget adds up epsilons, so that rho has no price.
    """

    base: SelectRequest
    kind: str
    predicates: tuple[Key, ...]
    options: SyntheticOptions
    expect_rows: int | None
    zeros: tuple[ImpossibleCells, ...] = ()
    pure_budget: bool = False

    def digest(self) -> str:
        """Returns a name for the released distribution. Any number of rows can be drawn from it free of charge."""
        names = {"": "nothing", "nothing": "nothing at all"}  # the first questions of the rule are not in the name
        first = names.get(self.options.first, self.options.first)
        drawn = asdict(replace(self.options, rows=None, weights=False, first=first))
        del drawn["bins"], drawn["inside"], drawn["key"]  # the keys of the question have the bins
        fields = [self.base.digest(), self.kind, [asdict(key) for key in self.predicates], drawn, "synthetic"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()


def analyse_synthetic(statement: CreateSynthetic, facts: PublicFacts) -> SyntheticRequest:
    """Returns the request. Every refusal comes from here or from planning, before anything is charged."""
    options, shared = split_options(statement.options)
    select = statement.query
    if not isinstance(select, exp.Select):
        raise refusal(select, "a private table takes one SELECT", "SELECT columns FROM t WHERE .. WORKLOAD ..")
    for part, value in select.args.items():
        if value and part not in _CLAUSES:
            first = value[0] if isinstance(value, list) else value
            place = first if isinstance(first, exp.Expr) else select
            raise refusal(
                place, f"{part.strip('_').upper()} has no place in a private table", "SELECT .. FROM .. WHERE"
            )
    columns = _columns(select, facts)
    _require_free(options, statement.for_each, columns)
    if options.bins and statement.workload.kind == "predicates":
        raise Refusal("conditions are about the bins of the policy", accepted="a workload of marginals, or no bins")
    try:
        request, source = row_count_request(select, shared, facts, _group(statement.workload, columns), options.bins)
    except RecursionError:
        raise Refusal("the statement is nested too deeply", accepted="shorter chains of operators") from None
    base, predicates = _split(request, statement.workload, columns)
    where = select.args.get("where")
    collated = any(facts.has_collations(table) for table in source.every_table)
    keys, sources = base.question.keys, base.question.sources
    zeros = () if where is None else impossible_cells(where.this, keys, sources, source.scope, collated)
    policy, kind = source.policy, statement.workload.kind
    return SyntheticRequest(base, kind, predicates, options, policy.expect_rows, zeros, policy.budget.pure)


def _columns(select: exp.Select, facts: PublicFacts) -> list[exp.Column]:
    """Returns the columns of a SELECT. Replaces a star in it by all columns with a domain, in the table's order."""
    star = select.expressions[0] if len(select.expressions) == 1 else None
    if not isinstance(star, exp.Star):
        return [_column(item) for item in select.expressions]
    node = select.args["from_"].this if select.args.get("from_") else None
    plain = not any(select.args.get(part) for part in ("joins", "with_"))
    plain = plain and not any(star.args.get(part) for part in ("replace", "rename"))
    resolved = facts.resolve(table_name(node)) if plain and isinstance(node, exp.Table) else None
    policy = None if resolved is None else facts.policy(resolved)
    if resolved is None or policy is None:
        raise refusal(star, "a star here is of one table with a policy", "columns with a DOMAIN, by their names")
    left_out = {fold(entry.name) for entry in star.args.get("except_") or ()}
    names = [entry.name for entry in facts.columns(resolved) if policy.domain(entry.name) is not None]
    unknown = left_out - {fold(name) for name in names}
    if unknown or len(left_out) == len(names):
        raise refusal(star, "EXCLUDE leaves out what has no DOMAIN, or everything", "EXCLUDE of some columns with one")
    columns = [exp.column(name, quoted=True) for name in names if fold(name) not in left_out]
    select.set("expressions", columns)
    return [column.copy() for column in columns]


def _require_free(options: SyntheticOptions, for_each: ForEach | None, columns: list[exp.Column]) -> None:
    """Refuses names of existing columns, and a number of rows if parents decide that number."""
    names = [fold(column.name) for column in columns]
    for name in filter(None, (options.key, "" if for_each is None else for_each.column)):
        if fold(name) in names:
            raise Refusal(f"there is a column {name[:100]!r} already", accepted="another name")
        names.append(fold(name))
    if for_each is not None and options.rows is not None:
        raise Refusal(
            "the option rows has no effect here: the parents decide how many rows there are",
            accepted="the statement without it",
            position=for_each.position,
        )


def _column(item: exp.Expr) -> exp.Column:
    if not isinstance(item, exp.Column) or isinstance(item.this, exp.Star):
        raise refusal(item, "a private table has columns of the private rows", "columns with a DOMAIN, by their names")
    return item


def _group(workload: WorkloadClause, columns: list[exp.Column]) -> exp.Group:
    place = workload.position
    order = exp.Literal.number(workload.order)
    names = [column.copy() for column in columns]
    if workload.kind == "sets":
        return exp.Group(expressions=[node.copy() for node in workload.nodes])
    if workload.kind == "predicates":
        sets = [exp.Tuple(expressions=[node]) for node in [*names, *(_key_of(node) for node in workload.nodes)]]
        return exp.Group(expressions=[exp.GroupingSets(expressions=sets)])
    most = max(comb(len(columns), k) for k in range(1, workload.order + 1)) if columns else 0
    if workload.order > len(columns):
        raise Refusal(f"there are {len(columns)} columns", accepted=f"at most {len(columns)} at a time", position=place)
    if most > MOST_FAMILIES:
        raise Refusal(f"the workload has {most} sets of columns", accepted=f"at most {MOST_FAMILIES}", position=place)
    return exp.Group(expressions=[exp.Anonymous(this="marginals", expressions=[order, *names])])


def _key_of(condition: exp.Expr) -> exp.Expr:
    """Returns a GROUP BY key for a condition. A condition that is one column becomes `column AND true`."""
    if isinstance(condition.unnest(), exp.Column):
        return exp.Paren(this=exp.And(this=condition.copy(), expression=exp.true()))
    return exp.Paren(this=condition.copy())


def _split(
    request: SelectRequest, workload: WorkloadClause, columns: list[exp.Column]
) -> tuple[SelectRequest, tuple[Key, ...]]:
    """Returns the request over its columns alone, in the order of the SELECT, and the keys of conditions."""
    places_by_name = {fold(key.name): place for place, key in enumerate(request.question.keys)}
    order = [places_by_name.get(fold(column.name), -1) for column in columns]
    keys = tuple(request.question.keys[place] for place in order if place >= 0)
    plain = all(len(key.sources) == 1 and not key.shape and not key.row_sql for key in keys)
    if not plain or len(set(order)) < len(columns) or -1 in order:
        raise Refusal("a column is in no grouping set, or twice", accepted="each column once, and in some grouping set")
    predicates = tuple(key for place, key in enumerate(request.question.keys) if place not in order)
    if predicates and workload.kind != "predicates":
        raise Refusal("a grouping set has something else than columns of the table", accepted="columns of the SELECT")
    sets = tuple(
        tuple(sorted(order.index(place) for place in grouping_set))
        for grouping_set in request.question.grouping_sets
        if grouping_set and not predicates
    )
    if workload.kind == "parities":
        sets = tuple(chosen for k in range(1, workload.order + 1) for chosen in combinations(range(len(keys)), k))
    if workload.kind == "predicates":
        places = {key.sources[0]: place for place, key in enumerate(keys)}
        if any(source not in places for key in predicates for source in key.sources):
            raise Refusal("a condition uses a column that is not in the SELECT", accepted="columns of the SELECT")
        sets = tuple(dict.fromkeys(tuple(sorted(places[source] for source in key.sources)) for key in predicates))
    if not sets:
        raise Refusal("the workload is empty", accepted="at least one marginal or condition")
    return replace(request, question=replace(request.question, keys=keys, grouping_sets=sets)), predicates
