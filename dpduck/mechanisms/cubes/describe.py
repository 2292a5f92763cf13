"""dp_explain of cubes: every candidate strategy, the SQL over private rows, and advice about errors."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from math import inf

from dpduck.kernel.counting.exact import job_sql
from dpduck.kernel.door import compute_charge
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.private_keys import groups_text
from dpduck.language.select.request import AUTO, TREE, SelectRequest
from dpduck.language.text.names import in_sql
from dpduck.mechanisms.cubes.error_forecast import foreseen
from dpduck.mechanisms.cubes.helpful_changes import helps, relative_errors
from dpduck.mechanisms.cubes.measure import CubeProposal, cube_asks, scans_of
from dpduck.mechanisms.cubes.measures import Measure
from dpduck.mechanisms.cubes.plan import CubePlan, MeasurePlan, amount_of, plans_at, rule_of, with_rivals
from dpduck.mechanisms.cubes.seconds import estimate_seconds
from dpduck.mechanisms.cubes.weighed import bounds
from dpduck.mechanisms.forecast import Forecast, by_rows
from dpduck.mechanisms.published_facts import rows_left_out
from dpduck.mechanisms.unit_counts import warn_of_count_bounds
from dpduck.strategies.choose import spell_out
from dpduck.strategies.plan import Plan
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Budget

FEWEST_ROWS = 10
"""Fewest rows of a cell that are written without decimals."""

ONE = Fraction(1)


def advice(proposal: CubeProposal, budget: Budget | None, expect_rows: int | None) -> str:
    """Names the aggregate with the worst error, and helpful changes. With EXPECT ROWS, errors are per cents of rows."""
    cube = proposal.found
    price = cube.request.price
    in_rho = budget is not None and not budget.pure
    same_cost = compute_charge(price.charge, cube_asks(proposal), price.least_rho).rho if in_rho else None
    not_counted, cut = rows_left_out(cube.request), warn_of_count_bounds(cube.request)
    parts = (not_counted, cut, _bound_of_noise(cube), _whose(cube), _unknown(cube, expect_rows))
    return "; ".join(filter(None, (*parts, _helping(cube, same_cost, expect_rows))))


def _bound_of_noise(cube: CubePlan) -> str:
    rows, question = cube.request.rows, cube.request.question
    most, norm = rows.max_rows, question.treatment.norm
    if rows.unit_sql is None or most == 1 or (norm is None and cube.noise is not NoiseKind.GAUSSIAN):
        return ""
    bound = f"{most} rows of a unit" if norm is None else f"max_norm_contributed = {float(norm):g}"
    said = f"noise goes by {bound}"
    errors = dict[str, str]()
    if all(aggregate.function == "count" for aggregate in question.aggregates) and not question.has_ranges:
        with suppress(Refusal):
            errors = {
                f"{float(tried):g}": format_figure(_worst_at(cube, tried)) for tried in bounds(ONE, inf, Fraction(most))
            }
    if not errors:
        return said
    norms = f"max_norm_contributed = {', '.join(errors)}, which may leave rows out,"
    return f"{said}; with {norms} the standard error is {', '.join(errors.values())}"


def _worst_at(cube: CubePlan, norm: Fraction) -> float:
    treatment = replace(cube.request.question.treatment, norm=norm, strategy=AUTO)
    request = replace(cube.request, question=replace(cube.request.question, treatment=treatment))
    lines = foreseen(plans_at(request, NoiseKind.GAUSSIAN, amount_of(request)), None)
    return max(line.worst or 0.0 for line in lines)


def _unknown(cube: CubePlan, expect_rows: int | None) -> str:
    """Describes errors of averages, variances and quantiles in terms of a cell's rows, and how to get figures."""
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
    offers, figures = helps(cube, same_cost, expect_rows), relative_errors(cube, expect_rows)
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
    """Returns every candidate, the chosen one first. Only the chosen one has a privacy unit, bounds and private SQL.

    Variances and errors are about counts and sums, since other errors depend on the answer.
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
    return next((candidate for candidate in measured.plans if candidate.strategy == plan.strategy), measured.plan)


def _note(cube: CubePlan, plan: Plan) -> str:
    request = cube.request
    bound = (
        f", one row counts up to {request.rows.unit_bound} times"
        if request.rows.unit_sql is None and request.rows.unit_bound > 1
        else ""
    )
    law = f"{plan.noise.value} noise" if not cube.measures[0].choices else "exponential mechanism"
    totals = "; dp_errors() has the errors after public totals" if request.question.totals else ""
    return f"{law}; privacy unit {request.rows.unit_text}{groups_text(request)}{bound}{totals}{_hint(cube)}"


def _hint(cube: CubePlan) -> str:
    treatment, hints = cube.request.question.treatment, ""
    chosen = any(measured.choices for measured in cube.measures)
    if treatment.quantiles == TREE and _would_choose(cube):
        hints += "; a choice errs less, and has other intervals: the statement without quantiles = 'tree'"
    if chosen and treatment.quantile_intervals:
        hints += f"; quantile_intervals = FALSE errs {_times_less(cube):.2g} times less, and has no intervals"
    return hints


def _would_choose(cube: CubePlan) -> bool:
    """Tells whether the exponential mechanism would answer some quantile if the statement named no mechanism."""
    question = cube.request.question
    if not any(aggregate.is_quantile for aggregate in question.aggregates):
        return False
    weights = [1.0] * len(question.aggregates)
    rule = replace(rule_of(question), how=AUTO)
    return bool(rule.choose(question.aggregates, weights, cube.noise))


def _times_less(cube: CubePlan) -> float:
    """Returns the factor by which the price of the interval increases the rank error of a chosen value."""
    part = float(rule_of(cube.request.question).parts[0])
    return 1 / part if cube.noise is NoiseKind.LAPLACE else part**-0.5


def _bounds(cube: CubePlan, number: int) -> str:
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
        width = measure.contribution.step if measure.is_sum else operand.step
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
