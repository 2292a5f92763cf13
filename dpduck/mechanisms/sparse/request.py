"""Frozen request of a statement of sparse queries, checked against public facts alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpduck.kernel.columns.keys import KeyText, KeyTextPart
from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.scope import resolve
from dpduck.language.select.analyse import row_count_request
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.kinds import HISTOGRAM, PROJECTION, SESSION, CreatePrivate
from dpduck.language.text.names import TableName
from dpduck.language.text.options import PRICE_OPTIONS, Option, read_given
from dpduck.language.text.positions import refusal
from dpduck.mechanisms.sparse.keys import KeyPart, require_type
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

MOST_PARTS = 64
_MILLION, _MANY = Fraction(10**6), Fraction(10**12)
PRICES = tuple(option.name for option in PRICE_OPTIONS)
OPTIONS = (
    Option("sparsity", "whole", "the most keys of one question", Fraction(1), _MILLION),
    Option("queries", "whole", "how many questions the stated errors are to hold for", Fraction(1), _MANY),
    Option("beta", "number", "the chance that some answer is further off than stated", most=Fraction(1, 2)),
    Option("rows", "whole", "of the projection", Fraction(1), _MILLION),
    Option("heaviest", "whole", "a public guess of the largest count of a key", Fraction(1), _MANY),
    Option("updates", "whole", "how many answers may be measured", Fraction(1), _MILLION),
    Option("alpha", "number", "the largest error of an answer, in rows", Fraction(1), _MANY),
)
OWN = {
    PROJECTION: ("sparsity", "queries", "beta", "rows", "heaviest"),
    HISTOGRAM: ("sparsity", "queries", "beta"),
    SESSION: ("sparsity", "queries", "beta", "updates", "alpha", "heaviest"),
}


@dataclass(frozen=True)
class SparseOptions:
    """Declared figures of the questions, None if absent. rows: the integers of a projection.

    beta: the chance that some declared query has a larger error than stated.
    heaviest: a public guess of the largest count of a key.
    alpha: the largest error of a session's answers.
    """

    sparsity: int = 64
    queries: int = 1000
    beta: Fraction = Fraction(1, 20)
    rows: int | None = None
    heaviest: int | None = None
    updates: int | None = None
    alpha: Fraction | None = None


@dataclass(frozen=True)
class SparseRequest:
    """Request of sparse queries. request: a count of the same rows at the same price, with all facts but the keys."""

    kind: str
    name: str
    request: SelectRequest
    keys: tuple[KeyPart, ...]
    options: SparseOptions
    expect_rows: int | None
    table: TableName

    @property
    def key(self) -> KeyText:
        """Returns the canonical text of a row's key. It is NULL if a part is NULL, and then the row is dropped."""
        columns = self.request.rows.columns
        return KeyText(tuple(KeyTextPart(columns[part.sql], part.folds) for part in self.keys))

    def digest(self) -> str:
        """Returns a digest, equal for statements with equal requests. A session's digest includes its name."""
        own = self.name.lower() if self.kind == SESSION else ""
        fields = [self.kind, own, self.request.digest(), [[key.sql, key.type_name, key.collation] for key in self.keys]]
        canonical = json.dumps([*fields, str(self.options)], ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


def analyse_sparse(statement: CreatePrivate, facts: PublicFacts) -> SparseRequest:
    """Returns the request of a statement. Every refusal comes from here, before anything is charged."""
    try:
        return _analyse(statement, facts)
    except RecursionError:
        raise Refusal("the statement is nested too deeply", accepted="shorter chains of operators") from None


def _analyse(statement: CreatePrivate, facts: PublicFacts) -> SparseRequest:
    select = statement.query
    plain = {"expressions", "from_", "joins", "where", "with_"}
    if not isinstance(select, exp.Select):
        raise refusal(select, f"a {statement.kind} takes one SELECT", "SELECT key FROM table WHERE ..")
    for part, value in select.args.items():
        if value and part not in plain:
            raise refusal(select, f"{part.strip('_').upper()} in a {statement.kind}", "SELECT key FROM table WHERE ..")
    own, prices = _split(statement)
    request, source = row_count_request(select, prices, facts)
    parts = [resolve(item.unalias(), source.scope) for item in _columns(select)]
    types = {f"{column.relation}.{fold(column.name)}": column.type_name for column in source.columns.values()}
    keys = tuple(_part(part, types) for part in parts)
    return SparseRequest(statement.kind, statement.name, request, keys, own, source.policy.expect_rows, source.table)


def _columns(select: exp.Select) -> Sequence[exp.Expr]:
    if not 1 <= len(select.expressions) <= MOST_PARTS:
        raise refusal(select, f"a key of {len(select.expressions)} columns", f"1 to {MOST_PARTS} columns")
    for expression in select.expressions:
        if not isinstance(expression.unalias(), exp.Column) or isinstance(expression.unalias().this, exp.Star):
            raise refusal(expression, "a key is made of columns", "the names of columns")
    return list(select.expressions)


def _part(column: exp.Expr, types: dict[str, str]) -> KeyPart:
    if not isinstance(column, exp.Column):
        raise refusal(column, "a key is made of columns, not of expressions of a subquery", "columns of a table")
    type_name = types[f"{column.table}.{fold(column.name)}"]
    require_type(column.name, type_name)
    return KeyPart(sql_of(column), column.name, type_name)


def secret_name(digest: str) -> str:
    """Returns the name of a histogram's or session's secret in the secrets file, by its request's digest."""
    return f"sparse {digest}"


def fence_name(digest: str) -> str:
    """Returns the name of a session's number of commits in the secrets file, by its request's digest."""
    return f"sparse commits {digest}"


def _split(statement: CreatePrivate) -> tuple[SparseOptions, tuple[exp.Expr, ...]]:
    """Returns the options of sparse queries, and the unread price options, which all statements share."""
    named = {option.name: option for option in OPTIONS}
    own = [named[name] for name in OWN[statement.kind]]
    given = read_given(statement.options, (*PRICE_OPTIONS, *own), f" for a {statement.kind}")
    numbers = {name: given.whole(name) for name in OWN[statement.kind] if name not in ("beta", "alpha")}
    usual = SparseOptions()
    options = SparseOptions(
        numbers["sparsity"] or usual.sparsity,
        numbers["queries"] or usual.queries,
        given.number("beta") or usual.beta,
        numbers.get("rows"),
        numbers.get("heaviest"),
        numbers.get("updates"),
        given.number("alpha") if statement.kind == SESSION else None,
    )
    return options, tuple(option for option in statement.options if option.this.name.lower() in PRICES)
