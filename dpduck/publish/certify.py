"""Certificates: what was promised of each release, for whoever wants to check it without the data and without dpduck.

A bundle is a directory of two files. certificates.json has every entry of the ledger in order, chained by SHA-256, and
for each release its statement, its price in every form, and its plan: each noise with the norms of what it covers. An
entry names its certificate by SHA-256, so that the last link covers both. check.py (publish/checker.py, which imports
nothing of dpduck) verifies all of it. Principals' names are left out.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import duckdb

from dpduck.publish import checker
from dpduck.publish.postgres import open_store
from dpduck.publish.publish import replace_directory
from dpduck.values.accounting import epsilon_of
from dpduck.values.errors import Refusal

DELTAS = (Fraction(1, 10**6), Fraction(1, 10**9))
"""Deltas at which the price of a release without a pure guarantee is also said as an epsilon."""

_ENTRIES = """SELECT id, epoch_us("at"), unit_key, table_name, statement, mechanism, epsilon, rho, delta, budget
    FROM store.dpduck.ledger_entries WHERE id <= {} ORDER BY id"""
_RELEASES = """SELECT ledger_id, list(name ORDER BY kind, name), first(strategy ORDER BY kind, name),
    first(rows ORDER BY kind, name)
    FROM store.dpduck.releases WHERE ledger_id <= {} GROUP BY ledger_id ORDER BY ledger_id"""
_PLANS = "SELECT ledger_id, plan, made_by FROM store.dpduck.plans"
Entry = dict[str, object]
_NAMES = ("id", "at", "unit", "table", "statement", "mechanism", "epsilon", "rho", "delta", "budget")


@dataclass(frozen=True)
class Certified:
    """What was written. head: the last link of the chain, to be published where nobody can change it."""

    certificates: int
    entries: int
    head: str


def certify(store: Path, entries: int, target: Path) -> Certified:
    """Writes the bundle of a store whose first `entries` entries were verified (engine.connection.verify_store)."""
    with open_store(store) as connection:
        chain, certificates = certified(connection, entries)
    head = str(chain[-1]["link"]) if chain else checker.GENESIS
    bundle = {
        "format": checker.FORMAT,
        "software": {"dpduck": version("dpduck"), "DuckDB": duckdb.__version__, "Python": platform.python_version()},
        "model": checker.MODEL,
        "neighbours": checker.NEIGHBOURS,
        "entries": chain,
        "head": head,
        "certificates": certificates,
    }
    with _replaced(target) as folder:
        (folder / "certificates.json").write_text(json.dumps(bundle, indent=1, ensure_ascii=False) + "\n", "utf-8")
        (folder / "check.py").write_text(Path(checker.__file__).read_text("utf-8"), "utf-8")
    return Certified(len(certificates), len(chain), head)


def certified(connection: duckdb.DuckDBPyConnection, most: int) -> tuple[list[Entry], list[Entry]]:
    """Returns the first entries of the ledger, each with its link, and the certificates of their releases."""
    entries = _entries(connection, most)
    released = list(_certificates(connection, {entry["id"]: entry for entry in entries}, most))
    chain = _chained(entries, {one["entry"]: _digest(one) for one in released})
    links = {entry["id"]: entry["link"] for entry in chain}
    return chain, [{**one, "link": links[one["entry"]]} for one in released]


def _entries(connection: duckdb.DuckDBPyConnection, most: int) -> list[Entry]:
    found = [dict(zip(_NAMES, row, strict=True)) for row in connection.execute(_ENTRIES.format(int(most))).fetchall()]
    return [{**one, "budget": None if one["budget"] is None else json.loads(str(one["budget"]))} for one in found]


def _chained(entries: Iterable[Entry], digests: Mapping[object, str]) -> list[Entry]:
    """Returns entries with the digests of their certificates, None where one has none, and a link to all before."""
    chain: list[Entry] = []
    link = checker.GENESIS
    for entry in entries:
        linked = {**entry, "certificate": digests.get(entry["id"])}
        link = _digest(linked, link)
        chain.append({**linked, "link": link})
    return chain


def _digest(part: Entry, before: str = "") -> str:
    return hashlib.sha256((before + checker.canonical(part)).encode()).hexdigest()


def _certificates(connection: duckdb.DuckDBPyConnection, entries: Mapping[object, Entry], most: int) -> Iterator[Entry]:
    """Yields a certificate for each release, in the order of the ledger, without its link, which covers all of it."""
    plans = {}
    if _has_plans(connection):
        plans = {row[0]: (json.loads(row[1]), row[2]) for row in connection.execute(_PLANS).fetchall()}
    for ledger_id, names, strategy, rows in connection.execute(_RELEASES.format(int(most))).fetchall():
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


@lru_cache(maxsize=4096)
def _forms(rho: str, delta: str) -> list[dict[str, str]]:
    """Returns the price as epsilon and delta, for readers who know no rho; keys' own delta comes on top.

    Kept, since a link is of all certificates before it, and most releases have the price of another.
    """
    prices = ((epsilon_of(Fraction(rho), small), small + Fraction(delta)) for small in DELTAS)
    return [{"epsilon": str(epsilon), "delta": str(at)} for epsilon, at in prices]


def _has_plans(connection: duckdb.DuckDBPyConnection) -> bool:
    found = connection.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'store' AND schema_name = 'dpduck' "
        "AND table_name = 'plans'"
    ).fetchone()
    return found is not None and found[0] == 1


@contextmanager
def _replaced(target: Path) -> Iterator[Path]:
    """Lends an empty directory that takes the target's place when all of it is written."""
    if target.exists() and not (target / "certificates.json").is_file():
        raise Refusal(f"{target} is there and is no bundle", accepted="a directory that is not there yet")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as room:
        folder = Path(room) / "bundle"
        folder.mkdir()
        yield folder
        replace_directory(folder, target)
