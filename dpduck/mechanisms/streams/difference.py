"""dp_difference compares two private views, or two periods of a stream, cell by cell, with the error. It is free.

Answers of two releases have independent noise. Two periods of one stream share measurements with known weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import sqrt

import numpy as np
from sqlglot import exp

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.rows.expressions import sql_of
from dpduck.language.select.options import confidence_from
from dpduck.language.select.outer import default_name
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.statements.parse import parse_statement
from dpduck.language.text.words import meant_or
from dpduck.mechanisms.streams.store import StreamRecord, StreamStore, closings
from dpduck.mechanisms.streams.stream_plan import AnswerNoise, StreamPlan, plan_from_facts
from dpduck.store.releases import KNOWN, STREAM, ReleaseStore, StoredRelease
from dpduck.strategies.recovery.intervals import JUMPY, sum_margin
from dpduck.strategies.time_questions import TimeQuestion
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_identifier, quote_text

ERROR = "_stderr"
JOIN = "a join: a.n - b.n, sqrt(a.n_stderr ^ 2 + b.n_stderr ^ 2)"
USE = "dp_difference('by_month', 'by_month', '2025-02-01', '2025-01-01')"


@dataclass(frozen=True)
class _Side:
    """One side of a difference: a view, its compared answer, its keys, and its period if the call names one.

    step: the largest change of an answer when one integer of noise changes by one.
    window: the periods in a stream's answer, 0 for all so far. told: the answer's error.
    """

    view: StoredRelease
    answer: str
    keys: tuple[str, ...]
    period: int | None
    step: float
    where: str = ""
    window: int = 1
    told: AnswerNoise | None = None


def difference(store: StreamStore, releases: ReleaseStore, ledger: Ledger, argument: str) -> str:
    """Renders SQL that compares the common cells of two views. argument: JSON of names, periods, answer, confidence."""
    first, second, of_first, of_second, answer, confidence = json.loads(argument)
    level = confidence_from(confidence)
    sides = [
        _side(store, releases, ledger, name, period, answer)
        for name, period in ((first, of_first), (second, of_second))
    ]
    _require_alike(*sides)
    left, right = (side.view for side in sides)
    if left.name != right.name and left.ledger_id == right.ledger_id:  # their noise is the same
        raise Refusal(f"{first!r} and {second!r} are one release under two names", accepted="views of two releases")
    kinds = {NoiseKind.GAUSSIAN if side.view.epsilon is None else NoiseKind.LAPLACE for side in sides}
    margins = [sum_margin(kind, level) for kind in kinds]
    step = max(side.step for side in sides)
    if sides[0].view.name == sides[1].view.name:
        shared, step = _period_error(store, ledger, sides)
        stderr = f"CAST({shared!r} AS DOUBLE)"
    else:
        stderr = f"sqrt(a.{_error(sides[0])} ** 2 + b.{_error(sides[1])} ** 2)"
    jump = f"CASE WHEN s < {JUMPY * step!r} THEN {step!r} ELSE {step / 2!r} END"
    near = f", {margins[0].usual!r} * s + {jump}" if len(margins) == 1 else ""
    return (
        f"SELECT *, difference - half AS interval_low, difference + half AS interval_high FROM (SELECT * RENAME (s AS "
        f"stderr), least({margins[0].farthest!r} * s{near}) AS half FROM ({_render_join(releases, sides, stderr)}))"
    ).replace("SELECT *, difference", "SELECT * EXCLUDE (half), difference")


def _render_join(releases: ReleaseStore, sides: list[_Side], stderr: str) -> str:
    keys = [quote_identifier(key) for key in sides[0].keys]
    same = " AND ".join(f"a.{key} IS NOT DISTINCT FROM b.{key}" for key in keys) or "TRUE"
    value = " - ".join(
        f"CAST({alias}.{quote_identifier(side.answer)} AS DOUBLE)" for alias, side in zip("ab", sides, strict=True)
    )
    tables = [
        f"(FROM {releases.table_sql(side.view.name)}{side.where}) AS {of}" for of, side in zip("ab", sides, strict=True)
    ]
    listed = ", ".join([*(f"a.{key}" for key in keys), f"{value} AS difference", f"{stderr} AS s"])
    return f"SELECT {listed} FROM {tables[0]} JOIN {tables[1]} ON {same}"


def _require_alike(first: _Side, second: _Side) -> None:
    """Refuses different keys or aggregates. If two principals hide their SQL, compares function names."""
    left, right = first.view.name, second.view.name
    if [fold(key) for key in first.keys] != [fold(key) for key in second.keys]:
        raise Refusal(
            f"{left!r} has the keys {', '.join(first.keys) or 'none'}, and {right!r} {', '.join(second.keys)}",
            accepted="views with the same keys; of streams, a period of each",
        )
    aggregates = [_aggregate_text(side) for side in (first, second)]
    if first.view.principal != second.view.principal:
        aggregates = [text.partition("(")[0] for text in aggregates]
    if all(aggregates) and aggregates[0] != aggregates[1]:
        raise Refusal(
            f"{first.answer!r} of {left!r} is another aggregate than {second.answer!r} of {right!r}",
            accepted=f"answer := '..', the name of one aggregate in both; or {JOIN}",
        )


def _aggregate_text(side: _Side) -> str:
    """Returns an answer's aggregate without FILTER and table names: 'count' for counts, '' if it is unknown."""
    query = getattr(parse_statement(side.view.statement), "query", exp.Select())
    shown = {fold(item.alias or default_name(item)): item.find(exp.AggFunc) for item in query.expressions}
    call = shown.get(fold(side.answer if side.told is None else side.told.name))
    if isinstance(call, (exp.Count, exp.CountIf)) and not isinstance(call.this, exp.Distinct):
        return "count"
    bare = call and call.transform(lambda node: exp.column(fold(node.name)) if isinstance(node, exp.Column) else node)
    return sql_of(bare) if bare else ""


def _error(side: _Side) -> str:
    return quote_identifier(side.answer + ERROR)


def _side(
    store: StreamStore, releases: ReleaseStore, ledger: Ledger, name: object, period: object, answer: object
) -> _Side:
    view = releases.view(name) if isinstance(name, str) else None
    if view is None:
        accepted = meant_or(str(name)[:100], releases.views(), "a name of dp_releases()")
        raise Refusal(f"there is no private view {str(name)[:100]!r}", accepted=accepted)
    if view.strategy == KNOWN or _reuses(view):
        raise Refusal(
            f"{view.name!r} rests on several releases: its noise is not independent of theirs",
            accepted="views of releases of their own, without reuse = TRUE",
        )
    if any(len(laws) > 1 for laws in view.laws):
        raise Refusal(
            f"{view.name!r} has several grouping sets, whose rolled-up rows look like rows of NULL",
            accepted="a view of one GROUP BY; or dp_stderr_of",
        )
    if view.strategy != STREAM and not all(view.laws):
        raise Refusal(
            f"{view.name!r} has averages or quantiles, whose errors differ from answer to answer",
            accepted=f"a view of counts and sums alone; or {JOIN}",
        )
    columns = releases.column_names(view.name)
    answers = [column for column in columns if column + ERROR in columns]
    chosen = answers[0] if answer is None and answers else next((a for a in answers if a == answer), None)
    if chosen is None:
        raise Refusal(
            f"{view.name!r} shows no answer {str(answer or '')[:60]!r} with its standard error",
            accepted=", ".join(answers) or "a view of counts, with their columns .._stderr",
        )
    errors = {shown + ERROR for shown in answers}
    keys = tuple(column for column in columns if column not in answers and column not in errors)
    named = store.find(view.name) if view.strategy == STREAM else None
    if named is None:
        if period is not None:
            raise Refusal(f"{view.name!r} is no stream, and has no periods", accepted="the name alone")
        return _Side(view, chosen, keys, None, max((law.step for laws in view.laws for law in laws), default=1.0))
    error, window = _answer_noise(named, answers, chosen)
    ends = {f"{shown}{end}" for shown in answers for end in ("_low", "_high")}
    keys = tuple(key for key in keys if key not in ends)
    return _of_stream(ledger, view, named, chosen, keys, period, window, error)


def _answer_noise(named: StreamRecord, answers: list[str], chosen: str) -> tuple[AnswerNoise, int]:
    """Returns the error of a stream's answer, and the number of periods of the answer."""
    plan = plan_from_facts(named.plan)
    for error in plan.told or (AnswerNoise(answers[0], plan.noise.variance, 1.0),):
        suffixes = {"": 1, "_total": 0, "_last": named.window}
        windows = [window for suffix, window in suffixes.items() if chosen == error.name + suffix]
        if windows and error.variance:
            return error, windows[0]
    raise Refusal(
        f"{chosen!r} of {named.name!r} has errors that differ from answer to answer, or several grouping sets",
        accepted="counts and sums of a stream with one GROUP BY",
    )


def _reuses(view: StoredRelease) -> bool:
    statement = parse_statement(view.statement)
    options = statement.options if isinstance(statement, AskStatement) else ()
    return any(option.this.name.lower() == "reuse" for option in options)


def _of_stream(
    ledger: Ledger, view: StoredRelease, named: StreamRecord, answer: str, keys: tuple[str, ...], period: object,
    window: int, error: AnswerNoise,
) -> _Side:  # fmt: skip
    places = range(named.published)
    if period is not None:
        matches = [place for place in places if named.labels[place][:10] == str(period)[:10]]
        if not matches:
            raise Refusal(
                f"{view.name!r} has published no period {str(period)[:40]!r}",
                accepted=f"'{named.labels[0]}' to '{named.labels[max(0, named.published - 1)]}'; {USE}",
            )
        places = range(matches[0], matches[0] + 1)
    plan, closed = plan_from_facts(named.plan), closings(ledger, named)
    steps = [error.step * float(np.abs(_weights(plan, closed, window, place)).max()) for place in places]
    if period is None:
        return _Side(view, answer, keys, None, max(steps, default=1.0), "", window, error)
    column = quote_identifier(named.column)
    where = f" WHERE {column} = {quote_text(named.labels[places[0]])}"
    other_keys = tuple(key for key in keys if key != named.column)
    return _Side(view, answer, other_keys, places[0], max(steps), where, window, error)


def _weights(plan: StreamPlan, closed: list[int], window: int, place: int) -> FloatArray:
    """Returns the weights of all measurements in the published answer of one period."""
    through = next(end for end in closed if end > place)
    asked = np.zeros(through)
    asked[: place + 1] = TimeQuestion(window).about(place + 1)
    weights = np.zeros(plan.axis.factor.rows)
    row = plan.axis.weights(through, asked[None])[0]
    weights[: len(row)] = row
    return weights


def _period_error(store: StreamStore, ledger: Ledger, sides: list[_Side]) -> tuple[float, float]:
    """Returns the standard error of the difference of two periods of one stream, and its step as in _Side."""
    named = store.find(sides[0].view.name)
    first, second = (side.period for side in sides)
    error = sides[0].told
    if named is None or error is None or first is None or second is None:
        raise Refusal("a view cannot differ from itself", accepted=f"two views; or two periods of a stream: {USE}")
    plan, closed = plan_from_facts(named.plan), closings(ledger, named)
    weights = _weights(plan, closed, sides[0].window, first) - _weights(plan, closed, sides[1].window, second)
    return sqrt(error.variance * float(weights @ weights)), max(1e-9, error.step * float(np.abs(weights).max()))
