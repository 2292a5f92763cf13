"""Pins of each statement of the corpus: its request, its price, its SQL over answers and its exact counts.

`python -m tests.database.corpus_pins` writes the pins of this commit anew. A difference in Git is then a change that
somebody must want. No pin names a way of counting, so that two ways can be held to be equal.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb

from dpduck.auditor.neighbours import require_database
from dpduck.database.functions import OWNER
from tests.database.corpus import BY_NOISE, KEYS, STATEMENTS, opened
from tests.support.exact import noted_counts

FOLDER = Path(__file__).parent / "pinned"
SEARCHES = tuple(f"dpduck.strategies.ranges.{name}" for name in ("candidates", "gaussian_optimum", "p_identity"))
"""Modules that search for a time: it stands still, so that every machine finds the same plan."""
LEDGER = (
    "SELECT statement, table_name, privacy_unit, mechanism, CAST(epsilon AS VARCHAR), CAST(rho AS VARCHAR), "
    "CAST(delta AS VARCHAR) FROM dp_ledger() WHERE id > {} ORDER BY id"
)
DIGESTS = "SELECT DISTINCT digest FROM private.dpduck.releases WHERE ledger_id > {} ORDER BY ALL"
LAST = "SELECT coalesce(max(id), 0) FROM dp_ledger()"
RELEASED = re.compile(r'\(SELECT CAST\(c0 .*? AS dpduck_values\([^)]*\)\)|"dpduck_release_\d+"\.main\.t')
"""A released table, as values or as a copy of them, in the SQL that answers a statement."""

DRAWN = re.compile(r"\b[0-9a-f]{32,64}\b")
"""What is drawn for a stream, in the ledger's text of a refresh."""

Pin = dict[str, Any]


@contextmanager
def stopped_searches() -> Iterator[None]:
    """Lets searches take all of their steps."""
    with ExitStack() as stack:
        for module in SEARCHES:
            stack.enter_context(patch(f"{module}.monotonic", lambda: 0.0))
        yield


def pins(connection: duckdb.DuckDBPyConnection, statements: Sequence[str]) -> dict[str, Pin]:
    """Carries out statements in order. Returns the pins of each."""
    with stopped_searches(), noted_counts() as seen:
        found = {}
        for statement in statements:
            seen.clear()
            found[statement] = _pin(connection, statement) | {"counts": list(seen[: BY_NOISE.get(statement)])}
    return found


def _pin(connection: duckdb.DuckDBPyConnection, statement: str) -> Pin:
    """Carries out a statement. Returns its digest, its rows of the ledger, its columns and its SQL over answers."""
    ((last,),) = connection.execute(LAST).fetchall()
    is_call = statement.startswith("FROM dp_")
    result = connection.execute(statement) if is_call else connection.execute("FROM dp(?)", [statement])
    columns = ", ".join(f"{name} {kind}" for name, kind, *_ in result.description)
    result.fetchall()
    rows = connection.execute(LEDGER.format(last)).fetchall()
    pin: Pin = {
        "digest": " ".join(digest for (digest,) in connection.execute(DIGESTS.format(last)).fetchall()),
        "ledger": [[*row[1:], *([] if row[0] == statement else [DRAWN.sub("..", row[0])])] for row in rows],
        "columns": columns,
    }
    if statement.startswith(("SELECT", "WITH")):
        pin["sql"] = RELEASED.sub("released", require_database(connection).run(statement, OWNER))
    return pin


def pinned(name: str) -> dict[str, Pin]:
    """Reads the pins of a list of statements."""
    found: dict[str, Pin] = json.loads(_file(name).read_text(encoding="utf-8"))
    return found


def _file(name: str) -> Path:
    return FOLDER / f"corpus_{name}.json"


def changed(found: dict[str, Pin], expected: dict[str, Pin], fields: Sequence[str]) -> list[str]:
    """Lists differences, a line for each statement and field: the pinned value and the present one."""
    return [
        f"{statement}\n  {field} pinned: {expected[statement].get(field)}\n  {field} found:  {pin.get(field)}"
        for statement, pin in found.items()
        for field in fields
        if pin.get(field) != expected[statement].get(field)
    ]


def write(path: Path, values: dict[str, Any]) -> None:
    """Writes one statement a line, in order of the statements."""
    lines = (
        f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in sorted(values.items())
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Writes all pins. Notes for each statement whether the key of a unit's order moves its counts."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = folder
        for name, statements in STATEMENTS.items():
            with opened(KEYS[0]) as connection, opened(KEYS[1]) as other:
                found, others = pins(connection, statements), pins(other, statements)
            for statement, pin in found.items():
                pin["any key"] = pin["counts"] == others[statement]["counts"]
            write(_file(name), found)


if __name__ == "__main__":
    main()
