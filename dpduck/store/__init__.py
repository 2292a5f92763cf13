"""DuckDB without private rows: catalog, sandbox, policies, releases, views."""
