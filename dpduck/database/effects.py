"""Effects of a change of a policy on paid answers: those that would be charged again, or refused, and their prices.

The stored statements are read twice: under the policies in force, and under those after the change. Both readings are
the ones that a repeated statement gets, so a listed price is what repeating that statement would be charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dpduck.kernel.door import compute_charge
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.kinds import CreatePrivate
from dpduck.language.statements.parse import parse_statement
from dpduck.mechanisms.batch import MOST_SHOWN, amount_left, price_together, price_words
from dpduck.mechanisms.known.reuse import reuse_digest
from dpduck.mechanisms.registry import explain_question
from dpduck.mechanisms.streams.measurements import asks_of
from dpduck.mechanisms.streams.plan import StreamRequest
from dpduck.mechanisms.streams.strategies import plans
from dpduck.store.cursors import Caller
from dpduck.store.named import OWNER_NAME
from dpduck.store.releases import STREAM, StoredRelease
from dpduck.store.tables import Value, rows_sql
from dpduck.values.errors import DpduckError
from dpduck.values.periods import Periods
from dpduck.values.privacy import Charge

if TYPE_CHECKING:
    from dpduck.database.database import Database
    from dpduck.mechanisms.streams.store import StreamRecord

MOST_READ, MOST_ANNOUNCED = 2_000, 100
"""The largest numbers of stored statements that are read for a list, and for a word. Each takes some 20 ms."""

COLUMNS = (
    ("kind", "VARCHAR"), ("name", "VARCHAR"), ("principal", "VARCHAR"), ("afterwards", "VARCHAR"),
    ("epsilon", "DOUBLE"), ("rho", "DOUBLE"), ("delta", "DOUBLE"), ("price", "VARCHAR"), ("fits", "BOOLEAN"),
    ("note", "VARCHAR"), ("statement", "VARCHAR"),
)  # fmt: skip

CHARGED, REFUSED, WITH_ANOTHER = "charged again", "refused", "free with another"
READABLE = "its rows stay readable; made again, it is charged"
STOPPED = "it is refreshed no more; DROP PRIVATE STREAM and CREATE PRIVATE STREAM pays"


@dataclass(frozen=True)
class ReadStatement:
    """A statement as a database reads it. digests: names under which its answer is stored if it was paid."""

    digests: tuple[str, ...]
    request: SelectRequest
    question: Any

    def charge_again(self) -> Charge | None:
        """Returns the charge of a new answer, None if no price meets the statement's target."""
        if isinstance(self.question, StreamRequest):
            stream, request = self.question, self.request
            asks = asks_of(stream, plans(stream)[0])
            return compute_charge(request.price.charge, asks, request.price.least_rho)
        details = explain_question(self.question)
        if details.request is None:
            return None
        return compute_charge(details.request.price.charge, details.asks, details.request.price.least_rho)

    @property
    def run(self) -> Periods | None:
        periods = self.request.rows.periods
        return None if periods is None else periods.periods


@dataclass(frozen=True)
class Effect:
    """A stored answer that a change takes away. charge: its price afterwards, None if it is refused or free."""

    kind: str
    name: str
    principal: str
    statement: str
    afterwards: str
    note: str
    reading: ReadStatement | None = None
    charge: Charge | None = None


def list_effects(now: Database, later: Database, most: int) -> Iterator[Effect]:
    """Yields the paid answers that are free in the first database, but not in the second.

    most: the largest number of stored answers that are read, and of views, the latest first.
    """
    stored = [release for release, _ in now.releases.all() if release.strategy != STREAM]
    answers = [release for release in stored if release.kind == "answer"]
    views = [release for release in stored if release.kind != "answer"]
    paid = set[str]()
    for release in (*reversed(answers[-most:]), *reversed(views[-most:])):
        caller = Caller(release.principal, owner=release.principal == OWNER_NAME)
        effect = _effect(release, paid, partial(_read, release.statement, caller), now, later)
        if effect is not None:
            yield effect
    for stream in now.streams.store.all():
        effect = _effect(stream, paid, partial(_read_stream, stream), now, later)
        if effect is not None:
            yield effect


def _effect(
    stored: StoredRelease | StreamRecord,
    paid: set[str],
    read: Callable[[Database], ReadStatement],
    now: Database,
    later: Database,
) -> Effect | None:
    """Returns the effect on one answer, None without an effect. paid: digests that earlier effects pay for."""
    kind, note = "stream", STOPPED
    if isinstance(stored, StoredRelease):
        kind, note = stored.kind, "" if stored.kind == "answer" else READABLE
    about = (kind, stored.name, stored.principal, stored.statement)
    try:
        if stored.digest not in read(now).digests:
            return None  # an earlier change took it away
    except DpduckError:
        return None
    try:
        reading = read(later)
        if stored.digest in reading.digests:
            return None
        charge = reading.charge_again()
    except DpduckError as error:
        return Effect(*about, REFUSED, str(error))
    if charge is None:
        return Effect(*about, REFUSED, "no price meets its target")
    if reading.digests[0] in paid:
        return Effect(*about, WITH_ANOTHER, note)
    paid.add(reading.digests[0])
    return Effect(*about, CHARGED, note, reading, charge)


def _read(text: str, caller: Caller, database: Database) -> ReadStatement:
    question, request = database.question_of(text, caller)
    digests = [question.digest()]
    if isinstance(question, SelectRequest):
        digests.append(reuse_digest(request, caller))
    return ReadStatement(tuple(digests), request, question)


def _read_stream(named: StreamRecord, database: Database) -> ReadStatement:
    statement = parse_statement(named.statement)
    if not isinstance(statement, CreatePrivate):
        raise DpduckError("a stream of no statement")
    stream = database.streams.analyse(statement, named)
    return ReadStatement((stream.digest(),), stream.request, stream)


def effects_sql(effects: Sequence[Effect], ledger: Ledger, caller: Caller) -> str:
    """Returns SQL with a row for each effect, and a row with the price of all effects for each privacy unit."""
    rows: list[list[Value]] = []
    for effect in effects:
        charge, reading, price, fits = effect.charge, effect.reading, None, None
        if charge is not None and reading is not None:
            unit = reading.request.rows.unit_key
            price = price_words(charge, unit, reading.run, ledger, caller)
            fits = amount_left(unit, [(reading.run, charge)], reading.run, ledger, caller)[1] >= 0
        short = " ".join(effect.statement.split())
        rows.append([
            effect.kind, effect.name, effect.principal, effect.afterwards, *_amounts(charge), price, fits,
            effect.note or None, short[:MOST_SHOWN] + (" .." if len(short) > MOST_SHOWN else ""),
        ])  # fmt: skip
    for unit, asked in _by_unit(effects).items():
        total, price = price_together(asked, unit, ledger, caller)
        fits = amount_left(unit, asked, None, ledger, caller)[1] >= 0
        rows.append(["in all", unit, None, CHARGED, *_amounts(total), price, fits, "nothing was changed", None])
    if not rows:
        rows.append(["in all", None, None, "all stay free", *_amounts(None), None, None, "nothing was changed", None])
    return rows_sql(COLUMNS, rows)


def _amounts(charge: Charge | None) -> tuple[Value, Value, Value]:
    return (None, None, None) if charge is None else (charge.epsilon, charge.rho, charge.delta)


def describe_effects(effects: Sequence[Effect], ledger: Ledger) -> str:
    """Describes in a sentence how many answers of each kind a change takes away, and their price. '' for none."""
    if not effects:
        return ""
    numbers = Counter(effect.kind for effect in effects)
    counted = " and ".join(f"{number} {kind}{'' if number == 1 else 's'}" for kind, number in numbers.items())
    owner = Caller(OWNER_NAME, owner=True)
    prices = [price_together(asked, unit, ledger, owner)[1] for unit, asked in _by_unit(effects).items()]
    cost = f"; asking for them again is charged {' and '.join(filter(None, prices))}" if any(prices) else ""
    return f"this change takes away {counted} that you paid for{cost}"


def _by_unit(effects: Sequence[Effect]) -> dict[str, list[tuple[Periods | None, Charge]]]:
    """Returns the prices of effects by privacy unit, each with the periods that it is charged to."""
    prices: dict[str, list[tuple[Periods | None, Charge]]] = {}
    for effect in effects:
        if effect.charge is not None and effect.reading is not None:
            prices.setdefault(effect.reading.request.rows.unit_key, []).append((effect.reading.run, effect.charge))
    return prices
