"""Group keys: each a column with a public domain, or an expression whose image DuckDB computes over such domains."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import chain
from math import prod

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpduck.frontend.rows.expressions import sql_of
from dpduck.frontend.rows.facts import Image, ImageInput, PublicFacts, SourceColumn
from dpduck.frontend.rows.functions import check_row_local
from dpduck.frontend.rows.tree import RowSource
from dpduck.frontend.select.grouping import RANGE_END, RANGE_SHAPES
from dpduck.frontend.select.private_keys import SELECTING, selected_key
from dpduck.frontend.select.request import Key
from dpduck.frontend.text.names import fold, is_reserved
from dpduck.frontend.text.positions import position_of, refusal
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from dpduck.values.errors import Refusal

MAX_RANGE = {"prefixes": 16_384, "ranges": 2048}
MAX_NODES = 1 << 20
MAX_IMAGE = 1_000_000
MAX_DOMAIN = 10_000_000
_NO_LABELS = re.compile(r"\b(VARIANT|GEOMETRY)\b")
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")  # labels of ENUM, names of fields


class KeyBuilder:
    """Builds the keys of one statement; source columns are shared between them.

    selecting: whether keys without a public domain are accepted, because a threshold decides what is shown of them.
    written: such keys, as they were resolved.
    nodes: ranges are summed up by nodes (workload.dyadic), not one by one.
    bins: neighbouring bins of a column that has more are one, so many at most; 0 for all of them.
    """

    def __init__(
        self, source: RowSource, facts: PublicFacts, selecting: bool = False, nodes: bool = False, bins: int = 0
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
        """Returns the key for one resolved expression."""
        if self.selecting and any(self._is_free(column) for column in expression.find_all(exp.Column)):
            self.written.append(expression)
            wanted = expression.name if isinstance(expression, exp.Column) else "key"
            return selected_key(self._name(wanted), text, expression, self.source, self.facts)
        if isinstance(expression, exp.Column):
            position = self._source(expression)
            domain = self.columns[sql_of(expression)].domain
            name = self._name(expression.name)
            if self.bins and isinstance(domain, RangeDomain) and len(domain.edges) > self.bins:
                return _coarser(Key(name, text, domain.type_name, domain.labels, (position,), ()), domain, self.bins)
            codes = tuple(range(domain.size))
            return Key(name, text, released_type(domain), domain.labels, (position,), codes)
        if isinstance(expression, exp.Anonymous) and str(expression.this) in RANGE_SHAPES:
            return self._range(text, str(expression.this), expression.expressions[0])
        return self._image(text, expression)

    def _range(self, text: str, shape: str, column: exp.Column) -> Key:
        """Returns a key over ranges: NULL and 'other' are in no interval and drop their rows from every grouping set.

        range_end shows where an interval of bins ends, the first value outside; of listed values, the last inside.
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
        type_name = released_type(domain)
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
            ImageInput(column.table, column.name, released_type(domain), domain.labels)
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
        values = probed(domains)
        tried = [replace(one, labels=tuple(chain(*column))) for one, column in zip(inputs, values, strict=True)]
        if misplaces(domains, values, self.facts.image(text, tried)):
            raise Refusal(
                "the bins of the domain do not fit into these groups: a bin's rows would be counted by its lower edge",
                accepted="groups that each bin is in as a whole, the column itself, count(*) FILTER (WHERE ..), "
                "or a smaller STEP in the policy",
            )

    def _is_free(self, column: exp.Column) -> bool:
        return self.source.relation(column.table) is not None and self.source.domain(column) is None

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
                    + _listed(tuple(name for name, _ in relation.policy.domains))
                    + f", or {SELECTING}",
                )
            return domain
        join = self.source.public_join(column.table)
        type_name = next(item.type_name for item in join.columns if fold(item.name) == fold(column.name))
        if _NO_LABELS.search(_QUOTED.sub("", type_name)):
            raise refusal(
                column,
                f"a key of type {type_name.partition('(')[0]}, whose values are not read back from their texts",
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
    """Returns a key whose labels are the lower edges of so many runs of bins, and NULL."""
    width = -(-len(domain.edges) // bins)
    edges = domain.edges[::width]
    codes = (*(place // width for place in range(len(domain.edges))), *[len(edges)] * domain.with_null)
    return replace(key, labels=(*edges, *[None] * domain.with_null), codes=codes)


def released_type(domain: Domain) -> str:
    """Returns the type in which a domain's labels are released: the column's own; ENUMs leave as text."""
    if isinstance(domain, RangeDomain):
        return domain.type_name
    return "VARCHAR" if domain.type_name.startswith("ENUM") else domain.type_name


def _listed(names: tuple[str, ...]) -> str:
    return f" ({', '.join(names[:20])})" if names else ""


# Whether an expression over binned columns tells the bins apart that it should: it sees only their lower
# edges.
#
# A row is counted by the label of its bin. An expression that is not the same all over a bin would count some
# rows under the label that other rows rightly have: months of bins of seven days.

MOST_PROBES = 32
"""Values of a bin that are tried: all of them where there are no more."""

MOST_COMBINATIONS = 200_000
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_SCALE = re.compile(r"DECIMAL\(\d+,\s*(\d+)\)")


def probed(domains: Sequence[Domain]) -> list[list[tuple[str | None, ...]]]:
    """Lists the values to try for each column, a tuple for each of its labels, the label itself first."""
    combinations = np.prod([domain.size for domain in domains], dtype=float)
    binned = sum(isinstance(domain, RangeDomain) for domain in domains)
    each = max(2, min(MOST_PROBES, int((MOST_COMBINATIONS / combinations) ** (1 / max(binned, 1)))))
    return [_values(domain, each) for domain in domains]


def misplaces(domains: Sequence[Domain], values: Sequence[Sequence[tuple[str | None, ...]]], image: Image) -> bool:
    """Tells whether rows of some bin would be counted under a label that is another bin's, by an image over
    `values`.
    """
    owners = [np.repeat(np.arange(len(column)), [len(one) for one in column]) for column in values]
    firsts = [np.concatenate([[True], owner[1:] != owner[:-1]]) for owner in owners]
    codes = np.array(image.codes).reshape([len(owner) for owner in owners])
    bins = np.ravel_multi_index(np.ix_(*owners), [domain.size for domain in domains])
    edges = codes[np.ix_(*firsts)].ravel()
    changed = codes != edges[bins]
    present = _present(domains)
    # NULL beside a bin is no bin: coalesce(age, 0) puts it with one on purpose
    shared = np.bincount(edges[present], minlength=len(image.labels)) > 1
    split = changed & present[bins]
    return bool((split & (shared[edges[bins]] | np.isin(codes, edges[present]))).any())


def _present(domains: Sequence[Domain]) -> NDArray[np.bool_]:
    """Returns the combinations of labels without the NULL of a binned column, flat."""
    present = np.ones([domain.size for domain in domains], dtype=np.bool_)
    for axis, domain in enumerate(domains):
        if isinstance(domain, RangeDomain) and domain.with_null:
            np.moveaxis(present, axis, 0)[-1] = False
    return present.ravel()


def _values(domain: Domain, most: int) -> list[tuple[str | None, ...]]:
    if not isinstance(domain, RangeDomain):
        return [(label,) for label in domain.labels]
    ends = (*domain.edges[1:], domain.upper)
    inside: list[tuple[str | None, ...]] = [
        (low, *_between(domain.type_name, low, high, most)) for low, high in zip(domain.edges, ends, strict=True)
    ]
    return [*inside, (None,)] if domain.with_null else inside


def _between(type_name: str, low: str, high: str, most: int) -> list[str]:
    """Returns values of [low, high) beyond low: all of them, or some that are evenly spaced, the last among them."""
    if type_name == "DATE":
        start = date.fromisoformat(low)
        return _spaced((date.fromisoformat(high) - start).days, most, lambda place: str(start + timedelta(place)))
    if type_name == "TIMESTAMP":
        begin, end = (datetime.fromisoformat(text) - _EPOCH for text in (low, high))
        whole = (end - begin) // _MICROSECOND
        return _spaced(whole, most, lambda place: str(_EPOCH + begin + place * _MICROSECOND))
    scale = _SCALE.fullmatch(type_name)
    digits = int(scale[1]) if scale else 9 if type_name in ("FLOAT", "DOUBLE") else 0
    first, last = (int(Fraction(text) * 10**digits) for text in (low, high))
    return _spaced(last - first, most, lambda place: _decimal(first + place, digits))


def _spaced(count: int, most: int, text: Callable[[int], str]) -> list[str]:
    steps = min(count, most)
    return [text((count - 1) * step // (steps - 1)) for step in range(1, steps)]


def _decimal(units: int, digits: int) -> str:
    sign, size = "-" if units < 0 else "", str(abs(units)).rjust(digits + 1, "0")
    return f"{sign}{size[:-digits]}.{size[-digits:]}" if digits else f"{sign}{size}"
