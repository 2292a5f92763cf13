"""Frozen descriptions of a question and its price, and options of noisy summaries. Equal requests are one release."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod

from dpduck.language.rows.facts import RequestRows, SourceColumn
from dpduck.language.text.names import TableName
from dpduck.language.text.options import Option, StatementOptions, Value
from dpduck.language.text.positions import refusal
from dpduck.values.privacy import Charge
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

AUTO, TREE, CHOICE = "auto", "tree", "choice"  # values of the option quantiles, and names of the measures of quantiles
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
MOST_SKETCH_ROWS = 99  # the most rows of a sketch. Each row multiplies the sensitivity
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
    "aggregate_weights", "quantiles", "quantile_intervals", "max_norm_contributed", "public_totals",
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
    """Options of a noisy summary."""

    method: str
    size: int
    theta: int | None = None  # the threshold of a filter
    tau: Fraction | None = None  # the threshold of sampling
    shape: str = "dyadic"  # 'dyadic' intervals or 'haar' coefficients, for RANGES(column)
    sketch_rows: int = 5
    consistent: bool = True  # whether an interval is dropped if its parent is not in the summary
    expect_rows: int | None = None  # the policy's public guess of the number of rows, which guides thresholds
    stated: bool = False  # whether the statement gives a size, and a method other than 'auto'
    total_epsilon: Fraction | None = None  # the part of the price for a noisy number of rows, which replaces the guess
    ranged: bool = False  # whether the statement gives the shape


def read_summary(given: StatementOptions) -> Summary | None:
    """Reads the options of a summary. Returns None if the statement asks for no summary."""
    stated = [name for name in NAMES if name in given]
    if "summary" not in given:
        if stated:
            accepted = f"summary = {_ONLY_OF[stated[0]][0]!r} beside it"
            raise refusal(given[stated[0]], f"{stated[0]} applies to summaries alone", accepted)
        return None
    require_plain_treatment(given)
    method = given.choice("summary")
    theta = given.whole("theta")
    tau = given.number("tau")
    total = given.number("total_epsilon")
    for name, methods in _ONLY_OF.items():
        if name in given and method not in methods:
            accepted = f"one of {_quote_names(methods)}" if len(methods) > 1 else f"summary = {_quote_names(methods)}"
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


def _require_one_say(given: StatementOptions, method: str) -> None:
    if "tau" in given and "total_epsilon" in given:
        raise refusal(given["total_epsilon"], "tau is given, and no total is needed for it", "one of the two")
    parameters = _SIZED_BY.get(method, ())
    if "summary_size" in given and parameters and all(name in given for name in parameters):
        listed = " and ".join(parameters)
        what = f"summary_size has no effect beside {listed} of summary = {method!r}"
        raise refusal(given["summary_size"], what, f"summary_size, or {listed}")


def _quote_names(names: tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names)


def require_plain_treatment(given: StatementOptions) -> None:
    """Refuses options that a summary cannot have, because they are for other kinds of releases."""
    for name in _OF_OTHERS:
        if name in given:
            raise refusal(
                given[name], f"{name} does not apply to a summary", f"{', '.join(NAMES)}, consistency = 'none'"
            )
    if "consistency" in given and str(given["consistency"]) not in ("l2", "'l2'", "'none'", "none"):
        raise refusal(given["consistency"], "consistency of a summary has no such value", "'none', or without it")


@dataclass(frozen=True)
class Key:
    """Released grouping column: a source column, or an expression over source columns."""

    name: str  # in the released table
    expression: str  # canonical SQL
    type_name: str
    labels: tuple[str | None, ...]  # none for a private key
    sources: tuple[int, ...]  # positions in Question.sources
    codes: tuple[int, ...]  # the label's position for each combination of source values, row-major, -1 for none
    shape: str = ""  # '' for a plain key, 'prefixes' or 'ranges' for sums over intervals of its ordered labels
    ends: tuple[str, ...] = ()  # for ranges, range_end(column) of each last label
    end_name: str = ""  # for ranges, the name of the released column of ends
    row_sql: str = ""  # for a private key, an expression over each row: a VARCHAR that cannot raise

    @property
    def released_size(self) -> int:
        """Returns the number of released labels or intervals: n, or n(n+1)/2 for all ranges."""
        size = len(self.labels)
        return size * (size + 1) // 2 if self.shape == "ranges" else size


OPEN_STEPS = 1 << 39
"""Steps on both sides of 0 for a number without CLAMP. A norm bounds the unit's contribution instead."""


@dataclass(frozen=True)
class Operand:
    """Number of a row, clamped to [low, high] and rounded to a multiple of step, which divides both bounds."""

    sql: str  # a DOUBLE of one row that cannot raise, NULL without a value; "" counts rows by group
    low: Fraction
    high: Fraction
    step: Fraction
    per_group: str = ""  # 'sum' or 'average' clamps the sum or average of a unit's rows in a group, '' each row
    certain: bool = field(default=False, compare=False)  # whether it is NULL exactly where its column is NULL

    @property
    def is_open(self) -> bool:
        """Tells whether the number has no CLAMP: its bounds are OPEN_STEPS on both sides of 0."""
        return self.high == -self.low == OPEN_STEPS * self.step


@dataclass(frozen=True)
class Aggregate:
    """Released aggregate over the rows that meet `condition`. "" stands for every row.

    function: 'count', 'sum', 'avg', 'var_pop', 'var_samp', 'stddev_pop', 'stddev_samp', 'quantile' or 'distinct'.
    """

    condition: str
    text: str = field(compare=False)  # the analyst's own text, for explanations
    function: str = "count"
    operand: Operand | None = None  # a count has one only for rows with a value, or for bounds by group
    fraction: Fraction | None = None  # the quantile, from 0 to 1
    distinct: SourceColumn | None = None  # the column with the counted values
    counts: str = field(default="", compare=False)  # the condition of a sum that adds 1 for each row that meets it

    @property
    def count_condition(self) -> str | None:
        """Returns the condition of the rows that the aggregate counts, None if it is no plain count of rows."""
        if self.function == "count" and self.operand is None:
            return self.condition
        if not self.counts:
            return None
        return f"({self.condition}) AND ({self.counts})" if self.condition else self.counts

    @property
    def operand_by_group(self) -> bool:
        """Tells whether a unit's rows in a group become one number first. A sum is then no sum over smaller groups."""
        return self.operand is not None and bool(self.operand.per_group)

    @property
    def is_quantile(self) -> bool:
        """Tells whether the aggregate is a quantile, a minimum or a maximum."""
        return self.function == "quantile"

    @property
    def has_curved_error(self) -> bool:
        """Tells whether the error depends on the answer. Intervals are then stored with the release."""
        return self.function not in ("count", "sum", "distinct")


@dataclass(frozen=True)
class Treatment:
    """Planning and post-processing of answers. All fields are public.

    The digest omits each field after `quantiles` that has its default, and always omits `usual` and `public_totals`. It
    omits `quantiles` if it is 'tree', or if no quantile is asked for.
    """

    strategy: str = "auto"
    budgets: str = "optimal"
    consistency: str = "l2"
    nonnegative: bool = False
    integer: bool = False
    weights: tuple[Fraction, ...] = ()  # one per grouping set (a in docs/papers.md), none if all weigh the same
    planning_seconds: Fraction = Fraction(2)  # for searches
    strategy_table: str = ""  # a declared public table that holds the strategy's matrix
    aggregate_weights: tuple[Fraction, ...] = ()  # one per aggregate, by first appearance; none if all weigh the same
    quantiles: str = "auto"  # 'tree', 'choice' for the only quantile of a column, 'auto' for the smaller error
    quantile_intervals: bool = True  # whether chosen quantiles pay for intervals
    evenly: bool = False  # whether the error of the worst cell is minimized, not the sum of all errors
    norm: Fraction | None = None  # the largest L2 norm of a unit's counts, where a row at its bound counts 1
    finds_norm: bool = False  # whether the statement itself measures norms, for a part of its price
    sum_norms: tuple[Fraction, ...] = ()  # for each column, the largest L2 norm of a unit's sums
    centers: tuple[Fraction, ...] = ()  # the centres of averages
    groups: int = 0  # the most groups of one unit, 0 for any number
    left_out: bool = False  # whether intervals also cover the rows that MAX ROWS or a norm leaves out
    total: bool = False  # whether cells are scaled up to a total that is measured separately
    usual: bool = False  # whether norms are the default, because the statement gives no bounds
    public_totals: str = ""  # a declared public table with known totals. The digest has Question.totals in its place

    @property
    def names_tables(self) -> bool:
        """Tells whether options name public tables, which are read before planning."""
        return bool(self.strategy_table or self.public_totals)

    @property
    def widens(self) -> bool:
        """Tells whether intervals of counts and sums depend on answers, and are stored with them."""
        return self.left_out or self.total

    @property
    def moves(self) -> bool:
        """Tells whether a step without error formula changes answers. Intervals are of the answers before that step."""
        return self.nonnegative or self.consistency in ("l1", "linf")


@dataclass(frozen=True)
class Target:
    """Standard error in place of a price: planning finds the smallest price that reaches it."""

    stderr: Fraction
    pure: bool  # whether the price is an epsilon (Laplace), not a rho (Gaussian)
    limit: Fraction  # the largest price
    least: Fraction = Fraction(0)  # the smallest price, even if less is enough. It is no part of the digest


@dataclass(frozen=True)
class KeySelection:
    """Selection of groups: a group is published if its noisy number of privacy units is above a threshold."""

    laplace: bool  # whether noise is Laplace, not Gaussian
    groups: int  # C, the most groups of one unit
    least_units: int  # groups with fewer units are never published
    other: bool  # whether one more row is for all groups that are not published


@dataclass(frozen=True)
class JointCounts:
    """Counts that may be planned together: their conditions, and the kinds of rows that the conditions distinguish."""

    conditions: tuple[str, ...]
    columns: tuple[SourceColumn, ...]  # of the conditions
    codes: tuple[int, ...]  # the kind of each combination of the columns' values, row-major
    met: tuple[tuple[int, ...], ...]  # for each condition, 1 for each kind of row that meets it, else 0

    @property
    def kinds(self) -> int:
        return len(self.met[0])


@dataclass(frozen=True)
class PublicTotal:
    """Public total of an aggregate: the sum of its answers in all cells with these labels.

    cell: increasing positions of keys, each with the position of its label. A key without an entry is summed over.
    """

    aggregate: int
    cell: tuple[tuple[int, int], ...]
    total: Fraction

    @property
    def members(self) -> tuple[int, ...]:
        """Returns the keys that have a label."""
        return tuple(key for key, _ in self.cell)


@dataclass(frozen=True)
class Question:
    """Question about the rows: keys, aggregates and their treatment.

    matrix: an analyst's own strategy, as (row, column of each key, value), from 0. Column -1 stands for all values.
    intervals: if each aggregate counts an interval of the only source's bins, the first bin and the bin after the last.
    together: ways in which counts may be planned together, each with groups of counts. They follow from the other
    fields and from the policy, and are no part of the digest.
    """

    sources: tuple[SourceColumn, ...] = ()
    keys: tuple[Key, ...] = ()
    grouping_sets: tuple[tuple[int, ...], ...] = ((),)  # positions in keys, increasing, no set twice
    aggregates: tuple[Aggregate, ...] = (Aggregate("", "count(*)"),)
    treatment: Treatment = Treatment()
    matrix: tuple[tuple[int, ...], ...] = ()
    intervals: tuple[tuple[int, int], ...] = ()
    selection: KeySelection | None = None  # of groups from the data, with one grouping set; None for public groups
    summary: Summary | None = None
    own: tuple[tuple[str, Value], ...] = ()  # options that a mechanism added. The digest has them if there are any
    totals: tuple[PublicTotal, ...] = ()  # to which answers are brought. The digest has them if there are any
    together: tuple[tuple[JointCounts, ...], ...] = field(default=(), compare=False, repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(key.labels) for key in self.keys)

    @property
    def cells(self) -> tuple[int, ...]:
        return tuple(prod(self.sizes[key] for key in grouping_set) for grouping_set in self.grouping_sets)

    @property
    def tells_keys_apart(self) -> bool:
        """Tells whether any two combinations of source values differ in some key, or are dropped.

        The kernel checks the same for its job (counting.jobs.CountingJob), and otherwise refuses bounds on groups.
        """
        positions: set[int] = set()
        for key in self.keys:
            codes = [code for code in key.codes if code >= 0]
            if not key.row_sql and len(set(codes)) == len(codes):
                positions.update(key.sources)
        return positions >= set(range(len(self.sources)))

    @property
    def characters(self) -> int:
        """Returns the most characters in the texts of one row: the sum over keys of the longest label."""
        texts = (key.labels for key in self.keys if sql_type(key.type_name).has_any_letters)
        return sum(max((len(label) for label in labels if label is not None), default=0) for labels in texts)

    @property
    def answer_sizes(self) -> tuple[int, ...]:
        return tuple(key.released_size for key in self.keys)

    @property
    def has_ranges(self) -> bool:
        """Tells whether the question is planned as ranges, so that every cell has its own error."""
        return any(key.shape for key in self.keys) or bool(self.matrix) or bool(self.intervals)


@dataclass(frozen=True)
class Price:
    """Price of a statement."""

    charge: Charge  # with a target it is empty until planning has found it, and is no part of the digest
    stated_epsilon: Fraction | None
    stated_delta: Fraction | None
    refresh: str  # a text. With each new text, the same request pays again
    target: Target | None
    least_rho: Fraction  # under MIN EPSILON. It is no part of the digest


_ASIDE = (
    "shapes", "source", "cell_key", "unit", "columns", "least_rho", "together",
)  # fmt: skip
"""Fields that follow from the rest, or from the policy's revision. They are no part of a digest."""


@dataclass(frozen=True)
class SelectRequest:
    """Private release: its rows, its question about them, and its price."""

    rows: RequestRows
    question: Question
    price: Price

    @property
    def asked_tables(self) -> tuple[TableName, ...]:
        """Returns the private tables that the statement names. The analyst must have the right to ask about each."""
        named = (read.table for read in self.rows.reads if not read.hidden)
        return tuple(dict.fromkeys((self.rows.table, *named)))

    @property
    def cell_rows(self) -> int:
        """Returns the most rows of one unit in one cell of all keys."""
        unit = self.rows.unit_sql or ""
        grouped = {unit, *(source.sql for source in self.question.sources)}
        columns = {f"{unit.partition('.')[0]}.{quote_identifier(name)}" for name in self.rows.cell_key}
        return 1 if columns and columns <= grouped else self.rows.unit_bound

    def digest(self) -> str:
        """Returns the name of this request. Statements that ask for the same release have equal digests."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        rows, question, price, treatment = self.rows, self.question, self.price, self.question.treatment
        description = {
            **_fields(rows, *_ASIDE),
            "unit_sql": rows.unit_sql,
            **_fields(question, *_ASIDE),
            **_fields(price, *_ASIDE),
        }
        if rows.periods is None:
            del description["periods"]
        elif not rows.periods.also:
            description["periods"] = _fields(rows.periods, "also")
        if not question.own:
            del description["own"]
        if not question.totals:
            del description["totals"]
        description["aggregates"] = [_fields(aggregate, "text", "counts") for aggregate in question.aggregates]
        usual = {  # earlier versions had no such fields, so these values are no part of the digest
            "quantiles": treatment.quantiles == TREE or not any(agg.is_quantile for agg in question.aggregates),
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
            "public_totals": True,
        }
        description["treatment"] = _fields(treatment, *(name for name, held in usual.items() if held))
        if price.target is not None:  # a search may find another price next time, but the statement is the same
            for field_name in ("charge", "stated_epsilon", "stated_delta"):
                del description[field_name]
            description["target"] = _fields(price.target, "least")
        canonical = json.dumps(description, sort_keys=True, default=lambda x: _fields(x) if is_dataclass(x) else str(x))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def as_before(self) -> SelectRequest | None:
        """Returns the request that earlier versions made of the same text. None if it is this request.

        Earlier defaults were trees for quantiles, and noise by MAX ROWS for units with many rows.
        """
        treatment = self.question.treatment
        if treatment.usual:
            return replace(self, question=replace(self.question, treatment=Treatment()))
        written = treatment.quantiles != AUTO or not treatment.quantile_intervals
        if written or not any(aggregate.is_quantile for aggregate in self.question.aggregates):
            return None
        before = replace(treatment, quantiles=TREE)
        return replace(self, question=replace(self.question, treatment=before))


def _fields(record: object, *aside: str) -> dict[str, object]:
    """Returns the fields of a record except `aside`. asdict would copy each value, and domains are long."""
    return {
        attribute.name: getattr(record, attribute.name)
        for attribute in fields(record)  # type: ignore[arg-type]
        if attribute.name not in aside
    }
