"""DuckDB extensions: of a Python package, or else those that DuckDB itself installed. Nothing is downloaded here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb

from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_text

CORE_ALONE = "SET GLOBAL allow_community_extensions = false"
"""Setting with which DuckDB loads no extension but those that its own developers signed."""


def extension_file(name: str, accepted: str) -> Path:
    """Returns the extension's file in the package duckdb-extension-<name>. accepted: how to install it."""
    file = _package_file(name)
    if file is None:
        raise Refusal(f"DuckDB {duckdb.__version__} has no extension {name} here", accepted=accepted)
    return file


def load_extension(connection: duckdb.DuckDBPyConnection, name: str, accepted: str) -> str:
    """Loads an extension: that of the package duckdb-extension-<name>, else the one that INSTALL put on this machine.

    Returns where it comes from. accepted: how to install it.
    """
    file = _package_file(name)
    if file is not None:
        connection.execute(f"LOAD {quote_text(str(file))}")
        return f"the package duckdb-extension-{name.replace('_', '-')}"
    rows = connection.execute(
        "SELECT loaded, install_path FROM duckdb_extensions() WHERE extension_name = $1 AND installed", [name]
    ).fetchall()
    if not rows:
        raise Refusal(f"DuckDB {duckdb.__version__} has no extension {name} here", accepted=accepted)
    ((is_loaded, path),) = rows
    try:
        if not is_loaded:
            connection.execute(f"LOAD {name}")
    except duckdb.Error:
        raise Refusal(
            f"DuckDB {duckdb.__version__} does not load the extension {name} that is installed", accepted=accepted
        ) from None
    folder = Path(str(path)).parent
    return "DuckDB itself" if path in (None, "", "(BUILT-IN)") else f"DuckDB's own folder {folder}"


def _package_file(name: str) -> Path | None:
    spec = find_spec(f"duckdb_extension_{name}")
    for place in [] if spec is None else list(spec.submodule_search_locations or ()):
        file = Path(place) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        if file.is_file():
            return file
    return None
