"""A stream's statement as a frozen request, and which strategy it takes, at which noise; from public facts alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from math import prod, sqrt

import numpy as np
from sqlglot import exp, parse_one

from dpduck.database.tables import EXPLAINED, Value, rows_sql
from dpduck.frontend.rows.facts import PublicFacts
from dpduck.frontend.rows.parts import Stored, repeats
from dpduck.frontend.select.analyse import Analysis, analyse
from dpduck.frontend.select.request import Key, Question, Request
from dpduck.frontend.statements.kinds import AskStatement, CreateStream
from dpduck.frontend.text.names import HOLE, answer_column, stderr_column
from dpduck.frontend.text.options import PRICE_OPTIONS, Given, Option, read_given
from dpduck.frontend.text.positions import refusal
from dpduck.mechanisms.jobs import counting_job
from dpduck.planning.time_axis import (
    BRANCHINGS,
    MOST_PERIODS,
    PERIODS,
    STRATEGIES,
    TREE,
    TimeAxis,
    TimeQuestion,
    time_axis,
    variances,
)
from dpduck.trusted.ask import Ask, Scan, Table
from dpduck.trusted.noise.law import Noise, NoiseKind
from dpduck.trusted.operators import Factor, IdentityFactor, KroneckerQuery
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.stream_state import HELD_UNITS
from dpduck.trusted.private.streams import StreamAsk
from dpduck.values.accounting import sigma2_of
from dpduck.values.arrays import FloatArray
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import Refusal, StoreError

OWN = (
    Option("periods", "whole", "how many periods it has at most", most=Fraction(MOST_PERIODS)),
    Option("start", "text", "the first period, by its first day; the DOMAIN's first one where it is not given"),
    Option("strategy", "choice", "how the time axis is measured", choices=("auto", *STRATEGIES)),
    Option("answers", "choice", "what the strategy is chosen for", choices=("periods", "totals", "window")),
    Option("window", "whole", "how many periods a further column adds up", least=Fraction(2),
           most=Fraction(MOST_PERIODS)),
    Option("late", "choice", "rows that arrive after their period closed are not counted", choices=("drop",),
           accepted="'drop', which is what happens: a late row is in no period"),
)  # fmt: skip
PRICES = tuple(option for option in PRICE_OPTIONS if option.name != "refresh")
MOST_CELLS = 1 << 24
MOMENTS = ("DATE", "TIMESTAMP")
_AROUND = ("having", "qualify", "order", "limit", "offset", "distinct")


@dataclass(frozen=True)
class StreamRequest:
    """request: one count by all keys, of which the one at `axis` are the periods, cut to the horizon.

    ends: the moment at which each period ends, in UTC. first: the bin of the first period in the column's DOMAIN.
    question: what the strategy is chosen for. window: of a further column, 0 for none. strategy: as it was asked for.
    select: the columns that are published, as SQL over HOLE. column: the name of that of the periods.
    """

    name: str
    request: Request
    axis: int
    first: int
    ends: tuple[datetime, ...]
    question: TimeQuestion
    window: int
    strategy: str
    select: str
    column: str

    @property
    def periods(self) -> int:
        """Tells how many periods the horizon has."""
        return len(self.ends)

    @property
    def labels(self) -> tuple[str | None, ...]:
        """Returns each period as its column shows it."""
        return self.request.question.keys[self.axis].labels

    def digest(self) -> str:
        """Returns what the stream rests on: neither revisions of the policy, nor columns that it does not use.

        Nor what public tables hold, which may grow: they multiply no unit's rows beyond its bound.
        """
        rows = self.request.rows
        reads = tuple(replace(read, revision=0) for read in rows.reads)
        bare = replace(rows, revision=0, reads=reads, content_sql=(), public_digests=(), shapes=())
        own = [self.name.lower(), self.first, self.periods, self.window, self.strategy, self.question.text, self.select]
        # the unit's type: what was kept of whom is written in it, and equal units of another type are others
        text = json.dumps([replace(self.request, rows=bare).digest(), *own, rows.unit_type])
        return hashlib.sha256(text.encode()).hexdigest()


def analyse_stream(statement: CreateStream, facts: PublicFacts) -> StreamRequest:
    """Returns the request of a statement; every refusal comes from here, before anything is charged."""
    names = {option.name for option in OWN}
    given = read_given(statement.options, (*PRICES, *OWN), " for a stream")
    for name in names & given.nodes.keys():
        given.value(name)
    prices = tuple(one for one in statement.options if one.this.name.lower() not in names)
    ask = AskStatement(statement.query, statement.text, 0, statement.name, False, prices)
    analysis = analyse(ask, facts)
    request, place = analysis.request, statement.query
    _require_rows(request, place)
    _require_counts(request.question, place)
    axis, domain = _time_axis(request, place)
    first, periods = _horizon(given, domain, place)
    window, asked = given.whole("window") or 0, given.choice("answers")
    if asked == "window" and not window:
        raise refusal(place, "answers = 'window' without a window", "window = 12, for the last 12 periods")
    question = TimeQuestion({"periods": 1, "totals": 0}.get(asked, window))
    request = replace(request, question=_cut(request.question, axis, first, periods))
    if request.question.cells[0] > MOST_CELLS:
        raise refusal(place, f"{request.question.cells[0]} cells over all periods", f"at most {MOST_CELLS}")
    edges = (*domain.edges, domain.upper)[first + 1 : first + periods + 1]
    ends = tuple(datetime.fromisoformat(edge) for edge in edges)
    select, column = _published(analysis, request.question.keys[axis].name, window, place)
    return StreamRequest(
        statement.name, request, axis, first, ends, question, window, given.choice("strategy"), select, column
    )


def _require_rows(request: Request, place: exp.Expr) -> None:
    """Refuses rows whose units a stream does not follow from one refresh to the next."""
    rows = request.rows
    if rows.periods is not None:
        raise refusal(
            place, f"the unit is a person's {rows.periods.periods.word.lower()}, which a stream would protect longer",
            "a policy without PER; or one statement for each period, as docs/monthly.md shows",
        )  # fmt: skip
    if rows.unit_sql is None:
        raise refusal(
            place, "PRIVACY UNIT ROW has no MAX ROWS over the horizon of a stream",
            "a unit's column; or PRIVACY UNIT ROW PER MONTH, and one statement for each month",
        )  # fmt: skip
    alone = rows.source is not None and isinstance(rows.source.first, Stored) and rows.lookup is None
    if not alone or rows.source is None or repeats(rows.source) or any(read.table != rows.table for read in rows.reads):
        raise refusal(
            place, "a stream follows the rows of one private table, which has its unit's column",
            "that table alone, or joined with public tables",
        )  # fmt: skip
    if rows.unit_type not in HELD_UNITS or any(collated for _, _, collated in rows.shapes):
        raise refusal(
            place, f"units of type {rows.unit_type.partition('(')[0]}, or of a table with a COLLATION, in a stream",
            f"a unit of {', '.join(HELD_UNITS)}, without COLLATE",
        )  # fmt: skip


def _require_counts(question: Question, place: exp.Expr) -> None:
    plain = [one for one in question.aggregates if one.function == "count" and one.operand is None]
    if len(question.aggregates) != 1 or len(plain) != 1:
        raise refusal(
            place, "a stream publishes one count of rows", "count(*), count(column) or count(*) FILTER (WHERE ..)"
        )
    every = tuple(range(len(question.keys)))
    if question.grouping_sets != (every,) or any(key.shape or key.row_sql for key in question.keys):
        raise refusal(
            place, "a stream has one plain GROUP BY of keys with a DOMAIN",
            "GROUP BY month, ward; answers = 'totals' or window = 12 for sums over time",
        )  # fmt: skip


def _time_axis(request: Request, place: exp.Expr) -> tuple[int, RangeDomain]:
    """Returns which key is the time, with the column's bins."""
    found = []
    for number, key in enumerate(request.question.keys):
        source = request.question.sources[key.sources[0]] if len(key.sources) == 1 else None
        if source is None or key.expression != source.sql or not isinstance(source.domain, RangeDomain):
            continue
        if source.domain.type_name in MOMENTS:
            found.append((number, source.domain))
    if len(found) != 1:
        raise refusal(
            place, f"{len(found)} keys of a stream are bins of time",
            "GROUP BY one DATE or TIMESTAMP column, as it is, with DOMAIN .. RANGE 2025-01-01 TO 2028-01-01 STEP MONTH",
        )  # fmt: skip
    axis, domain = found[0]
    if domain.with_null or domain.with_edges:
        raise refusal(place, "the periods' DOMAIN says WITH NULL or WITH EDGES, which is no period", "RANGE alone")
    return axis, domain


def _horizon(given: Given, domain: RangeDomain, place: exp.Expr) -> tuple[int, int]:
    """Returns the bin of the first period, and how many there are."""
    first = 0
    if "start" in given:
        try:
            first = [edge[:10] for edge in domain.edges].index(given.text("start"))
        except ValueError:
            raise refusal(given["start"], "no period starts there", f"'{domain.edges[-1][:10]}', or another") from None
    left = domain.size - first
    periods = given.whole("periods") or left
    if periods > left or periods > MOST_PERIODS:
        raise refusal(
            given.nodes.get("periods", place),
            f"the DOMAIN has {left} periods from there on, and a stream at most {MOST_PERIODS}",
            f"periods = {min(left, MOST_PERIODS)}, or a longer RANGE: ALTER PRIVACY POLICY .. SET DOMAIN",
        )
    return first, periods


def _cut(question: Question, axis: int, first: int, periods: int) -> Question:
    """Returns the question with the periods of the horizon alone."""
    key = question.keys[axis]
    codes = tuple(code - first if first <= code < first + periods else -1 for code in key.codes)
    cut = replace(key, labels=key.labels[first : first + periods], codes=codes)
    keys: Sequence[Key] = [cut if number == axis else one for number, one in enumerate(question.keys)]
    return replace(question, keys=tuple(keys))


def totals(what: str) -> tuple[str, str]:
    """Returns the columns of a sum over periods and of its standard error, as released rows have them."""
    return f"dpduck_{what}", f"dpduck_{what}_stderr"


def _published(analysis: Analysis, time: str, window: int, place: exp.Expr) -> tuple[str, str]:
    """Returns SQL of what is published over released rows, and the column of the periods.

    To what was written come the standard error, the running total and the sum over the window, with theirs.
    """
    accepted = "the columns of GROUP BY and count(*) AS n, without HAVING, ORDER BY or LIMIT"
    select = parse_one(analysis.outer.sql, dialect="duckdb")
    written = [part for part in _AROUND if place.args.get(part)]
    if not isinstance(select, exp.Select) or written or any(select.args.get(part) for part in _AROUND):
        raise refusal(place, "a stream publishes each period as it closes", accepted)
    names = {key.name for key in analysis.request.question.keys} | {answer_column(0), stderr_column(0)}
    plain = [item.unalias() for item in select.expressions]
    columns = {item.name for item in plain if isinstance(item, exp.Column)}
    if len(columns) < len(plain) or columns != names or len(analysis.shown) != 1:
        raise refusal(place, "a stream's columns are its keys and one count, each once", accepted)
    shown, taken = analysis.shown[0][0], {item.alias.lower() for item in select.expressions}
    for suffix, what in (("total", "total"), *((("last", "last"),) if window else ())):
        for column, name in zip(totals(what), (f"{shown}_{suffix}", f"{shown}_{suffix}_stderr"), strict=True):
            if name.lower() in taken:
                raise refusal(place, f"the name {name!r} is that of a column of the stream", "another alias")
            quoted = exp.to_identifier(name, quoted=True)
            select.append("expressions", exp.alias_(exp.column(column, table="released"), quoted))
    column = next(item.alias for item in select.expressions if item.unalias().name == time)
    return select.sql(dialect="duckdb"), column


def hole() -> str:
    """Returns the place of the released rows in `select`."""
    return f'"{HOLE}"'


def require_day(text: str) -> datetime:
    """Reads the day of UNTIL."""
    try:
        return datetime.strptime(text, "%Y-%m-%d")
    except ValueError:
        raise Refusal(f"{text[:40]!r} is not a day", accepted="UNTIL '2025-01-01'") from None


COLUMNS = (*EXPLAINED, ("stderr_by_period", "DOUBLE[]"), ("privacy_unit", "VARCHAR"))
_SHOWN = (1, 12, 36)


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """A strategy with the noise that the price buys for it."""

    axis: TimeAxis
    noise: Noise

    def stderrs(self, question: TimeQuestion) -> FloatArray:
        """Returns the standard error of each period's answer when it closes."""
        found: FloatArray = np.sqrt(self.noise.variance * variances(self.axis, question))
        return found

    @property
    def name(self) -> str:
        """Returns the strategy for people."""
        return f"{TREE}_{self.axis.branching}" if self.axis.branching else self.axis.name

    @cached_property
    def matrix_digest(self) -> str:
        """Returns a digest of the integers that are measured."""
        return hashlib.sha256(np.ascontiguousarray(self.axis.matrix).tobytes()).hexdigest()

    def to_facts(self) -> str:
        """Writes the plan for the store."""
        axis, noise = self.axis, self.noise
        return json.dumps([
            axis.name, axis.periods, axis.branching, noise.kind.name, str(noise.parameter), self.matrix_digest
        ])  # fmt: skip


def plan_from_facts(text: str) -> StreamPlan:
    """Reads the plan that a stream was made with."""
    name, periods, branching, kind, parameter, digest = json.loads(text)
    plan = StreamPlan(time_axis(name, periods, branching), Noise(NoiseKind[kind], Fraction(parameter)))
    if plan.matrix_digest != digest:
        raise StoreError("this dpduck has another matrix of the stream's strategy; accepted: the version that made it")
    return plan


def noise_for(request: Request, axis: TimeAxis) -> Noise:
    """Returns the noise of every row of a strategy, at the price of the statement."""
    charge, bound, (l1, l2_squared, _) = request.price.charge, request.rows.unit_bound, axis.factor.norms
    if charge.epsilon is None:
        return Noise(NoiseKind.GAUSSIAN, sigma2_of(charge.rho, Fraction(bound * bound * l2_squared)))
    return Noise(NoiseKind.LAPLACE, Fraction(bound * l1) / charge.epsilon)


def plans(stream: StreamRequest) -> list[StreamPlan]:
    """Returns a plan for each strategy, of trees the best one, the chosen first: by its error over all periods."""

    def error(plan: StreamPlan) -> float:
        return float((plan.stderrs(stream.question) ** 2).sum())

    found = []
    for name in STRATEGIES:
        axes = [time_axis(name, stream.periods, branching) for branching in (BRANCHINGS if name == TREE else (2,))]
        found.append(min((StreamPlan(axis, noise_for(stream.request, axis)) for axis in axes), key=error))
    return sorted(found, key=lambda plan: (plan.axis.name != stream.strategy, error(plan)))


def ask_of(stream: StreamRequest, plan: StreamPlan) -> StreamAsk:
    """Returns the one ask of a stream: the matrix of its strategy over time, every value of its other keys."""
    request = stream.request
    scan = Scan(
        counting_job(request, [Contribution(request.question.aggregates[0].condition)]), request.rows.unit_bound
    )
    factors: list[Factor] = [IdentityFactor(size) for size in request.question.sizes]
    factors[stream.axis] = plan.axis.factor
    return Ask(scan, Table(KroneckerQuery(tuple(range(len(factors))), tuple(factors))), plan.noise)


def explained(stream: StreamRequest) -> str:
    """Returns dp_explain of a stream: every strategy, the chosen one first, with the error of each period."""
    return rows_sql(COLUMNS, [_row(stream, plan, number == 0) for number, plan in enumerate(plans(stream))])


def _row(stream: StreamRequest, plan: StreamPlan, chosen: bool) -> list[Value]:
    request, stderrs = stream.request, plan.stderrs(stream.question)
    others = prod(size for number, size in enumerate(request.question.sizes) if number != stream.axis)
    price, at = request.price, [period for period in _SHOWN if period <= stream.periods]
    errors = ", ".join(f"{stderrs[period - 1]:.3g}" for period in at)
    note = (
        f"{plan.noise.kind.value} noise; for {stream.question.text}: {errors} after {', '.join(map(str, at))} periods"
    )
    return [
        plan.name, chosen, float((stderrs**2).sum()) * others, float(stderrs.max()), price.stated_epsilon,
        price.stated_delta, price.charge.rho, stream.periods * others, plan.axis.factor.rows, note, 0.0,
        str([round(float(one), 6) for one in stderrs]),
        f"{request.rows.unit_text} over all periods" if chosen else None,
    ]  # fmt: skip


def whole(plan: StreamPlan) -> bool:
    """Tells whether all answers are whole numbers."""
    return plan.axis.name == PERIODS


def weights_of(plan: StreamPlan, closed: int, questions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the weights of what was measured in answers to these questions, and their standard errors."""
    weights = plan.axis.weights(closed, questions)
    return weights, np.array([sqrt(plan.noise.variance * float((one**2).sum())) for one in weights])
