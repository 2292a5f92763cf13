"""Plugin of dbt-duckdb: loads dpduck on the connection of the owner, before dbt runs anything on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
from duckdb.func import SPECIAL
from duckdb.sqltypes import VARCHAR

from dpduck.database.connection import load
from dpduck.dbt.models import answer_macro
from dpduck.store.attaching import database_file
from dpduck.values.errors import DpduckError, Refusal

FUNCTION = "dpduck_dbt"
"""SQL function that the macros of the package call. It reads texts alone, and no row."""


class Plugin:
    """The methods that dbt-duckdb calls on a plugin. Only connections are configured, and nothing else is changed.

    It has no base class, because dbt is not installed where dpduck is tested. A test compares it with dbt-duckdb's.
    """

    def __init__(self, name: str, plugin_config: Mapping[str, Any], credentials: Any = None) -> None:
        self.name = name
        self.creds = credentials
        self.store_file: str | None = None
        self.initialize(plugin_config)

    def initialize(self, plugin_config: Mapping[str, Any]) -> None:
        """Reads the plugin's settings. dbt-duckdb adds the settings of the profile, which are DuckDB's."""
        of_profile = getattr(self.creds, "settings", None) or {}
        for key, value in plugin_config.items():
            if key == "store":
                self.store_file = str(value)
            elif key not in of_profile:
                raise RuntimeError(str(Refusal(f"dpduck.dbt has no setting {key!r}", accepted="store: a file")))

    def update_connection_config(self, creds: Any, config: dict[str, Any]) -> None:
        """Leaves the options with which dbt-duckdb opens the database as they are."""

    def configure_connection(self, conn: duckdb.DuckDBPyConnection) -> None:
        """Loads dpduck. dbt shows a RuntimeError as one line, so each refusal becomes one."""
        try:
            if database_file(conn) is None:
                raise Refusal("a database in memory forgets what was spent", accepted="path: a file, in the profile")
            load(conn, self.store_file)
        except DpduckError as error:
            raise RuntimeError(str(error)) from None
        _register(conn)

    def configure_cursor(self, cursor: Any) -> None:
        """Leaves a cursor as it is, because functions belong to the database."""

    def load(self, source_config: Any) -> Any:
        """Refuses to load a source, because the sources of dpduck are tables of the database."""
        raise RuntimeError("dpduck.dbt loads no sources; accepted: a table of the database")

    def store(self, target_config: Any) -> None:
        """Refuses to store a relation anywhere."""
        raise RuntimeError("dpduck.dbt stores no files; accepted: dpduck publish")

    def default_materialization(self) -> str:
        """Returns dbt-duckdb's default."""
        return "table"


def _register(connection: duckdb.DuckDBPyConnection) -> None:
    """Registers the function of the macros, unless the database has it from an earlier connection.

    The function belongs to a module, so it lives as long as the process. DuckDB would crash if it were freed.
    """
    try:
        connection.execute(f"SELECT {FUNCTION}(NULL, NULL)").fetchall()
    except duckdb.CatalogException:
        connection.create_function(
            FUNCTION, answer_macro, [VARCHAR, VARCHAR], VARCHAR, side_effects=True, null_handling=SPECIAL
        )
