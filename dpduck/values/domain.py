"""Public domains: the values that a column may take in an answer. They are declared, never read from private data."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.values.sqltypes import sql_type

_LONGEST_TOLD = 4096  # most bytes of a label that is compared whole. Longer texts may be cut before comparisons


@dataclass(frozen=True)
class ValueDomain:
    """Listed domain: IN (..), FROM public.column, BOOLEAN or an ENUM.

    Codes: 0..len(values)-1 in this order, then NULL if with_null, then `other` if it is not None.

    >>> ValueDomain("VARCHAR", ("F", "M"), with_null=True).labels
    ('F', 'M', None)
    """

    type_name: str  # the column's DuckDB type
    values: tuple[str, ...]  # different texts, each of which casts back to its value exactly
    with_null: bool = False
    other: str | None = None  # label of every value outside of the list. Only a VARCHAR column may have one

    @property
    def labels(self) -> tuple[str | None, ...]:
        """Returns one label per code, as text. None is SQL's NULL."""
        null: tuple[str | None, ...] = (None,) if self.with_null else ()
        other: tuple[str | None, ...] = (self.other,) if self.other is not None else ()
        return self.values + null + other

    @property
    def size(self) -> int:
        return len(self.values) + self.with_null + (self.other is not None)


@dataclass(frozen=True)
class RangeDomain:
    """Bins [edge_i, edge_i + step) over an ordered column. A bin is shown by its lower edge.

    Codes: bins in order, then NULL if with_null. NaN and infinities of a floating column are outside every bin.

    >>> RangeDomain("INTEGER", ("0", "5"), "10", "5", "", 1).labels
    ('0', '5')
    """

    type_name: str
    edges: tuple[str, ...]  # the lower edges, as text that casts to type_name
    upper: str  # the end of the last bin, which is outside it
    step: str  # for numbers, a decimal text
    unit: str  # for DATE and TIMESTAMP: 'day', 'hour', 'month', ..
    step_count: int  # the number of units in a step
    with_null: bool = False
    with_edges: bool = False  # whether values below (above) all bins go to the first (last) bin

    @property
    def labels(self) -> tuple[str | None, ...]:
        """Returns one label per code: the lower edge of each bin, as text. None is SQL's NULL."""
        null: tuple[str | None, ...] = (None,) if self.with_null else ()
        return self.edges + null

    @property
    def size(self) -> int:
        return len(self.edges) + self.with_null


Domain = ValueDomain | RangeDomain


def tells_values_apart(domain: Domain, type_name: str) -> bool:
    """Tells whether each code of a domain stands for exactly one value of a column, and none for NULL.

    A bin stands for several values, and so does OTHER's label. type_name: the column's type.
    """
    if not isinstance(domain, ValueDomain) or domain.with_null or domain.other is not None:
        return False
    short = all(len(label.encode("utf-8", "surrogatepass")) <= _LONGEST_TOLD for label in domain.values)
    return short and domain.type_name == type_name and sql_type(type_name).has_one_form
