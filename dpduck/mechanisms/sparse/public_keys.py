"""Keys from a declared public table: its name, SELECT .. FROM it WHERE .., or columns IN (SELECT ..)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.tokens import TokenType

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.rows.functions import check_row_local
from dpduck.language.rows.scope import Relation, Scope, base_column, resolve
from dpduck.language.statements.parse import parse_expression, parse_select
from dpduck.language.text.dialect import TokenReader, tokenize_statement
from dpduck.language.text.names import TableName
from dpduck.language.text.positions import position_of, refusal
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

ALIAS = "p"
_ACCEPTED = "SELECT columns FROM a declared public table WHERE conditions"
_PARTS = {"expressions", "from_", "where", "distinct"}


@dataclass(frozen=True)
class PublicSelection:
    """Selection of keys. columns: names, with SQL over the table as ALIAS. condition: a filter that cannot raise."""

    table: TableName
    columns: tuple[tuple[str, str], ...]
    condition: str = "true"
    distinct: bool = False


def read_selection(text: str, keys: Sequence[str], facts: PublicFacts) -> PublicSelection:
    """Reads the keys that a question selects. For an IN, the columns have the names before IN."""
    reader = TokenReader(text, tokenize_statement(text))
    if reader.at_words("SELECT"):
        return _of_select(parse_select(text), facts)
    if any(token.token_type in (TokenType.L_PAREN, TokenType.IN) for token in reader.tokens):
        return _of_in(parse_expression(text), keys, facts)
    try:
        written = reader.table_name()
        reader.expect_end()
    except Refusal:
        raise Refusal(
            "this text selects no keys", accepted=f"a list such as ['key'], a public table, or {_ACCEPTED}"
        ) from None
    table = _public(written, facts, None)
    names = [column.name for column in facts.columns(table)]
    return PublicSelection(table, tuple((name, sql_of(base_column(ALIAS, name))) for name in names))


def _of_in(condition: exp.Expr, keys: Sequence[str], facts: PublicFacts) -> PublicSelection:
    """Reads keys IN (SELECT ..). IN never matches NULL, so rows with NULL are left out."""
    query = condition.args.get("query") if isinstance(condition, exp.In) else None
    if query is None or not isinstance(query.this, exp.Select):
        raise refusal(condition, "this is no question", f"{', '.join(keys)} IN (SELECT ..)")
    left = condition.this.unnest()
    written = left.expressions if isinstance(left, exp.Tuple) else [left]
    names = [fold(node.name) if isinstance(node, exp.Column) and len(node.parts) == 1 else "" for node in written]
    wanted = sorted(fold(key) for key in keys)
    if sorted(names) != wanted and not (names == ["key"] and len(keys) == 1):
        raise refusal(condition, "the columns before IN are not the key's", ", ".join(keys))
    chosen = _of_select(query.this, facts)
    if len(chosen.columns) != len(names):
        raise refusal(query, f"{len(chosen.columns)} columns for {len(names)} before IN", "as many columns")
    columns = tuple((name, sql) for name, (_, sql) in zip(names, chosen.columns, strict=True))
    present = " AND ".join(f"{sql} IS NOT NULL" for _, sql in columns)
    return replace(chosen, columns=columns, condition=f"{chosen.condition} AND {present}", distinct=True)


def _of_select(select: exp.Select, facts: PublicFacts) -> PublicSelection:
    from_, distinct, where = (select.args.get(part) for part in ("from_", "distinct", "where"))
    beyond = [value for part, value in select.args.items() if value and part not in _PARTS]
    if beyond or from_ is None or not isinstance(from_.this, exp.Table) or (distinct and distinct.args.get("on")):
        raise refusal(select, "this SELECT of keys is refused", _ACCEPTED)
    node = from_.this
    plain = not {part for part, value in node.args.items() if value} - {"this", "db", "catalog", "alias"}
    if not plain or not isinstance(node.this, exp.Identifier) or node.alias_column_names:
        raise refusal(node, "this cannot be selected from", "a declared public table")
    table = _public(TableName(tuple(part.name for part in node.parts)), facts, node)
    table_columns = tuple((column.name, base_column(ALIAS, column.name)) for column in facts.columns(table))
    scope = Scope((Relation(node.alias or table.table, table_columns),))
    columns = tuple(column for item in select.expressions for column in _item_columns(item, scope))
    if len({fold(name) for name, _ in columns}) < len(columns):
        raise refusal(select, "two selected columns have one name", "AS and another name")
    return PublicSelection(table, columns, "true" if where is None else _safe(where.this, scope), bool(distinct))


def _item_columns(expression: exp.Expr, scope: Scope) -> list[tuple[str, str]]:
    if isinstance(expression, exp.Star) and not any(expression.args.values()):
        return [(name, sql_of(column)) for name, column in scope.columns()]
    return [(expression.alias_or_name, _safe(expression.unalias(), scope))]


def _safe(expression: exp.Expr, scope: Scope) -> str:
    """Renders SQL that is NULL where it would have raised: an answer must not show an error of DuckDB."""
    resolved = resolve(expression, scope)
    check_row_local(resolved)
    return sql_of(resolved) if isinstance(resolved, exp.Column) else f"try({sql_of(resolved)})"


def _public(written: TableName, facts: PublicFacts, node: exp.Expr | None) -> TableName:
    table = facts.resolve(written)
    if table is None or not facts.is_public(table) or facts.policy(table) is not None:
        raise Refusal(
            f"{str(written)!r} is no declared public table",
            accepted="DECLARE PUBLIC TABLE by the owner, or a list of keys",
            position=None if node is None else position_of(node),
        )
    return table
