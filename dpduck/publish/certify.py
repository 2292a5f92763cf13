"""Certificates: what was promised of each release, for whoever wants to check it without the data and without dpduck.

A bundle is a directory of two files. certificates.json has every entry of the ledger in order, chained by SHA-256, and
for each release its statement, its price in every form, and its plan: each noise with the norms of what it covers. An
entry names its certificate by SHA-256, so that the last link covers both. check.py (publish/checker.py, which imports
nothing of dpduck) verifies all of it. Principals' names are left out.
"""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import duckdb

from dpduck.engine.certificates import MODEL, NEIGHBOURS, certified
from dpduck.publish import checker
from dpduck.publish.postgres import open_store
from dpduck.publish.publish import replace_directory
from dpduck.values.errors import Refusal

STORE = "store"
"""The name under which open_store attaches a store."""


@dataclass(frozen=True)
class Certified:
    """What was written. head: the last link of the chain, to be published where nobody can change it."""

    certificates: int
    entries: int
    head: str


def certify(store: Path, entries: int, target: Path) -> Certified:
    """Writes the bundle of a store whose first `entries` entries were verified (engine.connection.verify_store)."""
    with open_store(store) as connection:
        chain, released = certified(connection, STORE, entries)
    head = str(chain[-1]["link"]) if chain else checker.GENESIS
    bundle = {
        "format": checker.FORMAT,
        "software": {"dpduck": version("dpduck"), "DuckDB": duckdb.__version__, "Python": platform.python_version()},
        "model": MODEL,
        "neighbours": NEIGHBOURS,
        "entries": chain,
        "head": head,
        "certificates": released,
    }
    with _replaced(target) as folder:
        (folder / "certificates.json").write_text(json.dumps(bundle, indent=1, ensure_ascii=False) + "\n", "utf-8")
        (folder / "check.py").write_text(Path(checker.__file__).read_text("utf-8"), "utf-8")
    return Certified(len(released), len(chain), head)


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
