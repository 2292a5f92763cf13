"""Group keys: columns with a public domain, and expressions that DuckDB evaluates over all values of such domains.

GROUP BY is read here as sets of key expressions: plain lists, ALL, CUBE, ROLLUP, GROUPING SETS and MARGINALS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from math import comb, prod

from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import ImageInput, PublicFacts, SourceColumn
from dpduck.language.rows.functions import check_row_local
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.bin_probes import misplaces, values_to_try
from dpduck.language.select.private_keys import SELECTING, build_private_key
from dpduck.language.select.request import Key
from dpduck.language.text.names import is_reserved
from dpduck.language.text.positions import position_of, refusal
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

MAX_GROUPING_SETS = 200_000
MAX_KEYS = 60
RANGE_SHAPES = ("prefixes", "ranges")
RANGE_END = "range_end"
Sets = list[tuple[str, ...]]


def range_text(function: str, column: str) -> str:
    """Writes canonical SQL of a key over ranges, or of range_end, from the SQL of its column."""
    return f"{function}({column})"


@dataclass(frozen=True)
class Grouping:
    """Grouping of a SELECT. keys: distinct keys by canonical SQL, in order of appearance. sets: tuples of such texts.

    A repeated set stays repeated, as in SQL: GROUPING SETS ((a), (a)) answers every cell twice.
    """

    keys: tuple[tuple[str, exp.Expr], ...]
    sets: tuple[tuple[str, ...], ...]


class _GroupingReader:
    """Reader of GROUP BY that collects the keys while it builds the sets."""

    def __init__(self, key_of: Callable[[exp.Expr], exp.Expr]) -> None:
        self.key_of = key_of
        self.keys: dict[str, exp.Expr] = {}

    def key(self, node: exp.Expr) -> str:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in RANGE_SHAPES:
            return self.range_key(node)
        expression = self.key_of(node)
        while isinstance(expression, exp.Paren):
            expression = expression.this
        text = sql_of(expression)
        if any(range_text(shape, text) in self.keys for shape in RANGE_SHAPES):
            raise refusal(node, f"{text} is grouped in two ways", "one of them in a statement")
        self.keys.setdefault(text, expression)
        return text

    def range_key(self, node: exp.Anonymous) -> str:
        """Reads PREFIXES(column) or RANGES(column), of one column with an ordered domain."""
        shape = str(node.this).lower()
        column = self.key_of(node.expressions[0]) if len(node.expressions) == 1 else None
        if not isinstance(column, exp.Column):
            raise refusal(node, f"{shape.upper()} takes one column", f"{shape.upper()}(column with a RANGE domain)")
        text = range_text(shape, sql_of(column))
        others = {sql_of(column), *(range_text(other, sql_of(column)) for other in RANGE_SHAPES)} - {text}
        if others & self.keys.keys():
            raise refusal(node, f"{column.name!r} is grouped in two ways", "one of them in a statement")
        self.keys.setdefault(text, exp.Anonymous(this=shape, expressions=[column]))
        return text

    def element(self, node: exp.Expr) -> Sets:
        """Returns the grouping sets of one element of GROUP BY or of GROUPING SETS."""
        if isinstance(node, exp.Cube):
            return self.cube(self.composites(node.expressions), node)
        if isinstance(node, exp.Rollup):
            parts = self.composites(node.expressions)
            return [_union(parts[:length]) for length in range(len(parts), -1, -1)]
        if isinstance(node, exp.GroupingSets):
            return [grouping_set for inner in node.expressions for grouping_set in self.element(inner)]
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "marginals":
            return self.marginals(node)
        return [self.composite(node)]

    def composite(self, node: exp.Expr) -> tuple[str, ...]:
        if isinstance(node, exp.Tuple):
            return _union([self.composite(inner) for inner in node.expressions])
        return (self.key(node),)

    def composites(self, nodes: Sequence[exp.Expr]) -> Sets:
        return [self.composite(node) for node in nodes]

    def cube(self, parts: Sets, node: exp.Expr) -> Sets:
        if 2 ** len(parts) > MAX_GROUPING_SETS:
            raise refusal(node, f"CUBE of {len(parts)} columns has {2 ** len(parts)} grouping sets", _LIMIT)
        sizes = range(len(parts), -1, -1)
        return [_union(list(chosen)) for size in sizes for chosen in combinations(parts, size)]

    def marginals(self, node: exp.Anonymous) -> Sets:
        accepted = "MARGINALS (k, a, b, c, ..) with k at most the number of columns"
        first = node.expressions[0] if node.expressions else None
        if (
            not isinstance(first, exp.Literal)
            or not first.is_int
            or len(first.name) > 6
            or not 0 <= int(first.name) < len(node.expressions)
        ):
            raise refusal(node, "MARGINALS starts with the number of columns in a marginal", accepted)
        order, columns = int(first.name), node.expressions[1:]
        if comb(len(columns), order) > MAX_GROUPING_SETS:
            raise refusal(node, f"there are {comb(len(columns), order)} such marginals", _LIMIT)
        parts = self.composites(columns)
        return [_union(list(chosen)) for chosen in combinations(parts, order)]


_LIMIT = f"at most {MAX_GROUPING_SETS} grouping sets"


def read_grouping(
    group: exp.Group | None, all_keys: Sequence[exp.Expr], key_of: Callable[[exp.Expr], exp.Expr]
) -> Grouping:
    """Reads the grouping of a SELECT. all_keys: keys for GROUP BY ALL. key_of: resolves aliases, ordinals, columns."""
    reader = _GroupingReader(key_of)
    if group is None:
        return Grouping((), ((),))
    if group.args.get("all"):
        elements: Sequence[Sets] = [[reader.composite(node)] for node in all_keys]
    else:
        elements = [reader.element(node) for node in group.expressions]
    total = 1
    for sets in elements:
        total *= len(sets)
    if total > MAX_GROUPING_SETS:
        raise refusal(group, f"{total} grouping sets", _LIMIT)
    if len(reader.keys) > MAX_KEYS:
        raise refusal(group, f"{len(reader.keys)} grouping columns", f"at most {MAX_KEYS}")
    combined = tuple(_union(list(chosen)) for chosen in product(*elements))
    return Grouping(tuple(reader.keys.items()), combined)


def _union(parts: Sets) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for part in parts for key in part))


MAX_RANGE = {"prefixes": 16_384, "ranges": 2048}
MAX_NODES = 1 << 20
MAX_IMAGE = 1_000_000
MAX_DOMAIN = 10_000_000


class KeyBuilder:
    """Builder of the keys of one statement. The keys share source columns.

    selecting: whether a threshold selects groups, so that keys need no domain. None if no threshold can be used.
    nodes: whether ranges are summed up by nodes (algebra.dyadic), not one by one.
    bins: the most bins of a column, 0 for all. Neighbouring bins of a column with more bins are merged.
    written: the resolved keys without a domain.
    """

    def __init__(
        self, source: RowSource, facts: PublicFacts, selecting: bool | None = None, nodes: bool = False, bins: int = 0
    ) -> None:
        self.bins = bins
        self.source = source
        self.facts = facts
        self.selecting = selecting
        self.nodes = nodes
        self.written: list[exp.Expr] = []
        self.columns: dict[str, SourceColumn] = {}
        self.names: set[str] = set()

    @property
    def sources(self) -> tuple[SourceColumn, ...]:
        return tuple(self.columns.values())

    def build(self, text: str, expression: exp.Expr) -> Key:
        if self.selecting and any(self._is_free(column) for column in expression.find_all(exp.Column)):
            self.written.append(expression)
            wanted = expression.name if isinstance(expression, exp.Column) else "key"
            return build_private_key(self._name(wanted), text, expression, self.source, self.facts)
        if isinstance(expression, exp.Column):
            position = self._source(expression)
            domain = self.columns[sql_of(expression)].domain
            name = self._name(expression.name)
            if self.bins and isinstance(domain, RangeDomain) and len(domain.edges) > self.bins:
                return _coarser(Key(name, text, domain.type_name, domain.labels, (position,), ()), domain, self.bins)
            codes = tuple(range(domain.size))
            return Key(name, text, label_type(domain), domain.labels, (position,), codes)
        if isinstance(expression, exp.Anonymous) and str(expression.this) in RANGE_SHAPES:
            return self._range(text, str(expression.this), expression.expressions[0])
        return self._image(text, expression)

    def _range(self, text: str, shape: str, column: exp.Column) -> Key:
        """Builds a key over ranges. NULL and 'other' are in no interval, so their rows are in no grouping set.

        range_end shows the end of an interval: for bins the first value outside, for listed values the last inside.
        """
        position = self._source(column)
        domain = self.columns[sql_of(column)].domain
        labels = domain.edges if isinstance(domain, RangeDomain) else domain.values
        most = MAX_NODES if self.nodes else MAX_RANGE[shape]
        if not 1 <= len(labels) <= most:
            raise refusal(
                column,
                f"{shape.upper()} over {len(labels)} values",
                f"at most {most} of them: a larger STEP in the domain",
            )
        codes = tuple(code if code < len(labels) else -1 for code in range(domain.size))
        type_name = label_type(domain)
        ends = (*labels[1:], domain.upper) if isinstance(domain, RangeDomain) else labels
        name = self._name(column.name)
        end_name = self._name(f"{name}_{RANGE_END}")
        return Key(name, text, type_name, labels, (position,), codes, shape, ends, end_name)

    def _image(self, text: str, expression: exp.Expr) -> Key:
        check_row_local(expression)
        columns = {sql_of(column): column for column in expression.find_all(exp.Column)}
        if not columns:
            raise refusal(
                expression, "a grouping expression without a column", "an expression over columns with a domain"
            )
        positions = [self._source(column) for column in columns.values()]
        domains = [self.columns[name].domain for name in columns]
        combinations = prod(domain.size for domain in domains)
        if combinations > MAX_IMAGE:
            raise refusal(
                expression, f"this expression has {combinations} combinations of domain values", f"at most {MAX_IMAGE}"
            )
        inputs = [
            ImageInput(column.table, column.name, label_type(domain), domain.labels)
            for column, domain in zip(columns.values(), domains, strict=True)
        ]
        try:
            image = self.facts.image(text, inputs)
            if any(isinstance(domain, RangeDomain) for domain in domains):
                self._require_whole_bins(text, domains, inputs)
        except Refusal as error:
            raise error.at(position_of(expression)) from None
        return Key(self._name("key"), text, image.type_name, image.labels, tuple(positions), image.codes)

    def _require_whole_bins(self, text: str, domains: list[Domain], inputs: list[ImageInput]) -> None:
        values = values_to_try(domains)
        tried = [replace(source, labels=tuple(chain(*column))) for source, column in zip(inputs, values, strict=True)]
        if misplaces(domains, values, self.facts.image(text, tried)):
            pairs = zip(inputs, domains, strict=True)
            names = [source.name for source, domain in pairs if isinstance(domain, RangeDomain)]
            raise Refusal(
                f"these groups cut a bin of {' or '.join(names)} in two, and all rows of a bin are in one group",
                accepted="groups of whole bins, as with comparisons to edges of bins; the column itself; "
                "count(*) FILTER (WHERE ..); or a smaller STEP in the policy",
            )

    def _is_free(self, column: exp.Column) -> bool:
        return self.source.owner(column) is not None and self.source.domain(column) is None

    def _name(self, wanted: str) -> str:
        name, number = wanted, 1
        while fold(name) in self.names or is_reserved(name):
            number += 1
            name = f"{wanted}_{number}"
        self.names.add(fold(name))
        return name

    def _source(self, column: exp.Column) -> int:
        text = sql_of(column)
        if text not in self.columns:
            self.columns[text] = SourceColumn(text, self._domain(column))
        return list(self.columns).index(text)

    def _domain(self, column: exp.Column) -> Domain:
        relation = self.source.relation(column.table)
        if relation is not None:
            domain = relation.domain(column.name)
            if domain is None:
                raise refusal(
                    column,
                    f"the column {column.name!r} has no public domain",
                    f"a DOMAIN for it in the policy of {relation.table.table}, or a column that has one"
                    + _name_list(tuple(name for name, _ in relation.policy.domains))
                    + ("" if self.selecting is None or self.nodes else f", or {SELECTING}"),
                )
            return domain
        join = self.source.public_join(column.table)
        type_name = next(item.type_name for item in join.columns if fold(item.name) == fold(column.name))
        if not sql_type(type_name).has_labels:
            raise refusal(
                column,
                f"a key of type {sql_type(type_name).word}, whose values are not read back from their texts",
                "a column of another type, such as a text for each value",
            )
        values = self.facts.public_values(join.table, join.own_name(column.name))
        if len(values) > MAX_DOMAIN:
            raise refusal(column, f"{len(values)} public values", f"at most {MAX_DOMAIN}")
        if not values and not join.outer:
            raise refusal(column, f"the public table of {column.name!r} is empty", "rows in it, or a LEFT JOIN")
        present = tuple(value for value in values if value is not None)
        return ValueDomain(type_name, present, with_null=join.outer or None in values)


def _coarser(key: Key, domain: RangeDomain, bins: int) -> Key:
    """Merges the bins of a key into at most `bins` runs. The labels are the lower edges of the runs, and NULL."""
    width = -(-len(domain.edges) // bins)
    edges = domain.edges[::width]
    codes = (*(place // width for place in range(len(domain.edges))), *[len(edges)] * domain.with_null)
    return replace(key, labels=(*edges, *[None] * domain.with_null), codes=codes)


def label_type(domain: Domain) -> str:
    """Returns the type of a domain's released labels: the column's own type, VARCHAR for an ENUM."""
    if isinstance(domain, RangeDomain):
        return domain.type_name
    return "VARCHAR" if sql_type(domain.type_name).is_enum else domain.type_name


def _name_list(names: tuple[str, ...]) -> str:
    return f" ({', '.join(names[:20])})" if names else ""
