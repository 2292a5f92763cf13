"""Paths of a store and its secrets. This module imports no database: commands without one use it as well."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpduck.values.errors import Refusal

SERVED = "the database is in use by dpduck serve"
WHEN_ENDED = "the same when that has ended"


@dataclass(frozen=True)
class StoreFiles:
    """Paths of a store and its secrets, both None in memory."""

    store: Path | None
    secrets: Path | None


def store_files(database: Path | None, store: str | Path | None) -> StoreFiles:
    """Returns the files of a store: at the given path, or beside the database, or none in memory."""
    if store is None and database is None:
        return StoreFiles(None, None)
    if store is None and database is not None:
        path = database.with_name(f"{database.stem}_private.duckdb")
    else:
        path = Path(str(store))
        if str(store) == ":memory:":
            return StoreFiles(None, None)
    if database is not None and path.resolve() == database.resolve():
        raise Refusal("the store is the database itself", accepted="another file for the store")
    return StoreFiles(path, path.with_name(f"{path.stem}_secrets"))
