"""Features of one privacy unit's rows: aggregates and windows of a statement, as frozen values.

The kernel writes the SQL that runs (kernel/rows/features.py). The SQL here has the same meaning, but only DuckDB's
binder and digests read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from dpduck.kernel.columns.expressions import Expression
from dpduck.kernel.columns.expressions import RelationColumn as RowColumn
from dpduck.kernel.relations import Feature, OrderItem, RowValue
from dpduck.kernel.units import person_of
from dpduck.language.rows.compiled import condition_of, program_of
from dpduck.language.rows.expressions import safe_sql, sql_of
from dpduck.language.rows.facts import Clamp, PublicFacts
from dpduck.language.rows.functions import check_row_local
from dpduck.language.rows.sql import bound_type, plain_sql
from dpduck.language.rows.tree import RowSource
from dpduck.language.text.positions import refusal
from dpduck.values.domain import Domain, ValueDomain
from dpduck.values.sqltypes import decimal_name, sql_type

FORMS = "count, min, max, sum, first(x ORDER BY y), last(x ORDER BY y), arg_min, arg_max, any_value, bool_or, bool_and"
WINDOWS = (
    "row_number, rank, dense_rank, lag, lead, first_value, count, sum, min, max, bool_or, bool_and "
    "OVER (PARTITION BY the privacy unit's column ORDER BY ..)"
)
MOST_DISTANCE = 10_000
_OF_VALUE: Mapping[type[exp.Expr], str] = {
    exp.Min: "min", exp.Max: "max", exp.Sum: "sum", exp.LogicalOr: "any", exp.LogicalAnd: "all",
}  # fmt: skip
_WRITTEN = {"any": "bool_or", "all": "bool_and", "first": "first_value"}
_NUMBERED: Mapping[type[exp.Expr], str] = {
    exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank",
}  # fmt: skip
_BESIDE: Mapping[type[exp.Expr], str] = {exp.Lag: "lag", exp.Lead: "lead"}


@dataclass(frozen=True)
class FeatureColumn:
    """Column computed from one unit's rows."""

    sql: str  # for DuckDB's binder
    type_name: str
    feature: Feature | None = None  # None for a count of the rows that meet `condition`
    condition: str = ""
    counts: bool = False  # whether the column is a number of rows
    domain: Domain | None = None
    clamp: Clamp | None = None
    written: tuple[exp.Expr, ...] = ()  # the expressions of the statement that are evaluated over each row


def is_made(node: exp.Expr) -> bool:
    """Tells whether an expression is one aggregate of rows, with or without FILTER."""
    return isinstance(node, (exp.AggFunc, exp.Filter, exp.IgnoreNulls))


class FeatureReader:
    """Reader of aggregates and windows over the rows of a source. Columns must be resolved (scope.resolve)."""

    def __init__(self, source: RowSource, facts: PublicFacts) -> None:
        self._source, self._facts, self._types, self._columns = source, facts, source.types, source.columns

    def read_aggregate(self, node: exp.Expr) -> FeatureColumn:
        node, filters = _split_filter(node)
        if isinstance(node, (exp.Count, exp.CountIf)):
            return self._count(node, filters)
        form = _OF_VALUE.get(type(node))
        if form is not None:
            return self._of_value(form, node, filters)
        if isinstance(node, (exp.First, exp.Last)):
            return self._first(node, filters)
        if isinstance(node, (exp.ArgMin, exp.ArgMax)) and not node.args.get("count"):
            place = exp.Ordered(this=node.expression.copy(), desc=isinstance(node, exp.ArgMax), nulls_first=False)
            there = exp.and_(_is_there(node.this), _is_there(node.expression), *filters)
            return self._read_first(node, [place], [there])
        if isinstance(node, exp.AnyValue):
            return self._read_first(node, [], [exp.and_(_is_there(node.this), *filters)])
        raise refusal(node, "this is refused in a subquery with a row for each privacy unit", FORMS)

    def window(self, node: exp.Expr) -> FeatureColumn:
        """Reads a window function, which runs over the rows of one unit."""
        other = {part for part, value in node.args.items() if value} - {"this", "partition_by", "order", "over"}
        function, filters = _split_filter(node.this)
        if other or isinstance(function, exp.IgnoreNulls):
            raise refusal(node, "this form of a window is refused over private rows", WINDOWS)
        order = node.args.get("order")
        places, written = self._places(order.expressions if order is not None else [])
        by = f" ORDER BY {', '.join(map(_place_sql, places))}" if places else ""
        unit = person_of(self._source.unit)
        over = f" OVER (PARTITION BY {'' if unit is None else unit.sql}{by})"
        form = None if any(function.args.values()) else _NUMBERED.get(type(function))
        if form is not None and not filters and (places or form == "row_number"):
            feature = Feature(form, "", order=places)
            return FeatureColumn(f"{form}(){over}", "BIGINT", feature, counts=True, written=written)
        if isinstance(function, (exp.FirstValue, *_BESIDE)) and not filters and places:
            return self._beside(function, places, over, written)
        if isinstance(function, (exp.Count, exp.CountIf)):
            column = self._count(function, filters)
            feature = Feature("count", "", condition=self._compile_condition(column.condition), order=places)
        elif type(function) in _OF_VALUE:
            column = self._of_value(_OF_VALUE[type(function)], function, filters)
            feature = replace(column.feature or Feature("", ""), order=places)
        else:
            raise refusal(node, "this window is refused over private rows", WINDOWS)
        if feature.form == "distinct" or (column.feature is not None and column.feature.form == "distinct"):
            raise refusal(function, "DISTINCT in a window is refused over private rows", WINDOWS)
        return replace(column, sql=f"{column.sql}{over}", feature=feature, written=(*column.written, *written))

    def _count(self, node: exp.Expr, filters: list[exp.Expr]) -> FeatureColumn:
        inside = node.this
        if node.expressions or (isinstance(inside, exp.Distinct) and len(inside.expressions) != 1):
            raise refusal(node, "this is refused in a subquery with a row for each privacy unit", FORMS)
        if isinstance(inside, exp.Distinct):
            operand, value = self._operand(inside.expressions[0])
            condition = self._condition(filters)
            sql = f"count(DISTINCT {_where(condition, operand)})"
            feature = Feature("distinct", "", operand, self._compile_condition(condition))
            return FeatureColumn(sql, "BIGINT", feature, counts=True, written=(value, *filters))
        if inside is None or isinstance(inside, (exp.Star, exp.Literal)):
            counted: list[exp.Expr] = []
            asked = counted
        else:
            check_row_local(inside)
            counted, asked = [inside], [inside if isinstance(node, exp.CountIf) else _is_there(inside)]
        if isinstance(node, exp.CountIf):
            self._condition(asked)
        condition = self._condition(filters, asked)
        sql = f"count(CASE WHEN {condition} THEN 1 END)" if condition else "count(*)"
        return FeatureColumn(sql, "BIGINT", condition=condition, counts=True, written=(*counted, *filters))

    def _of_value(self, form: str, node: exp.Expr, filters: list[exp.Expr]) -> FeatureColumn:
        if node.expressions or isinstance(node.this, exp.Distinct):
            raise refusal(node, "this is refused in a subquery with a row for each privacy unit", FORMS)
        operand, value = self._operand(node.this)
        type_name = self._type_of(form, operand, node)
        condition = self._condition(filters)
        sql = f"{_WRITTEN.get(form, form)}({_where(condition, operand)})"
        column = FeatureColumn(
            sql, type_name, Feature(form, "", operand, self._compile_condition(condition)), written=(value, *filters)
        )
        if form in ("min", "max"):
            return self._with_domain(column, value)
        return replace(column, domain=_TRUTH) if form in ("any", "all") else column

    def _type_of(self, form: str, operand: RowValue, place: exp.Expr) -> str:
        kind = operand.type_name
        if form in ("any", "all"):
            if kind != "BOOLEAN":
                raise refusal(place, f"a condition is {kind}", "a condition such as sex = 'F', which is true or false")
            return kind
        if form != "sum":
            return kind
        if not sql_type(kind).fits_64_bits:
            raise refusal(
                place,
                f"a sum of {sql_type(kind).word} may overflow, or depend on the order of rows",
                "sum(CAST(x AS DECIMAL(18, 4))), or of whole numbers of at most 64 bits",
            )
        added = sql_type(kind)
        return decimal_name(38, added.scale) if added.is_decimal else "HUGEINT"

    def _first(self, node: exp.Expr, filters: list[exp.Expr]) -> FeatureColumn:
        order = node.this
        if not isinstance(order, exp.Order):
            raise refusal(node, "first without ORDER BY is refused", "first(x ORDER BY admitted), any_value(x)")
        places = [place.copy() for place in order.expressions]
        if isinstance(node, exp.Last):
            for place in places:
                place.set("nulls_first", not place.args.get("nulls_first"))
                place.set("desc", not place.args.get("desc"))
        return self._read_first(order, places, filters)

    def _read_first(self, node: exp.Expr, ordered: list[exp.Expr], filters: list[exp.Expr]) -> FeatureColumn:
        operand, value = self._operand(node.this)
        places, written = self._places(ordered)
        condition = self._condition(filters)
        by = f" ORDER BY {', '.join(map(_place_sql, places))}" if places else ""
        sql = f"first({_operand_sql(operand)}{by})" + (f" FILTER (WHERE {condition})" if condition else "")
        feature = Feature("first", "", operand, self._compile_condition(condition), places)
        column = FeatureColumn(sql, operand.type_name, feature, written=(value, *written, *filters))
        return self._with_domain(column, value)

    def _beside(
        self, node: exp.Expr, places: tuple[OrderItem, ...], over: str, written: tuple[exp.Expr, ...]
    ) -> FeatureColumn:
        """Reads the value of another row of the unit: lag, lead or first_value."""
        form, distance = _BESIDE.get(type(node), "first"), node.args.get("offset")
        is_number = isinstance(distance, exp.Literal) and distance.is_int
        most = 1 if distance is None else int(distance.name[:9]) if is_number else MOST_DISTANCE + 1
        if node.args.get("default") is not None or most > MOST_DISTANCE:
            raise refusal(node, "this form of lag or lead is refused", f"lag(x), lag(x, 2), up to {MOST_DISTANCE}")
        operand, value = self._operand(node.this)
        more = f", {most}" if form in ("lag", "lead") else ""
        sql = f"{_WRITTEN.get(form, form)}({_operand_sql(operand)}{more}){over}"
        feature = Feature(form, "", operand, order=places, distance=most)
        return self._with_domain(FeatureColumn(sql, operand.type_name, feature, written=(value, *written)), value)

    def _with_domain(self, column: FeatureColumn, value: exp.Expr) -> FeatureColumn:
        node = value.unnest()
        if self._source.owner(node) is None:
            return replace(column, domain=_TRUTH) if column.type_name == "BOOLEAN" else column
        domain = self._source.domain(node)
        if domain is not None and column.feature is not None and column.feature.form in ("lag", "lead"):
            domain = replace(domain, with_null=True)  # the first row, or the last, has no neighbour
        return replace(column, domain=domain, clamp=self._source.clamp(node))

    def _places(self, ordered: list[exp.Expr]) -> tuple[tuple[OrderItem, ...], tuple[exp.Expr, ...]]:
        places, written = list[OrderItem](), list[exp.Expr]()
        for item in ordered:
            if not isinstance(item, exp.Ordered) or item.args.get("with_fill"):
                raise refusal(item, "this order is refused", "ORDER BY columns, ASC or DESC, NULLS FIRST or LAST")
            operand, value = self._operand(item.this)
            written.append(value)
            places.append(OrderItem(operand, bool(item.args.get("desc")), bool(item.args.get("nulls_first"))))
        return tuple(places), tuple(written)

    def _operand(self, value: exp.Expr) -> tuple[RowValue, exp.Expr]:
        node = value.unnest()
        if isinstance(node, exp.Column):
            operand = RowValue(self._columns[plain_sql(node)], self._types[sql_of(node)])
        else:
            check_row_local(node)
            if not any(True for _ in node.find_all(exp.Column)):
                raise refusal(value, "a constant is refused here", "a column, or an expression over columns")
            operand = RowValue(program_of(sql_of(node), self._columns), bound_type(node, self._source, self._facts))
        self._require_compared(operand, value, computed=not isinstance(node, exp.Column))
        return operand, node

    def _require_compared(self, operand: RowValue, place: exp.Expr, *, computed: bool) -> None:
        kind = operand.type_name
        if not (sql_type(kind).travels if computed else sql_type(kind).is_feature):
            raise refusal(
                place,
                f"a value of a privacy unit's rows is {sql_type(kind).word}, which is refused",
                "numbers of at most 64 bits, texts, BOOLEAN, DATE and TIMESTAMP; or a CAST to one",
            )
        if kind == "VARCHAR" and any(self._facts.has_collations(table) for table in self._source.every_table):
            raise refusal(place, "a COLLATION makes texts equal that are different", "a table without COLLATE")

    def _condition(self, filters: list[exp.Expr], asked: list[exp.Expr] | None = None) -> str:
        """Writes the conditions of FILTER and of the aggregate itself (`asked`), joined by AND. "" means all rows."""
        for node in filters:
            check_row_local(node)
            kind = bound_type(node, self._source, self._facts)
            if kind not in ("BOOLEAN", '"NULL"', "NULL"):
                raise refusal(node, f"a condition is {kind}", "a condition such as sex = 'F', which is true or false")
        both = [*(asked or []), *filters]
        return safe_sql(exp.and_(*both) if len(both) > 1 else both[0], self._types) if both else ""

    def _compile_condition(self, condition: str) -> Expression | None:
        return condition_of(condition, self._columns) if condition else None


_TRUTH = ValueDomain("BOOLEAN", ("false", "true"), with_null=True)


def _split_filter(node: exp.Expr) -> tuple[exp.Expr, list[exp.Expr]]:
    """Splits an aggregate from its FILTER. Returns the aggregate, and a list with the condition if there is one."""
    filters = list[exp.Expr]()
    if isinstance(node, exp.Filter):
        filters, node = [node.expression.this], node.this
    if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
        node = node.this
    return node, filters


def _is_there(value: exp.Expr) -> exp.Expr:
    return exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()).not_()


def _operand_sql(operand: RowValue) -> str:
    return operand.value.sql if isinstance(operand.value, RowColumn) else f"try({operand.value.sql})"


def _where(condition: str, operand: RowValue) -> str:
    value = _operand_sql(operand)
    return f"CASE WHEN {condition} THEN {value} END" if condition else value


def _place_sql(place: OrderItem) -> str:
    way, nulls = "DESC" if place.descending else "ASC", "FIRST" if place.nulls_first else "LAST"
    return f"try({place.operand.value.sql}) {way} NULLS {nulls}"
