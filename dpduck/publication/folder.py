"""The folder of a publication: data in several forms, certificates, documents, and a manifest with hashes.

A folder is built beside its place, and moved there at once when it is whole. So a process that is killed leaves no half
folder. The directory beside it is locked while a process builds in it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree

import duckdb

from dpduck.documents.codebook import codebook_page, csv_text, describe_views
from dpduck.documents.facts import DocumentFacts, read_facts, views_by_unit
from dpduck.documents.label import label_page
from dpduck.documents.methods import methods_text
from dpduck.documents.record import record_text
from dpduck.kernel.ledger.secrets import Steps
from dpduck.publication import check_folder
from dpduck.publication.check_folder import CHECKER, FORMAT, MANIFEST, errors_of, sha256
from dpduck.publish.publish import certify, publish
from dpduck.publish.published_views import open_store
from dpduck.publish.report import ReportFacts, write_report
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_text

BUILDING = ".dpduck_release"
"""Name of a file that marks the directory in which a folder is built."""


@dataclass(frozen=True)
class Publication:
    """Content of a folder. plan: the text of the statements. views: the tables that they made, in order.

    title, contact: texts for the documents. tried: the tables that a trial decided over in this run.
    """

    plan: str
    views: tuple[str, ...]
    title: str
    contact: str
    tried: frozenset[str]


def is_complete(folder: Path, publication: Publication, released: Sequence[tuple[object, ...]]) -> bool:
    """Tells whether a folder has this publication. Refuses a folder with anything else, or with changed files.

    released: the name, moment and ledger entry of each view.
    """
    if is_vacant(folder):
        return False
    errors = list(errors_of(folder))
    if errors:
        raise Refusal(f"{folder} is no folder of a release as it was made: {errors[0]}", accepted="another folder")
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    if manifest["source"] != _source(publication, released):
        raise Refusal(f"{folder} has another release", accepted="another folder")
    return True


def is_vacant(folder: Path) -> bool:
    """Tells whether a folder is empty, or is not there yet."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def require_place(folder: Path, *, anew: bool) -> None:
    """Refuses a folder in which a release cannot be put. anew: whether a table is released anew, so none is there."""
    try:
        if not is_vacant(folder):
            if anew:
                raise Refusal(f"{folder} has another release, or other files", accepted="another folder")
            return
        parent = next(place for place in folder.parents if place.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise Refusal(f"nothing can be written to {parent}", accepted="a folder in another place")
        _require_own(_room_of(folder))
    except OSError as error:
        raise Refusal(f"{folder} cannot be made: {error.strerror}", accepted="another folder or name") from None


def build_folder(
    folder: Path, store: Path, entries: int, report: ReportFacts, publication: Publication,
    released: Sequence[tuple[object, ...]], steps: Steps,
) -> None:  # fmt: skip
    """Builds a folder and moves it to its place. entries: the number of verified entries of the store's ledger."""
    with _open_unfinished(folder) as unfinished:
        documents = unfinished / "documents"
        documents.mkdir(parents=True)
        (unfinished / "plan.sql").write_text(publication.plan, "utf-8")
        publish(store, unfinished / "data" / "views.duckdb", views=publication.views)
        steps("views.duckdb is written")
        publish(store, unfinished / "data" / "parquet", views=publication.views)
        _write_csv(unfinished / "data", publication.views)
        steps("data are written")
        certify(store, entries, unfinished / "certificates")
        steps("certificates are written")
        with open_store(store) as connection:
            write_report(
                connection, report, documents / "report.html", title=publication.title, about="", with_ledger=False,
                views=publication.views,
            )  # fmt: skip
        edited = _write_documents(documents, store, entries, publication)
        steps("documents are written")
        (unfinished / CHECKER).write_text(Path(check_folder.__file__).read_text("utf-8"), "utf-8")
        _write_manifest(unfinished, edited, _source(publication, released))
        steps("the manifest is written")
        try:
            unfinished.replace(folder)  # a directory with files is never replaced
        except OSError:
            raise Refusal(f"{folder} is no longer empty", accepted="the same command with another folder") from None


@contextmanager
def _open_unfinished(folder: Path) -> Iterator[Path]:
    """Yields the place beside a folder in which it is built, for one process at a time. Nothing is there yet."""
    room = _room_of(folder)
    _require_own(room)
    room.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(room / BUILDING, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        _lock(descriptor, folder)
        rmtree(room / "folder", ignore_errors=True)  # of a process that was killed
        try:
            yield room / "folder"
        finally:
            rmtree(room, ignore_errors=True)
    finally:
        os.close(descriptor)


def _room_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.unfinished")


def _require_own(room: Path) -> None:
    """Refuses a directory that dpduck release did not make."""
    if not is_vacant(room) and not (room / BUILDING).is_file():
        raise Refusal(f"{room} is there, and something else made it", accepted="another folder")


def _lock(descriptor: int, folder: Path) -> None:
    """Locks an open marker. Refuses a marker that another process has locked, or has removed meanwhile."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = os.fstat(descriptor).st_nlink > 0
    except OSError:
        alone = False
    if not alone:
        raise Refusal(f"another process is making {folder}", accepted="the same command when it has ended")


def _write_csv(data: Path, views: Sequence[str]) -> None:
    (data / "csv").mkdir()
    with duckdb.connect() as connection:
        for view in views:
            source, target = data / "parquet" / f"{view}.parquet", data / "csv" / f"{view}.csv"
            connection.execute(
                f"COPY (FROM read_parquet({quote_text(str(source))})) TO {quote_text(str(target))} (HEADER)"
            )


def _write_documents(documents: Path, store: Path, entries: int, publication: Publication) -> list[str]:
    """Writes the documents of each privacy unit. Returns the names of files that their owner fills in."""
    edited = []
    with open_store(store) as connection:
        units = views_by_unit(connection, entries, publication.views)
        for number, views in enumerate(units, 1):
            end = "" if len(units) == 1 else f"_{number}"
            facts = read_facts(connection, entries, views)
            described = describe_views(connection, facts)
            texts: dict[str, Callable[[DocumentFacts], str]] = {
                f"label{end}.html": lambda facts: label_page(facts, publication.title, publication.contact),
                f"methods{end}.md": methods_text,
                f"registry_record{end}.yaml": lambda facts: record_text(
                    facts, publication.title, tried=publication.tried
                ),
            }
            for name, text_of in texts.items():
                (documents / name).write_text(text_of(facts), "utf-8")
            (documents / f"codebook{end}.html").write_text(codebook_page(facts, described, publication.title), "utf-8")
            (documents / f"codebook{end}.csv").write_text(csv_text(described), "utf-8")
            edited += [f"documents/registry_record{end}.yaml", f"documents/methods{end}.md"]
    return edited


def _write_manifest(folder: Path, edited: Sequence[str], source: str) -> None:
    files = {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest = {
        "format": FORMAT, "dpduck": version("dpduck"), "source": source, "edited_by_hand": edited, "files": files,
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")


def _source(publication: Publication, released: Sequence[tuple[object, ...]]) -> str:
    """Returns a digest of the plan and of the released tables that a folder has."""
    parts = [publication.plan, *publication.views, *(str(part) for row in released for part in row)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
