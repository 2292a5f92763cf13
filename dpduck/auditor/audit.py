"""Audit: runs statements on two neighbouring databases of made-up rows, and bounds the loss that their answers show.

It also compares messages, shapes and prices, and exact counts with sums over single units (additivity).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

import duckdb

from dpduck.auditor.additivity import sums
from dpduck.auditor.answer_numbers import Seen
from dpduck.auditor.audit_plan import AuditPlan, plan_statement
from dpduck.auditor.bounds import Bound, Claim, bounds
from dpduck.auditor.conditions import condition_statements
from dpduck.auditor.neighbours import CROWDED, EDGES, KINDS, ODD, SPREAD, Neighbours, neighbours
from dpduck.auditor.runs import measure_runs, query_releases, table_of
from dpduck.auditor.search import StatementSearch
from dpduck.auditor.statements import Case, own_statements
from dpduck.auditor.statements import list_parts as what_can_be_asked
from dpduck.kernel.worker.workers import Workers
from dpduck.values.errors import DpduckError

ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"
_LEDGER = (
    "SELECT count(*), coalesce(sum(epsilon), 0), coalesce(sum(rho), 0), coalesce(sum(delta), 0), "
    "coalesce(max(mechanism), '') FROM dp_ledger() WHERE id > $1"
)
FREE_ROWS = ("summary", "threshold", "_THRESHOLD", "SUMMARY")
"""Words in a statement that show that its number of rows is noisy, and so an answer itself."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a statement, without its answers. shape: names and types of columns, and the row count if public."""

    kind: str
    text: str
    shape: tuple[object, ...]
    price: tuple[object, ...]

    @property
    def epsilon(self) -> float:
        return float(str(self.price[1]))


def outcomes(pair: Neighbours, text: str) -> tuple[Outcome, Outcome]:
    """Runs a statement on both databases by dp(), as an analyst does."""
    first, second = (_outcome(connection, text) for connection in pair.both)
    return first, second


def difference(first: Outcome, second: Outcome) -> str | None:
    """Names the first field in which two outcomes differ, or returns None if they are equal."""
    for name in ("kind", "text", "shape", "price"):
        if getattr(first, name) != getattr(second, name):
            return name
    return None


def _outcome(connection: duckdb.DuckDBPyConnection, text: str) -> Outcome:
    last = connection.execute("SELECT coalesce(max(id), 0) FROM dp_ledger()").fetchall()[0][0]
    message, shape = "", tuple[object, ...]()
    try:
        answer = connection.execute("FROM dp($1)", [text])
        columns = tuple((name, str(kind)) for name, kind, *_ in answer.description or ())
        rows = answer.fetchall()
        public = not any(word in text for word in FREE_ROWS)
        shape, kind = (columns, len(rows) if public and "HAVING" not in text else None), ANSWERED
    except (duckdb.Error, DpduckError) as error:
        message = str(error).split("\n", 1)[0]
        kind = FAILED if "after its charge" in message else REFUSED
    price = connection.execute(_LEDGER, [last]).fetchall()[0]
    return Outcome(kind, message, shape, tuple(map(str, price)))


ERROR = 1e-9
"""The probability that a statement is reported as broken when it is not."""

MOST_RUNS = 40_000
LEAST_RUNS = 40
SEARCHED_RUNS, SEARCHED_SECONDS = 500, 0.5
IN_TURN = 10
SLOWER = 4
"""Factor on the seconds of a statement if each run is a release of its own."""
NEARLY = 1 - 1e-6

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Settings of an audit. epsilon: the price of each statement that the audit makes. error: see ERROR.

    seconds, runs: the limits of one statement. search, seed: the seconds of the search, and its seed.
    """

    epsilon: str = "1"
    seconds: float = 5.0
    search: float = 0.0
    seed: str = ""
    error: float = ERROR
    runs: int = MOST_RUNS
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class AuditFinding:
    """Finding about one statement on one pair of neighbours.

    refused: the message, if both neighbours refuse the statement. told: the field in which the outcomes differ, or
    another error.
    """

    mechanism: str
    kind: str
    statement: str
    bounds: tuple[Bound, ...] = ()
    refused: str = ""
    told: str = ""
    seconds: float = 0.0

    @property
    def broken(self) -> bool:
        return bool(self.told) or any(bound.broken for bound in self.bounds)


def audit(
    source: duckdb.DuckDBPyConnection, given: Sequence[str], settings: Settings, tell: Tell = lambda line: None
) -> Iterator[AuditFinding]:
    """Yields findings about the given statements, or about statements of every mechanism, and about a search.

    source: a connection that dpduck is loaded on. Its policies and public tables are read, and no private row.
    """
    workers = Workers()
    with ExitStack() as stack:
        pairs = {kind: stack.enter_context(neighbours(source, kind)) for kind in KINDS}
        tables = what_can_be_asked(pairs[CROWDED], settings.epsilon)
        cases = [Case("", with_tag(text)) for text in given] or [own for of in tables for own in own_statements(of)]
        if any("_norm_contributed" in case.text for case in cases):
            pairs |= {kind: stack.enter_context(neighbours(source, kind)) for kind in EDGES}
        for number, case in enumerate(cases, start=1):
            for kind in _kinds(case):
                tell(f"{number} of {len(cases)}: {case.mechanism or 'statement'}, {kind} unit")
                yield audit_case(pairs[kind], case, f"{kind[0]}{number}_", settings, workers)
        tell("exact counts of all units, and of each alone")
        yield from check_sums(source, [case.text for case in cases if not case.then], "" if given else tables[0].price)
        if settings.search > 0:
            yield from _run_search(pairs, StatementSearch(tables, settings.seed), settings, workers, tell)


def _kinds(case: Case) -> tuple[str, ...]:
    """Returns the kinds of the added unit for a statement's audit. Statements with norms also get EDGES."""
    if case.then:
        return (CROWDED,)
    return (CROWDED, SPREAD, *(EDGES if "_norm_contributed" in case.text else ()))


ADDITIVITY, ALONE = "additivity", "alone"
NOT_THE_SUM = "exact counts of all units together, which are not the sum of those of each alone"


def check_sums(source: duckdb.DuckDBPyConnection, texts: Sequence[str], price: str) -> Iterator[AuditFinding]:
    """Yields statements with exact counts that are not the sum of the counts of each unit alone. If none, yields
    one summary.

    price: the price of further statements with conditions over every column, which are left out if the price is "".
    """
    began = time.monotonic()

    def statements(twin: duckdb.DuckDBPyConnection) -> list[str]:
        return [*texts, *(condition_statements(twin, price) if price else [])]

    result = sums(source, statements)
    seconds = time.monotonic() - began
    for text in result.broken:
        yield AuditFinding(ADDITIVITY, ALONE, text, told=NOT_THE_SUM, seconds=seconds)
    if not result.broken:
        yield AuditFinding(
            ADDITIVITY, ALONE, f"{result.statements} statements: all units, and each alone", seconds=seconds
        )


def with_tag(text: str) -> str:
    """Adds a fresh tag to a statement's first OPTIONS (..), if it has none."""
    head, options, rest = text.partition("OPTIONS (")
    if not options or "refresh" in text or head.lstrip().upper().startswith("CREATE PRIVATE") or "{tag}" in text:
        return text
    return f"{head}{options}refresh = '{{tag}}', {rest}"


def audit_case(pair: Neighbours, case: Case, word: str, settings: Settings, workers: Workers) -> AuditFinding:
    """Compares one statement on both neighbours: first the outcomes of dp(), then the answers of many runs."""
    began = time.monotonic()
    first, second = outcomes(pair, case.text.replace("{tag}", word))

    def finding(results: Sequence[Bound] = (), refused: str = "", told: str = "") -> AuditFinding:
        passed = time.monotonic() - began
        return AuditFinding(case.mechanism, pair.kind, case.text, tuple(results), refused, told, passed)

    differs = difference(first, second)
    if differs is not None:
        return finding(told=differs)
    if first.kind != ANSWERED:
        return finding(refused=first.text, told=FAILED if first.kind == FAILED else "")
    plans = [plan_statement(connection, case.text) for connection in pair.both]
    claim = plans[0].claim
    if _is_below_price(first, claim):
        return finding(told="a charge below the price")
    runs = [
        measure_runs(plan, workers) if not case.then else query_releases(plan, case.before, case.then, word)
        for plan in plans
    ]
    seconds = settings.seconds * (SLOWER if case.then else 1)
    return finding(_bounds(runs, claim, seconds, settings.runs, settings))


def _is_below_price(outcome: Outcome, claim: Claim) -> bool:
    _, epsilon, rho, delta, _ = outcome.price
    paid = [float(str(amount)) for amount in (epsilon, rho, delta)]
    return any(was < due * NEARLY for was, due in zip(paid, (claim.epsilon or 0, claim.rho, claim.delta), strict=True))


def _bounds(runs: Sequence[Iterator[Seen]], claim: Claim, seconds: float, most: int, settings: Settings) -> list[Bound]:
    """Bounds the loss by running both databases in turn, for `seconds` or `most` runs. Failed runs count as answers."""
    seen: tuple[list[Seen], list[Seen]] = ([], [])
    end = settings.clock() + seconds
    while len(seen[0]) < LEAST_RUNS or (settings.clock() < end and len(seen[0]) < most):
        for run, into in zip(runs, seen, strict=True):
            into.extend(islice(run, IN_TURN))
    return bounds(table_of(seen), claim, settings.error)


def _run_search(
    pairs: dict[str, Neighbours], search: StatementSearch, settings: Settings, workers: Workers, tell: Tell
) -> Iterator[AuditFinding]:
    """Yields the findings of a search. Each statement's outcomes are compared on two pairs, its answers on one."""
    end, number = settings.clock() + settings.search, 0
    while settings.clock() < end:
        number += 1
        text, parts = search.statement()
        case, word = Case("search", text), f"s{number}_"
        tell(f"search, seed {settings.seed}: {number} statements, {len(search.accepted)} parts accepted")
        began, answered = time.monotonic(), False
        for kind in (ODD, CROWDED):
            first, second = outcomes(pairs[kind], text.replace("{tag}", word))
            leak, answered = difference(first, second) or "", first.kind == ANSWERED
            if leak or first.kind == FAILED:
                yield AuditFinding("search", kind, text, told=leak or FAILED, seconds=time.monotonic() - began)
                break
        search.note(parts, answered)
        if answered:
            yield _shortly(pairs[(CROWDED, SPREAD)[number % 2]], case, settings, workers)
        else:
            yield AuditFinding("search", ODD, text, refused=first.text, seconds=time.monotonic() - began)


def _shortly(pair: Neighbours, case: Case, settings: Settings, workers: Workers) -> AuditFinding:
    """Measures a statement of the search in a few hundred runs, which are enough to show a large leak."""
    began = time.monotonic()
    try:
        plans: list[AuditPlan] = [plan_statement(connection, case.text) for connection in pair.both]
        runs = [measure_runs(plan, workers) for plan in plans]
        results = tuple(_bounds(runs, plans[0].claim, SEARCHED_SECONDS, SEARCHED_RUNS, settings))
    except DpduckError as error:
        return AuditFinding("search", pair.kind, case.text, told=str(error), seconds=time.monotonic() - began)
    return AuditFinding("search", pair.kind, case.text, results, seconds=time.monotonic() - began)
