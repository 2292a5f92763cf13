"""The channel beside the answers: whether a statement is answered, its shape, text and price, on both neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from dpduck.auditor.neighbours import Neighbours
from dpduck.values.errors import DpduckError

ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"
_LEDGER = (
    "SELECT count(*), coalesce(sum(epsilon), 0), coalesce(sum(rho), 0), coalesce(sum(delta), 0), "
    "coalesce(max(mechanism), '') FROM dp_ledger() WHERE id > $1"
)
FREE_ROWS = ("summary", "threshold", "_THRESHOLD", "SUMMARY")
"""Words of statements whose number of rows is an answer."""


@dataclass(frozen=True)
class Outcome:
    """What can be told of a statement beside its answers. shape: names and types of columns, and rows where public."""

    kind: str
    text: str
    shape: tuple[object, ...]
    price: tuple[object, ...]

    @property
    def epsilon(self) -> float:
        """Returns what the ledger was charged."""
        return float(str(self.price[1]))


def outcomes(found: Neighbours, text: str) -> tuple[Outcome, Outcome]:
    """Asks a statement of both databases, by dp(), as anybody would."""
    first, second = (_outcome(connection, text) for connection in found.both)
    return first, second


def difference(first: Outcome, second: Outcome) -> str | None:
    """Names what tells the two apart, if anything."""
    for name in ("kind", "text", "shape", "price"):
        if getattr(first, name) != getattr(second, name):
            return name
    return None


def _outcome(connection: duckdb.DuckDBPyConnection, text: str) -> Outcome:
    last = connection.execute("SELECT coalesce(max(id), 0) FROM dp_ledger()").fetchall()[0][0]
    said, shape = "", tuple[object, ...]()
    try:
        answer = connection.execute("FROM dp($1)", [text])
        columns = tuple((name, str(kind)) for name, kind, *_ in answer.description or ())
        rows = answer.fetchall()
        public = not any(word in text for word in FREE_ROWS)
        shape, kind = (columns, len(rows) if public and "HAVING" not in text else None), ANSWERED
    except (duckdb.Error, DpduckError) as error:
        said = str(error).split("\n", 1)[0]
        kind = FAILED if "after its charge" in said else REFUSED
    price = connection.execute(_LEDGER, [last]).fetchall()[0]
    return Outcome(kind, said, shape, tuple(map(str, price)))
