"""SQL whose COALESCE never stands directly under TRY, where DuckDB writes beside the result.

After a row has raised, DuckDB computes the rows under TRY one by one, each into a result with room for one value.
COALESCE writes a value at the row's own position instead of the first: up to 2,047 places behind the end, into memory
of the process that holds the rows. CASE hands that result on to its branches, as do casts that DuckDB leaves out.
`greatest` of one value is that value, computed into a result of its own with room for all rows.
"""

from __future__ import annotations

import re

from dpduck.errors import InternalError

_WORDS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|(?:\b(try|coalesce|ifnull)\s*)?\(|\)|['"]""", re.IGNORECASE)
_OPENED, _CLOSED = "greatest(", ")"


def with_results_of_their_own(sql: str) -> str:
    """The SQL with one more call around what TRY is over, wherever there is a COALESCE inside.

    >>> with_results_of_their_own("SELECT try(coalesce(a, b)), try(a)")
    'SELECT try(greatest(coalesce(a, b))), try(a)'
    """
    open_calls: list[tuple[str, int, list[bool]]] = []
    inserted: list[tuple[int, str]] = []
    for found in _WORDS.finditer(sql):
        text = found.group()
        if text in ("'", '"') or (text == ")" and not open_calls):
            raise InternalError("counting failed")
        if text == ")":
            name, start, holds = open_calls.pop()
            if name == "try" and holds[0]:
                inserted += [(start, _OPENED), (found.start(), _CLOSED)]
        elif text.endswith("("):
            name = (found.group(1) or "").lower()
            if name in ("coalesce", "ifnull"):
                for _, _, holds in open_calls:
                    holds[0] = True
            open_calls.append((name, found.end(), [False]))
    if open_calls:
        raise InternalError("counting failed")
    for place, text in sorted(inserted, reverse=True):
        sql = sql[:place] + text + sql[place:]
    return sql
