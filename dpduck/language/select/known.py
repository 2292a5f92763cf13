"""Plain SELECT over a private table as a question to earlier releases. Nothing runs over rows, so the answer is free.

Conditions of the SELECT and of releases are read as sets of codes: positions of labels in the domains of columns.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from sqlglot import exp

from dpduck.language.rows.facts import Policy, PublicFacts, SourceColumn
from dpduck.language.rows.relation import table_name
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.analyse import Analysis, read_analysis
from dpduck.language.select.answers import has_aggregate
from dpduck.language.select.conditions import CodeCondition, conjuncts, has_other_values, read_condition
from dpduck.language.select.keys import KeyBuilder
from dpduck.language.select.options import confidence_from
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.statements.parse import parse_expression, parse_options, parse_plain
from dpduck.language.text.dialect import DifferentialPrivacy
from dpduck.language.text.names import TableName
from dpduck.language.text.options import Option
from dpduck.language.text.positions import refusal
from dpduck.values.errors import NOTHING_PRIVATE, Refusal

MODEST = 10  # the proposed rho for missing answers is the budget's rho divided by this, and at most 0.5


@dataclass(frozen=True, eq=False)
class Readings:
    """Cache for questions about the same rows. All entries follow from public facts."""

    columns: dict[str, SourceColumn | None] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)  # digests of columns' domains
    conditions: dict[str, CodeCondition | None] = field(default_factory=dict)
    partial: dict[str, bool] = field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tables: dict[tuple[str, str, int], Sequence[Any]] = field(default_factory=dict)  # quantities of each released table
    seen: dict[Hashable, Sequence[Any]] = field(default_factory=dict)  # quantities along a question's axes


@dataclass(frozen=True, eq=False)
class KnownQuestion:
    """Question that released tables are to answer, with public facts about its rows."""

    analysis: Analysis
    source: RowSource
    facts: PublicFacts
    collated: bool
    readings: Readings = field(default_factory=Readings)

    def column(self, sql: str) -> SourceColumn | None:
        """Returns a column of the rows with its public domain, None if it has no domain."""
        cache = self.readings.columns
        if sql not in cache:
            builder = KeyBuilder(self.source, self.facts)
            try:
                builder.build(sql, parse_expression(sql))
            except Refusal:
                cache[sql] = None
            else:
                (cache[sql],) = builder.sources
        return cache[sql]

    def conjuncts(self, text: str) -> tuple[str, ...]:
        cache = self.readings.parts
        if text not in cache:
            cache[text] = tuple(conjuncts(text))
        return cache[text]

    def partial(self, sql: str) -> bool:
        """Tells whether rows may have values of this column for which its domain has no code."""
        cache = self.readings.partial
        if sql not in cache:
            column = self.column(sql)
            cache[sql] = column is None or has_other_values(column, self.source)
        return cache[sql]

    def condition(self, text: str) -> CodeCondition | None:
        """Reads an element of `conjuncts` as a condition over codes. None if codes cannot express it."""
        cache = self.readings.conditions
        if text not in cache:
            try:
                cache[text] = read_condition(text, self.source, self.facts, self.collated, self.partial)
            except Refusal:
                cache[text] = None
        return cache[text]


@dataclass(frozen=True)
class KnownArguments:
    """Arguments of dp_known."""

    text: str
    confidence: Fraction
    target: Fraction | None  # the standard error that sets the price of missing answers


def known_arguments(argument: str) -> KnownArguments:
    """Reads the arguments of dp_known from JSON."""
    text, confidence, target = json.loads(argument)
    if not isinstance(text, str):
        raise Refusal("the statement is missing", accepted="dp_known('SELECT .. FROM ..')")
    level = confidence_from(confidence)
    if target is not None and (not isinstance(target, (int, float)) or not 0 < target <= 1e12):
        raise Refusal("target_stderr is out of range", accepted="a number above 0, at most 1e12")
    return KnownArguments(text, level, None if target is None else Fraction(str(target)))


def analyse_known(asked: KnownArguments, facts: PublicFacts) -> KnownQuestion:
    """Analyses the question of a plain SELECT. Refuses every statement that dp() would refuse."""
    query, text, target = parse_plain(asked.text), asked.text, asked.target
    select, policy_table = _private_select(query, facts)
    policy = facts.policy(policy_table)
    least = Fraction(1) if policy is None else max(policy.min_epsilon or Fraction(0), Fraction(1))
    price = least if policy is None or policy.max_epsilon is None else min(policy.max_epsilon, least)
    words = _usual_price(price, policy) if target is None else f"target_stderr = {float(target):.12g}"
    select.set("hint", parse_options(f"{words}, confidence = {float(asked.confidence)!r}"))
    return _analyse(AskStatement(query, text, 0, None, False, ()), facts, (), known=True)


def _usual_price(epsilon: Fraction, policy: Policy | None) -> str:
    """Writes a price that suits the budget. A budget that adds up rho charges much for an epsilon without a delta."""
    words = f"epsilon = {float(epsilon)!r}"
    if policy is None or policy.budget.pure:
        return words
    if policy.budget.delta:
        return f"{words}, delta = {float(policy.budget.delta)!r}"
    if epsilon != 1 or policy.budget.rho is None:
        return words  # at a limit of the policy, a rounded rho might be beyond it
    return f"rho = {float(min(Fraction(1, 2), policy.budget.rho / MODEST))!r}"


def analyse_refreshed(ask: AskStatement, facts: PublicFacts, more: Sequence[Option]) -> KnownQuestion:
    """Analyses the SELECT of a private view for an answer from earlier releases, at the view's confidence."""
    question = _analyse(ask, facts, more, known=True)
    _require_as_measured(question.analysis)
    return question


def analyse_combined(ask: AskStatement, facts: PublicFacts, more: Sequence[Option]) -> KnownQuestion:
    """Analyses a statement with reuse = TRUE. Its own release and all earlier releases answer it together."""
    question = _analyse(ask, facts, more, known=False)
    _require_as_measured(question.analysis)
    return question


def _require_as_measured(analysis: Analysis) -> None:
    question = analysis.request.question
    moved = question.treatment.moves or question.treatment.integer or question.treatment.public_totals
    if moved or analysis.cells or question.summary is not None or question.selection is not None:
        raise Refusal(
            "releases are combined as they were measured, and by the sets that are grouped by",
            accepted="a statement without nonnegative, integer, public_totals, form = 'cells', summaries and selected "
            "keys",
        )


def _analyse(ask: AskStatement, facts: PublicFacts, more: Sequence[Option], known: bool) -> KnownQuestion:
    try:
        analysis, source = read_analysis(ask, facts, more, known=known, combined=not known)
    except RecursionError:
        raise Refusal("the statement is nested too deeply", accepted="shorter chains of operators") from None
    request = analysis.request
    if request.question.intervals:
        question = replace(request.question, sources=(), intervals=())
        analysis = replace(analysis, request=replace(request, question=question))
    collated = any(facts.has_collations(table) for table in source.every_table)
    return KnownQuestion(analysis, source, facts, collated)


def _private_select(query: exp.Query, facts: PublicFacts) -> tuple[exp.Select, TableName]:
    """Returns the one SELECT with aggregates over private rows, and a private table that it reads."""
    if query.find(DifferentialPrivacy) is not None:
        raise Refusal(
            "dp_known takes a plain SELECT", accepted="the same without WITH DIFFERENTIAL_PRIVACY OPTIONS (..)"
        )
    private = _private_tables(query, facts)
    selects = [select for select in query.find_all(exp.Select) if _counts(select) and _reads(select, private)]
    inner = [node for node in selects if not any(other is not node and _inside(other, node) for other in selects)]
    if not private:
        raise Refusal(NOTHING_PRIVATE, accepted="FROM a table of dp_policies()")
    if len(inner) != 1:
        what = "no aggregate over private rows" if not inner else f"{len(inner)} SELECTs over private rows"
        raise refusal(query, what, "one SELECT .. count(*) .. FROM a table with a privacy policy")
    return inner[0], next(iter(private.values()))


def _private_tables(query: exp.Query, facts: PublicFacts) -> dict[str, TableName]:
    tables = {}
    for table in query.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            resolved = facts.resolve(table_name(table))
            if resolved is not None and facts.policy(resolved) is not None:
                tables[table.name] = resolved
    return tables


def _counts(select: exp.Select) -> bool:
    return select.args.get("group") is not None or any(has_aggregate(item) for item in select.expressions)


def _reads(select: exp.Select, private: dict[str, TableName]) -> bool:
    """Tells whether a SELECT reads a private table, by its name or through CTEs."""
    parts = [part for name in ("from_", "joins", "with_") for part in _expressions(select.args.get(name))]
    named = {table.name for part in parts for table in part.find_all(exp.Table)}
    around: exp.Expr | None = select
    common: dict[str, exp.Expr] = {}
    while around is not None:
        with_ = around.args.get("with_")
        common |= {} if with_ is None else {cte.alias: cte.this for cte in with_.expressions}
        around = around.parent
    for _ in range(len(common)):
        named |= {table.name for name in named & common.keys() for table in common[name].find_all(exp.Table)}
    return bool(named & private.keys())


def _expressions(value: object) -> list[exp.Expr]:
    return [node for node in (value if isinstance(value, list) else [value]) if isinstance(node, exp.Expr)]


def _inside(node: exp.Expr, other: exp.Expr) -> bool:
    parent = node.parent
    while parent is not None and parent is not other:
        parent = parent.parent
    return parent is other
