"""Whether names that an owner types are tables with a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from dpduck.errors import Refusal
from dpduck.frontend.names import fold


def require_policies(store: Path | None, names: Sequence[str]) -> None:
    """Refuses a name of no private table; what a store that is open elsewhere holds is not known, and is not asked."""
    known = _private_tables(store)
    for name in names:
        wanted = fold(name).split(".")
        if known is not None and not any(parts[-len(wanted) :] == wanted for parts in known):
            shown = ", ".join(parts[-1] for parts in known) or "none yet"
            raise Refusal(
                f"there is no policy on {name[:80]!r}", accepted=f"names with commas between them, of {shown}"
            )


def _private_tables(store: Path | None) -> list[list[str]] | None:
    try:
        with duckdb.connect(str(store), read_only=True) as found:
            rows = found.execute(
                "SELECT lower(table_name) FROM dpduck.policies GROUP BY 1 HAVING arg_max(active, revision) ORDER BY 1"
            ).fetchall()
    except duckdb.Error:
        return None
    return [[part.strip('"') for part in str(name).split(".")] for (name,) in rows]
