"""Reader of the aggregates of an annotated SELECT: the condition, the operand and the public bounds of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from dpduck.language.rows.expressions import safe_sql, sql_of
from dpduck.language.rows.facts import Clamp, SourceColumn
from dpduck.language.rows.functions import check_row_local
from dpduck.language.rows.predicates import literal
from dpduck.language.rows.scope import resolve
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.options import Options
from dpduck.language.select.private_keys import COUNTED, ONE_PER_GROUP, SELECTED
from dpduck.language.select.request import OPEN_STEPS, TREE, Aggregate, Key, Operand, Treatment
from dpduck.language.select.value_ranges import ClampOf, grid_of, with_clamped_columns
from dpduck.language.text.dialect import BOUNDS
from dpduck.language.text.positions import refusal, word_of
from dpduck.values.domain import RangeDomain, ValueDomain
from dpduck.values.grids import Grid
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

PER_ROW, PER_GROUP = "contribution_bounds_per_row", "contribution_bounds_per_group"
FARTHEST = Fraction(10**15)
OPEN_STEP = Fraction(1, 256)
"""The step of floating-point numbers without bounds. Their grid reaches 2.1 billion on both sides of 0."""
NARROWEST = Fraction(1, 10**9)
MOST_QUANTILES = 100
ACCEPTED = (
    "count, count(DISTINCT ..), sum, avg, var_pop, var_samp, stddev, min, max, median, quantile_cont, approx_quantiles"
)
_COUNTS = "count(*), count(column), count(*) FILTER (WHERE ..), count_if(..)"
_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.VariancePop: "var_pop",
    exp.Variance: "var_samp",
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
}
_FIXED_QUANTILES: dict[type[exp.Expr], Fraction] = {
    exp.Min: Fraction(0),
    exp.Median: Fraction(1, 2),
    exp.Max: Fraction(1),
}
_QUANTILES: dict[type[exp.Expr], str] = {
    exp.PercentileCont: "expression",
    exp.PercentileDisc: "expression",
    exp.Quantile: "quantile",
    exp.ApproxQuantile: "quantile",
}


@dataclass
class AggregateReader:
    """Reader of aggregates over a row source.

    opens: whether sums and averages may take numbers without public bounds, as with max_norm_contributed = 'private'.
    """

    source: RowSource
    types: Mapping[str, str]  # DuckDB types of base columns, by their SQL
    expressions: list[exp.Expr] = field(default_factory=list)  # resolved expressions, for later checks
    conditions: dict[str, exp.Expr] = field(default_factory=dict)  # of FILTER and count_if, by the SQL that runs
    shared: bool = True  # whether count(column) may share the measurement of avg(column)
    opens: bool = False

    def read_aggregate(self, node: exp.Expr) -> tuple[Aggregate, ...]:
        """Reads an aggregate. A list of quantiles gives one aggregate for each element."""
        if isinstance(node, exp.Filter):
            condition = self._boolean(node.expression.this)
            return tuple(
                replace(aggregate, condition=_both(aggregate.condition, condition), text=sql_of(node))
                for aggregate in self.read_aggregate(node.this)
            )
        if isinstance(node, exp.CountIf):
            return (Aggregate(self._boolean(node.this), sql_of(node)),)
        if isinstance(node, exp.Count):
            return (self._count(node),)
        if isinstance(node, exp.ApproxDistinct):
            return (self._distinct(node, node.this),)
        if isinstance(node.this, exp.Distinct):
            raise refusal(node, f"{_name(node)}(DISTINCT ..) is refused", "count(DISTINCT column)")
        if type(node) in _FUNCTIONS:
            return (self._function(node, _FUNCTIONS[type(node)]),)
        fractions, argument = self._fractions(node)
        operand = self._operand(node, argument, "")
        return tuple(Aggregate("", sql_of(node), "quantile", operand, fraction) for fraction in fractions)

    def _count(self, node: exp.Count) -> Aggregate:
        argument, text = node.this, sql_of(node)
        if isinstance(argument, exp.Distinct):
            if len(argument.expressions) != 1:
                raise refusal(node, "count(DISTINCT ..) of several columns is refused", self._units())
            return self._distinct(node, argument.expressions[0])
        if node.expressions:
            raise refusal(node, "count takes one argument", _COUNTS)
        bounds = self._bounds(node)
        if PER_ROW in bounds:
            raise refusal(node, f"{PER_ROW} does not apply to count", f"count(*, {PER_GROUP} => (0, high))")
        condition, operand = "", None
        if argument is not None and not isinstance(argument, (exp.Star, exp.Literal)):
            expression = resolve(argument, self.source.scope)
            check_row_local(expression)
            certain_operand = self._certain(expression)
            if certain_operand is not None and self.shared and not bounds:
                return Aggregate("", text, "count", certain_operand)
            condition = self._safe(exp.Is(this=exp.Paren(this=expression), expression=exp.Null()).not_())
        if PER_GROUP in bounds:
            low, high = bounds[PER_GROUP]
            if low.denominator != 1 or high.denominator != 1 or high > 10**9 or low < 0:
                raise refusal(node, "bounds of a count are whole numbers from 0", f"{PER_GROUP} => (0, high)")
            operand = Operand("", low, high, Fraction(1), "sum")
        return Aggregate(condition, text, "count", operand)

    def _certain(self, expression: exp.Expr) -> Operand | None:
        """Returns the operand of count(column), if the column has a clamp and is no float. Otherwise returns None.

        The measurement of avg(column) then also answers count(column).
        """
        column = expression.unnest()
        if not isinstance(column, exp.Column) or self.source.clamp(column) is None:
            return None
        grid = grid_of(column, self.source.clamp, self.types)
        certain = not sql_type(self.types.get(sql_of(column), "")).is_float
        return (
            self._build_operand(column, column, grid, "", self.source.clamp) if certain and grid is not None else None
        )

    def _distinct(self, node: exp.Expr, argument: exp.Expr) -> Aggregate:
        if isinstance(argument.unnest(), exp.Tuple):
            return self._together(node, argument.unnest())
        column = resolve(argument, self.source.scope).unnest()
        relation, domain = self.source.owner(column), self.source.domain(column)
        if relation is not None and relation.unit_column and fold(column.name) == fold(relation.unit_column):
            present = self._safe(exp.Is(this=column, expression=exp.Null()).not_())
            return Aggregate(present, sql_of(node), "count", ONE_PER_GROUP)
        if isinstance(domain, RangeDomain) and sql_type(domain.type_name).is_integer and domain.step == "1":
            domain = None if domain.with_edges else ValueDomain(domain.type_name, domain.edges)
        others = isinstance(domain, ValueDomain) and domain.other is not None
        if others or (isinstance(domain, RangeDomain) and domain.with_edges):
            raise refusal(
                node,
                "count(DISTINCT ..) takes a column whose values are declared one by one, without OTHER and EDGES",
                "a DOMAIN without WITH OTHER and WITH EDGES, or the privacy unit's column",
            )
        if not isinstance(domain, ValueDomain):
            raise refusal(
                node,
                "count(DISTINCT ..) takes a column whose values are declared",
                "the privacy unit's column, or a column with DOMAIN .. IN (..), FROM a public table, BOOLEAN or ENUM",
            )
        source = SourceColumn(sql_of(column), replace(domain, with_null=False))
        return Aggregate("", sql_of(node), "distinct", None, None, source)

    def _together(self, node: exp.Expr, columns: exp.Expr) -> Aggregate:
        """Reads a count of units that several columns identify. Rows without a unit are never counted."""
        resolved = [resolve(item, self.source.scope).unnest() for item in columns.expressions]
        written = {(item.table, fold(item.name)) if isinstance(item, exp.Column) else None for item in resolved}
        units = [{(column.relation, fold(column.name)) for column in unit.parts} for unit in self.source.together]
        if written not in units:
            raise refusal(node, "count(DISTINCT (..)) takes all columns of a unit", self._units("count(*)"))
        return Aggregate("", sql_of(node), "count", ONE_PER_GROUP)

    def _units(self, other: str = "count(DISTINCT column)") -> str:
        """Writes a count of units over several columns, as it is typed. Returns `other` if units have one column."""
        units = (", ".join(column.name for column in unit.parts) for unit in self.source.together)
        return next((f"count(DISTINCT ({names}))" for names in units), other)

    def _function(self, node: exp.Expr, function: str) -> Aggregate:
        by_group = {"sum": "sum", "avg": "average"}.get(function, "")
        operand = self._operand(node, node.this, by_group)
        counted = condition_of_count(node.this) if function == "sum" and not self._bounds(node) else None
        counts = "" if counted is None else safe_sql(resolve(counted, self.source.scope), self.types)
        return Aggregate("", sql_of(node), function, operand, counts=counts)

    def _operand(self, node: exp.Expr, argument: exp.Expr | None, by_group: str) -> Operand:
        """Reads an aggregate's operand, with the bounds that the policy, the expression or the aggregate declares."""
        if not isinstance(argument, exp.Expr):
            raise refusal(node, f"{_name(node)} takes one column or expression", f"{_name(node)}(column)")
        expression = resolve(argument, self.source.scope)
        check_row_local(expression)
        self.expressions.append(expression)
        bounds = self._bounds(node)
        if PER_GROUP in bounds and not by_group:
            raise refusal(node, f"{PER_GROUP} does not apply to {_name(node)}", f"{PER_ROW} => (low, high)")
        per_group = by_group if PER_GROUP in bounds else ""
        given = bounds.get(PER_GROUP) or bounds.get(PER_ROW)
        clamp_of: ClampOf = self.source.clamp
        grid = None
        if not bounds or not isinstance(expression.unnest(), exp.Column):
            grid = grid_of(expression, self.source.clamp, self.types)
        if given is not None:
            grid = Grid(given[0], given[1], self._step(expression, given))
        elif grid is None:
            clamp_of, grid = self._public_clamp, grid_of(expression, self._public_clamp, self.types)
        opened = grid is None and self.opens and bool(by_group) and not per_group
        if opened:
            grid = self._open(expression)
        if grid is None:
            _require_numbers(argument, self.types.get(sql_of(expression.unnest()), ""))
            accepted = f"{_name(node)}(x, {PER_ROW} => (low, high)), or CLAMP x BETWEEN low AND high in the policy"
            if by_group and isinstance(expression.unnest(), exp.Column):
                accepted += ", or max_norm_contributed = 'private'"
            raise refusal(argument, "these values need public bounds", accepted)
        bounds_of = None if given is not None or opened else clamp_of
        return self._build_operand(argument, expression, grid, per_group, bounds_of, opened)

    def _build_operand(
        self,
        place: exp.Expr,
        expression: exp.Expr,
        grid: Grid | None,
        per_group: str,
        clamp_of: ClampOf | None,
        opened: bool = False,
    ) -> Operand:
        """Builds the operand. clamp_of: the bounds of columns, None if bounds are for the whole expression.

        opened: whether the grid keeps its step, however many steps it has.
        """
        if grid is None or max(abs(grid.low), abs(grid.high)) > FARTHEST or 0 < grid.high - grid.low < NARROWEST:
            raise refusal(place, "these bounds are too far from 0 or too close", "bounds from -1e15 to 1e15")
        settled = grid if opened else grid.align()
        column = expression.unnest()
        kind = sql_type(self.types.get(sql_of(column), "") if isinstance(column, exp.Column) else "")
        plain = kind.is_numeric and kind.bits <= 64
        if plain:
            sql = f"CAST({sql_of(column)} AS DOUBLE)"
        else:
            inner = expression if clamp_of is None else with_clamped_columns(expression, clamp_of, self.types)
            sql = f"try(CAST(({sql_of(inner)}) AS DOUBLE))"
        certain = plain and not kind.is_float
        return Operand(sql, settled.low, settled.high, settled.step, per_group, certain)

    def _open(self, expression: exp.Expr) -> Grid | None:
        """Returns a grid for a column of numbers: OPEN_STEPS steps of its type on each side of 0. Otherwise None."""
        column = expression.unnest()
        if not isinstance(column, exp.Column):
            return None
        floating = sql_type(self.types.get(sql_of(column), "")).is_float
        step = OPEN_STEP if floating else self._step(expression, (Fraction(0), Fraction(0)))
        return Grid(-OPEN_STEPS * step, OPEN_STEPS * step, step) if step else None

    def _step(self, expression: exp.Expr, bounds: tuple[Fraction, Fraction]) -> Fraction:
        """Returns a column's own step if it divides both bounds. Otherwise returns 0, and a step is chosen later."""
        column = expression.unnest()
        if not isinstance(column, exp.Column):
            return Fraction(0)
        clamp, kind = self.source.clamp(column), sql_type(self.types.get(sql_of(column), ""))
        step = Fraction(0)
        if clamp is not None:
            step = Fraction(clamp.step)
        elif kind.is_integer or kind.is_decimal:
            step = Fraction(1, 10**kind.scale)
        fits = step and all(bound % step == 0 for bound in bounds)
        return step if fits else Fraction(0)

    def _bounds(self, node: exp.Expr) -> dict[str, tuple[Fraction, Fraction]]:
        """Reads contribution_bounds_per_row and contribution_bounds_per_group from the arguments of an aggregate."""
        bounds: dict[str, tuple[Fraction, Fraction]] = {}
        for bound in node.meta.get(BOUNDS) or []:
            name = str(bound.this.name).lower()
            if name not in (PER_ROW, PER_GROUP):
                raise refusal(
                    node, f"the argument {name!r} is unknown", f"{PER_ROW} => (low, high), {PER_GROUP} => (low, high)"
                )
            pair = bound.expression.expressions if isinstance(bound.expression, exp.Tuple) else []
            values = [literal(value) for value in pair]
            if len(values) != 2 or values[0] is None or values[1] is None or values[0] >= values[1]:
                raise refusal(node, f"{name} takes two numbers, the lower one first", f"{name} => (low, high)")
            if bounds:
                raise refusal(node, "bounds are given twice", f"{PER_ROW} or {PER_GROUP}, once")
            bounds[name] = (values[0], values[1])
        if PER_GROUP in bounds and self.source.first.policy.unit.column is None:
            raise refusal(node, f"with PRIVACY UNIT ROW every row is a unit: {PER_GROUP} is refused", PER_ROW)
        return bounds

    def _fractions(self, node: exp.Expr) -> tuple[list[Fraction], exp.Expr | None]:
        """Returns the requested quantiles, and their argument."""
        if type(node) in _FIXED_QUANTILES:
            if any(value for name, value in node.args.items() if name != "this"):
                raise refusal(node, f"{_name(node)} takes one column or expression", f"{_name(node)}(column)")
            return [_FIXED_QUANTILES[type(node)]], node.this
        if isinstance(node, exp.WithinGroup):
            ordered = node.expression.expressions if isinstance(node.expression, exp.Order) else []
            if len(ordered) == 1 and isinstance(node.this, (exp.PercentileCont, exp.PercentileDisc)):
                fractions = [_fraction(node, part) for part in _elements(node.this.this)]
                node.meta[BOUNDS] = node.this.meta.get(BOUNDS)
                descending = bool(ordered[0].args.get("desc"))
                return [1 - fraction if descending else fraction for fraction in fractions], ordered[0].this
        if isinstance(node, exp.ApproxQuantiles):
            number = literal(node.expression) if isinstance(node.expression, exp.Expr) else None
            if number is None or number.denominator != 1 or not 1 <= number < MOST_QUANTILES:
                raise refusal(node, "approx_quantiles takes the number of parts", "approx_quantiles(column, 4)")
            return [Fraction(part, int(number)) for part in range(int(number) + 1)], node.this
        if type(node) in _QUANTILES:
            return [_fraction(node, part) for part in _elements(node.args.get(_QUANTILES[type(node)]))], node.this
        raise refusal(node, f"the aggregate {_name(node)} is refused", ACCEPTED)

    def _public_clamp(self, column: exp.Column) -> Clamp | None:
        """Returns the clamp of a column, or its RANGE domain as a clamp, which moves values outside to a bound.

        For integers, the upper bound is the last value inside. Other types get the step 0, like clamps without a step.
        """
        clamp = self.source.clamp(column)
        domain = self.source.domain(column) if clamp is None else None
        if not isinstance(domain, RangeDomain) or domain.unit:
            return clamp
        if sql_type(domain.type_name).is_integer:
            return Clamp(column.name, domain.edges[0], str(int(domain.upper) - 1), "1")
        return Clamp(column.name, domain.edges[0], domain.upper, "0")

    def _boolean(self, node: exp.Expr) -> str:
        expression = resolve(node, self.source.scope)
        check_row_local(expression)
        text = self._safe(expression)
        self.conditions[text] = expression
        return text

    def _safe(self, expression: exp.Expr) -> str:
        self.expressions.append(expression)
        return safe_sql(expression, self.types)


def condition_of_count(value: exp.Expr) -> exp.Expr | None:
    """Returns c of CASE WHEN c THEN 1 ELSE 0 END or IF(c, 1, 0), with 0 or NULL. None for any other value."""
    node = value.unnest()
    branches = node.args["ifs"] if isinstance(node, exp.Case) and node.this is None else [node]
    if len(branches) != 1 or not isinstance(branches[0], exp.If):
        return None
    branch: exp.If = branches[0]
    other = node.args.get("default" if isinstance(node, exp.Case) else "false")
    nothing = other is None or isinstance(other.unnest(), exp.Null) or literal(other) == 0
    return branch.this if nothing and literal(branch.args["true"]) == 1 else None


def is_list(node: exp.Expr) -> bool:
    """Tells whether an aggregate returns a list."""
    if isinstance(node, exp.Filter):
        return is_list(node.this)
    if isinstance(node, exp.WithinGroup):
        return isinstance(node.this.this, exp.Array)
    return isinstance(node, exp.ApproxQuantiles) or isinstance(node.args.get(_QUANTILES.get(type(node), "")), exp.Array)


def _require_numbers(column: exp.Expr, type_name: str) -> None:
    """Refuses a column that is not numeric, because no bounds would help. Other expressions have the type ""."""
    if type_name and not sql_type(type_name).is_numeric:
        kind = sql_type(type_name).word
        bounded = f"; or TRY_CAST({column.name} AS DOUBLE), {PER_ROW} => (low, high)"
        way = {"BOOLEAN": f"; or CAST({column.name} AS INTEGER)", "VARCHAR": bounded}.get(kind, "")
        raise refusal(column, f"{column.name} is {kind}", f"a numeric column{way}")


def _elements(node: exp.Expr | None) -> list[exp.Expr | None]:
    return list(node.expressions) if isinstance(node, exp.Array) else [node]


def _fraction(node: exp.Expr, part: exp.Expr | None) -> Fraction:
    value = literal(part) if part is not None else None
    if value is None or not 0 <= value <= 1:
        raise refusal(node, "a quantile is a literal from 0 to 1", "quantile_cont(column, 0.5)")
    return value


def _both(first: str, second: str) -> str:
    return f"({first}) AND ({second})" if first else second


def _name(node: exp.Expr) -> str:
    return word_of(node) or (node.sql_name().lower() if isinstance(node, exp.Func) else node.key)


# Checks that options and aggregates fit together. They read the statement alone, and refuse it before the charge.


def check_groups(
    aggregates: Sequence[Aggregate], keys: Sequence[Key], sets: Sequence[tuple[int, ...]], place: exp.Expr
) -> None:
    """Refuses contribution_bounds_per_group if released groups overlap, or add up several measured groups."""
    by_group = [aggregate for aggregate in aggregates if aggregate.operand is not None and aggregate.operand.per_group]
    others = [key for key in keys if by_group and not _one_to_one(key)]
    if by_group and (len(sets) != 1 or others):
        of_expression = len(sets) == 1 and not others[0].shape
        groups = "groups of an expression are made of several values each" if of_expression else "these groups overlap"
        raise refusal(
            place,
            f"{by_group[0].text[:60]} bounds what a unit adds to a group, and {groups}",
            "one plain GROUP BY of columns" + "; of an expression: a stored column of it with a DOMAIN" * of_expression,
        )


def _one_to_one(key: Key) -> bool:
    codes = [code for code in key.codes if code >= 0]
    return len(key.sources) == 1 and len(set(codes)) == len(codes) and not key.shape


def check_treatment(options: Options, aggregates: Sequence[Aggregate], keys: Sequence[Key], place: exp.Expr) -> None:
    """Refuses options and ranges that do not fit the aggregates, and a wrong number of weights."""
    treatment = options.treatment
    others = [agg for agg in aggregates if agg.function != "count"]
    if others and (treatment.integer or treatment.nonnegative):
        raise refusal(
            place,
            f"nonnegative and integer are for counts, and {others[0].text[:60]} is none",
            "round(..) or greatest(.., 0) in the select list",
        )
    if options.selection is not None and any(agg.function not in (*SELECTED, "distinct") for agg in others):
        raise refusal(place, *COUNTED)
    if options.target_stderr is not None and any(agg.function != "count" or agg.operand for agg in aggregates):
        raise refusal(place, "target_stderr is for counts of rows", "epsilon = .. or rho = ..")
    if treatment.aggregate_weights and options.target_stderr is not None:
        raise refusal(
            place,
            "target_stderr sets the error of every aggregate, so aggregate_weights change nothing",
            "target_stderr without aggregate_weights",
        )
    if treatment.aggregate_weights and len(treatment.aggregate_weights) != len(aggregates):
        raise refusal(
            place,
            f"{len(treatment.aggregate_weights)} aggregate_weights for {len(aggregates)} aggregates",
            f"one weight for each of {', '.join(agg.text[:40] for agg in aggregates[:6])}",
        )
    has_quantile_options = treatment.quantiles != Treatment.quantiles or not treatment.quantile_intervals
    if has_quantile_options and not any(agg.is_quantile for agg in aggregates):
        raise refusal(place, "the option quantiles needs a quantile, and the statement has none", "median(column)")
    if treatment.quantiles == TREE and not treatment.quantile_intervals:
        raise refusal(
            place,
            "the intervals of quantiles = 'tree' cost nothing, so quantile_intervals changes nothing",
            "quantile_intervals = FALSE without quantiles = 'tree'",
        )
    alone = [agg for agg in aggregates if agg.function in ("quantile", "distinct")]
    if alone and (any(key.shape for key in keys) or treatment.strategy_table):
        raise refusal(
            place, f"{alone[0].text[:60]} is not answered for PREFIXES or RANGES", "GROUP BY the column itself"
        )
