"""Frozen request of a stream's statement, from public facts alone, with its published columns and its refusals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from sqlglot import exp, parse_one

from dpduck.kernel.relations import Stored
from dpduck.kernel.units import UnitTuple, held_in, unit_type
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.select.analyse import Analysis, analyse
from dpduck.language.select.request import Aggregate, Key, Question, SelectRequest
from dpduck.language.statements.kinds import AskStatement, CreatePrivate
from dpduck.language.text.names import GROUPING_ID, HOLE, answer_column, stderr_column
from dpduck.language.text.options import CAPTIONS, PRICE_OPTIONS, Option, StatementOptions, read_given
from dpduck.language.text.positions import refusal
from dpduck.strategies.time_axis import MOST_PERIODS, STRATEGIES
from dpduck.strategies.time_questions import TimeQuestion
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import Refusal
from dpduck.values.sqltypes import NAMES, sql_type

OWN = (
    Option("periods", "whole", "how many periods it has at most", most=Fraction(MOST_PERIODS)),
    Option("start", "text", "the first period, by its first day; the DOMAIN's first one where it is not given"),
    Option("strategy", "choice", "how the time axis is measured", choices=("auto", *STRATEGIES)),
    Option("answers", "choice", "what the strategy is chosen for", choices=("periods", "totals", "window")),
    Option("window", "whole", "how many periods a further column adds up", least=Fraction(2),
           most=Fraction(MOST_PERIODS)),
    Option("late", "choice", "rows that arrive after their period closed are never counted", choices=("drop",),
           accepted="'drop', which is what happens: a late row is in no period"),
)  # fmt: skip
PRICES = tuple(option for option in (*PRICE_OPTIONS, *CAPTIONS) if option.name != "refresh")
MOST_CELLS = 1 << 24
MOST_SETS = 256
KINDS = ("JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN")
_AROUND = ("having", "qualify", "order", "limit", "offset", "distinct")


@dataclass(frozen=True)
class StreamRequest:
    """Request of a stream. request: aggregates by sets of keys. Each set includes key number `axis`, the period.

    first: the bin of the first period in the column's DOMAIN.
    question: the sums that the strategy is chosen for.
    window: the number of periods that a further column adds up, 0 for no such column.
    select, column: the published SELECT over HOLE, and its column of periods.
    shown: the answers' names, with the numbers of their aggregates.
    """

    name: str
    request: SelectRequest
    axis: int
    first: int
    ends: tuple[datetime, ...]
    question: TimeQuestion
    window: int
    strategy: str
    select: str
    column: str
    shown: tuple[tuple[str, int], ...]
    analysis: Analysis

    @property
    def periods(self) -> int:
        return len(self.ends)

    @property
    def labels(self) -> tuple[str | None, ...]:
        return self.request.question.keys[self.axis].labels

    def digest(self) -> str:
        """Returns a digest of the stream's facts, without revisions of the policy and without unused columns.

        The rows of public tables may change, since they multiply no unit's rows beyond its bound.
        """
        rows = self.request.rows
        reads = tuple(replace(read, revision=0) for read in rows.reads)
        bare = replace(rows, revision=0, reads=reads, content_sql=(), public_digests=(), shapes=())
        own = [self.name.lower(), self.first, self.periods, self.window, self.strategy, self.question.text, self.select]
        # the unit's type: the stream's file has units of this type, and equal units of another type are other units.
        # the types of parts count as well, except for whole numbers, and for texts, which have other SQL anyway
        held = None if rows.unit is None else held_in(rows.unit)
        parts = [sql_type(part.type_name) for part in held.parts] if isinstance(held, UnitTuple) else []
        kinds = ["" if part.is_text or part.is_whole else part.word for part in parts]
        own += [unit_type(rows.unit), *(kinds if any(kinds) else ())]
        text = json.dumps([replace(self.request, rows=bare).digest(), *own])
        return hashlib.sha256(text.encode()).hexdigest()


def analyse_stream(statement: CreatePrivate, facts: PublicFacts) -> StreamRequest:
    """Returns the request of a statement. Every refusal comes from here, before anything is charged."""
    names = {option.name for option in OWN}
    given = read_given(statement.options, (*PRICES, *OWN), " for a stream")
    for name in names & given.nodes.keys():
        given.value(name)
    prices = tuple(node for node in statement.options if node.this.name.lower() not in names)
    ask = AskStatement(statement.query, statement.text, 0, statement.name, False, prices)
    analysis = analyse(ask, facts, None)
    request, place = analysis.request, statement.query
    _require_rows(request, place)
    _require_answers(request.question, place)
    axis, domain = _time_axis(request, place)
    _require_periods(request.question, axis, place)
    first, periods = _horizon(given, domain, place)
    window, asked = given.whole("window") or 0, given.choice("answers")
    if asked == "window" and not window:
        raise refusal(place, "answers = 'window' without a window", "window = 12, for the last 12 periods")
    question = TimeQuestion({"periods": 1, "totals": 0}.get(asked, window))
    _require_sums(request.question, window != 0 or asked != "periods", place)
    request = replace(request, question=_restrict_periods(request.question, axis, first, periods))
    if sum(request.question.cells) > MOST_CELLS:
        raise refusal(place, f"{sum(request.question.cells)} cells over all periods", f"at most {MOST_CELLS}")
    edges = (*domain.edges, domain.upper)[first + 1 : first + periods + 1]
    ends = tuple(datetime.fromisoformat(edge) for edge in edges)
    select, column = _render_select(analysis, request.question.keys[axis].name, window, place)
    chosen = given.choice("strategy")
    return StreamRequest(
        statement.name,
        request,
        axis,
        first,
        ends,
        question,
        window,
        chosen,
        select,
        column,
        analysis.shown,
        analysis,
    )


def _require_rows(request: SelectRequest, place: exp.Expr) -> None:
    """Refuses rows with units that a stream cannot follow from one refresh to the next."""
    rows = request.rows
    if rows.periods is not None:
        raise refusal(
            place, f"a stream protects a whole person, and this unit is a person's {rows.periods.periods.word.lower()}",
            "a policy without PER; or one statement for each period, as docs/monthly.md shows",
        )  # fmt: skip
    source, joined = rows.source, rows.source.joins
    if any(not isinstance(of.first, Stored) for of in (source, *(join.right for join in joined))):
        raise refusal(
            place, "a stream follows rows as they are stored: not those of UNION ALL, nor one for each unit",
            "one private table, joined with public tables, or by a key with tables of its unit",
        )  # fmt: skip
    if any(join.content or join.right.joins or join.kind not in KINDS for join in joined):
        raise refusal(
            place, "a stream does not follow rows of a unit that are joined each with each, nor RIGHT and FULL JOIN",
            "JOIN or LEFT JOIN by a PRIMARY KEY or UNIQUE column of one side, SEMI JOIN, ANTI JOIN",
        )  # fmt: skip
    held = rows.unit_sql is None or sql_type(unit_type(rows.unit)).is_unit_part
    if not held or any(collated for _, _, collated in rows.shapes):
        raise refusal(
            place,
            f"units of type {sql_type(unit_type(rows.unit)).word}, or of a table with a COLLATION, in a stream",
            f"a unit of {', '.join(name for name in NAMES if sql_type(name).is_unit_part)}, without COLLATE",
        )  # fmt: skip


def _require_answers(question: Question, place: exp.Expr) -> None:
    """Refuses aggregates that are not computed from sums, and keys that are not values of a DOMAIN."""
    others = [aggregate for aggregate in question.aggregates if aggregate.function in ("quantile", "distinct")]
    if others:
        raise refusal(
            place, f"{others[0].text[:60]} is not published by a stream",
            "count, sum, avg, variance and stddev of columns with a CLAMP, count(DISTINCT unit) of each period",
        )  # fmt: skip
    if any(key.shape or key.row_sql for key in question.keys) or question.selection or question.summary:
        raise refusal(
            place, "a stream has keys with a DOMAIN, each as it is",
            "GROUP BY month, ward; answers = 'totals' or window = 12 for sums over time",
        )  # fmt: skip


def _require_periods(question: Question, axis: int, place: exp.Expr) -> None:
    if not all(axis in grouping_set for grouping_set in question.grouping_sets):
        raise refusal(
            place, "the period is not in every grouping set, and a stream has an answer for each period",
            "GROUP BY month, CUBE (ward, sex); running totals are there beside it",
        )  # fmt: skip
    if len(question.grouping_sets) > MOST_SETS:
        raise refusal(place, f"{len(question.grouping_sets)} grouping sets in a stream", f"at most {MOST_SETS}")


def _require_sums(question: Question, over_time: bool, place: exp.Expr) -> None:
    """Refuses sums over time if no aggregate can be added up over periods."""
    if over_time and all(aggregate.operand_by_group for aggregate in question.aggregates):
        raise refusal(
            place, f"{question.aggregates[0].text[:60]} of several periods is not the sum of theirs",
            "answers = 'periods' without a window; for persons so far, each counted once: count(*), answers = 'totals' "
            "and max_rows_contributed = 1",
        )  # fmt: skip


def _time_axis(request: SelectRequest, place: exp.Expr) -> tuple[int, RangeDomain]:
    moments = []
    for number, key in enumerate(request.question.keys):
        source = request.question.sources[key.sources[0]] if len(key.sources) == 1 else None
        if source is None or key.expression != source.sql or not isinstance(source.domain, RangeDomain):
            continue
        if sql_type(source.domain.type_name).is_moment:
            moments.append((number, source.domain))
    if len(moments) != 1:
        raise refusal(
            place, f"{len(moments)} keys of a stream are bins of time",
            "GROUP BY one DATE or TIMESTAMP column, as it is, with DOMAIN .. RANGE 2025-01-01 TO 2028-01-01 STEP MONTH",
        )  # fmt: skip
    axis, domain = moments[0]
    column = request.question.sources[request.question.keys[axis].sources[0]].sql
    source_column = request.rows.columns.get(column)
    stored = "" if source_column is None else source_column.type_name
    if not sql_type(stored).is_moment:
        raise refusal(
            place, f"the column of a stream's periods is {sql_type(stored).word or 'gone'}, and no longer a date",
            "a stored DATE or TIMESTAMP, as it was when its DOMAIN was declared",
        )  # fmt: skip
    if domain.with_null or domain.with_edges:
        item = f"DOMAIN {column.split('.', 1)[-1]} {_plain_range(domain)}"
        raise refusal(
            place, "the periods' DOMAIN says WITH NULL or WITH EDGES, which is no period",
            f"ALTER PRIVACY POLICY ON {request.rows.table} SET {item}",
        )  # fmt: skip
    return axis, domain


def _plain_range(domain: RangeDomain) -> str:
    """Renders the bins of a domain as their declaration, without NULL and edges."""
    days = all(edge[10:] in ("", " 00:00:00") for edge in (*domain.edges, domain.upper))
    low, high = (edge[:10] if days else f"'{edge}'" for edge in (domain.edges[0], domain.upper))
    step = domain.unit.upper() if domain.step_count == 1 else f"{domain.step_count} {domain.unit.upper()}S"
    return f"RANGE {low} TO {high} STEP {step}"


def _horizon(given: StatementOptions, domain: RangeDomain, place: exp.Expr) -> tuple[int, int]:
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


def _restrict_periods(question: Question, axis: int, first: int, periods: int) -> Question:
    key = question.keys[axis]
    codes = tuple(code - first if first <= code < first + periods else -1 for code in key.codes)
    cut = replace(key, labels=key.labels[first : first + periods], codes=codes)
    keys: Sequence[Key] = [cut if number == axis else other for number, other in enumerate(question.keys)]
    return replace(question, keys=tuple(keys))


def totals(what: str, number: int = 0) -> tuple[str, str]:
    """Returns the columns of an aggregate over several periods, and of its standard error. what: 'total' or 'last'."""
    place = f"_{number}" if number else ""
    return f"dpduck_{what}{place}", f"dpduck_{what}{place}_stderr"


def ends_of(answer: str) -> tuple[str, str]:
    """Returns the column names of an answer's interval: its low end and its high end."""
    return f"{answer}_low", f"{answer}_high"


def _render_select(analysis: Analysis, time: str, window: int, place: exp.Expr) -> tuple[str, str]:
    """Renders the published SELECT over released rows with its further columns. Also returns the column of periods."""
    accepted = "the columns of GROUP BY and count(*) AS n, without HAVING, ORDER BY or LIMIT"
    select, question = parse_one(analysis.outer.sql, dialect="duckdb"), analysis.request.question
    written = [part for part in _AROUND if place.args.get(part)]
    if not isinstance(select, exp.Select) or written or any(select.args.get(part) for part in _AROUND):
        raise refusal(place, "a stream publishes each period as it closes", accepted)
    numbers = range(len(question.aggregates))
    names = {key.name for key in question.keys} | {of(i) for of in (answer_column, stderr_column) for i in numbers}
    items = [item.unalias() for item in select.expressions]
    plain = [item for item in items if isinstance(item, exp.Column)]
    sets = all(
        {column.name for column in item.find_all(exp.Column)} == {GROUPING_ID} for item in items if item not in plain
    )
    if (
        not sets
        or {item.name for item in plain} != names
        or len(plain) > len(names)
        or len(analysis.shown) < len(numbers)
    ):
        raise refusal(place, "a stream's columns are its keys and its answers, each once", accepted)
    taken = {item.alias.lower() for item in select.expressions}
    for shown, number in analysis.shown:
        for column, name in _further(shown, number, question.aggregates[number], window):
            if name.lower() in taken:
                raise refusal(place, f"the name {name!r} is that of a column of the stream", "another alias")
            taken.add(name.lower())
            quoted = exp.to_identifier(name, quoted=True)
            select.append("expressions", exp.alias_(exp.column(column, table="released"), quoted))
    column = next(item.alias for item in select.expressions if item.unalias().name == time)
    return select.sql(dialect="duckdb"), column


def further_answers(stream: StreamRequest) -> list[str]:
    """Returns the names of running totals and of sums over the window. Each has a standard error beside it."""
    answers = []
    for shown, number in stream.shown:
        names = [name for _, name in _further(shown, number, stream.request.question.aggregates[number], stream.window)]
        answers += [name for name in names if f"{name}_stderr" in names]
    return answers


def _further(shown: str, number: int, aggregate: Aggregate, window: int) -> list[tuple[str, str]]:
    columns = (
        list(zip(ends_of(answer_column(number)), ends_of(shown), strict=True)) if aggregate.has_curved_error else []
    )
    if aggregate.operand_by_group:
        return columns
    for what in ("total", "last") if window else ("total",):
        answer, stderr = totals(what, number)
        name = f"{shown}_{what}"
        columns += [(answer, name), (stderr, f"{name}_stderr")]
        if aggregate.has_curved_error:
            columns += list(zip(ends_of(answer), ends_of(name), strict=True))
    return columns


def hole() -> str:
    """Returns the placeholder of the released rows in `select`."""
    return f'"{HOLE}"'


def require_day(text: str) -> datetime:
    """Reads the day of UNTIL."""
    try:
        return datetime.strptime(text, "%Y-%m-%d")
    except ValueError:
        raise Refusal(f"{text[:40]!r} is not a day", accepted="UNTIL '2025-01-01'") from None
