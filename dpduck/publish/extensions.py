"""DuckDB extensions that are installed as Python packages. Nothing is downloaded at run time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb

from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_text


def extension_file(name: str, accepted: str) -> Path:
    """Returns the extension's file in the package duckdb-extension-<name>. accepted: how to install it."""
    spec = find_spec(f"duckdb_extension_{name}")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    for place in places:
        file = Path(place) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        if file.is_file():
            return file
    raise Refusal(f"DuckDB {duckdb.__version__} has no extension {name} here", accepted=accepted)


def load_extension(connection: duckdb.DuckDBPyConnection, name: str, accepted: str) -> None:
    """Loads the extension of the package duckdb-extension-<name>."""
    connection.execute(f"LOAD {quote_text(str(extension_file(name, accepted)))}")
