"""Publishing to DuckDB and Parquet files: their content, what they leave out, and that they appear at once."""

from __future__ import annotations

import base64
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from dpduck.database.macros import list_macro_names
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.publish.directories import swap_directories
from dpduck.publish.publish import publish
from dpduck.server.principals import PrincipalBook
from dpduck.store.cursors import Caller
from dpduck.values.errors import Refusal, StoreError
from tests.store.made_stores import copied, made_store
from tests.support.clinics import Clinic, macro_names

ROOT = Path(__file__).resolve().parents[2]
BY_WARD = "SELECT ward, sex, count(*) AS n, dp_stderr(n) AS n_stderr FROM visits GROUP BY CUBE (ward, sex)"
KILLED = """
import os, signal, sys
from pathlib import Path
from dpduck.publish.publish import publish
from dpduck.publish.directories import swap_directories
publish(Path(sys.argv[1]), sys.argv[2], steps=lambda _: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    age = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) age, count(*) AS n FROM visits GROUP BY age"
    view = f"CREATE PRIVATE VIEW cube OPTIONS (epsilon = 0.5) AS {BY_WARD}"
    return made_store(tmp_path_factory.mktemp("made"), [age, view], caller=Caller("alice_the_caller", owner=False))


@pytest.fixture
def store(made_once: Path, tmp_path: Path) -> Path:
    """A closed store with one private view of a principal's and one answer."""
    return copied(made_once, tmp_path)


def replaced(open_clinic: Callable[..., Clinic], store: Path) -> None:
    """The view anew, with other noise."""
    made = open_clinic(store.with_name("clinic.duckdb"))
    made.dp(f"CREATE OR REPLACE PRIVATE VIEW cube OPTIONS (epsilon = 0.75) AS {BY_WARD}")
    made.con.close()


def rows(file: Path) -> list[tuple[object, ...]]:
    with duckdb.connect(str(file), read_only=True) as published:
        return published.execute("FROM cube ORDER BY ALL").fetchall()


def test_only_a_publication_is_replaced(store: Path, tmp_path: Path) -> None:
    """The store itself, the database beside it, any other file: each is refused, and left byte for byte unchanged."""
    other, text = tmp_path / "other.duckdb", tmp_path / "text.duckdb"
    with duckdb.connect(str(other)) as precious:
        precious.execute("CREATE TABLE precious AS SELECT 1 AS x")
    text.write_text("no database")
    for target in (store, store.with_name("clinic.duckdb"), other, text):
        before = target.read_bytes()
        with pytest.raises(Refusal, match="exists, and something else made it"):
            publish(store, target)
        assert target.read_bytes() == before, target.name
    target = tmp_path / "published.duckdb"
    publish(store, target)
    with duckdb.connect(str(target), read_only=True, config={"enable_external_access": "false"}) as reader:
        publish(store, target)
        assert reader.execute("SELECT count(*) > 0 FROM cube").fetchall() == [(True,)]


def test_a_published_file_holds_views_metadata_comments_and_macros(store: Path, tmp_path: Path) -> None:
    """Private views only, with metadata and comments. The macros work in it, read-only and locked down."""
    target = tmp_path / "published.duckdb"
    assert publish(store, target).views == ("cube",)
    with duckdb.connect(str(target), read_only=True, config={"enable_external_access": "false"}) as published:
        published.execute("SET lock_configuration = true")
        tables = published.execute("SELECT table_name, comment FROM duckdb_tables() ORDER BY 1").fetchall()
        assert [name for name, _ in tables] == ["cube", "dpduck_releases"]
        scope = r"protects all rows of one privacy unit, of which at most 4 are counted; by ward \(.*\), sex \(.*\)"
        error = r"standard error of n \S+( to \S+)?"
        price = r"differentially private, epsilon = 0\.5 \(pure\), 5 % of the budget then"
        assert re.fullmatch(rf"{price}; {scope}; {error}; strategy \w+: [\w ,]+", tables[0][1])
        facts = published.execute("SELECT name, epsilon, delta, rho, rows FROM dpduck_releases").fetchall()
        assert facts == [("cube", 0.5, 0.0, pytest.approx(0.1075534546561081), 21)]
        assert published.execute("SELECT count(*) FROM dp_margin('cube', ['ward'], ['sex'])").fetchall() == [(6,)]
        made = published.execute("SELECT function_name FROM duckdb_functions() WHERE NOT internal").fetchall()
        assert {name for (name,) in made} == {*macro_names(), *list_macro_names()}
        ((inside,),) = published.execute(
            "SELECT dp_sum_interval(n, n_stderr) FROM cube WHERE ward = 'w1' AND sex IS NOT NULL"
        ).fetchall()
        assert inside["low"] < inside["estimate"] < inside["high"]


def test_published_parquet_holds_views_metadata_and_comments(store: Path, tmp_path: Path) -> None:
    """Parquet files hold them, too: the comment of a view is in its file's own metadata."""
    publish(store, tmp_path / "out")
    cube = str(tmp_path / "out" / "cube.parquet")
    with duckdb.connect() as reader:
        assert reader.execute("SELECT count(*) FROM read_parquet($1)", [cube]).fetchall() == [(21,)]
        found = reader.execute("SELECT key, value FROM parquet_kv_metadata($1)", [cube]).fetchall()
        assert any(key == b"comment" and value.startswith(b"differentially private") for key, value in found)
        facts = reader.execute(
            "SELECT name, epsilon FROM read_parquet($1)", [cube.replace("cube.", "dpduck_releases.")]
        )
        assert facts.fetchall() == [("cube", 0.5)]


def told(store: Path) -> list[bytes]:
    """Everything that must not be published, in the forms in which it could be."""
    found = [b"alice_the_caller", b"ledger entry", b"principal", b"patient", b"PRIVACY POLICY", b"DOMAIN age"]
    with sqlite3.connect(store.with_name("clinic_private_secrets")) as secrets:
        names = [row[0] for row in secrets.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        values = [value for name in names for row in secrets.execute(f"SELECT * FROM {name}") for value in row]
    secrets.close()
    raw = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    long = [value for value in raw if len(value) >= 12]
    assert long
    found += [*long, *(value.hex().encode() for value in long), *(base64.b64encode(value) for value in long)]
    with duckdb.connect(str(store), read_only=True) as opened:
        ledgers = opened.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'ledger%'").fetchall()
        assert ledgers
        for (name,) in ledgers:
            for row in opened.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM dpduck.{name}").fetchall():
                found += [value.encode() for value in row if value is not None and len(value) >= 32]
        kept = opened.execute("SELECT digest, laws, covariances FROM dpduck.releases").fetchall()
        found += [str(value).encode() for row in kept for value in row if value is not None and len(str(value)) > 20]
    view = f"CREATE PRIVATE VIEW cube OPTIONS (epsilon = 0.5) AS {BY_WARD}".encode()
    return [value for value in found if value not in view]


@pytest.mark.parametrize("target", ["published.duckdb", "parquet"])
def test_no_secret_token_or_ledger_detail_is_published(store: Path, tmp_path: Path, target: str) -> None:
    """Never a policy secret, token, or ledger detail unless asked: the published bytes are searched."""
    book = PrincipalBook(SecretsFile.open(store.with_name("clinic_private_secrets"), create=False))
    token = book.add("alice_the_caller")
    place = tmp_path / "out" / target
    publish(store, place)
    files = [place] if place.is_file() else sorted(place.iterdir())
    written = b"".join(file.read_bytes() for file in files)
    secret = [*told(store), token.encode(), token.removeprefix("dpduck_").encode()]
    assert [value for value in secret if value in written] == []
    publish(store, place, with_ledger=True)
    files = [place] if place.is_file() else sorted(place.iterdir())
    assert b"alice_the_caller" in b"".join(file.read_bytes() for file in files), "the search finds what is there"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill a process")
@pytest.mark.parametrize("target", ["published.duckdb", "parquet"])
def test_a_killed_publication_leaves_the_old_one(
    store: Path, tmp_path: Path, target: str, open_clinic: Callable[..., Clinic]
) -> None:
    """Publication is atomic: killed before its last step, the old files are whole."""
    place = tmp_path / "out" / target
    publish(store, place)
    before = {path.name: path.read_bytes() for path in ([place] if place.is_file() else place.iterdir())}
    replaced(open_clinic, store)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(store), str(place)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert {path.name: path.read_bytes() for path in ([place] if place.is_file() else place.iterdir())} == before
    publish(store, place)
    assert {path.name: path.read_bytes() for path in ([place] if place.is_file() else place.iterdir())} != before


@pytest.mark.slow
def test_readers_find_whole_publications(store: Path, tmp_path: Path, open_clinic: Callable[..., Clinic]) -> None:
    """A reader who opens the file or directory during a replacement finds the old or the new, never a part."""
    file, folder = tmp_path / "published.duckdb", tmp_path / "parquet"
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    if not swap_directories(tmp_path / "one", tmp_path / "other"):
        pytest.skip("this file system does not swap directories")
    publish(store, file)
    publish(store, folder)
    states, stop = {repr(rows(file))}, threading.Event()
    failures: list[str] = []
    present = [file, folder / "cube.parquet", folder / "dpduck_releases.parquet"]

    def read() -> None:
        while not stop.is_set():
            failures.extend(path.name for path in present if not path.exists())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        replaced(open_clinic, store)
        for _ in range(5):
            publish(store, file)
            publish(store, folder)
            states.add(repr(rows(file)))
    finally:
        stop.set()
        reader.join()
    assert failures == []
    assert len(states) == 2


def test_other_targets_are_refused(store: Path, tmp_path: Path) -> None:
    """One line says what would be accepted. Nothing is written."""
    for target in ("published.csv", "mysql://root:pw@localhost/x"):
        with pytest.raises(
            Refusal, match=r"accepted: FILE\.duckdb, a directory for Parquet files, or postgresql://\.\."
        ):
            publish(store, tmp_path / target if "://" not in target else target)
    (tmp_path / "folder.duckdb").mkdir()
    with pytest.raises(Refusal, match="is a directory"):
        publish(store, tmp_path / "folder.duckdb")


def test_a_store_that_is_open_is_not_published(store: Path, tmp_path: Path) -> None:
    """One line says that the store is open. A file that is no store has another message."""
    with duckdb.connect(str(store)), pytest.raises(StoreError, match=r"the store is (open|in use)"):
        publish(store, tmp_path / "published.duckdb")
    (tmp_path / "text.duckdb").write_text("no database at all")
    with pytest.raises(StoreError, match="it is no DuckDB file"):
        publish(tmp_path / "text.duckdb", tmp_path / "published.duckdb")
    assert not (tmp_path / "published.duckdb").exists()


def test_a_second_duckdb_reads_the_file(store: Path, tmp_path: Path) -> None:
    """Readable by DuckDB 1.5 and 2.0: the other environment's Python opens it and uses the macros."""
    target = tmp_path / "published.duckdb"
    publish(store, target)
    with duckdb.connect() as here:
        here.execute(f"ATTACH '{target}' AS published (READ_ONLY)")
        ((tags,),) = here.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'published'").fetchall()
    assert tags["storage_version"].startswith("v1.5"), tags
    environment = Path(sys.prefix)
    other = environment.with_name(".venv" if environment.name == ".venv-duckdb2" else ".venv-duckdb2")
    python = other / "bin" / "python"
    if not python.exists():
        pytest.skip("no second DuckDB: make test-duckdb2 makes its environment")
    script = (
        f"import duckdb; c = duckdb.connect({str(target)!r}, read_only=True); print(duckdb.__version__); "
        "print(c.execute(\"SELECT count(*) FROM dp_margin('cube', ['ward'], ['sex'])\").fetchone()[0]); "
        'print(c.execute("SELECT dp_sum_interval(n, n_stderr).stderr > 0 FROM cube").fetchone()[0])'
    )
    told = subprocess.run([str(python), "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert told[0] != duckdb.__version__
    assert told[1:] == ["6", "True"]


def test_sqlalchemy_reflects_a_published_file(store: Path, tmp_path: Path) -> None:
    """Tools that use SQLAlchemy list the tables with columns and types, read-only and locked down."""
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
    pytest.importorskip("duckdb_sqlalchemy", reason="duckdb-sqlalchemy is not installed")
    target = tmp_path / "published.duckdb"
    publish(store, target)
    settings = {"read_only": True, "config": {"enable_external_access": False, "lock_configuration": True}}
    engine = sqlalchemy.create_engine(f"duckdb:///{target}", connect_args=settings)
    try:
        inspector = sqlalchemy.inspect(engine)
        assert sorted(inspector.get_table_names()) == ["cube", "dpduck_releases"]
        metadata = sqlalchemy.MetaData()
        metadata.reflect(engine, only=["cube"])
        cube = metadata.tables["cube"]
        assert [column.name for column in cube.columns] == ["ward", "sex", "n", "n_stderr", "grouping_level"]
        assert inspector.get_table_comment("cube")["text"].startswith("differentially private")
        with engine.connect() as connection:
            query = sqlalchemy.select(sqlalchemy.func.count()).select_from(cube).where(cube.c.sex.is_(None))
            assert connection.execute(query).scalar() == 7
            with pytest.raises(sqlalchemy.exc.DBAPIError, match=r"disabled|external"):
                connection.execute(sqlalchemy.text("FROM read_text('/etc/hostname')"))
    finally:
        engine.dispose()
