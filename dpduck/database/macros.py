"""Names and parameters of dpduck's SQL functions, and the SQL of the functions that any DuckDB runs.

This module imports nothing that plans or counts, since a server's process for clients needs only these names.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from dpduck.values.quoting import quote_text

MARK = "CREATE OR REPLACE MACRO"
UNEXPECTED = "an unexpected failure inside dpduck; nothing was released; accepted: a report to its makers"
MACROS = {
    "dp": ("statement", "run"),
    "dp_explain": ("statement", "explain"),
    "dp_errors": ("statement", "errors"),
    "dp_known": ("statement, confidence := 0.95, target_stderr := NULL", "known"),
    "dp_budget": ("", "budget"),
    "dp_ledger": ("", "ledger_entries"),
    "dp_policies": ("", "list_policies"),
    "dp_releases": ("", "list_releases"),
    "dp_check": ("table_name, statement := NULL", "check"),
    "dp_trial": ("statements, runs := 100, epsilon := NULL", "trial"),
    "dp_compare": ("table_name", "compare"),
    "dp_draft": ("table_name, privately := NULL", "draft"),
    "dp_columns": ("table_name := NULL", "columns"),
    "dp_twin": ("table_name, number_of_rows := 1000", "twin"),
    "dp_plan": ("statements", "plan"),
    "dp_certificate": ("view", "certificate"),
    "dp_sessions": ("", "list_sessions"),
    "dp_streams": ("", "list_streams"),
    "dp_ask": ("name, keys, weights := NULL", "ask"),
    "dp_difference": (
        "first_view, second_view, of_first := NULL, of_second := NULL, answer := NULL, confidence := 0.95",
        "difference",
    ),
    "dp_stderr_of": ("release, weight, confidence := 0.95, aggregate := 1", "stderr_of"),
    "dp_ratio_of": ("release, numerator, denominator, confidence := 0.95, aggregate := 1", "ratio_of"),
}
SEVERAL_ARGUMENTS = {
    "dp_known": "CAST(json_array(statement, confidence, target_stderr) AS VARCHAR)",
    "dp_check": "CAST(json_array(CAST(table_name AS VARCHAR), CAST(statement AS VARCHAR)) AS VARCHAR)",
    "dp_trial": "CAST(json_array(statements, runs, epsilon) AS VARCHAR)",
    "dp_columns": "CAST(table_name AS VARCHAR)",
    "dp_draft": "CAST(json_array(table_name, privately) AS VARCHAR)",
    "dp_twin": "CAST(json_array(table_name, number_of_rows) AS VARCHAR)",
    "dp_ask": "CAST(json_array(name, keys, weights) AS VARCHAR)",
    "dp_difference": (
        "CAST(json_array(first_view, second_view, CAST(of_first AS VARCHAR), CAST(of_second AS VARCHAR), answer, "
        "confidence) AS VARCHAR)"
    ),
    "dp_stderr_of": "CAST(json_array(release, confidence, aggregate, weight) AS VARCHAR)",
    "dp_ratio_of": "CAST(json_array(release, confidence, aggregate, numerator, denominator) AS VARCHAR)",
}
"""The scalar function takes one text. Several arguments travel as JSON. An argument that is left out is NULL."""


def raising_sql(message: str) -> str:
    """Returns a statement that fails to bind with exactly this message."""
    return f"FROM query(error({quote_text(message)}))"


def read_macro_files() -> list[str]:
    """Reads the files of sql/macros, which lie beside the modules in a wheel, and beside the package in a checkout."""
    installed = files("dpduck").joinpath("sql/macros")
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "sql" / "macros"
    paths = sorted((path for path in folder.iterdir() if path.name.endswith(".sql")), key=lambda path: path.name)
    return [path.read_text(encoding="utf-8") for path in paths]


def list_macro_names() -> list[str]:
    """Returns the names of the shipped macros."""
    return [name for text in read_macro_files() for name in re.findall(rf"{MARK} (\w+)\(", text)]


def list_macro_kinds() -> list[tuple[str, str]]:
    """Returns the names of the shipped macros, each with "TABLE " for a table macro, or with ""."""
    macros = [
        pair for text in read_macro_files() for pair in re.findall(rf"{MARK} (\w+)\([^)]*\) AS\s+(TABLE\b)?", text)
    ]
    return [(name, "TABLE " if table else "") for name, table in macros]
