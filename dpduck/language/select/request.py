"""A frozen, canonical description of what is asked and at what price; equal requests are the same release.

OPTIONS (summary = ..), noisy summaries of huge domains, are read and checked here.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod

from dpduck.language.rows.facts import Rows, SourceColumn
from dpduck.language.text.names import TableName
from dpduck.language.text.options import Given, Option, Value
from dpduck.language.text.positions import refusal
from dpduck.values.privacy import Charge
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

AUTO, TREE, CHOICE = "auto", "tree", "choice"
"""What the option quantiles says, and names of their measures."""
METHODS = (
    "auto", "filter", "filter_one_sided", "threshold", "priority", "filter_threshold", "filter_priority", "sketch",
    "geometric",
)  # fmt: skip
SHAPES = ("dyadic", "haar")
DEFAULT_SIZE = 100_000
LARGEST_SIZE = 20_000_000
LARGEST_DOMAIN = 10**30
LARGEST_THRESHOLD = 10**12
SMALLEST_TOTAL_EPSILON, LARGEST_TOTAL_EPSILON = Fraction(1, 10**9), 100
MOST_SKETCH_ROWS = 99
"""Rows of a sketch: each multiplies the sensitivity."""

VARIANCES = frozenset(("var_pop", "var_samp", "stddev_pop", "stddev_samp"))

SUMMARY_OPTIONS = (
    Option("summary", "choice", "a summary of bounded size in place of every cell", choices=METHODS, quoted=True),
    Option("summary_size", "whole", "about how many cells it has", Fraction(1), Fraction(LARGEST_SIZE)),
    Option("theta", "whole", "a filter passes noisy counts from here on", Fraction(1), Fraction(LARGEST_THRESHOLD)),
    Option("tau", "number", "of threshold sampling", Fraction(1, 1000), Fraction(LARGEST_THRESHOLD)),
    Option("total_epsilon", "number", "the part of the price for a noisy number of rows", SMALLEST_TOTAL_EPSILON,
           Fraction(LARGEST_TOTAL_EPSILON)),
    Option("range_summary", "choice", "what takes the place of RANGES(column)", choices=SHAPES, quoted=True),
    Option("sketch_rows", "whole", "rows of a sketch", Fraction(1), Fraction(MOST_SKETCH_ROWS)),
)  # fmt: skip
NAMES = tuple(option.name for option in SUMMARY_OPTIONS)

_FILTERED = ("filter", "filter_one_sided", "filter_threshold", "filter_priority")
_OF_OTHERS = (
    "strategy", "budgets", "nonnegative", "integer", "weights", "planning_seconds", "strategy_table", "target_stderr",
    "aggregate_weights", "quantiles", "quantile_intervals", "max_norm_contributed",
    "max_sum_norm_contributed", "centers", "max_groups_contributed",
)  # fmt: skip
_THRESHOLDED = ("threshold", "filter_threshold")
_ONLY_OF = {
    "theta": _FILTERED,
    "tau": _THRESHOLDED,
    "total_epsilon": ("threshold", *_FILTERED),
    "sketch_rows": ("sketch",),
    "range_summary": tuple(method for method in METHODS if method != "sketch"),
    "summary_size": tuple(method for method in METHODS if method != "geometric"),
}
_SIZED_BY = {
    "filter": ("theta",),
    "filter_one_sided": ("theta",),
    "threshold": ("tau",),
    "filter_threshold": ("theta", "tau"),
}


@dataclass(frozen=True)
class Summary:
    """A noisy summary that is asked for. theta: of the filter, tau: of threshold sampling, where they are given.

    shape: what takes the place of RANGES(column), dyadic intervals or Haar coefficients. consistent: intervals without
    their parents are dropped. expect_rows: the public guess of the policy, which choices may use.
    stated: whether the size was written, and must be of this very summary. total_epsilon: the part of the price for a
    noisy number of rows: tau follows from it in place of the guess, and what a filter has lost. ranged: whether the
    shape was written.
    """

    method: str
    size: int
    theta: int | None = None
    tau: Fraction | None = None
    shape: str = "dyadic"
    sketch_rows: int = 5
    consistent: bool = True
    expect_rows: int | None = None
    stated: bool = False
    total_epsilon: Fraction | None = None
    ranged: bool = False


def read_summary(given: Given) -> Summary | None:
    """Returns the options of a summary, None where none is asked for."""
    stated = [name for name in NAMES if name in given]
    if "summary" not in given:
        if stated:
            accepted = f"summary = {_ONLY_OF[stated[0]][0]!r} beside it"
            raise refusal(given[stated[0]], f"{stated[0]} is of a summary", accepted)
        return None
    require_plain_treatment(given)
    method = given.choice("summary")
    theta = given.whole("theta")
    tau = given.number("tau")
    total = given.number("total_epsilon")
    for name, methods in _ONLY_OF.items():
        if name in given and method not in methods:
            accepted = f"one of {_quoted(methods)}" if len(methods) > 1 else f"summary = {_quoted(methods)}"
            raise refusal(given[name], f"{name} is not of summary = {method!r}", accepted)
    shape = given.choice("range_summary")
    if (method, shape) == ("filter_one_sided", "haar"):
        # The paper's one-sided filter is for counts: half of all coefficients are negative, and would be lost.
        what = "filter_one_sided is not of Haar coefficients, which have either sign"
        raise refusal(given["range_summary"], what, "summary = 'filter', or range_summary = 'dyadic'")
    size = given.whole("summary_size")
    rows = given.whole("sketch_rows")
    _require_one_say(given, method)
    return Summary(
        method,
        size or DEFAULT_SIZE,
        theta,
        tau,
        shape,
        rows or 5,
        consistent="consistency" not in given or given["consistency"].name.lower() != "none",
        stated=size is not None and method != "auto",
        total_epsilon=total,
        ranged="range_summary" in given,
    )


def _require_one_say(given: Given, method: str) -> None:
    """Refuses options that decide the same thing twice."""
    if "tau" in given and "total_epsilon" in given:
        raise refusal(given["total_epsilon"], "tau is given, and no total is needed for it", "one of the two")
    parameters = _SIZED_BY.get(method, ())
    if "summary_size" in given and parameters and all(name in given for name in parameters):
        listed = " and ".join(parameters)
        what = f"summary_size says nothing beside {listed} of summary = {method!r}"
        raise refusal(given["summary_size"], what, f"summary_size, or {listed}")


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names)


def require_plain_treatment(given: Given) -> None:
    """Options of the other kinds of release say nothing about a summary."""
    for name in _OF_OTHERS:
        if name in given:
            raise refusal(given[name], f"{name} is not of a summary", f"{', '.join(NAMES)}, consistency = 'none'")
    if "consistency" in given and str(given["consistency"]) not in ("l2", "'l2'", "'none'", "none"):
        raise refusal(given["consistency"], "consistency of a summary has no such value", "'none', or without it")


@dataclass(frozen=True)
class Key:
    """A released grouping column: a source column, or the image of several under an expression.

    name: as the released table shows it. expression: canonical SQL. sources: positions in Request.sources.
    codes: row-major over the sources' domains, the label's position for each combination, -1 where it is dropped.
    shape: '' for a plain key; 'prefixes' or 'ranges' for sums over intervals of its labels, in their order.
    ends, end_name: of such a key, what range_end(column) shows for an interval whose last label is i.
    row_sql: of a key whose values are private: a VARCHAR of every row, unable to raise; it has no labels.
    """

    name: str
    expression: str
    type_name: str
    labels: tuple[str | None, ...]
    sources: tuple[int, ...]
    codes: tuple[int, ...]
    shape: str = ""
    ends: tuple[str, ...] = ()
    end_name: str = ""
    row_sql: str = ""

    @property
    def released_size(self) -> int:
        """Tells how many labels or intervals are released: n, or n(n+1)/2 for all ranges."""
        size = len(self.labels)
        return size * (size + 1) // 2 if self.shape == "ranges" else size


OPEN_STEPS = 1 << 39
"""Steps on both sides of 0 of a number that has no CLAMP. Norms say how much a unit adds, and are found apart."""


@dataclass(frozen=True)
class Operand:
    """A number that a row has, clamped to [low, high] and rounded to a multiple of step, which divides both.

    sql: a DOUBLE, row-local and unable to raise, NULL where the row has no value; "" counts rows by group.
    per_group: '' for rows; 'sum' or 'average' where a unit's rows in a group are made one that is then clamped.
    certain: whether it has a value exactly where the column is not NULL.
    """

    sql: str
    low: Fraction
    high: Fraction
    step: Fraction
    per_group: str = ""
    certain: bool = field(default=False, compare=False)

    @property
    def is_open(self) -> bool:
        """Tells whether the bounds are those of a column without CLAMP: OPEN_STEPS on both sides of 0."""
        return self.high == -self.low == OPEN_STEPS * self.step


@dataclass(frozen=True)
class Aggregate:
    """A released aggregate over the rows for which `condition` is true; "" is every row.

    text: how the analyst wrote it, for explanations; not part of the canonical form.
    function: 'count', 'sum', 'avg', 'var_pop', 'var_samp', 'stddev_pop', 'stddev_samp', 'quantile' or 'distinct'.
    operand: of what; a count has one where rows with a value are counted, or units by group.
    fraction: of a quantile. distinct: the column whose values are counted.
    counts: of a sum of 1 over the rows that meet a condition, this condition. It follows from the operand.
    """

    condition: str
    text: str = field(compare=False)
    function: str = "count"
    operand: Operand | None = None
    fraction: Fraction | None = None
    distinct: SourceColumn | None = None
    counts: str = field(default="", compare=False)

    @property
    def counted(self) -> str | None:
        """Returns the condition of the rows that the aggregate counts, None where it does not just count rows."""
        if self.function == "count" and self.operand is None:
            return self.condition
        if not self.counts:
            return None
        return f"({self.condition}) AND ({self.counts})" if self.condition else self.counts

    @property
    def operand_by_group(self) -> bool:
        """Tells whether a unit's rows in a group are made one first, which is no sum over smaller groups."""
        return self.operand is not None and bool(self.operand.per_group)

    @property
    def is_quantile(self) -> bool:
        """Tells whether the aggregate is a quantile, a minimum or a maximum."""
        return self.function == "quantile"

    @property
    def curved(self) -> bool:
        """Tells whether its error depends on the answer: intervals are then stored, not computed from noise alone."""
        return self.function not in ("count", "sum", "distinct")


@dataclass(frozen=True)
class Treatment:
    """The planning and post-processing of answers. All parts are public.

    weights: one per grouping set, the vector a of the paper. There are none where all sets weigh the same.
    planning_seconds: the time for searches.
    strategy_table: a declared public table that holds the strategy's matrix.
    aggregate_weights: one per aggregate, in the order in which they are first written. There are none where all weigh
        the same.
    quantiles: 'tree', 'choice' for a quantile that is the only one of its column, or 'auto' for the smaller error. It
        is no part of the digest for a tree, or where no quantile is asked for.
    quantile_intervals: whether chosen quantiles pay for intervals. It is no part of the digest where they do.
    evenly: whether the error of the worst cell is minimized, not the sum of all errors. It is no part of the digest
        where it is false.
    norm: the largest L2 norm of a unit's counts, in rows at their bound. A unit above it is weighed down. Without such
        a bound it is None, and no part of the digest.
    finds_norm: whether norms are found in the statement, for a part of its price. It is no part of the digest where it
        is false.
    sum_norms: the same of sums, in the units of each summed column. centers: what averages are measured about. Both are
        no part of the digest where there are none.
    groups: the most groups of one unit, 0 for any number, where it is no part of the digest.
    left_out: whether intervals hold the rows that a norm leaves out. total: whether cells are brought to a total that
        is measured apart. Both are no part of the digest where they are false.
    usual: whether norms are the default of a statement that says no bounds. It is no part of the digest.
    """

    strategy: str = "auto"
    budgets: str = "optimal"
    consistency: str = "l2"
    nonnegative: bool = False
    integer: bool = False
    weights: tuple[Fraction, ...] = ()
    planning_seconds: Fraction = Fraction(2)
    strategy_table: str = ""
    aggregate_weights: tuple[Fraction, ...] = ()
    quantiles: str = "auto"
    quantile_intervals: bool = True
    evenly: bool = False
    norm: Fraction | None = None
    finds_norm: bool = False
    sum_norms: tuple[Fraction, ...] = ()
    centers: tuple[Fraction, ...] = ()
    groups: int = 0
    left_out: bool = False
    total: bool = False
    usual: bool = False

    @property
    def widens(self) -> bool:
        """Tells whether intervals of counts and sums depend on answers, and are stored with them."""
        return self.left_out or self.total

    @property
    def moves(self) -> bool:
        """Tells whether answers are moved as no formula describes: their intervals are about what was measured."""
        return self.nonnegative or self.consistency in ("l1", "linf")


@dataclass(frozen=True)
class Target:
    """A standard error in place of a price: the smallest price that reaches it is found by planning.

    pure: the price is an epsilon (Laplace), else a rho (Gaussian). limit: the most that it may be.
    least: the least, which also buys a smaller error; no part of the digest, as the policy's revision is.
    """

    stderr: Fraction
    pure: bool
    limit: Fraction
    least: Fraction = Fraction(0)


@dataclass(frozen=True)
class KeySelection:
    """Groups are published where their noisy number of privacy units is above a threshold.

    laplace: the noise, else Gaussian. groups: C, the most of one unit. least_units: fewer are never published.
    other: a row more, for all groups that are not published.
    """

    laplace: bool
    groups: int
    least_units: int
    other: bool


@dataclass(frozen=True)
class Together:
    """Counts that may be planned together: their conditions, and the kinds of rows that these tell apart.

    columns: those that the conditions name. codes: row-major over their domains, the kind of each combination.
    met: for each condition, 1 for the kinds that meet it and 0 for others.
    """

    conditions: tuple[str, ...]
    columns: tuple[SourceColumn, ...]
    codes: tuple[int, ...]
    met: tuple[tuple[int, ...], ...]

    @property
    def kinds(self) -> int:
        """Tells how many kinds of rows there are."""
        return len(self.met[0])


@dataclass(frozen=True)
class Question:
    """What is asked of the rows.

    grouping_sets: positions in keys, increasing within a set; no set twice.
    intervals: where every aggregate is an interval of bins of the one source: its first bin and the one after.
    summary: where a noisy summary is asked for in place of every cell.
    matrix: an analyst's own strategy, as (row, column of each key, value), from 0. The column -1 is every value.
    selection: where groups are selected from the data; there is one grouping set then.
    own: options that a mechanism added, with their values; no part of the digest where there are none.
    together: ways in which counts may be planned together, each with groups of counts. They follow from the rest and
        from the policy, and are no part of the digest.
    """

    sources: tuple[SourceColumn, ...] = ()
    keys: tuple[Key, ...] = ()
    grouping_sets: tuple[tuple[int, ...], ...] = ((),)
    aggregates: tuple[Aggregate, ...] = (Aggregate("", "count(*)"),)
    treatment: Treatment = Treatment()
    matrix: tuple[tuple[int, ...], ...] = ()
    intervals: tuple[tuple[int, int], ...] = ()
    selection: KeySelection | None = None
    summary: Summary | None = None
    own: tuple[tuple[str, Value], ...] = ()
    together: tuple[tuple[Together, ...], ...] = field(default=(), compare=False, repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Returns sizes n_1..n_d of the released attributes."""
        return tuple(len(key.labels) for key in self.keys)

    @property
    def cells(self) -> tuple[int, ...]:
        """Tells how many cells each grouping set has."""
        return tuple(prod(self.sizes[key] for key in grouping_set) for grouping_set in self.grouping_sets)

    @property
    def tells_keys_apart(self) -> bool:
        """Tells whether any two combinations of source values differ in some key, or are dropped.

        Trusted code asks the same of its job (jobs.CountingJob), and refuses other bounds.
        """
        told: set[int] = set()
        for key in self.keys:
            kept = [code for code in key.codes if code >= 0]
            if not key.row_sql and len(set(kept)) == len(kept):
                told.update(key.sources)
        return told >= set(range(len(self.sources)))

    @property
    def characters(self) -> int:
        """Returns the most characters that the texts of one row have: each key's longest label."""
        texts = (key.labels for key in self.keys if sql_type(key.type_name).has_any_letters)
        return sum(max((len(label) for label in labels if label is not None), default=0) for labels in texts)

    @property
    def released_sizes(self) -> tuple[int, ...]:
        """Returns the sizes after keys over ranges have become their intervals."""
        return tuple(key.released_size for key in self.keys)

    @property
    def has_ranges(self) -> bool:
        """Tells whether it is planned as ranges: every cell then has an error of its own."""
        return any(key.shape for key in self.keys) or bool(self.matrix) or bool(self.intervals)


@dataclass(frozen=True)
class Price:
    """What a statement pays. refresh: pays again for the same request, once for each text.

    target: where it is given, charge is empty until planning has found it, and no part of the digest.
    least_rho: what MIN EPSILON asks of every price in rho; no part of the digest.
    """

    charge: Charge
    stated_epsilon: Fraction | None
    stated_delta: Fraction | None
    refresh: str
    target: Target | None
    least_rho: Fraction


_ASIDE = (
    "shapes", "source", "cell_key", "unit", "columns", "least_rho", "together",
)  # fmt: skip
"""What follows from the rest, or from the policy's revision: no part of a digest."""


@dataclass(frozen=True)
class Request:
    """One private release: which rows it reads, what it asks of them, and what it pays."""

    rows: Rows
    question: Question
    price: Price

    @property
    def asked_tables(self) -> tuple[TableName, ...]:
        """Returns the private tables that a statement names: whoever asks must be allowed to ask about each of them."""
        named = (read.table for read in self.rows.reads if not read.hidden)
        return tuple(dict.fromkeys((self.rows.table, *named)))

    @property
    def cell_rows(self) -> int:
        """Returns the most rows of one unit in one cell of all keys."""
        unit = self.rows.unit_sql or ""
        told = {unit, *(source.sql for source in self.question.sources)}
        columns = {f"{unit.partition('.')[0]}.{quote_identifier(name)}" for name in self.rows.cell_key}
        return 1 if columns and columns <= told else self.rows.unit_bound

    def digest(self) -> str:
        """Returns a name for this request: equal for statements that ask for the same release."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        rows, question, price, treatment = self.rows, self.question, self.price, self.question.treatment
        told = {
            **_fields(rows, *_ASIDE),
            "unit_sql": rows.unit_sql,
            **_fields(question, *_ASIDE),
            **_fields(price, *_ASIDE),
        }
        if rows.periods is None:
            del told["periods"]
        elif not rows.periods.also:
            told["periods"] = _fields(rows.periods, "also")
        if not question.own:
            del told["own"]
        told["aggregates"] = [_fields(aggregate, "text", "counts") for aggregate in question.aggregates]
        usual = {  # earlier versions had no such fields, so these values are no part of the digest
            "quantiles": treatment.quantiles == TREE or not any(one.is_quantile for one in question.aggregates),
            "quantile_intervals": treatment.quantile_intervals,
            "evenly": not treatment.evenly,
            "norm": treatment.norm is None,
            "finds_norm": not treatment.finds_norm,
            "sum_norms": not treatment.sum_norms,
            "centers": not treatment.centers,
            "groups": not treatment.groups,
            "left_out": not treatment.left_out,
            "total": not treatment.total,
            "usual": True,
        }
        told["treatment"] = _fields(treatment, *(name for name, held in usual.items() if held))
        if price.target is not None:  # a search may end elsewhere the next time, but the statement is equal
            for found in ("charge", "stated_epsilon", "stated_delta"):
                del told[found]
            told["target"] = _fields(price.target, "least")
        canonical = json.dumps(told, sort_keys=True, default=lambda x: _fields(x) if is_dataclass(x) else str(x))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def as_before(self) -> Request | None:
        """Returns the request of the same text in earlier versions, None where it is the same request.

        Trees were the default of quantiles, and rows that of people with many rows.
        """
        treatment = self.question.treatment
        if treatment.usual:
            return replace(self, question=replace(self.question, treatment=Treatment()))
        written = treatment.quantiles != AUTO or not treatment.quantile_intervals
        if written or not any(one.is_quantile for one in self.question.aggregates):
            return None
        before = replace(treatment, quantiles=TREE)
        return replace(self, question=replace(self.question, treatment=before))


def _fields(record: object, *aside: str) -> dict[str, object]:
    """Returns the fields of a record, but for those aside; asdict would copy each of them, and domains are long."""
    return {one.name: getattr(record, one.name) for one in fields(record) if one.name not in aside}  # type: ignore[arg-type]
