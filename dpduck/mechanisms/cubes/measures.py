"""Tables of integers that answer a statement's aggregates, and the part of the price for each table.

Aggregates share a measurement if it serves them all. For example, the sum, avg and count of a column come from the two
tables of distances from its bounds (kernel/contributions.py). Everything here follows from public facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.rows.compiled import raw_program
from dpduck.language.rows.facts import SourceColumn
from dpduck.language.select.analyse import Analysis
from dpduck.language.select.request import CHOICE, TREE, Aggregate, JointCounts, Operand, Question
from dpduck.language.text.names import TableName
from dpduck.mechanisms.cubes.quantiles import TREES, QuantileRule, power_of
from dpduck.store.catalog import Catalog
from dpduck.strategies.counts import CountStrategy, plan_counts
from dpduck.strategies.ranges.hierarchy import LARGEST_DENSE
from dpduck.values.errors import InternalError, Refusal

MOST_ENTRIES = 200_000
MOST_ROWS = 4096
LARGEST_VALUE = 1000


def with_matrix(analysis: Analysis, catalog: Catalog) -> Analysis:
    """Returns the analysis with the strategy matrix from the table that its option strategy_table names.

    The table's columns are row, column, value, or for several grouping columns row, column_1, column_2, .., value. The
    column 0 stands for every value.
    """
    request = analysis.request
    named = request.question.treatment.strategy_table
    sizes, treatment = request.question.sizes, request.question.treatment
    if not sizes or treatment.strategy != "auto":
        raise Refusal(
            "strategy_table is for grouping columns, in place of the option strategy",
            accepted="GROUP BY with columns, PREFIXES(column) or RANGES(column), without the option strategy",
        )
    if prod(sizes) > LARGEST_DENSE:
        raise Refusal(
            f"a strategy over {prod(sizes)} cells", accepted=f"at most {LARGEST_DENSE} cells for strategy_table"
        )
    table = catalog.resolve(TableName(tuple(named.split("."))))
    if table is None or not catalog.is_public(table):
        raise Refusal(f"{named!r} is no public table", accepted="a table after DECLARE PUBLIC TABLE")
    names = ("column",) if len(sizes) == 1 else tuple(f"column_{place + 1}" for place in range(len(sizes)))
    entries = catalog.integer_rows(table, ("row", *names, "value"), MOST_ENTRIES)
    matrix = _check_entries(entries, sizes, str(table))
    digests = (*request.rows.public_digests, (table, catalog.public_digest(table)))
    rows, question = replace(request.rows, public_digests=digests), replace(request.question, matrix=matrix)
    return replace(analysis, request=replace(request, rows=rows, question=question))


def _check_entries(entries: list[tuple[int, ...]], sizes: Sequence[int], table: str) -> tuple[tuple[int, ...], ...]:
    if not 1 <= len(entries) <= MOST_ENTRIES:
        raise Refusal(f"{table} has {len(entries) or 'no'} entries", accepted=f"1 to {MOST_ENTRIES} of them")
    if len({entry[:-1] for entry in entries}) != len(entries):
        raise Refusal(f"{table} has two values for one row and column", accepted="one value for each")
    for entry in entries:
        row, *columns, value = entry
        inside = all(0 <= column <= size for column, size in zip(columns, sizes, strict=True))
        if not (1 <= row <= MOST_ROWS and inside and abs(value) <= LARGEST_VALUE):
            raise Refusal(
                f"{table} has the entry {entry}",
                accepted=f"rows from 1 to {MOST_ROWS}, columns from 1 to {' and '.join(map(str, sizes))} "
                "(the values of the domain in order) or 0 for every value, "
                f"values from -{LARGEST_VALUE} to {LARGEST_VALUE}",
            )
    return tuple((row - 1, *(column - 1 for column in columns), value) for row, *columns, value in entries)


def matrix_of(question: Question) -> NDArray[np.int64]:
    """Returns the strategy as a matrix, shape (rows, cells). Several entries for one row and cell add up."""
    matrix = np.zeros((max(entry[0] for entry in question.matrix) + 1, *question.sizes), np.int64)
    for row, *columns, value in question.matrix:
        matrix[(row, *(slice(None) if column < 0 else column for column in columns))] += value
    return matrix.reshape(len(matrix), -1)


SHARES = 1 << 24
"""Parts of the price are multiples of 1/SHARES."""

Unit = tuple[int, int, Callable[["Measure"], int]]
Column = tuple[str, Operand]
"""A condition, and the operand of the rows that meet it."""

MOST_CHOICES = 4
"""For up to this many columns, all combinations of sums by themselves and sums from moments are tried."""

MOST_SQUARED_STEPS = 1 << 13
"""Most steps between the bounds of a value that is squared. For squares of more steps, samplers could not draw the
noise.
"""

AVERAGE_ERROR = {1: 2 / 3, 2: 3 / 4}
"""Relative variance of an average by the degree of its moments: a mean over all averages between the bounds."""
VARIANCE_ERROR = 1 / 2


@dataclass(frozen=True)
class Measure:
    """Tables of integers that are measured in the same way, for one price.

    condition, operand: the rows that count and the summed number, in the analyst's SQL.
    key: a further key: buckets of the value (TREE, or CHOICE near the quantile of `fraction`), values of `distinct`, or
        the `kinds` of rows that counts planned 'together' tell apart.
    """

    contribution: Contribution
    condition: str = ""
    operand: Operand | None = None
    key: str = ""
    distinct: SourceColumn | None = None
    share: Fraction = Fraction(1)
    fraction: Fraction | None = None
    kinds: JointCounts | None = None
    strategy: CountStrategy | None = None

    @property
    def form(self) -> str:
        return self.key or self.contribution.form

    @property
    def is_sum(self) -> bool:
        """Tells whether the tables are sums over rows, so that a cell of a marginal is the sum of finer cells."""
        return self.key in ("", "together")

    def unit_bound(self, rows: int, cells: int) -> int:
        """Returns the most that one unit with `rows` rows adds to all tables together. cells: cells of a table."""
        if self.distinct is not None:
            return min(rows, self.distinct.domain.size * cells)
        return self.contribution.unit_bound(rows, cells)

    @property
    def noisy_tables(self) -> int:
        return self.contribution.tables if self.strategy is None else len(self.strategy.rows)

    def with_norm(self, squared: int) -> Measure:
        """Returns the measure with a largest squared L2 norm. Rows of a unit above it get a smaller weight."""
        return replace(self, contribution=replace(self.contribution, norm=squared))


def measure_rows(condition: str, key: str = "", operand: Operand | None = None) -> Measure:
    """Returns the measure that counts the rows under a condition, by a further key if there is one."""
    return Measure(Contribution(raw_program(condition)), condition, operand, key)


def measure_values(
    form: str, condition: str, operand: Operand, degree: int = 0, rest: bool = False,
    centre: Fraction = Fraction(0), shared: bool = False,
) -> Measure:  # fmt: skip
    """Returns the measure of an operand's values under a condition. The parameters are those of a Contribution."""
    steps = int((operand.high - operand.low) / operand.step)
    contribution = Contribution(
        raw_program(condition),
        form,
        raw_program(operand.sql),
        operand.low,
        operand.high,
        min(steps, MOST_SQUARED_STEPS) if degree == 2 else steps,
        degree,
        rest,
        operand.per_group,
        centre=centre,
        shared=shared,
    )
    return Measure(contribution, condition, operand)


@dataclass(frozen=True)
class Use:
    """Use of a measure by an aggregate. weights: of its tables, if the answer is a weighted sum.

    also: the use of a further measure. An average has a count and then a sum, a variance also squares.
    tables: the positions of the weighted tables, empty for all.
    """

    measure: int
    weights: tuple[Fraction, ...] = ()
    also: Use | None = None
    tables: tuple[int, ...] = ()

    @property
    def size(self) -> float:
        """Returns the sum of the squared weights: the variance of the answer if each table has variance 1."""
        return float(sum(weight * weight for weight in self.weights))

    @property
    def parts(self) -> list[Use]:
        return [self, *([] if self.also is None else self.also.parts)]


@dataclass(frozen=True)
class Measures:
    """Measures of a statement, and their use by each aggregate, in order."""

    measures: tuple[Measure, ...]
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class Counts:
    """Ways to plan counts together: each way is a list of groups of counts that share a measurement.

    evenly: whether the error of the worst count is minimised, not the sum of errors.
    plain: whether nothing but the counts themselves may be measured.
    """

    ways: tuple[tuple[JointCounts, ...], ...] = ()
    evenly: bool = False
    plain: bool = False
    searched: bool = False


APART = Counts()
"""Every count by itself."""

TIE = 1e-6
"""Least relative decrease of the error for which counts are planned together."""


def choose_measures(
    aggregates: Sequence[Aggregate],
    weights: Sequence[Fraction],
    noise: NoiseKind,
    rule: QuantileRule = TREES,
    unit: Unit = (1, 1, lambda measure: 1),
    counts: Counts = APART,
) -> Measures:
    """Returns the measures with the least predicted error, and their shares of the price.

    A sum by itself has a smaller bound, max(|low|, |high|), than a sum from moments. Moments also give counts, even of
    rows without a value.

    unit: the most rows of a unit, in all and in one cell, and the number of its cells. They affect the shares alone.
    """
    given = [float(weight) for weight in weights] or [1.0] * len(aggregates)
    summed = dict.fromkeys(_columns_of(aggregates, ["sum"]))
    free = [key for key in summed if not _moment_degrees(aggregates, key) & ({1} if is_coarse(key[1]) else {1, 2})]
    picked = rule.choose(aggregates, given, noise)
    choices: list[Measures] = []
    for moments in product((False, True), repeat=len(free)) if len(free) <= MOST_CHOICES else [(False,) * len(free)]:
        chosen = {key for key, flag in zip(free, moments, strict=True) if flag}
        counted = {key[0] for key in [*chosen, *_columns_of(aggregates, _DEGREES)]}
        rests = counted & {item.condition for item in aggregates if _is_row_count(item)}
        choices += [
            _build_measures(aggregates, chosen, rest, picked) for rest in ([set(), rests] if rests else [set()])
        ]
    if len(choices) == 1 and len(choices[0].measures) == 1:
        return choices[0]  # nothing to choose between, and nothing to share the price with
    priced = [_share_price(item, aggregates, given, noise, rule) for item in choices]
    error, best = min(priced, key=lambda pair: pair[0])
    joined = [
        item for way in counts.ways if (item := _join_counts(best, aggregates, given, noise, way, counts)) is not None
    ]
    if counts.evenly and joined:
        return _even_shares([best, *joined], noise)
    for item in joined:
        figure, _ = _share_price(item, aggregates, given, noise, rule)
        if figure < error * (1 - TIE):
            error, best = figure, item
    return _share_price(
        best, aggregates, given, noise, rule, [_relative_sensitivity(item, noise, unit) for item in best.measures]
    )[1]


def _join_counts(
    base: Measures, aggregates: Sequence[Aggregate], weights: Sequence[float], noise: NoiseKind,
    way: Sequence[JointCounts], counts: Counts,
) -> Measures | None:  # fmt: skip
    """Returns the measures with counts joined in one way, None if it joins none. Counts from moments stay alone."""
    counted = [item.count_condition if base.measures[use.measure].form in ("count", "sum") else None
               for item, use in zip(aggregates, base.uses, strict=True)]  # fmt: skip
    measures, uses = list(base.measures), list(base.uses)
    for group in way:
        numbers = [number for number, item in enumerate(counted) if item in group.conditions]
        conditions = [item for item in group.conditions if item in counted]
        if len(conditions) < 2:
            continue
        met = tuple(group.met[group.conditions.index(item)] for item in conditions)
        heavy = [sum(weights[number] for number in numbers if counted[number] == item) for item in conditions]
        strategy = plan_counts(met, tuple(heavy), noise, counts.evenly, counts.plain, counts.searched)
        kinds = replace(group, conditions=tuple(conditions), met=met)
        measures.append(Measure(Contribution(), key="together", kinds=kinds, strategy=strategy))
        for number in numbers:
            line = strategy.weights[conditions.index(counted[number] or "")]
            tables = tuple(table for table, weight in enumerate(line) if weight) or (0,)
            uses[number] = Use(len(measures) - 1, tuple(line[table] for table in tables), tables=tables)
    used = sorted({use.measure for use in uses})
    if len(measures) == len(base.measures):
        return None
    moved = tuple(replace(use, measure=used.index(use.measure)) for use in uses)
    return Measures(tuple(measures[number] for number in used), moved)


def _even_shares(choices: Sequence[Measures], noise: NoiseKind) -> Measures:
    """Returns the choice with the least worst error of a count. At its shares, all measures err equally at worst."""
    best: tuple[float, Measures] | None = None
    for way in choices:
        worst = [0.0] * len(way.measures)
        for use in way.uses:
            measure = way.measures[use.measure]
            times = 1 if measure.strategy is None else measure.strategy.times(noise)
            worst[use.measure] = max(worst[use.measure], use.size * times)
        wanted = [error if noise is NoiseKind.GAUSSIAN else error**0.5 for error in worst]
        if best is None or sum(wanted) < best[0] * (1 - TIE):
            pairs = zip(way.measures, shares_of(wanted), strict=True)
            best = sum(wanted), replace(way, measures=tuple(replace(measure, share=share) for measure, share in pairs))
    if best is None:
        raise InternalError("no measures to choose from")
    return best[1]


def _relative_sensitivity(measure: Measure, noise: NoiseKind, unit: Unit) -> float:
    """Returns a unit's squared sensitivity in the noise's norm, relative to a unit with all its rows in one cell."""
    rows, cell_rows, cells_of = unit
    whole, moved = (rows * measure.contribution.bound) ** 2, measure.unit_bound(rows, cells_of(measure))
    by_cell = noise is NoiseKind.GAUSSIAN and (measure.is_sum or measure.distinct is not None)
    one_cell = measure.unit_bound(cell_rows if measure.is_sum and measure.kinds is None else rows, 1)
    return moved * (min(moved, one_cell) if by_cell else moved) / whole


def _is_row_count(aggregate: Aggregate) -> bool:
    return aggregate.function == "count" and aggregate.operand is None


def _moment_degrees(aggregates: Sequence[Aggregate], key: Column) -> set[int]:
    return {
        _DEGREES[aggregate.function]
        for aggregate in aggregates
        if aggregate.function in _DEGREES and (aggregate.condition, aggregate.operand) == key
    }


def is_coarse(operand: Operand) -> bool:
    """Tells whether squares of the operand are in coarser steps than its values. They serve variances alone."""
    return (operand.high - operand.low) / operand.step > MOST_SQUARED_STEPS


def _columns_of(aggregates: Sequence[Aggregate], functions: Collection[str]) -> list[Column]:
    return [
        (aggregate.condition, aggregate.operand)
        for aggregate in aggregates
        if aggregate.function in functions and aggregate.operand is not None
    ]


_DEGREES = {"avg": 1, "var_pop": 2, "var_samp": 2, "stddev_pop": 2, "stddev_samp": 2}


def _build_measures(
    aggregates: Sequence[Aggregate], as_moments: set[Column], rests: set[str],
    picked: frozenset[Aggregate],
) -> Measures:  # fmt: skip
    """Returns the measures of one choice. as_moments: the columns with sums that come from moments.

    rests: the conditions of moments that also count rows without a value, so that count(*) comes from these moments.
    """
    measures: list[Measure] = []
    blocks: dict[tuple[str, Operand, int], int] = {}
    holders: dict[str, int] = {}
    for condition, operand in dict.fromkeys([*as_moments, *_columns_of(aggregates, _DEGREES)]):
        degrees = _moment_degrees(aggregates, (condition, operand)) | (
            {1} if (condition, operand) in as_moments else set()
        )
        if not is_coarse(operand):
            degrees = {max(degrees)}
        for degree in sorted(degrees):
            rest = condition in rests and condition not in holders and not operand.per_group
            if rest:
                holders[condition] = len(measures)
            blocks[(condition, operand, degree)] = len(measures)
            measures.append(measure_values("moments", condition, operand, degree, rest))
    uses = []
    for aggregate in aggregates:
        block = _block(aggregate, blocks)
        if _is_row_count(aggregate) and aggregate.condition in holders:
            number = holders[aggregate.condition]
        elif block is not None:
            number = block
        else:
            measure = own_measure(aggregate, chosen=aggregate in picked)
            if measure not in measures:
                measures.append(measure)
            number = measures.index(measure)
        uses.append(Use(number, linear_weights(aggregate, measures[number])))
    return Measures(tuple(measures), tuple(uses))


def _block(aggregate: Aggregate, blocks: Mapping[tuple[str, Operand, int], int]) -> int | None:
    """Returns the position of moments that serve an aggregate: of its degree or a higher one, with steps as fine."""
    if aggregate.function in ("quantile", "distinct") or aggregate.operand is None:
        return None
    first = _DEGREES.get(aggregate.function, 1)
    numbers = [blocks.get((aggregate.condition, aggregate.operand, degree)) for degree in range(first, 3)]
    if first == 1 and aggregate.function != "count" and is_coarse(aggregate.operand):
        numbers = numbers[:1]
    return next((number for number in numbers if number is not None), None)


def own_measure(aggregate: Aggregate, chosen: bool) -> Measure:
    """Returns the measure of an aggregate by itself. chosen: whether the exponential mechanism answers a quantile."""
    if chosen:
        return replace(measure_rows(aggregate.condition, CHOICE, aggregate.operand), fraction=aggregate.fraction)
    if aggregate.function == "quantile":
        return measure_rows(aggregate.condition, TREE, aggregate.operand)
    if aggregate.function == "distinct":
        return replace(measure_rows(aggregate.condition, "distinct"), distinct=aggregate.distinct)
    if aggregate.operand is None:
        return measure_rows(aggregate.condition)
    if aggregate.function == "sum" or aggregate.operand.per_group:
        return measure_values("sum", aggregate.condition, aggregate.operand)
    present = f"{aggregate.operand.sql} IS NOT NULL"  # rows with a value, which is not used otherwise
    return measure_rows(f"({aggregate.condition}) AND {present}" if aggregate.condition else present)


def linear_weights(aggregate: Aggregate, measure: Measure) -> tuple[Fraction, ...]:
    """Returns the weights of a measure's tables, or () if the aggregate is no weighted sum of these tables."""
    if aggregate.has_curved_error:
        return ()
    added = measure.contribution
    if added.form != "moments":
        return (added.unit,)
    parts, rest = range(added.degree + 1), (Fraction(0),) * added.rest
    if aggregate.function == "sum":
        low, width = added.low, added.high - added.low
        return tuple(added.unit * (low + width * part / added.degree) for part in parts) + rest
    return (added.unit,) * added.tables if aggregate.operand is None else (added.unit,) * len(parts) + rest


def _relative(aggregate: Aggregate, use: Use, measure: Measure, noise: NoiseKind, rule: QuantileRule) -> float:
    """Estimates an aggregate's variance relative to its largest value, for noise at the scale of a row's bound."""
    if use.weights:
        size = Fraction(1)
        if aggregate.function == "sum" and aggregate.operand is not None:
            size = max(abs(aggregate.operand.low), abs(aggregate.operand.high))
        elif aggregate.operand is not None and aggregate.operand.per_group:
            size = aggregate.operand.high
        own = float(sum((weight * measure.contribution.bound / size) ** 2 for weight in use.weights))
        return own if measure.strategy is None else own * measure.strategy.times(noise)
    if aggregate.is_quantile:
        return rule.error(aggregate, noise, chosen=measure.form == CHOICE)
    return AVERAGE_ERROR[measure.contribution.degree] if aggregate.function == "avg" else VARIANCE_ERROR


def _share_price(
    choice: Measures,
    aggregates: Sequence[Aggregate],
    weights: Sequence[float],
    noise: NoiseKind,
    rule: QuantileRule,
    moved: Sequence[float] = (),
) -> tuple[float, Measures]:
    """Returns the predicted error at the best shares, and the measures with these shares.

    Let D_j be the sum of the weighted relative variances that aggregates take from measure j at the whole price. The
    error is the sum of D_j / share^2 (Laplace) or D_j / share (Gaussian). The best shares are proportional to D_j^(1/3)
    or D_j^(1/2).

    moved: the relative squared sensitivity of each measure, empty if all are 1.
    """
    demands = [0.0] * len(choice.measures)
    for aggregate, use, weight in zip(aggregates, choice.uses, weights, strict=True):
        demands[use.measure] += weight * _relative(aggregate, use, choice.measures[use.measure], noise, rule)
    demands = [demand * times for demand, times in zip(demands, moved or [1.0] * len(demands), strict=True)]
    power = power_of(noise)
    wanted = [demand**power for demand in demands]
    measures = zip(choice.measures, shares_of(wanted), strict=True)
    shared = tuple(replace(measure, share=share) for measure, share in measures)
    return sum(wanted) ** (1 / power), replace(choice, measures=shared)


def shares_of(wanted: Sequence[float]) -> list[Fraction]:
    """Returns parts that add up to at most 1, proportional to `wanted`. If all are equal, the parts are exact."""
    if max(wanted) <= min(wanted) * (1 + 1e-12):
        return [Fraction(1, len(wanted))] * len(wanted)
    free, total = SHARES - len(wanted), sum(wanted)
    return [Fraction(max(1, int(part / total * free)), SHARES) for part in wanted]
