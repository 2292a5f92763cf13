"""Readings of a statement: as it was written, at another price, and with bounds that leave nothing out.

A trial compares noisy answers with the true answer. The true answer comes from the same statement, read with MAX ROWS
and clamps that every row meets, at a price that leaves no noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, isfinite

from sqlglot import exp

from dpduck.language.rows.facts import Clamp, Policy
from dpduck.language.rows.predicates import literal
from dpduck.language.select.aggregates import FARTHEST, PER_ROW
from dpduck.language.select.analyse import Analysis
from dpduck.language.select.outer import find_annotated
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.text.dialect import BOUNDS, DifferentialPrivacy, exact_number
from dpduck.store.terms import PolicyTerms
from dpduck.trial.labels import labels_of
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.privacy import Charge

ROWS = "count(*)"
"""Text of an aggregate that a true reading adds to HAVING: the number of rows of each cell."""

PURE, RHO = Fraction(10**12), Fraction(10**18)
"""Price of a true answer. The chance that its noise is not 0 is below 1e-100."""

_KEPT = frozenset(("epsilon", "delta", "rho", "target_stderr", "privacy_unit_column", "group_selection_strategy"))
"""Options of a true reading. The others bound what a unit adds, or shape the noise."""

WIDER = 100
"""Factor by which a true reading widens the bounds that an aggregate has as arguments."""

_RUNS = frozenset(("PREFIXES", "RANGES"))

_PRICES = frozenset(("epsilon", "delta", "rho", "target_stderr"))

Analyse = Callable[[AskStatement, PolicyTerms | None], Analysis]
"""Function that analyses a statement, under other terms of the policies if they are given."""


@dataclass(frozen=True)
class TableBounds:
    """Bounds of one table that a trial may lift or change: its MAX ROWS, and the ends of its clamps by column."""

    max_rows: int
    clamps: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Reading:
    """A statement's analysis, and the folded names of its output columns that are no answers."""

    analysis: Analysis
    labels: tuple[str, ...]


def read_written(ask: AskStatement, analyse: Analyse, epsilon: Fraction | None, terms: PolicyTerms | None) -> Reading:
    """Returns a statement as it was written, or at another epsilon. ask: a fresh tree, which may be changed."""
    if epsilon is not None:
        ask = _with_options(ask, lambda options: at_epsilon(options, epsilon))
    analysis = analyse(ask, terms)
    return Reading(analysis, labels_of(analysis.outer))


def read_true(ask: AskStatement, analyse: Analyse, terms: PolicyTerms, *, clamps: bool) -> Reading:
    """Returns a statement with these terms, at a price without noise, in which the rows of each cell are counted.

    ask: a fresh tree, which is changed. clamps: whether the bounds that an aggregate has as arguments are lifted, too.
    """
    select = _annotated_select(ask)
    of_runs = any(node.name.upper() in _RUNS for node in select.find_all(exp.Anonymous))

    def keep(options: Sequence[exp.Expr]) -> list[exp.Expr]:
        kept = [option for option in options if _name(option) in _KEPT]
        # with strategies over runs, errors of 0 would be divided by
        cells = exp.EQ(this=exp.column("strategy"), expression=exp.Literal.string("I"))
        return [*kept, cells] if of_runs else kept

    ask = _with_options(ask, keep)
    for node in _annotated_select(ask).find_all(exp.Expr):
        if clamps and node.meta.get(BOUNDS):
            node.meta[BOUNDS] = [] if isinstance(node, exp.Count) else [*map(_widen, node.meta[BOUNDS])]
    _annotated_select(ask).having(exp.Count(this=exp.Star()).is_(exp.null()).not_(), copy=False)
    analysis = analyse(ask, terms)
    return Reading(replace(analysis, request=_without_noise(analysis.request)), labels_of(analysis.outer))


def rows_number(analysis: Analysis) -> int:
    """Returns the number of the aggregate that counts the rows of each cell, in a true reading."""
    aggregates = enumerate(analysis.request.question.aggregates)
    return next(number for number, aggregate in aggregates if aggregate.text.lower() == ROWS)


def _widen(bound: exp.Expr) -> exp.Expr:
    """Returns bounds of an aggregate as bounds of a row, WIDER times as far from 0 on both sides."""
    ends = [literal(end) for end in bound.expression.expressions] if isinstance(bound.expression, exp.Tuple) else []
    far = min(FARTHEST, WIDER * max((abs(end) for end in ends if end is not None), default=Fraction(1)))
    pair = exp.Tuple(expressions=[exp.Neg(this=exp.Literal.number(_decimal(far))), exp.Literal.number(_decimal(far))])
    widened = bound.copy()
    widened.set("this", exp.to_identifier(PER_ROW))
    widened.set("expression", pair)
    return widened


def lift_bounds(policy: Policy, bounds: TableBounds, *, rows: bool = True, clamps: bool = True) -> Policy:
    """Returns a policy with other bounds, without limits of a price. rows, clamps: which bounds change."""
    unit = replace(policy.unit, max_rows=bounds.max_rows) if rows else policy.unit
    changed = tuple(_lift(clamp, bounds.clamps) if clamps else clamp for clamp in policy.clamps)
    return replace(policy, unit=unit, clamps=changed, max_epsilon=None, min_epsilon=None)


def terms_of(policies: Mapping[str, Policy]) -> PolicyTerms:
    """Returns the terms in which these policies are in force together."""
    return PolicyTerms(policies, {policy.unit.key: policy.budget for policy in policies.values()})


def _lift(clamp: Clamp, ends: Mapping[str, tuple[float, float]]) -> Clamp:
    """Returns a clamp with other ends, rounded outwards to its steps."""
    if clamp.column not in ends or not all(map(isfinite, ends[clamp.column])):
        return clamp
    low, high = (Fraction(end) for end in ends[clamp.column])
    step = exact_number(clamp.step)
    return replace(clamp, low=_decimal(floor(low / step) * step), high=_decimal(ceil(high / step) * step))


def _decimal(number: Fraction) -> str:
    """Writes a number with a finite decimal expansion in full."""
    places = 0
    while (number * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(number * 10**places))).rjust(places + 1, "0")
    text = f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}" if places else digits
    return f"-{text}" if number < 0 else text


def _without_noise(request: SelectRequest) -> SelectRequest:
    """Returns a request without norms, at a price that leaves no noise."""
    charge = request.price.charge
    pure = charge.epsilon is not None or (request.price.target is not None and request.price.target.pure)
    price = replace(request.price, charge=Charge(PURE if pure else None, RHO, charge.delta), target=None)
    treatment = request.question.treatment
    if treatment.usual:
        treatment = replace(treatment, norm=None, finds_norm=False, total=False, left_out=False, usual=False)
    return replace(request, price=price, question=replace(request.question, treatment=treatment))


def _name(option: exp.Expr) -> str:
    return str(option.this.name).lower()


def at_epsilon(options: Sequence[exp.Expr], epsilon: Fraction) -> list[exp.Expr]:
    """Returns the options with another epsilon. A price in rho or a target error becomes one, and a delta stays."""
    prices = {_name(option) for option in options} & _PRICES
    if prices & {"rho", "target_stderr"}:
        raise Refusal("--epsilon varies a price in epsilon", accepted="statements with OPTIONS (epsilon = ..)")
    amount = exp.EQ(this=exp.column("epsilon"), expression=exp.Literal.number(_decimal(epsilon)))
    return [amount, *(option for option in options if _name(option) != "epsilon")]


def _annotated_select(ask: AskStatement) -> exp.Select:
    """Returns the SELECT with the clause."""
    if ask.view is not None and isinstance(ask.query, exp.Select):
        return ask.query
    return find_annotated(ask.query)[0]


def _with_options(ask: AskStatement, change: Callable[[Sequence[exp.Expr]], list[exp.Expr]]) -> AskStatement:
    """Returns a statement with changed options. The statement's own tree is changed, too."""
    if ask.view is not None:
        return replace(ask, options=tuple(change(ask.options)))
    clause = _annotated_select(ask).args.get("hint")
    if not isinstance(clause, DifferentialPrivacy):
        raise InternalError("a statement without its clause")
    clause.set("expressions", change(clause.expressions))
    return ask
