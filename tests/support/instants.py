"""Moments with a time zone, which DuckDB 2.0 calls constant within a query alone: the session has the zone."""

from __future__ import annotations

INSTANTS = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
"""Types of such a moment. No expression has one: tests/language/test_allowlist.py."""

OF_AN_INSTANT = f"coalesce(list_has_any(parameter_types, {list(INSTANTS)}), FALSE)"
"""Condition on duckdb_functions(): a function takes such a moment."""
