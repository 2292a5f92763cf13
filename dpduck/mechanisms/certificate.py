"""Certificates of releases: every noise, and how far one privacy unit moves the numbers that the noise is added to.

Readers can compute the price again without dpduck (publish/checker.py). Everything here is public before anything is
counted, and principals' names are left out. The ledger's entries are chained by SHA-256, each with the digest of its
certificate.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from typing import Any, cast

import duckdb

from dpduck.kernel.ledger.entries import rational_text
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.price import Ask
from dpduck.store.releases import StoredRelease
from dpduck.store.tables import rows_sql
from dpduck.values.accounting import epsilon_of
from dpduck.values.errors import Refusal
from dpduck.values.odds import guesses_at, odds_text
from dpduck.values.quoting import fold, quote_identifier

GENESIS = "0" * 64
MODEL = "central: the owner's process sees the rows, and adds the noise"
NEIGHBOURS = "one table is the other without all rows of one privacy unit; by periods, of one of them"
COLUMNS = (("field", "VARCHAR"), ("value", "VARCHAR"))
Entry = dict[str, object]

DELTAS = (Fraction(1, 10**6), Fraction(1, 10**9))
"""Deltas at which the price of a release without a pure guarantee is also stated as an epsilon."""

_ENTRIES = """SELECT id, epoch_us("at"), unit_key, table_name, statement, mechanism, epsilon, rho, delta, budget
    FROM {store}.dpduck.ledger_entries WHERE id <= $1 ORDER BY id"""
_RELEASES = """SELECT ledger_id, list(name ORDER BY kind, name), first(strategy ORDER BY kind, name),
    first(rows ORDER BY kind, name)
    FROM {store}.dpduck.releases WHERE ledger_id <= $1 GROUP BY ledger_id ORDER BY ledger_id"""
_PLANS = "SELECT ledger_id, plan, made_by FROM {store}.dpduck.plans"
_NAMES = ("id", "at", "unit", "table", "statement", "mechanism", "epsilon", "rho", "delta", "budget")


def read_certificates(connection: duckdb.DuckDBPyConnection, store: str, most: int) -> tuple[list[Entry], list[Entry]]:
    """Returns a store's ledger entries up to number `most`, and their releases' certificates, each with a link."""
    entries = _entries(connection, store, most)
    released = list(_certificates(connection, store, {entry["id"]: entry for entry in entries}, most))
    chain = _chain_entries(entries, {certificate["entry"]: _digest(certificate) for certificate in released})
    links = {entry["id"]: entry["link"] for entry in chain}
    return chain, [{**certificate, "link": links[certificate["entry"]]} for certificate in released]


def _entries(connection: duckdb.DuckDBPyConnection, store: str, most: int) -> list[Entry]:
    rows = connection.execute(_ENTRIES.format(store=quote_identifier(store)), [most]).fetchall()
    lines = [dict(zip(_NAMES, row, strict=True)) for row in rows]
    return [{**line, "budget": None if line["budget"] is None else json.loads(str(line["budget"]))} for line in lines]


def _chain_entries(entries: Iterable[Entry], digests: Mapping[object, str]) -> list[Entry]:
    """Adds to each entry the digest of its certificate, None if there is none, and a link to all earlier entries."""
    chain: list[Entry] = []
    link = GENESIS
    for entry in entries:
        linked = {**entry, "certificate": digests.get(entry["id"])}
        link = _digest(linked, link)
        chain.append({**linked, "link": link})
    return chain


def _digest(part: Entry, before: str = "") -> str:
    written = json.dumps(part, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256((before + written).encode()).hexdigest()


def _certificates(
    connection: duckdb.DuckDBPyConnection, store: str, entries: Mapping[object, Entry], most: int
) -> Iterator[Entry]:
    """Yields a certificate for each release, in the order of the ledger. Its link, a hash over it, is added later."""
    place, plans = quote_identifier(store), {}
    if _has_plans(connection, store):
        stored_plans = connection.execute(_PLANS.format(store=place)).fetchall()
        plans = {row[0]: (json.loads(row[1]), row[2]) for row in stored_plans}
    for ledger_id, names, strategy, rows in connection.execute(_RELEASES.format(store=place), [most]).fetchall():
        entry = entries[ledger_id]
        plan, made_by = plans.get(ledger_id, (None, None))
        yield {
            "entry": ledger_id,
            "names": names,
            "statement": entry["statement"],
            "privacy_unit": entry["unit"],
            "strategy": strategy,
            "rows": rows,
            "flavor": "zero-concentrated" if entry["epsilon"] is None else "pure",
            "price": {name: entry[name] for name in ("epsilon", "rho", "delta")},
            "also": _forms(str(entry["rho"]), str(entry["delta"])),
            "plan": plan,
            "made_by": made_by,
        }


def certificate_sql(
    connection: duckdb.DuckDBPyConnection, store: str, releases: Sequence[StoredRelease], name: str, reader: str | None
) -> str:
    """Returns SQL with the fields that the reader sees in a certificate. reader: a principal, None for the owner.

    As in dp_releases, readers do not see another user's statements, answers and ledger numbers, nor the column of
    units. Of their own release they see the statement that they wrote, and its link if they paid.
    """
    visible = [item for item in releases if reader in (None, item.principal) or item.kind == "view"]
    matches = [item for item in visible if fold(item.name) == fold(name)]
    if not matches:
        raise Refusal(f"there is no private view {name[:80]!r}", accepted="a name of dp_releases()")
    release = matches[0]
    _, released = read_certificates(connection, store, release.ledger_id)
    (certificate,) = (item for item in released if item["entry"] == release.ledger_id)
    fields = {"model": MODEL, "neighbours": NEIGHBOURS, **certificate, "odds": _odds(release)}
    if certificate["flavor"] == "pure":  # its epsilon is smaller, and links are for the whole certificate
        del fields["also"]
    if reader is not None:
        own = reader == release.principal
        fields["entry"] = release.ledger_id if own else None
        fields["statement"] = release.statement if own else None
        shared = [item for item in visible if item.name in cast(list[str], certificate["names"])]
        fields["names"] = [item.name for item in shared if item == release or item.principal == reader]
        fields["rows"] = release.rows
        fields["privacy_unit"] = certificate["privacy_unit"] if own else None
        fields["link"] = certificate["link"] if own and _payer(connection, store, release.ledger_id) == reader else None
    shown = {field: value if isinstance(value, str | None) else json.dumps(value) for field, value in fields.items()}
    return rows_sql(COLUMNS, [[field, value] for field, value in shown.items()])


def _odds(release: StoredRelease) -> str:
    """Returns the odds of a guess about a unit from one release. No hash contains them: the price gives the odds."""
    epsilon = None if release.epsilon is None else float(release.epsilon)
    return odds_text(guesses_at(epsilon, float(release.rho), float(release.delta)))


def _payer(connection: duckdb.DuckDBPyConnection, store: str, ledger_id: int) -> object:
    asked = f"SELECT principal FROM {quote_identifier(store)}.dpduck.ledger_entries WHERE id = $1"
    return connection.execute(asked, [ledger_id]).fetchall()[0][0]


@lru_cache(maxsize=4096)
def _forms(rho: str, delta: str) -> list[dict[str, str]]:
    """Returns a price as pairs of epsilon and delta. It is cached, since a link needs all earlier certificates."""
    prices = ((epsilon_of(Fraction(rho), small), small + Fraction(delta)) for small in DELTAS)
    return [{"epsilon": str(epsilon), "delta": str(at)} for epsilon, at in prices]


def _has_plans(connection: duckdb.DuckDBPyConnection, store: str) -> bool:
    row = connection.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = $1 AND schema_name = 'dpduck' "
        "AND table_name = 'plans'",
        [store],
    ).fetchone()
    return row is not None and row[0] == 1


Part = dict[str, object]


def plan_text(asks: Iterable[Ask[Any]]) -> str:
    """Returns the asks as JSON. Queries with one noise are counted by kind and norms, others have parameters."""
    by_noise: dict[int, tuple[Noise, Counter[tuple[str, int, int, int]]]] = {}
    others: Counter[str] = Counter()
    for ask in asks:
        norms = ask.moves
        if ask.noise is None or norms is None:
            others[json.dumps(_other(ask))] += ask.times
            for noise, moved in ask.query.measurements():
                _, counts = by_noise.setdefault(id(noise), (noise, Counter()))
                counts["Beside", *moved] += ask.times
        else:
            _, counts = by_noise.setdefault(id(ask.noise), (ask.noise, Counter()))
            counts[type(ask.query).__name__, *norms] += ask.times
    parts: list[Part] = [
        {"noise": _noise(noise), "moved": [_norms_part(*key, times) for key, times in counts.items()]}
        for noise, counts in by_noise.values()
    ]
    parts += [{**json.loads(text), "times": times} for text, times in others.items()]
    return json.dumps(parts)


def versions_text() -> str:
    """Returns the versions of dpduck and DuckDB that make the release."""
    return f"dpduck {version('dpduck')}, DuckDB {duckdb.__version__}"


def _norms_part(query: str, l1: int, l2_squared: int, most: int, times: int) -> Part:
    return {"query": query, "l1": l1, "l2_squared": l2_squared, "most": most, "times": times}


def _noise(noise: Noise) -> dict[str, str]:
    return {"law": noise.kind.value, "parameter": rational_text(noise.parameter)}


def _other(ask: Ask[Any]) -> Part:
    """Describes a query that is not priced by one noise and the norms of a unit."""
    part: Part = {"query": type(ask.query).__name__, "l1": ask.scan.l1}
    if ask.noise is not None:
        part["noise"] = ask.noise
    return {name: _write_value(value) for name, value in (*part.items(), *ask.query.certificate().items())}


def _write_value(value: object) -> object:
    if isinstance(value, Noise):
        return _noise(value)
    return rational_text(value) if isinstance(value, Fraction) else value
