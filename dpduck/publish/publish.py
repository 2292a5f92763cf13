"""Publication: private views as a DuckDB file, Parquet files or PostgreSQL tables, and certificates. Nothing else.

certificates.json has all entries of the ledger, chained by SHA-256, and the statement, price and plan of each release,
without principals' names. check.py is publish/checker.py, which anybody can run without the data and without dpduck.
"""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile

import duckdb

from dpduck.database.analyst_macros import install_analyst_macros
from dpduck.kernel.ledger.secrets import Steps, no_step
from dpduck.mechanisms.certificate import MODEL, NEIGHBOURS, Entry, read_certificates
from dpduck.publish import checker
from dpduck.publish.directories import replace_directory
from dpduck.publish.postgres import is_postgres, shown_target, to_postgres
from dpduck.publish.published_views import METADATA, PublishedView, metadata_sql, open_store, read_views
from dpduck.store.attaching import STORAGE_VERSION
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier, quote_text


@dataclass(frozen=True)
class Published:
    """Result of a publication. target: the target for a message, without the password of a database."""

    views: tuple[str, ...]
    target: str


def publish(
    store: str | Path | duckdb.DuckDBPyConnection,
    target: str | Path,
    *,
    schema: str = "public",
    with_ledger: bool = False,
    views: Sequence[str] = (),
    steps: Steps = no_step,
) -> Published:
    """Writes the private views of a store to FILE.duckdb, a directory (Parquet) or postgresql://.., all or nothing.

    store: its file, or a connection with its views and metadata attached as `store`, which this function closes.
    schema: the schema in PostgreSQL. with_ledger: whether principals and numbers of ledger entries are published.
    views: the names of views, empty for all. steps: called before the last step, for tests that stop the process there.
    """
    with store if isinstance(store, duckdb.DuckDBPyConnection) else open_store(Path(store)) as connection:
        batch = read_views(connection, with_ledger=with_ledger, wanted=views)
        return _write_target(
            connection, batch, target, schema, metadata_sql(with_ledger=with_ledger, wanted=views), steps
        )


def _write_target(
    connection: duckdb.DuckDBPyConnection,
    views: Sequence[PublishedView],
    target: str | Path,
    schema: str,
    metadata: str,
    steps: Steps,
) -> Published:
    names = tuple(view.name for view in views)
    if is_postgres(str(target)):
        to_postgres(connection, views, metadata, str(target), schema, steps)
        return Published(names, shown_target(str(target)))
    path = Path(target)
    if path.suffix == ".duckdb":
        _to_duckdb(connection, views, metadata, path, steps)
    elif path.suffix or "://" in str(target):
        raise Refusal(
            f"{path.name} is no file for DuckDB, no directory and no PostgreSQL address",
            accepted="FILE.duckdb, a directory for Parquet files, or postgresql://..",
        )
    else:
        _to_parquet(connection, views, metadata, path, steps)
    return Published(names, str(path))


def _to_duckdb(
    connection: duckdb.DuckDBPyConnection, views: Sequence[PublishedView], metadata: str, target: Path, steps: Steps
) -> None:
    if target.is_dir():
        raise Refusal(f"{target.name} is a directory", accepted="a file")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".dpduck") as directory:
        if target.exists() and not _was_published(target, Path(directory) / "earlier.duckdb"):
            raise Refusal(
                f"{target.name} exists, and something else made it", accepted="a new file, or one that publish made"
            )
        unfinished = Path(directory) / "published.duckdb"
        connection.execute(f"ATTACH {quote_text(str(unfinished))} AS target (STORAGE_VERSION '{STORAGE_VERSION}')")
        for view in views:
            _copy(connection, view)
        connection.execute(f"CREATE TABLE target.main.{METADATA} AS {metadata}")
        install_analyst_macros(connection, "target")
        connection.execute("DETACH target")  # writes everything into the one file
        steps("written")
        unfinished.replace(target)


def _was_published(target: Path, copy: Path) -> bool:
    """Tells whether a file is a publication: it can be read, has the metadata, and has no ledger as a store has."""
    copyfile(target, copy)  # the file itself may be open in some process
    try:
        with duckdb.connect() as reader:
            reader.execute(f"ATTACH {quote_text(str(copy))} AS found (READ_ONLY)")
            tables = reader.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'found'").fetchall()
            names = {name for (name,) in tables}
    except duckdb.Error:
        return False
    return METADATA in names and "ledger_entries" not in names


def _copy(connection: duckdb.DuckDBPyConnection, view: PublishedView) -> None:
    name = quote_identifier(view.name)
    connection.execute(f"CREATE TABLE target.main.{name} AS FROM store.main.{name}")
    if view.comment:
        connection.execute(f"COMMENT ON TABLE target.main.{name} IS {quote_text(view.comment)}")
    for column in view.columns:
        if column.comment:
            place = f"target.main.{name}.{quote_identifier(column.name)}"
            connection.execute(f"COMMENT ON COLUMN {place} IS {quote_text(column.comment)}")


def _to_parquet(
    connection: duckdb.DuckDBPyConnection, views: Sequence[PublishedView], metadata: str, target: Path, steps: Steps
) -> None:
    ours = (target / f"{METADATA}.parquet").exists()
    if target.exists() and not ours and (not target.is_dir() or any(target.iterdir())):
        raise Refusal(
            f"{target.name} exists, and something else made it", accepted="a new directory, or one that publish made"
        )
    _require_file_names(views)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".dpduck") as directory:
        unfinished = Path(directory) / "published"
        unfinished.mkdir()
        for view in views:
            sql = f"FROM store.main.{quote_identifier(view.name)}"
            path = quote_text(str(unfinished / f"{view.name}.parquet"))
            comment = f", KV_METADATA {{comment: {quote_text(view.comment)}}}" if view.comment else ""
            connection.execute(f"COPY ({sql}) TO {path} (FORMAT parquet{comment})")
        place = quote_text(str(unfinished / f"{METADATA}.parquet"))
        connection.execute(f"COPY ({metadata}) TO {place} (FORMAT parquet)")
        steps("written")
        replace_directory(unfinished, target)


def _require_file_names(views: Sequence[PublishedView]) -> None:
    for view in views:
        if not view.name.replace("_", "").replace("-", "").isalnum():
            raise Refusal(
                f"the view {view.name!r} is no file name", accepted="letters, digits, _ and - in names of views"
            )


STORE = "store"
"""The name under which open_store attaches a store."""


@dataclass(frozen=True)
class Certified:
    """Result of a certification. head: the last link of the chain, to be published where nobody can change it."""

    certificates: int
    entries: int
    head: str


def certify(store: Path, entries: int, target: Path) -> Certified:
    """Writes the bundle of a store. Its first `entries` entries must be verified (database.connection.verify_store)."""
    with open_store(store) as connection:
        return write_certificates(*read_certificates(connection, STORE, entries), target)


def write_certificates(chain: list[Entry], released: list[Entry], target: Path) -> Certified:
    """Writes the bundle of a ledger's entries and their releases' certificates."""
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
    with _open_replacement(target) as folder:
        (folder / "certificates.json").write_text(json.dumps(bundle, indent=1, ensure_ascii=False) + "\n", "utf-8")
        (folder / "check.py").write_text(Path(checker.__file__).read_text("utf-8"), "utf-8")
    return Certified(len(released), len(chain), head)


@contextmanager
def _open_replacement(target: Path) -> Iterator[Path]:
    """Yields an empty directory, and moves it to the target after the block."""
    if target.exists() and not (target / "certificates.json").is_file():
        raise Refusal(f"{target} exists, and is no bundle", accepted="a directory that is not there yet")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as room:
        folder = Path(room) / "bundle"
        folder.mkdir()
        yield folder
        replace_directory(folder, target)
