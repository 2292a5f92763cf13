"""Select list, HAVING, QUALIFY and ORDER BY as expressions over the released table: post-processing, free of charge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.functions import (
    FUNCTIONS,
    NAMED_FUNCTIONS,
    OPERATORS,
    STRUCTURE,
    check_arguments,
    check_row_local,
)
from dpduck.language.rows.scope import Scope, resolve
from dpduck.language.select.aggregates import AggregateReader, is_list
from dpduck.language.select.request import Aggregate
from dpduck.language.text.dialect import MAX_DEPTH
from dpduck.language.text.names import (
    GROUPING_ID,
    PRICE_EPSILON,
    PRICE_RHO,
    RELEASED,
    answer_column,
    high_column,
    low_column,
    margin_column,
    stderr_column,
)
from dpduck.language.text.positions import refusal
from dpduck.values.quoting import fold

WINDOW_FUNCTIONS = (
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue,
    exp.LastValue, exp.NthValue, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count, exp.Median, exp.Stddev, exp.Variance,
)  # fmt: skip
_WINDOW_PARTS = (exp.Window, exp.WindowSpec, exp.Order, exp.Ordered)
_POST_PROCESSING = STRUCTURE + OPERATORS + FUNCTIONS + _WINDOW_PARTS
ERROR_BARS = {"dp_stderr": stderr_column, "dp_interval_low": margin_column, "dp_interval_high": margin_column}
PRICES = {"dp_epsilon": PRICE_EPSILON, "dp_rho": PRICE_RHO}  # of the whole answer. With Gaussian noise, epsilon is NULL


@dataclass
class AnswerReader:
    """Rewriter of a SELECT's expressions for the released table. It collects the aggregates that must be measured."""

    scope: Scope
    keys: Mapping[str, str]  # the released column of each key, by its canonical SQL
    key_order: tuple[str, ...]
    reader: AggregateReader
    aliases: Mapping[str, exp.Expr]  # select items by lower-case alias
    aggregates: list[Aggregate] = field(default_factory=list)
    enums: Mapping[str, str] = field(default_factory=dict)  # the ENUM type of each key that has one, by name
    moved: bool = False  # whether answers change after the noise, so that they are not the centres of intervals

    def rewrite(self, node: exp.Expr, use_aliases: bool = False) -> exp.Expr:
        if isinstance(node, exp.Column):
            return self._column(node, use_aliases)
        matched = self._as_key(node)
        if matched is not None:
            return matched
        if _is_aggregate(node):
            return self._answer(node)
        if isinstance(node, (exp.Grouping, exp.GroupingId)):
            return self._grouping(node)
        if isinstance(node, exp.Anonymous) and _name(node) in PRICES:
            if node.expressions:
                raise refusal(node, f"{_name(node)} takes no arguments", f"{_name(node)}()")
            return column_of_release(PRICES[_name(node)])
        if isinstance(node, exp.Anonymous) and _name(node) in ERROR_BARS:
            return self._error_bar(node, use_aliases)
        if isinstance(node, exp.Window):
            return self._window(node, use_aliases)
        if isinstance(node, exp.Ordered):
            return self._order_element(node, use_aliases)
        self._check_allowed(node)
        return self._rebuild(node, use_aliases)

    def key_of(self, node: exp.Expr) -> str | None:
        """Returns the released name of a key of GROUP BY, None for other expressions."""
        key = self._as_key(node)
        return None if key is None else str(key.name)

    def number_of(self, node: exp.Expr) -> int | None:
        """Returns the number of a single aggregate. None for other expressions, such as a list."""
        node = node.unnest()
        return None if not _is_aggregate(node) or is_list(node) else self._aggregates(node)[0]

    def _column(self, node: exp.Column, use_aliases: bool) -> exp.Expr:
        if use_aliases and not node.table and fold(node.name) in self.aliases:
            aliased = self.aliases[fold(node.name)]
            if not (isinstance(aliased, exp.Column) and fold(aliased.name) == fold(node.name)):
                return exp.Paren(this=self.rewrite(aliased))
        matched = self._as_key(node)
        if matched is None:
            self.scope.lookup(node)
            if not self.keys and node.find_ancestor(exp.Window) is not None:
                raise refusal(
                    node,
                    "a window over private rows is refused",
                    "a window over the answers: rank() OVER (ORDER BY count(*))",
                )
            raise refusal(
                node,
                f"the column {node.name!r} is neither grouped nor counted",
                "a column of GROUP BY, or count(column)",
            )
        return matched

    def _as_key(self, node: exp.Expr) -> exp.Column | None:
        """Returns the released column of a node that is a key of GROUP BY as a whole. None for other nodes."""
        if not self.keys or isinstance(node, (exp.Literal, exp.Ordered, exp.Order)):
            return None
        longest = max(map(len, self.keys)) + MAX_DEPTH  # each node has at least one character, except outer parentheses
        if any(True for _ in islice(node.walk(), longest, None)):
            return None
        columns = list(node.find_all(exp.Column))
        if not columns or node.find(exp.AggFunc, exp.Window):
            return None
        if any(len(self.scope.find(column)) != 1 for column in columns):
            return None
        name = self.keys.get(sql_of(resolve(node, self.scope).unnest()))
        return column_of_release(name) if name is not None else None

    def _aggregates(self, node: exp.Expr) -> list[int]:
        """Returns the numbers of a node's released aggregates. Only a list has several."""
        aggregates = self.reader.read_aggregate(node)
        self.aggregates += [aggregate for aggregate in dict.fromkeys(aggregates) if aggregate not in self.aggregates]
        return [self.aggregates.index(aggregate) for aggregate in aggregates]

    def _answer(self, node: exp.Expr) -> exp.Expr:
        columns = [column_of_release(answer_column(number)) for number in self._aggregates(node)]
        return exp.Array(expressions=columns) if is_list(node) else columns[0]

    def _grouping(self, node: exp.Expr) -> exp.Expr:
        """Rewrites GROUPING(a, b): a bit for each column, 1 if the column is rolled up. The last column has bit 0."""
        bits: exp.Expr | None = None
        for argument in node.expressions:
            key = self._as_key(argument)
            if key is None:
                raise refusal(argument, "GROUPING takes columns of GROUP BY", ", ".join(self.key_order))
            bit = rolled_up_bit(self.key_order.index(key.name))
            bits = (
                bit
                if bits is None
                else exp.Add(this=exp.Mul(this=exp.Literal.number(2), expression=exp.Paren(this=bits)), expression=bit)
            )
        if bits is None:
            raise refusal(node, "GROUPING takes columns of GROUP BY", ", ".join(self.key_order))
        return exp.Paren(this=bits)

    def _error_bar(self, node: exp.Anonymous, use_aliases: bool) -> exp.Expr:
        name, arguments = _name(node), node.expressions
        answered = arguments[0].unnest() if len(arguments) == 1 else node
        if isinstance(answered, exp.Column) and not answered.table and fold(answered.name) in self.aliases:
            answered = self.aliases[fold(answered.name)]
        if len(arguments) != 1 or not _is_aggregate(answered) or is_list(answered):
            raise refusal(
                node, f"{name} takes an aggregate or the alias of one", f"{name}(n) where count(*) AS n is selected"
            )
        number = self._aggregates(answered)[0]
        if name != "dp_stderr" and (self.moved or self.aggregates[number].has_curved_error):
            return column_of_release(low_column(number) if name == "dp_interval_low" else high_column(number))
        column = column_of_release(ERROR_BARS[name](number))
        if name == "dp_stderr":
            return column
        sides = {"this": column_of_release(answer_column(number)), "expression": column}
        return exp.Paren(this=exp.Sub(**sides) if name == "dp_interval_low" else exp.Add(**sides))

    def _window(self, node: exp.Window, use_aliases: bool) -> exp.Expr:
        function = node.this
        if not isinstance(function, WINDOW_FUNCTIONS):
            raise refusal(
                node, "this window function is refused", "rank, row_number, sum, avg, min, max, lag, lead, ntile .."
            )
        rebuilt = self._rebuild(node, use_aliases, skip="this")
        rebuilt.set("this", self._rebuild(function, use_aliases))
        return rebuilt

    def _order_element(self, node: exp.Ordered, use_aliases: bool) -> exp.Expr:
        """Rewrites an element of ORDER BY. ENUM keys are released as texts, and sorted in the order of the ENUM."""
        rebuilt = self._rebuild(node, use_aliases)
        key = rebuilt.this.unnest()
        if isinstance(key, exp.Column) and key.name in self.enums:
            rebuilt.set("this", exp.cast(key.copy(), self.enums[key.name], dialect="duckdb"))
        return rebuilt

    def is_enum(self, expression: exp.Expr) -> bool:
        """Tells whether an item of the select list is a key of an ENUM type."""
        key = self._as_key(expression)
        return key is not None and key.name in self.enums

    def _check_allowed(self, node: exp.Expr) -> None:
        check_arguments(node)
        if type(node) in _POST_PROCESSING or isinstance(node, (exp.Star, exp.Alias)):
            return
        if isinstance(node, exp.Anonymous) and _name(node) in NAMED_FUNCTIONS:
            return
        check_row_local(node)

    def _rebuild(self, node: exp.Expr, use_aliases: bool, skip: str = "") -> exp.Expr:
        rebuilt = type(node)()  # copy() would copy the whole subtree at each level
        rebuilt.meta.update(node.meta)
        for key, value in node.args.items():
            unchanged = key == skip or isinstance(value, (exp.Identifier, exp.Var, exp.DataType))
            if isinstance(value, list) and not unchanged:
                rebuilt.set(
                    key, [self.rewrite(item, use_aliases) if isinstance(item, exp.Expr) else item for item in value]
                )
            elif isinstance(value, exp.Expr):
                rebuilt.set(key, value.copy() if unchanged else self.rewrite(value, use_aliases))
            else:
                rebuilt.args[key] = value
        return rebuilt


def column_of_release(name: str) -> exp.Column:
    """Returns a column of the released table."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(RELEASED, quoted=True))


def rolled_up_bit(key: int) -> exp.Paren:
    """Returns an expression over a row of the released table: 1 if the row rolls up the key of this number, else 0."""
    shifted = exp.BitwiseRightShift(this=column_of_release(GROUPING_ID), expression=exp.Literal.number(key))
    return exp.Paren(this=exp.BitwiseAnd(this=exp.Paren(this=shifted), expression=exp.Literal.number(1)))


def alias_item(expression: exp.Expr, name: str) -> exp.Expr:
    """Returns the expression as an item of a select list, under a name."""
    return exp.alias_(expression, exp.to_identifier(name, quoted=True))


def has_aggregate(node: exp.Expr) -> bool:
    """Tells whether an expression depends on noisy answers rather than on keys alone."""
    names = {_name(inner) for inner in node.find_all(exp.Anonymous)}
    return node.find(exp.AggFunc, exp.Window) is not None or bool(names & set(ERROR_BARS))


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, (exp.Filter, exp.WithinGroup)) or (
        isinstance(node, exp.AggFunc) and not isinstance(node, (exp.Grouping, exp.GroupingId))
    )


def _name(node: exp.Anonymous) -> str:
    return str(node.this).lower()
