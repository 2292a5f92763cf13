"""Facts of the documents: views, their prices and noise, the ledger's sums and the policies. All are in the store.

The store has no private row. Its views are released, and the rest is public: policies, statements and prices. A
document shows what `dpduck report` and `dpduck certify` show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, cast

import duckdb

from dpduck.documents.statements import hides_groups
from dpduck.kernel.ledger.budgets import LedgerState
from dpduck.kernel.ledger.entries import LedgerRow
from dpduck.language.rows.facts import Policy
from dpduck.mechanisms.certificate import Entry, read_certificates
from dpduck.publish.publish import STORE
from dpduck.publish.published_views import PublishedView, read_views
from dpduck.store.named import OWNER_NAME
from dpduck.store.policies import policy_from_text, table_from_sql
from dpduck.values.column_notes import PUBLIC_TOTALS
from dpduck.values.errors import Refusal
from dpduck.values.periods import split_key, word_of
from dpduck.values.privacy import Budget, Charge
from dpduck.values.quoting import fold

_MADE_UP = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*CREATE\s+(?:OR\s+REPLACE\s+)?PRIVATE\s+TABLE\b", re.I | re.DOTALL)
_ROWS = """SELECT id, epoch_us("at"), principal, unit_key, table_name, statement, mechanism, epsilon, rho, delta,
    budget, previous_hash, hash FROM store.dpduck.ledger_entries WHERE id <= $1 ORDER BY id"""
_RELEASES = """SELECT name, statement, strategy, epsilon, delta, rho, released_at, rows, ledger_id
    FROM store.dpduck.releases WHERE kind = 'view'"""
_POLICIES = """SELECT table_name, table_name IN (SELECT table_name FROM store.dpduck.policies WHERE active), definition
    FROM store.dpduck.policies WHERE epoch_us(changed_at) <= $1
    QUALIFY row_number() OVER (PARTITION BY table_name ORDER BY revision DESC) = 1"""
_PUBLIC = "SELECT DISTINCT table_name FROM store.dpduck.public_tables ORDER BY ALL"
_STREAMS = "SELECT name, published, facts FROM store.dpduck.streams"


@dataclass(frozen=True)
class DocumentedView:
    """A private view with its release. run: the charged periods, as in "2024-01", or None.

    plan: the noise and the queries of the release, as its certificate has them, None if an older version made it.
    stream: the number of published periods and of all periods, for a stream.
    """

    view: PublishedView
    statement: str
    strategy: str
    price: Charge
    released_at: datetime
    rows: int
    entry: int
    unit: str
    plan: tuple[Mapping[str, Any], ...] | None
    made_by: str | None
    stream: tuple[int, int] | None

    @property
    def hides_groups(self) -> bool:
        """Tells whether some groups are not shown because of their noisy numbers."""
        return hides_groups(self.statement)

    @property
    def has_public_totals(self) -> bool:
        """Tells whether answers agree with totals that were public already."""
        return PUBLIC_TOTALS in self.view.comment

    @property
    def is_synthetic(self) -> bool:
        return _MADE_UP.match(self.statement) is not None


@dataclass(frozen=True)
class DocumentFacts:
    """Facts of one privacy unit: views, policies, the budget, and the sum of all charges.

    key: the unit's key in the ledger. policies: those under which the views were made, several of a changed table.
    spent: the sum of all charges, for a unit by periods the largest sum of one period. person: the sum over all
    periods. charges: the number of charges. asked_by_others: whether principals have asked statements of their own.
    link: the last link of the certificates.
    """

    key: str
    views: tuple[DocumentedView, ...]
    policies: tuple[Policy, ...]
    budget: Budget
    spent: Charge
    person: Charge | None
    charges: int
    public_tables: tuple[str, ...]
    asked_by_others: bool
    entries: int
    link: str

    @property
    def protects_rows(self) -> bool:
        """Tells whether each row is a unit by itself. A row lies in one period."""
        return _is_row(self.key)


def read_facts(connection: duckdb.DuckDBPyConnection, entries: int, wanted: Sequence[str] = ()) -> DocumentFacts:
    """Returns the facts of the store that is attached as `store`. entries: the number of verified ledger entries.

    Refuses views of several privacy units: each unit has a document of its own.
    """
    published = read_views(connection, with_ledger=False, wanted=wanted)
    chain, released = read_certificates(connection, STORE, entries)
    views = tuple(_document_views(connection, published, released))
    rows = [LedgerRow(*row) for row in connection.execute(_ROWS, [entries]).fetchall()]
    state = LedgerState()
    for row in rows:
        state.absorb(row)
    key = _only_unit(views)
    charges = [row for row in rows if row.budget is None and Fraction(row.rho) and split_key(row.unit_key)[0] == key]
    return DocumentFacts(
        key,
        views,
        _policies_of(connection, key, views, {row.id: row.at for row in rows}),
        state.budgets[key],
        state.of(key),
        state.of_person(key) if (key, None) in state.periods and not _is_row(key) else None,
        len(charges),
        tuple(table_from_sql(name).parts[-1] for (name,) in connection.execute(_PUBLIC).fetchall()),
        any(row.principal != OWNER_NAME for row in charges),
        len(chain),
        str(chain[-1]["link"]),
    )


def _policies_of(
    connection: duckdb.DuckDBPyConnection, key: str, views: Sequence[DocumentedView], moments: Mapping[int, int]
) -> tuple[Policy, ...]:
    """Returns the policies of a unit that were in force at the moments of the views' ledger entries.

    A policy that was dropped since is among them if a statement names its table.
    """
    texts = dict[str, None]()
    for view in views:
        for name, is_active, text in connection.execute(_POLICIES, [moments[view.entry]]).fetchall():
            if is_active or fold(table_from_sql(name).parts[-1]) in fold(view.statement):
                texts[text] = None
    policies = list[Policy]()
    for policy in sorted(map(policy_from_text, texts), key=lambda policy: (policy.table.sql, policy.revision)):
        bounds = [(other.table, other.unit, other.domains, other.clamps) for other in policies]
        if policy.unit.key == key and (policy.table, policy.unit, policy.domains, policy.clamps) not in bounds:
            policies.append(policy)
    return tuple(policies)


def views_by_unit(
    connection: duckdb.DuckDBPyConnection, entries: int, wanted: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """Returns the names of the views of each privacy unit, since a document is about one unit."""
    published = read_views(connection, with_ledger=False, wanted=wanted)
    _, released = read_certificates(connection, STORE, entries)
    units: dict[str, list[str]] = {}
    for view in _document_views(connection, published, released):
        units.setdefault(view.unit, []).append(view.view.name)
    return [tuple(names) for names in units.values()]


def _document_views(
    connection: duckdb.DuckDBPyConnection, published: Sequence[PublishedView], released: Sequence[Entry]
) -> Iterator[DocumentedView]:
    """Yields each view with its release, in the order of the ledger."""
    certificates = {certificate["entry"]: certificate for certificate in released}
    streams = {fold(name): (published, len(json.loads(facts)[1]))
               for name, published, facts in connection.execute(_STREAMS).fetchall()}  # fmt: skip
    views = {fold(view.name): view for view in published}
    for name, statement, strategy, epsilon, delta, rho, at, rows, entry in sorted(
        connection.execute(_RELEASES).fetchall(), key=lambda row: (row[-1], row[0])
    ):
        if fold(name) not in views:
            continue
        certificate = certificates[entry]
        plan = cast(list[Mapping[str, Any]] | None, certificate["plan"])
        yield DocumentedView(
            views[fold(name)],
            statement,
            strategy,
            Charge(None if epsilon is None else Fraction(epsilon), Fraction(rho), Fraction(delta)),
            at.replace(tzinfo=UTC),
            rows,
            entry,
            split_key(str(certificate["privacy_unit"]))[0],
            None if plan is None else tuple(plan),
            cast(str | None, certificate["made_by"]),
            streams.get(fold(name)),
        )


def _is_row(key: str) -> bool:
    return key.removesuffix(f" PER {word_of(key)}").endswith(".ROW")


def _only_unit(views: Sequence[DocumentedView]) -> str:
    """Returns the privacy unit of the views. Refuses views of several units."""
    units = dict.fromkeys(view.unit for view in views)
    if len(units) > 1:
        first = [view.view.name for view in views if view.unit == views[0].unit]
        raise Refusal(
            f"the private views are about {len(units)} privacy units, and a document is about one",
            accepted=" ".join(f"--view {name}" for name in first)[:400],
        )
    return views[0].unit
