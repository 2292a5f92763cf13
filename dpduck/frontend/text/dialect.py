"""The sqlglot dialect: DuckDB's, with BigQuery's SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokens import TokenType

MISSPELT = "expected DIFFERENTIAL_PRIVACY after SELECT WITH"
BOUNDS = "dpduck_bounds"  # in an aggregate's meta: its arguments contribution_bounds_per_row and .._per_group
START = "dpduck_start"  # in a node's meta: where its first token stands in the text


class DifferentialPrivacy(exp.Expression):
    """The clause after SELECT; its expressions are the options, as written."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}


def _placed(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the rule of a parser, whose node remembers where it starts unless a rule inside has said so."""

    def place(self: Any, *arguments: Any, **options: Any) -> Any:
        first = self._curr
        node = rule(self, *arguments, **options)
        found = node[1] if isinstance(node, tuple) and len(node) == 2 else node
        found = found[0] if isinstance(found, list) and found else found
        if isinstance(found, exp.Expr) and first:
            found.meta.setdefault(START, first.start)
        return node

    return place


def _bounded(build: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the builder of an aggregate, whose named arguments are its bounds and stand in its meta."""

    def build_bounded(arguments: list[Any]) -> Any:
        bounds = [argument for argument in arguments if isinstance(argument, exp.Kwarg)]
        arguments[:] = [argument for argument in arguments if not isinstance(argument, exp.Kwarg)]
        node = build(arguments)
        node.meta[BOUNDS] = bounds
        return node

    return build_bounded


_AGGREGATES: dict[str, Callable[..., Any]] = {
    **{name: DuckDBParser.FUNCTIONS[name] for name in (
        "SUM", "AVG", "VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "MIN", "MAX", "MEDIAN",
        "QUANTILE_CONT", "QUANTILE_DISC", "QUANTILE", "PERCENTILE_CONT", "PERCENTILE_DISC", "APPROX_QUANTILE",
        "APPROX_QUANTILES", "COUNT",
    )},
    "MEAN": DuckDBParser.FUNCTIONS["AVG"],
}  # fmt: skip


class PrivateParser(DuckDBParser):
    """DuckDB's parser; the clause stands where other dialects have hints, so that every consumer sees it."""

    QUERY_MODIFIER_PARSERS: ClassVar[Any] = {
        token: _placed(rule) for token, rule in DuckDBParser.QUERY_MODIFIER_PARSERS.items()
    }
    FUNCTIONS: ClassVar[Any] = {
        **DuckDBParser.FUNCTIONS,
        **{name: _bounded(build) for name, build in _AGGREGATES.items()},
    }
    FUNCTION_PARSERS: ClassVar[Any] = {
        name: rule for name, rule in DuckDBParser.FUNCTION_PARSERS.items() if name not in _AGGREGATES
    }
    _parse_primary = _placed(DuckDBParser._parse_primary)
    _parse_unary = _placed(DuckDBParser._parse_unary)
    _parse_type = _placed(DuckDBParser._parse_type)
    _parse_function_call = _placed(DuckDBParser._parse_function_call)
    _parse_select_query = _placed(DuckDBParser._parse_select_query)
    _parse_with = _placed(DuckDBParser._parse_with)
    _parse_cte = _placed(DuckDBParser._parse_cte)
    _parse_join = _placed(DuckDBParser._parse_join)
    _parse_table = _placed(DuckDBParser._parse_table)
    _parse_table_sample = _placed(DuckDBParser._parse_table_sample)
    _parse_lateral = _placed(DuckDBParser._parse_lateral)
    _parse_pivot = _placed(DuckDBParser._parse_pivot)

    def expression(self, instance: Any, token: Any = None, comments: Any = None) -> Any:
        if isinstance(instance, exp.Distinct) and self._prev and self._prev.token_type in self.DISTINCT_TOKENS:
            instance.meta[START] = self._prev.start
        return super().expression(instance, token, comments)

    def _parse_hint(self) -> Any:
        if not (self._curr and self._curr.token_type == TokenType.WITH):
            return super()._parse_hint()
        start = self._curr
        self._advance()
        if not self._match_text_seq("DIFFERENTIAL_PRIVACY"):
            self.raise_error(MISSPELT)
        options: list[Any] = []
        if self._match_text_seq("OPTIONS"):
            options = self._parse_wrapped_csv(self._parse_assignment, optional=False) or []
        clause = self.expression(DifferentialPrivacy(expressions=options))
        clause.meta[START] = start.start
        return clause


class PrivateDuckDB(DuckDB):
    """DuckDB's SQL with the differential privacy clause."""

    Parser = PrivateParser
