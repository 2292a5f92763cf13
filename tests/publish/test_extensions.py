"""Extensions of DuckDB come from a package, or from the folder where DuckDB itself installed them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dpduck.publish import extensions
from dpduck.publish.extensions import extension_file, load_extension
from dpduck.values.errors import Refusal


def packaged(name: str) -> Path:
    try:
        return extension_file(name, "")
    except Refusal as refusal:
        pytest.skip(str(refusal))


def installed(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> duckdb.DuckDBPyConnection:
    """Installs a package's file in DuckDB's own folder, as INSTALL does, and hides the package."""
    file = packaged(name)
    monkeypatch.setenv("HOME", str(home))
    with duckdb.connect() as con:
        con.execute(f"INSTALL '{file}'")
    monkeypatch.setattr(extensions, "_package_file", lambda _name: None)
    return duckdb.connect()


def test_the_package_is_taken_first() -> None:
    packaged("httpfs")
    with duckdb.connect() as con:
        assert load_extension(con, "httpfs", "") == "the package duckdb-extension-httpfs"
        assert con.execute("SELECT loaded FROM duckdb_extensions() WHERE extension_name = 'httpfs'").fetchone() == (
            True,
        )


def test_what_duckdb_installed_is_taken_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is named, since INSTALL may have put it there long ago."""
    with installed("httpfs", tmp_path, monkeypatch) as con:
        con.execute(extensions.CORE_ALONE)
        told = load_extension(con, "httpfs", "")
        assert told.startswith(f"DuckDB's own folder {tmp_path}/.duckdb/extensions/v{duckdb.__version__}")
        assert load_extension(con, "httpfs", "") == told


def test_what_is_built_in_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_package_file", lambda _name: None)
    with duckdb.connect() as con:
        assert load_extension(con, "parquet", "") == "DuckDB itself"


def test_what_is_nowhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, with what installs it. A file that DuckDB did not sign is refused alike."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(extensions, "_package_file", lambda _name: None)
    with duckdb.connect() as con, pytest.raises(Refusal, match=r"has no extension quack here; accepted: INSTALL quack"):
        load_extension(con, "quack", "INSTALL quack")


def test_a_file_that_nobody_signed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed("httpfs", tmp_path, monkeypatch) as con:
        (file,) = tmp_path.rglob("httpfs.duckdb_extension")
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 255
        file.write_bytes(bytes(data))
        with pytest.raises(Refusal, match=r"does not load the extension httpfs that is installed; accepted: INSTALL"):
            load_extension(con, "httpfs", "INSTALL httpfs")
