"""dp_check of a statement: the loss and the standard error at each bound on rows and at each norm.

It shows exact facts to the owner alone, to choose a bound. The loss is the part of the answers that a bound leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor, inf, prod

import numpy as np

from dpduck.kernel.contributions import FULL, Contribution
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.counting.unit_facts import UnitContributions
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.request import Aggregate, SelectRequest, Treatment
from dpduck.mechanisms.cubes.error_forecast import foreseen
from dpduck.mechanisms.cubes.measures import Measure, Measures, Use
from dpduck.mechanisms.cubes.plan import amount_of, noise_of, plan_cube, plans_at
from dpduck.mechanisms.cubes.weighed import bounds, measures_with_norm
from dpduck.mechanisms.jobs import counting_job
from dpduck.store.tables import Value, rows_sql
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal

COLUMNS = (
    ("finding", "VARCHAR"), ("value", "DOUBLE"), ("advice", "VARCHAR"), ("percent", "DOUBLE"),
    ("aggregate", "VARCHAR"), ("option", "VARCHAR"), ("bound", "DOUBLE"), ("stderr", "DOUBLE"),
)  # fmt: skip
ROWS, NORM, SUM_NORM = "max_rows_contributed", "max_norm_contributed", "max_sum_norm_contributed"
PARTS = (0.5, 0.9, 0.95, 0.99)
"""Fractions of the units. The rows and the norm that such a fraction does not exceed are shown."""

EVERY_ROW = 1 << 40

FINER = 10
"""Norms of sums are tried from the units' median norm divided by FINER upwards, since no public fact suggests a start.
"""

LITTLE = 0.01
"""Largest part of the rows that the norm in rows may leave out, if a norm of a sum is stated, too."""

SIZE = 0.8
"""Mean absolute value of Gaussian noise in standard errors, sqrt(2/pi)."""

FactsOf = Callable[[CountingJob], UnitContributions]


@dataclass(frozen=True)
class StatementCheck:
    """Statement under check at its price, without norms. measures: its measures at norms that no unit exceeds.

    job: counts rows, and then the contributions to each measure.
    stated: the statement's own norm in rows, if any.
    """

    request: SelectRequest
    measures: Measures
    job: CountingJob
    stated: Fraction | None

    @property
    def aggregates(self) -> Sequence[tuple[Aggregate, Use]]:
        return list(zip(self.request.question.aggregates, self.measures.uses, strict=True))

    @property
    def weighs(self) -> bool:
        """Tells whether the statement may have a norm: norms bound Gaussian noise alone."""
        return noise_of(self.request) is NoiseKind.GAUSSIAN


@dataclass(frozen=True)
class NormFinding:
    """Finding about one aggregate, or about all rows. bound: the option's value, in its units."""

    text: str
    value: float | None
    advice: str = ""
    percent: float | None = None
    aggregate: str | None = None
    option: str | None = None
    bound: float | None = None
    stderr: float | None = None

    @property
    def row(self) -> list[Value]:
        return [
            self.text, self.value, self.advice, self.percent, self.aggregate, self.option, self.bound, self.stderr,
        ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class CheckFacts:
    """Exact facts of units. every: over all rows of the statement. kept: over the rows that MAX ROWS keeps.

    by_rows: bounds on rows, each with the contributions of units that keep at most this many rows.
    """

    every: UnitContributions
    kept: UnitContributions
    by_rows: tuple[tuple[int, FloatArray], ...] = field(repr=False)


def statement_check(question: object) -> StatementCheck:
    """Builds the check of a statement. Refuses a statement that has no bound to choose."""
    if not isinstance(question, SelectRequest):
        raise _refusal()
    asked = question.question
    if asked.selection is not None or asked.summary is not None or asked.has_ranges or asked.own:
        raise _refusal()
    if question.rows.unit_sql is None or question.rows.max_rows == 1:
        raise Refusal("a privacy unit has one row here, and no bound is to be chosen", accepted="dp_check of the table")
    given = asked.treatment
    plain = replace(
        given, norm=None, finds_norm=False, sum_norms=(), nonnegative=False, integer=False, consistency="l2"
    )  # fmt: skip
    request = replace(question, question=replace(asked, treatment=plain))
    if request.price.target is not None:
        request = plan_cube(request).request
        request = replace(request, price=replace(request.price, target=None))
    most = replace(request.question.treatment, norm=Fraction(request.rows.max_rows))
    measures = measures_with_norm(asked.aggregates, most)
    bare = [replace(measure.contribution, norm=0) for measure in measures.measures]
    check = StatementCheck(request, measures, counting_job(request, [Contribution(), *bare]), given.norm)
    if check.weighs:
        _errors(check, replace(most, strategy="auto"), [0.0] * len(asked.aggregates))  # refuses keys that merge values
    return check


def _refusal() -> Refusal:
    return Refusal(
        "dp_check looks at counts, sums, averages and variances by columns with a DOMAIN",
        accepted="SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..) .. GROUP BY such columns, or dp_check of the table",
    )


def findings_sql(check: StatementCheck, facts_of: FactsOf) -> str:
    """Renders SQL with exact findings about a statement. facts_of: reads the rows of a job."""
    facts = _read_facts(check, facts_of)
    findings = [*_about_rows(facts), *_by_rows(check, facts)]
    if check.weighs:
        findings += [*_norms(check, facts), *_by_norm(check, facts), *_by_sum_norm(check, facts)]
    else:
        no_norm = "a price with a delta or in rho: a norm bounds Gaussian noise, and Laplace noise goes by rows"
        findings.append(NormFinding("this statement takes no max_norm_contributed", None, no_norm))
    return rows_sql(COLUMNS, [finding.row for finding in findings])


def _read_facts(check: StatementCheck, facts_of: FactsOf) -> CheckFacts:
    """Reads the rows once for each bound that leaves rows out. Counts of rows alone need a single reading."""
    most = check.request.rows.max_rows
    every = facts_of(replace(check.job, max_rows=EVERY_ROW))
    largest = float(every.added[0].max(initial=0))
    bounded = every if largest <= most else facts_of(replace(check.job, max_rows=most))
    plain = all(contribution == Contribution() for contribution in check.job.aggregates)
    by_rows = []
    for bound in map(int, bounds(Fraction(1), largest, Fraction(most))):
        if bound == most or bound >= largest:
            added = bounded.added
        elif plain:
            added = np.minimum(every.added, bound)
        else:
            added = facts_of(replace(check.job, max_rows=bound)).added
        by_rows.append((bound, added))
    return CheckFacts(every, bounded, tuple(by_rows))


def _quantiles(numbers: FloatArray) -> list[tuple[str, float | None]]:
    """Returns labelled quantiles of the units' numbers. Units with the number 0 are left out."""
    own = np.sort(numbers[numbers > 0])
    parts: list[tuple[str, float | None]] = [
        (f"{100 * part:g} % of units have at most", float(own[_place(part, len(own))]) if len(own) else None)
        for part in PARTS
    ]
    return [*parts, ("no unit has more than", float(own[-1]) if len(own) else None)]


def _place(part: float, units: int) -> int:
    return min(units - 1, max(0, -floor(-part * units) - 1))


def _about_rows(facts: CheckFacts) -> Iterator[NormFinding]:
    rows, units = float(facts.every.added[0].sum()), facts.every.added.shape[1]
    yield NormFinding("rows of this statement", rows, "after joins, WHERE and domains; MAX ROWS comes next")
    yield NormFinding("privacy units of this statement", units)
    for text, number in _quantiles(facts.every.added[0]):
        yield NormFinding(f"{text} this many rows here", number, option=ROWS)


def _by_rows(check: StatementCheck, facts: CheckFacts) -> Iterator[NormFinding]:
    rows, treatment, lines = check.request.rows, check.request.question.treatment, []
    for bound, added in facts.by_rows:
        bounded = replace(check, request=replace(check.request, rows=replace(rows, max_rows=bound, unit_bound=bound)))
        lines.append(_left_out(bounded, facts, ROWS, Fraction(bound), added[1:], treatment))
    for place in range(len(check.aggregates)):
        yield from _with_hint(check, [line[place] for line in lines])


def _norms(check: StatementCheck, facts: CheckFacts) -> Iterator[NormFinding]:
    """Yields quantiles of the units' norms, for each measure behind an aggregate."""
    for agg, use in check.aggregates:
        for part in use.parts:
            measure = check.measures.measures[part.measure]
            if measure.form == "squares" or (part is use and agg.function == "sum" and use.also is not None):
                continue
            norms = np.sqrt(facts.kept.squares[1 + part.measure]) * float(measure.contribution.unit)
            summed = _is_of_a_column(measure)
            about = f" about {float(measure.contribution.centre):g}" if summed and use.also is not None else ""
            for text, number in _quantiles(norms):
                option = SUM_NORM if summed else NORM
                yield NormFinding(f"{text} this norm in {agg.text}{about}", number, aggregate=agg.text, option=option)


def _by_norm(check: StatementCheck, facts: CheckFacts) -> Iterator[NormFinding]:
    treatment, lines = check.request.question.treatment, []
    tried = bounds(Fraction(1), _largest_in_rows(check, facts), Fraction(check.request.rows.max_rows))
    for bound in sorted({*tried, *([] if check.stated is None else [check.stated])}):
        weighed = replace(treatment, norm=bound, strategy="auto")
        lines.append(_left_out(check, facts, NORM, bound, _weigh_units(check, facts, weighed), weighed))
    for place in range(len(check.aggregates)):
        yield from _with_hint(check, [line[place] for line in lines])


def _by_sum_norm(check: StatementCheck, facts: CheckFacts) -> Iterator[NormFinding]:
    """Yields the loss at norms of sums, in the column's units, while the norm in rows leaves out little."""
    treatment, beside = check.request.question.treatment, check.stated or _little(check, facts)
    for measure in filter(_is_of_a_column, check.measures.measures):
        place, unit = check.measures.measures.index(measure), measure.contribution.unit
        norms = np.sqrt(facts.kept.squares[1 + place]) * float(unit)
        measured = [[part.measure for part in use.parts] for _, use in check.aggregates]
        middle = float(np.median(norms[norms > 0])) if (norms > 0).any() else 1.0
        most = check.request.rows.max_rows * measure.contribution.bound * unit
        lines = []
        for bound in bounds(max(Fraction(middle) / FINER, unit), float(norms.max(initial=0)), most):
            weighed = replace(treatment, norm=beside, sum_norms=_sum_norms(check, measure, bound), strategy="auto")
            remaining = _weigh_units(check, facts, weighed)
            lines.append(_left_out(check, facts, SUM_NORM, bound, remaining, weighed, beside))
        for number in (number for number, places in enumerate(measured) if place in places):
            yield from _with_hint(check, [line[number] for line in lines])


def _is_of_a_column(measure: Measure) -> bool:
    """Tells whether a measure adds up values of a column. Other sums are over units in groups."""
    return measure.form == "sum" and measure.operand is not None and bool(measure.operand.sql)


def _sum_norms(check: StatementCheck, measure: Measure, bound: Fraction) -> tuple[Fraction, ...]:
    """Returns a norm for each summed column: `bound` for the measure's own, and for others one that binds no unit."""
    operands = dict.fromkeys(
        entry.operand for entry, _ in check.aggregates if entry.operand is not None and entry.operand.sql
    )  # fmt: skip
    free = {
        entry.operand: check.request.rows.max_rows * entry.contribution.bound * entry.contribution.unit
        for entry in check.measures.measures
        if _is_of_a_column(entry)
    }
    return tuple(bound if entry == measure.operand else free.get(entry, Fraction(1)) for entry in operands)


def _little(check: StatementCheck, facts: CheckFacts) -> Fraction:
    """Returns the least norm in rows that leaves out little of the rows of every average."""
    largest = Fraction(check.request.rows.max_rows)
    plain = (number for number, measure in enumerate(check.measures.measures) if not _is_of_a_column(measure))
    counted = [number for number in plain if check.measures.measures[number].form != "squares"]
    for bound in bounds(Fraction(1), inf, largest):
        lost = []
        for number in counted:
            added, squares = facts.kept.added[1 + number], facts.kept.squares[1 + number]
            remaining = float((added * _weights(squares, float(bound) ** 2)).sum())
            lost.append(1 - remaining / max(float(added.sum()), 1.0))
        if max(lost, default=0.0) <= LITTLE:
            return bound
    return largest


def _largest_in_rows(check: StatementCheck, facts: CheckFacts) -> float:
    """Returns the largest norm of any unit in any measure, in rows at the measure's bound."""
    largest = (float(np.sqrt(squares.max(initial=0))) for squares in facts.kept.squares[1:])
    return max(norm / item.contribution.bound for norm, item in zip(largest, check.measures.measures, strict=True))


def _weights(squares: FloatArray, squared_norm: float) -> FloatArray:
    """Returns each unit's weight at a norm, in multiples of 1/FULL as in answers. squares: the units' squared norms."""
    part = np.floor(FULL * np.sqrt(squared_norm / np.maximum(squares, 1))) / FULL
    weights: FloatArray = np.minimum(part, 1.0)
    return weights


def _weigh_units(check: StatementCheck, facts: CheckFacts, treatment: Treatment) -> FloatArray:
    """Returns the contributions of units that are weighed down to norms. All parts of an average share one weight."""
    measures = measures_with_norm(check.request.question.aggregates, treatment).measures
    weights = [
        _weights(facts.kept.squares[1 + number], float(part.contribution.norm)) for number, part in enumerate(measures)
    ]
    for number, part in enumerate(measures):
        if part.contribution.shared:
            weights[number + 1] = np.minimum(weights[number], weights[number + 1])
    for number in reversed(range(len(measures))):
        if measures[number].contribution.shared:
            weights[number] = weights[number + 1]
    sums: FloatArray = facts.kept.added[1:] * np.array(weights)
    return sums


def _answers(check: StatementCheck, added: FloatArray) -> list[float]:
    """Returns the sum of each aggregate over all cells. For an average it is the number of rows."""
    sums = added.sum(axis=1)
    totals = []
    for _, use in check.aggregates:
        answer = float(use.weights[0]) * FULL * float(sums[use.measure]) if use.weights else float(sums[use.measure])
        if use.weights and use.also is not None:
            answer += float(use.also.weights[0]) * FULL * float(sums[use.also.measure])
        totals.append(answer)
    return totals


def _errors(check: StatementCheck, treatment: Treatment, rows: Sequence[float]) -> list[float | None]:
    """Returns the standard error of each aggregate. rows: each aggregate's rows, spread over the cells for averages."""
    request = replace(check.request, question=replace(check.request.question, treatment=treatment))
    plan = plans_at(request, noise_of(request), amount_of(request))
    errors = list[float | None]()
    for place, (aggregate, _) in enumerate(check.aggregates):
        line = foreseen(plan, max(1, round(rows[place])) if aggregate.has_curved_error else None)[place]
        errors.append(line.typical if line.worst is None else line.worst)
    return errors


def _left_out(
    check: StatementCheck, facts: CheckFacts, option: str, bound: Fraction, remaining: FloatArray,
    treatment: Treatment, beside: Fraction | None = None,
) -> list[NormFinding]:  # fmt: skip
    """Lists the part of each aggregate that a bound leaves out. beside: the norm in rows, if the bound is on a sum."""
    findings, every, rest = [], _answers(check, facts.every.added[1:]), _answers(check, remaining)
    errors = _errors(check, treatment, [float(remaining[use.measure].sum()) for _, use in check.aggregates])
    for (aggregate, use), whole, kept, error in zip(check.aggregates, every, rest, errors, strict=True):
        lost = whole - kept
        rows = "rows " if aggregate.has_curved_error or aggregate.operand is None else ""
        advice = "" if error is None else f"the standard error is {error:.3g}"
        if beside is not None and use.also is not None:
            advice += f", beside {NORM} = {float(beside):g}"
        text = f"{rows}left out of {aggregate.text} by {option} = {float(bound):g}"
        percent = 100 * lost / whole if whole else None
        findings.append(NormFinding(text, lost, advice, percent, aggregate.text, option, float(bound), error))
    return findings


def _with_hint(check: StatementCheck, lines: Sequence[NormFinding]) -> list[NormFinding]:
    """Marks the bound with about the least error of a cell, if the loss is spread evenly over the cells."""
    cells = max(1, prod(check.request.question.sizes))
    sizes = [
        abs(item.value or 0.0) / cells + SIZE * item.stderr if item.stderr is not None else inf for item in lines
    ]  # fmt: skip
    if not lines or any(item.text == lines[0].aggregate and item.has_curved_error for item, _ in check.aggregates):
        return list(lines)
    best = int(np.argmin(sizes))
    hint = f"{lines[best].advice}; about the least error of a cell, noise and rows left out together"
    return [replace(item, advice=hint) if place == best else item for place, item in enumerate(lines)]
