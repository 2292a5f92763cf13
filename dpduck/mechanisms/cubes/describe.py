"""dp_explain and dp_errors of cubes: every candidate strategy, the SQL over private rows, and the errors of answers.

The errors of all aggregates and the most helpful changes follow from public figures alone. Errors of averages,
variances and quantiles depend on the answer. They are predicted for a table that the policy lets one expect: EXPECT
ROWS, spread evenly over the cells of a grouping set, with values spread evenly between their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import hypot, inf, isfinite, sqrt

import numpy as np

from dpduck.kernel.contributions import FULL
from dpduck.kernel.counting.exact import job_sql
from dpduck.kernel.door import compute_charge
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.private_keys import groups_text
from dpduck.language.select.request import AUTO, TREE, Aggregate, Key, Question, SelectRequest
from dpduck.language.text.names import in_sql
from dpduck.mechanisms.cubes.measure import CubeProposal, cube_asks, scans_of
from dpduck.mechanisms.cubes.measures import Measure, Use
from dpduck.mechanisms.cubes.plan import CubePlan, MeasurePlan, amount_of, plans_at, rule_of, tree_buckets, with_rivals
from dpduck.mechanisms.cubes.recover import cell_variances, nonlinear_answers, of_centre
from dpduck.mechanisms.cubes.seconds import estimate_seconds
from dpduck.mechanisms.cubes.weighed import bounds
from dpduck.mechanisms.forecast import AggregateError, Forecast, by_rows
from dpduck.mechanisms.unit_counts import warn_of_count_bounds
from dpduck.strategies.choose import spell_out
from dpduck.strategies.plan import Plan
from dpduck.strategies.recovery.quantiles import bounds_of, rank_deviations
from dpduck.values.arrays import FloatArray
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Budget

MOST_SECONDS = 2.0
"""Time limit in seconds of the search for helpful changes. The planning time of the statement gives an estimate."""

MANY_ROWS, ONE_FIGURE = 1e7, 0.02
"""Rows of a cell with hardly any noise, and the relative difference up to which two figures count as one."""

MOST_HELPS = 3
FEWEST_BINS = 4
FEWEST_ROWS = 10
"""Fewest rows of a cell that are written without decimals."""

ONE = Fraction(1)
WORTHWHILE = 1.2
"""Smallest factor by which a change must reduce errors to be called a help."""


def foreseen(cube: CubePlan, expect_rows: int | None) -> list[AggregateError]:
    """Returns the predicted error of each aggregate, in the order of the statement."""
    if cube.request.question.intervals:  # one aggregate each, measured together
        plan = cube.measures[0].plan
        worst = plan.worst_stderr
        return [AggregateError(aggregate.text, 1, None, worst, worst) for aggregate in cube.request.question.aggregates]
    pairs = zip(cube.request.question.aggregates, cube.uses, strict=True)
    return [_foreseen(cube, aggregate, use, expect_rows) for aggregate, use in pairs]


def _foreseen(cube: CubePlan, aggregate: Aggregate, use: Use, expect_rows: int | None) -> AggregateError:
    measured = cube.measures[use.measure]
    variances = cell_variances(measured.plan)
    tree = measured.measure.form == TREE
    rank = sqrt(max(float(table.max()) for table in variances)) if tree else None
    queries = 2 * tree_buckets(cube.request.question, measured.measure).count - 1 if tree else 1
    sizes = [table.size // queries for table in variances]
    rows = None if expect_rows is None else float(round(expect_rows / max(sizes), 1))
    if use.weights:
        parts = [use.size * table for table in variances]
        if use.also is not None:
            others = cell_variances(cube.measures[use.also.measure].plan)
            step = float(use.also.weights[0])
            parts = [part + step**2 * table for part, table in zip(parts, others, strict=True)]
    elif expect_rows is None:
        most = max(_by_rows(cube, aggregate, use, table) or inf for table in variances)
        return AggregateError(aggregate.text, sum(sizes), None, None, None, rank, most if isfinite(most) else None)
    else:
        parts = [
            np.full(size, _nonlinear_error(cube, aggregate, use, table, expect_rows / size) ** 2)
            for size, table in zip(sizes, variances, strict=True)
        ]
    together = np.concatenate(parts)
    typical, worst = sqrt(float(together.mean())), sqrt(float(together.max()))
    if use.weights or sum(sizes) == 1:
        return AggregateError(aggregate.text, sum(sizes), rows, typical, worst, rank)
    times = _by_rows(cube, aggregate, use, max(variances, key=len))
    return AggregateError(aggregate.text, sum(sizes), rows, typical, None, rank, times)


def _nonlinear_error(cube: CubePlan, one: Aggregate, use: Use, table: FloatArray, rows: float) -> float:
    """Returns the standard error of an average, a variance or a quantile of `rows` rows, at most the answers' range."""
    measured, operand = cube.measures[use.measure], one.operand
    if operand is None:
        return 0.0
    if one.is_quantile:
        return _quantile_error(cube, one, measured, table, rows)
    if use.also is not None:
        every = (cell_variances(cube.measures[part.measure].plan) for part in use.parts)
        largest = [np.array([max(float(one.max()) for one in variances)]) for variances in every]
        tables = [np.array([rows * FULL]), *_spread_evenly(cube, one, use, rows)]
        answer = of_centre(cube, one, use, tables, [np.array([table.max()]), *largest[1:]])
    else:
        added = measured.measure.contribution
        answers = [np.array([rows * float(added.bound) / (added.degree + 1)])] * (added.degree + 1)
        answer = nonlinear_answers(cube, one, measured, answers, np.array([table.max()]))
    possible = float(answer.highs[-1, 0] - answer.lows[-1, 0])
    error = float(answer.stderrs[0])
    return min(error, possible) if isfinite(error) else possible


def _spread_evenly(cube: CubePlan, call: Aggregate, use: Use, rows: float) -> list[FloatArray]:
    """Returns the sums of `rows` rows about the centre, and of their squares, if values are spread evenly."""
    sums = [np.zeros(1)]
    if len(use.parts) > 2 and call.operand is not None:
        width, squares = call.operand.high - call.operand.low, cube.measures[use.parts[2].measure].measure.contribution
        sums.append(np.array([rows * FULL * float(width**2 / squares.unit) / 12]))
    return sums


def _quantile_error(
    cube: CubePlan, aggregate: Aggregate, measured: MeasurePlan, table: FloatArray, rows: float
) -> float:
    """Returns the standard error of a quantile, at least the error of an unknown place within its bucket.

    A quantile lies between two rows. The error of a minimum or maximum has two parts. One is the distance of the value
    that stands for it. The other is the noise of its rank.
    """
    buckets = tree_buckets(cube.request.question, measured.measure)
    width, least = float(buckets.width * buckets.count), float(buckets.width) / sqrt(12)
    gap = width / max(rows, 1.0) / sqrt(3)
    if measured.choices:
        return min(max(hypot(measured.choices[0].deviation(rows) * width, gap), least), width)
    below = rows * np.arange(1, buckets.count) / buckets.count
    answers = np.concatenate([below, rows - below, [rows]])[None, :]
    noise = table.reshape(-1, answers.size).max(axis=0)
    answer = nonlinear_answers(cube, aggregate, measured, [answers], noise)
    if not isfinite(float(answer.estimates[0])):
        return width / sqrt(12)
    if isfinite(float(answer.stderrs[0])):
        return min(max(hypot(float(answer.stderrs[0]), gap), least), width)
    lowest, highest = bounds_of(buckets)
    inward = abs(float(answer.estimates[0]) - (highest if aggregate.fraction else lowest))
    ranks = rank_deviations(noise[None, :], float(aggregate.fraction or 0), buckets.count - 1)[0]
    place = min(int(inward / float(buckets.width)), buckets.count - 2)
    rank = float(ranks[-1 - place if aggregate.fraction else place])
    return max(min(hypot(inward, rank / rows * width), width), least)


def _by_rows(cube: CubePlan, aggregate: Aggregate, use: Use, table: FloatArray) -> float | None:
    """Returns the standard error of a cell times its rows, if that is one figure for every cell with enough rows."""
    some, more = (rows * _nonlinear_error(cube, aggregate, use, table, rows) for rows in (MANY_ROWS, 4 * MANY_ROWS))
    return more if abs(more - some) <= ONE_FIGURE * more else None


# The changes that reduce the errors of all aggregates most, relative to the rows of a cell.


@dataclass(frozen=True)
class Help:
    """Change of the statement or policy, and the least factor by which errors fall, relative to a cell's rows."""

    change: str
    times: float


def helps(cube: CubePlan, same_cost: Fraction | None, expect_rows: int | None) -> list[Help]:
    """Returns the changes that help most, best first: fewer cells, coarser bins, MAX ROWS, the noise of a delta.

    same_cost: the rho that the statement is charged, if the budget adds up rho.
    """
    before = _figures(cube, expect_rows)
    if not any(before):
        return []
    offers = []
    for change, changed in _changes(cube, same_cost):
        pairs = zip(before, _figures(changed, expect_rows), strict=True)
        times = [base / error for base, error in pairs if base and error]
        offers += [Help(change, min(times))] if times else []
    worth = sorted((offer for offer in offers if offer.times >= WORTHWHILE), key=lambda offer: -offer.times)
    return worth[:MOST_HELPS]


def _figures(cube: CubePlan, expect_rows: int | None) -> list[float | None]:
    """Returns each aggregate's error in dp_errors, relative to the rows of a cell. None stands for no figure.

    The error of an average or a quantile already depends on the rows of a cell, so it is returned unchanged.
    """
    question, figures = cube.request.question, list[float | None]()
    for line, use in zip(foreseen(cube, expect_rows), cube.uses, strict=True):
        cells = 1 if question.intervals else max(question.cells)
        if use.weights and line.typical is not None:
            figures.append(line.typical * cells)
        elif line.typical is not None:
            figures.append(line.typical)
        else:
            by_cell = line.by_rows if line.by_rows is not None else line.rank
            figures.append(None if by_cell is None else by_cell * cells)
    return figures


def _changes(cube: CubePlan, same_cost: Fraction | None) -> Iterator[tuple[str, CubePlan]]:
    """Yields changes of the statement, each with the plan that it leads to, if the planning is quick."""
    took = sum(measure.plan.planning_seconds for measure in cube.measures)
    if took > MOST_SECONDS / 2:
        return
    rows, charge, noise, amount = cube.request.rows, cube.request.price.charge, cube.noise, amount_of(cube.request)
    offers = [*_offers(cube.request)]
    if took * (len(offers) + 1) > MOST_SECONDS:
        offers = []
    if rows.unit_sql is not None and rows.max_rows > 1:
        fewer = rows.max_rows // 2
        bounded = replace(rows, max_rows=fewer, unit_bound=fewer)
        offers.append((f"MAX ROWS {fewer} in the policy, which leaves rows out,", replace(cube.request, rows=bounded)))
    for change, request in offers:
        with suppress(Refusal):
            yield change, plans_at(request, noise, amount)
    if charge.epsilon is not None and same_cost is not None:
        with suppress(Refusal):
            change = f"OPTIONS (rho = {float(same_cost):.4g}), at the same cost,"
            yield change, plans_at(cube.request, NoiseKind.GAUSSIAN, same_cost)


def _offers(request: SelectRequest) -> Iterator[tuple[str, SelectRequest]]:
    """Yields the request without one of its keys, and with bins twice as wide."""
    question = request.question
    if question.has_ranges:
        return
    for place, key in enumerate(question.keys):
        if len(key.labels) < 2:
            continue
        other_keys = tuple(part for number, part in enumerate(question.keys) if number != place)
        sets = (_without(part, place) for part in question.grouping_sets)
        treatment = replace(question.treatment, weights=())
        fewer = replace(_of_keys(question, other_keys), grouping_sets=tuple(dict.fromkeys(sets)), treatment=treatment)
        yield f"no {key.name} ({len(key.labels)} values)", replace(request, question=fewer)
        binned = any(isinstance(question.sources[source].domain, RangeDomain) for source in key.sources)
        if binned and len(key.labels) >= FEWEST_BINS:
            keys = tuple(_coarser(part) if part is key else part for part in question.keys)
            yield f"bins of {key.name} twice as wide", replace(request, question=replace(question, keys=keys))


def _of_keys(question: Question, subset: tuple[Key, ...]) -> Question:
    """Returns the question about some of its keys, with the source columns of these keys alone."""
    used = sorted({source for key in subset for source in key.sources})
    keys = tuple(replace(key, sources=tuple(used.index(source) for source in key.sources)) for key in subset)
    return replace(question, keys=keys, sources=tuple(question.sources[source] for source in used))


def _without(grouping_set: tuple[int, ...], place: int) -> tuple[int, ...]:
    return tuple(number - (number > place) for number in grouping_set if number != place)


def _coarser(key: Key) -> Key:
    return replace(key, labels=key.labels[::2])


def advice(proposal: CubeProposal, budget: Budget | None, expect_rows: int | None) -> str:
    """Names the aggregate with the worst error, and helpful changes. With EXPECT ROWS, errors are per cents of rows."""
    cube = proposal.found
    price = cube.request.price
    in_rho = budget is not None and not budget.pure
    same_cost = compute_charge(price.charge, cube_asks(proposal), price.least_rho).rho if in_rho else None
    cut = warn_of_count_bounds(cube.request)
    parts = (
        cut,
        _bound_of_noise(cube),
        _whose(cube),
        _unknown(cube, expect_rows),
        _helping(cube, same_cost, expect_rows),
    )
    return "; ".join(part for part in parts if part)


def _bound_of_noise(cube: CubePlan) -> str:
    """Names the bound of a unit that sets the noise, and the errors of counts with other norms."""
    request, question = cube.request, cube.request.question
    most, treatment = request.rows.max_rows, question.treatment
    if request.rows.unit_sql is None or most == 1:
        return ""
    if treatment.norm is None and cube.noise is not NoiseKind.GAUSSIAN:
        return ""
    norm = treatment.norm
    said = (
        f"noise goes by {most} rows of a unit"
        if norm is None
        else f"noise goes by max_norm_contributed = {float(norm):g}"
    )
    errors = dict[str, str]()
    if all(aggregate.function == "count" for aggregate in question.aggregates) and not question.has_ranges:
        with suppress(Refusal):
            errors = {
                f"{float(bound):g}": format_figure(_worst_at(cube, bound)) for bound in bounds(ONE, inf, Fraction(most))
            }
    if not errors:
        return said
    norms = f"max_norm_contributed = {', '.join(errors)}, which may leave rows out,"
    return f"{said}; with {norms} the standard error is {', '.join(errors.values())}"


def _worst_at(cube: CubePlan, norm: Fraction) -> float:
    """Returns the largest standard error of counts at a norm."""
    treatment = replace(cube.request.question.treatment, norm=norm, strategy=AUTO)
    request = replace(cube.request, question=replace(cube.request.question, treatment=treatment))
    lines = foreseen(plans_at(request, NoiseKind.GAUSSIAN, amount_of(request)), None)
    return max(line.worst or 0.0 for line in lines)


def _unknown(cube: CubePlan, expect_rows: int | None) -> str:
    """Describes the errors of averages, variances and quantiles by a cell's rows, and the way to get figures."""
    if expect_rows is not None or cube.request.question.intervals:
        return ""
    lines = [line for line in foreseen(cube, None) if line.typical is None]
    if not lines:
        return ""
    text = "".join(f"the error of {row.text} is {by_rows(row.by_rows)}; " for row in lines if row.by_rows is not None)
    named = in_sql(cube.request.rows.table.table)
    return (
        f"{text}ALTER PRIVACY POLICY ON {named} SET EXPECT ROWS n, a public guess, puts figures to the error of "
        f"{', '.join(row.text for row in lines)}"
    )


def _helping(cube: CubePlan, same_cost: Fraction | None, expect_rows: int | None) -> str:
    offers, figures = helps(cube, same_cost, expect_rows), _figures(cube, expect_rows)
    if not offers:
        return ""
    question = cube.request.question
    if expect_rows is None or len(figures) > 1 or any(item.function != "count" for item in question.aggregates):
        less = ", ".join(f"{format_figure(item.times)} times smaller with {item.change.rstrip(',')}" for item in offers)
        return f"relative to a cell's rows, the error would be {less}"
    now = 100 * (figures[0] or 0.0) / expect_rows
    rows = expect_rows / max(question.cells)
    said = f"a cell of {rows:.{0 if rows >= FEWEST_ROWS else 2}f} rows is off by {format_figure(now)} %"
    return f"{said}; with " + ", with ".join(f"{item.change} {format_figure(now / item.times)} %" for item in offers)


def format_figure(figure: float) -> str:
    """Writes a number with two digits, without an exponent if few digits are enough."""
    return f"{float(f'{figure:.2g}'):g}"


def _whose(cube: CubePlan) -> str:
    """Names the aggregate of worst_stderr, if there are several aggregates and a count or a sum among them."""
    lines = [line for line in foreseen(cube, None) if line.worst is not None]
    if len(cube.uses) < 2 or not lines or cube.request.question.intervals:
        return ""
    worst = max(lines, key=lambda line: line.worst or 0.0)
    return f"worst_stderr is that of {worst.text}, and dp_errors() has one line for each aggregate"


def candidates(request: SelectRequest, proposal: CubeProposal) -> list[Forecast]:
    """Returns every candidate, the chosen one first. It alone has a privacy unit, bounds and private SQL.

    Variances and errors are about counts and sums, in their own units. They are None without counts and sums, because
    errors of averages, variances and quantiles depend on the answer. seconds: measured for planning, estimated for
    noise and recovery, without the counting of rows.
    """
    cube = with_rivals(proposal.found)
    return [_forecast(cube, plan, place) for place, plan in enumerate(cube.measures[0].plans)]


def _forecast(cube: CubePlan, plan: Plan, place: int) -> Forecast:
    request, chosen = cube.request, place == 0
    plans = [plan if number == 0 else _like(part, plan) for number, part in enumerate(cube.measures)]
    sizes = [use.size for use in cube.uses]
    used = [(plans[use.measure], use.size) for use in cube.uses]
    if request.question.intervals:
        used = used[:1]
    drawn = list(zip(plans, (part.measure.noisy_tables for part in cube.measures), strict=True))
    seconds = sum(part.planning_seconds for part in plans) + sum(estimate_seconds(a) * n for a, n in drawn)
    own = [
        ("privacy_unit", request.rows.unit_text),
        ("bounds", "; ".join(_bounds(cube, number) for number in range(len(cube.measures)))),
        ("private_sql", ";\n".join(job_sql(scan.job) for scan in scans_of(cube))),
    ]
    return Forecast(
        plan.strategy,
        chosen,
        sum(part.cells for part, _ in used),
        sum(len(part.measurements) * tables for part, tables in drawn),
        (spell_out(plan.strategy), plan.note, _together(cube), _note(cube, plan) if chosen else ""),
        sum(part.total_variance * size for part, size in used) if any(sizes) else None,
        max(part.worst_stderr * size**0.5 for part, size in used) if any(sizes) else None,
        float(f"{seconds:.1g}"),  # an estimate: the caller gets no exact clock
        [(name, "VARCHAR", text) for name, text in own] if chosen else [],
    )


def _together(cube: CubePlan) -> str:
    """Describes the counts that are planned together."""
    said = []
    for number, measured in enumerate(cube.measures):
        kinds, strategy = measured.measure.kinds, measured.measure.strategy
        if kinds is not None and strategy is not None:
            counts = sum(use.measure == number for use in cube.uses)
            said.append(
                f"{counts} counts are planned together: their conditions tell {kinds.kinds} kinds of rows apart, "
                f"one row is in at most {strategy.most} of the counts, and what is measured is {strategy.name}"
            )
    return "; ".join(said)


def _like(measured: MeasurePlan, plan: Plan) -> Plan:
    """Returns the measure's plan of the same strategy, if it has one, else its chosen plan."""
    return next((candidate for candidate in measured.plans if candidate.strategy == plan.strategy), measured.plan)


def _note(cube: CubePlan, plan: Plan) -> str:
    request = cube.request
    bound = (
        f", one row counts up to {request.rows.unit_bound} times"
        if request.rows.unit_sql is None and request.rows.unit_bound > 1
        else ""
    )
    law = f"{plan.noise.value} noise" if not cube.measures[0].choices else "exponential mechanism"
    return f"{law}; privacy unit {request.rows.unit_text}{groups_text(request)}{bound}{_hint(cube)}"


def _hint(cube: CubePlan) -> str:
    """Hints at a smaller error of a quantile: by the mechanism that is predicted to be better, or without intervals."""
    treatment, hints = cube.request.question.treatment, ""
    chosen = any(measured.choices for measured in cube.measures)
    if treatment.quantiles == TREE and _would_choose(cube):
        hints += "; a choice errs less, and has other intervals: the statement without quantiles = 'tree'"
    if chosen and treatment.quantile_intervals:
        hints += f"; quantile_intervals = FALSE errs {_times_less(cube):.2g} times less, and has no intervals"
    return hints


def _would_choose(cube: CubePlan) -> bool:
    """Tells whether some quantile of a tree would be a choice if the statement named no mechanism."""
    question = cube.request.question
    if not any(aggregate.is_quantile for aggregate in question.aggregates):
        return False
    weights = [1.0] * len(question.aggregates)
    rule = replace(rule_of(question), how=AUTO)
    return bool(rule.chosen(question.aggregates, weights, cube.noise))


def _times_less(cube: CubePlan) -> float:
    """Returns the factor by which the price of the interval increases the rank error of a chosen value."""
    part = float(rule_of(cube.request.question).parts[0])
    return 1 / part if cube.noise is NoiseKind.LAPLACE else part**-0.5


def _bounds(cube: CubePlan, number: int) -> str:
    """Describes a measure: its aggregates, its rows, its sensitivity, its bounds and its part of the price."""
    measured = cube.measures[number]
    measure = measured.measure
    pairs = zip(cube.request.question.aggregates, cube.uses, strict=True)
    served = ", ".join(dict.fromkeys(aggregate.text for aggregate, use in pairs if use.measure == number))
    rows = measure.condition or "all rows"
    said = f"{served}: {_what(measure)} over {rows}; one unit adds at most {measured.unit_bound}"
    if not measured.bounds.are_plain:
        said += f", {measured.bounds.one_cell} to one group"
    if measure.operand is not None and measure.operand.sql:
        operand = measure.operand
        width = measure.contribution.step if measure.added else operand.step
        said += (
            f"; {operand.sql} between {float(operand.low):.15g} and {float(operand.high):.15g} "
            f"in steps of {float(width):.15g}"
        )
    if measure.operand is not None and measure.operand.per_group:
        said += f"; every unit once in a group, as the {measure.operand.per_group} of its rows"
    return f"{said}; {float(100 * measure.share):.3g} % of the price"


def _what(measure: Measure) -> str:
    if measure.form == "moments":
        return f"{measure.contribution.tables} tables of moments up to degree {measure.contribution.degree}"
    if measure.kinds is not None and measure.strategy is not None:
        return f"{len(measure.strategy.rows)} counts together, of which one row is in at most {measure.strategy.most},"
    names = {"count": "a count", "sum": "a sum in steps", "tree": "a tree of counts", "choice": "choices of a value"}
    return names.get(measure.form, "values present")
