"""The order of an audit: neighbours from policies, each statement on both, bounds, and a search for more statements.

An audit also compares a channel on both neighbours: whether a statement is answered, its shape, text and price. It
compares exact counts of made-up tables with the counts of each unit alone (additivity).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

import duckdb

from dpduck.auditor.additivity import condition_statements, sums
from dpduck.auditor.bounds import Bound, Claim, bounds
from dpduck.auditor.neighbours import CROWDED, EDGES, KINDS, ODD, SPREAD, Neighbours, neighbours
from dpduck.auditor.runs import Planned, Seen, asked, measured, planned, table_of
from dpduck.auditor.statements import Case, Search, own_statements
from dpduck.auditor.statements import asked as what_can_be_asked
from dpduck.kernel.worker.workers import Workers
from dpduck.values.errors import DpduckError

ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"
_LEDGER = (
    "SELECT count(*), coalesce(sum(epsilon), 0), coalesce(sum(rho), 0), coalesce(sum(delta), 0), "
    "coalesce(max(mechanism), '') FROM dp_ledger() WHERE id > $1"
)
FREE_ROWS = ("summary", "threshold", "_THRESHOLD", "SUMMARY")
"""Words of statements whose number of rows is an answer."""


@dataclass(frozen=True)
class Outcome:
    """What can be told of a statement beside its answers. shape: names and types of columns, and rows where public."""

    kind: str
    text: str
    shape: tuple[object, ...]
    price: tuple[object, ...]

    @property
    def epsilon(self) -> float:
        """Returns what the ledger was charged."""
        return float(str(self.price[1]))


def outcomes(found: Neighbours, text: str) -> tuple[Outcome, Outcome]:
    """Asks a statement of both databases, by dp(), as anybody would."""
    first, second = (_outcome(connection, text) for connection in found.both)
    return first, second


def difference(first: Outcome, second: Outcome) -> str | None:
    """Names what tells the two apart, if anything."""
    for name in ("kind", "text", "shape", "price"):
        if getattr(first, name) != getattr(second, name):
            return name
    return None


def _outcome(connection: duckdb.DuckDBPyConnection, text: str) -> Outcome:
    last = connection.execute("SELECT coalesce(max(id), 0) FROM dp_ledger()").fetchall()[0][0]
    said, shape = "", tuple[object, ...]()
    try:
        answer = connection.execute("FROM dp($1)", [text])
        columns = tuple((name, str(kind)) for name, kind, *_ in answer.description or ())
        rows = answer.fetchall()
        public = not any(word in text for word in FREE_ROWS)
        shape, kind = (columns, len(rows) if public and "HAVING" not in text else None), ANSWERED
    except (duckdb.Error, DpduckError) as error:
        said = str(error).split("\n", 1)[0]
        kind = FAILED if "after its charge" in said else REFUSED
    price = connection.execute(_LEDGER, [last]).fetchall()[0]
    return Outcome(kind, said, shape, tuple(map(str, price)))


ERROR = 1e-9
"""The chance that a statement is said to tell too much when it does not."""

MOST_RUNS = 40_000
LEAST_RUNS = 40
SEARCHED_RUNS, SEARCHED_SECONDS = 500, 0.5
IN_TURN = 10
SLOWER = 4
"""Times the seconds of a statement each of whose runs is a release of its own."""
NEARLY = 1 - 1e-6

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How an audit is made. epsilon: of each own statement. seconds, runs: of each at most, on both neighbours.

    search: seconds of the search. seed: of the search. error: see ERROR. clock: by which seconds are counted.
    """

    epsilon: str = "1"
    seconds: float = 5.0
    search: float = 0.0
    seed: str = ""
    error: float = ERROR
    runs: int = MOST_RUNS
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Finding:
    """What was seen of one statement on one pair of neighbours.

    refused: why nobody gets an answer. told: what beside the answers tells the neighbours apart.
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
        """Tells whether the statement tells more than it may."""
        return bool(self.told) or any(bound.broken for bound in self.bounds)


def audit(
    source: duckdb.DuckDBPyConnection, given: Sequence[str], settings: Settings, tell: Tell = lambda line: None
) -> Iterator[Finding]:
    """Yields what was seen of each statement: those that are given, else own ones of every mechanism; then a search.

    source: a connection that dpduck is loaded on, of which policies and public tables are read, and no private row.
    """
    workers = Workers()
    with ExitStack() as stack:
        pairs = {kind: stack.enter_context(neighbours(source, kind)) for kind in KINDS}
        tables = what_can_be_asked(pairs[CROWDED], settings.epsilon)
        cases = [Case("", with_tag(text)) for text in given] or [one for of in tables for one in own_statements(of)]
        if any("_norm_contributed" in case.text for case in cases):
            pairs |= {kind: stack.enter_context(neighbours(source, kind)) for kind in EDGES}
        for number, case in enumerate(cases, start=1):
            for kind in _kinds(case):
                tell(f"{number} of {len(cases)}: {case.mechanism or 'statement'}, {kind} unit")
                yield audit_case(pairs[kind], case, f"{kind[0]}{number}_", settings, workers)
        tell("exact counts of all units, and of each alone")
        yield from added_up(source, [case.text for case in cases if not case.then], "" if given else tables[0].price)
        if settings.search > 0:
            yield from _searched(pairs, Search(tables, settings.seed), settings, workers, tell)


def _kinds(case: Case) -> tuple[str, ...]:
    """Returns the kinds of a unit that a statement is audited with: beside norms also those about a norm of 1."""
    if case.then:
        return (CROWDED,)
    return (CROWDED, SPREAD, *(EDGES if "_norm_contributed" in case.text else ()))


ADDITIVITY, ALONE = "additivity", "alone"
NOT_THE_SUM = "exact counts of all units together, which are not the sum of those of each alone"


def added_up(source: duckdb.DuckDBPyConnection, texts: Sequence[str], price: str) -> Iterator[Finding]:
    """Yields statements with exact counts that differ from the sum of the counts of each unit alone.

    Where there is no such statement, it yields the number of compared statements.
    price: the price of further statements, which have conditions over every column. The empty text stands for none.
    """
    began = time.monotonic()

    def statements(made: duckdb.DuckDBPyConnection) -> list[str]:
        return [*texts, *(condition_statements(made, price) if price else [])]

    found = sums(source, statements)
    seconds = time.monotonic() - began
    for text in found.broken:
        yield Finding(ADDITIVITY, ALONE, text, told=NOT_THE_SUM, seconds=seconds)
    if not found.broken:
        yield Finding(ADDITIVITY, ALONE, f"{found.statements} statements: all units, and each alone", seconds=seconds)


def with_tag(text: str) -> str:
    """Adds a fresh tag to a statement's first OPTIONS (..), where it has none."""
    head, options, rest = text.partition("OPTIONS (")
    if not options or "refresh" in text or head.lstrip().upper().startswith("CREATE PRIVATE") or "{tag}" in text:
        return text
    return f"{head}{options}refresh = '{{tag}}', {rest}"


def audit_case(pair: Neighbours, case: Case, word: str, settings: Settings, workers: Workers) -> Finding:
    """Compares one statement on both neighbours: what is said, and what is answered again and again."""
    began = time.monotonic()
    first, second = outcomes(pair, case.text.replace("{tag}", word))

    def finding(found: Sequence[Bound] = (), refused: str = "", told: str = "") -> Finding:
        passed = time.monotonic() - began
        return Finding(case.mechanism, pair.kind, case.text, tuple(found), refused, told, passed)

    differs = difference(first, second)
    if differs is not None:
        return finding(told=differs)
    if first.kind != ANSWERED:
        return finding(refused=first.text, told=FAILED if first.kind == FAILED else "")
    plans = [planned(connection, case.text) for connection in pair.both]
    claim = plans[0].claim
    if _undercharged(first, claim):
        return finding(told="a charge below the price")
    runs = [measured(one, workers) if not case.then else asked(one, case.before, case.then, word) for one in plans]
    seconds = settings.seconds * (SLOWER if case.then else 1)
    return finding(_bounds(runs, claim, seconds, settings.runs, settings))


def _undercharged(outcome: Outcome, claim: Claim) -> bool:
    """Tells whether the ledger was charged less than what the plan costs."""
    _, epsilon, rho, delta, _ = outcome.price
    paid = [float(str(amount)) for amount in (epsilon, rho, delta)]
    return any(was < due * NEARLY for was, due in zip(paid, (claim.epsilon or 0, claim.rho, claim.delta), strict=True))


def _bounds(runs: Sequence[Iterator[Seen]], claim: Claim, seconds: float, most: int, settings: Settings) -> list[Bound]:
    """Runs both in turn, for so many seconds or runs, and bounds what they tell. One that fails tells of that."""
    seen: tuple[list[Seen], list[Seen]] = ([], [])
    end = settings.clock() + seconds
    while len(seen[0]) < LEAST_RUNS or (settings.clock() < end and len(seen[0]) < most):
        for one, into in zip(runs, seen, strict=True):
            into.extend(islice(one, IN_TURN))
    return bounds(table_of(seen), claim, settings.error)


def _searched(
    pairs: dict[str, Neighbours], search: Search, settings: Settings, workers: Workers, tell: Tell
) -> Iterator[Finding]:
    """Yields what a search finds: each statement is compared on all pairs, and measured shortly on one."""
    end, number = settings.clock() + settings.search, 0
    while settings.clock() < end:
        number += 1
        text, parts = search.statement()
        case, word = Case("search", text), f"s{number}_"
        tell(f"search, seed {settings.seed}: {number} statements, {len(search.accepted)} parts accepted")
        began, answered = time.monotonic(), False
        for kind in (ODD, CROWDED):
            first, second = outcomes(pairs[kind], text.replace("{tag}", word))
            told, answered = difference(first, second) or "", first.kind == ANSWERED
            if told or first.kind == FAILED:
                yield Finding("search", kind, text, told=told or FAILED, seconds=time.monotonic() - began)
                break
        search.note(parts, answered)
        if answered:
            yield _shortly(pairs[(CROWDED, SPREAD)[number % 2]], case, settings, workers)
        else:
            yield Finding("search", ODD, text, refused=first.text, seconds=time.monotonic() - began)


def _shortly(pair: Neighbours, case: Case, settings: Settings, workers: Workers) -> Finding:
    """Measures a statement of the search: what tells of a unit outright is seen in some hundred runs."""
    began = time.monotonic()
    try:
        plans: list[Planned] = [planned(connection, case.text) for connection in pair.both]
        runs = [measured(one, workers) for one in plans]
        found = tuple(_bounds(runs, plans[0].claim, SEARCHED_SECONDS, SEARCHED_RUNS, settings))
    except DpduckError as error:
        return Finding("search", pair.kind, case.text, told=str(error), seconds=time.monotonic() - began)
    return Finding("search", pair.kind, case.text, found, seconds=time.monotonic() - began)
