"""dbt on private tables: a plugin for dbt-duckdb, and a package of dbt with a materialization and a test.

A profile names `dpduck.dbt` among its plugins, and dbt-duckdb takes Plugin from here. `python -m dpduck.dbt` prints a
packages.yml with the folder of the package.
"""

from __future__ import annotations

from dpduck.dbt.plugin import Plugin

__all__ = ["Plugin"]
