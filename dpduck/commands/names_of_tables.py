"""Checks that names are those of tables with a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold


def require_policies(store: Path | None, names: Sequence[str]) -> None:
    """Refuses a name that no private table has. All names pass if the store is open elsewhere and cannot be read."""
    if not names:
        return
    tables = _private_tables(store)
    for name in names:
        wanted = fold(name).split(".")
        if tables is not None and not any(parts[-len(wanted) :] == wanted for parts in tables):
            shown = ", ".join(parts[-1] for parts in tables) or "none yet"
            raise Refusal(
                f"there is no policy on {name[:80]!r}", accepted=f"names with commas between them, of {shown}"
            )


def _private_tables(store: Path | None) -> list[list[str]] | None:
    import duckdb  # noqa: PLC0415

    try:
        with duckdb.connect(str(store), read_only=True) as connection:
            rows = connection.execute(
                "SELECT lower(table_name) FROM dpduck.policies GROUP BY 1 HAVING arg_max(active, revision) ORDER BY 1"
            ).fetchall()
    except duckdb.Error:
        return None
    return [[part.strip('"') for part in str(name).split(".")] for (name,) in rows]
