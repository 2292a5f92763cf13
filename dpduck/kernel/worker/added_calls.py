"""Calls that are put into a worker's SQL, where DuckDB would let one row change how others are computed."""

from __future__ import annotations

import re

from dpduck.values.errors import InternalError

_WORDS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|(?:\b(try|coalesce|ifnull)\s*)?\(|\)|['"]""", re.IGNORECASE)
_CASES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\b(?:CASE|WHEN|THEN|END)\b""", re.IGNORECASE)


def with_results_of_their_own(sql: str) -> str:
    """Puts one more call around the argument of each TRY that has a COALESCE inside.

    Otherwise DuckDB writes outside of the result's memory. After a row has raised, it computes the rows under TRY one
    by one, each into a result with room for one value. COALESCE writes a value at the row's own position instead of the
    first: up to 2,047 places behind the end, into memory of the process that holds the rows. CASE passes that result to
    its branches. Casts that DuckDB leaves out pass it on, too. `greatest` of one value has a result of its own.

    >>> with_results_of_their_own("SELECT try(coalesce(a, b)), try(a)")
    'SELECT try(greatest(coalesce(a, b))), try(a)'
    """
    open_calls: list[tuple[str, int, list[bool]]] = []
    inserted: list[tuple[int, str]] = []
    for match in _WORDS.finditer(sql):
        text = match.group()
        if text in ("'", '"') or (text == ")" and not open_calls):
            raise InternalError("counting failed")
        if text == ")":
            name, start, holds = open_calls.pop()
            if name == "try" and holds[0]:
                inserted += [(start, "greatest("), (match.start(), ")")]
        elif text.endswith("("):
            name = (match.group(1) or "").lower()
            if name in ("coalesce", "ifnull"):
                for _, _, holds in open_calls:
                    holds[0] = True
            open_calls.append((name, match.end(), [False]))
    if open_calls:
        raise InternalError("counting failed")
    return _insert(sql, inserted)


def with_whole_conditions(sql: str) -> str:
    """Puts one call around each condition of a CASE, so that no row changes how another one is evaluated.

    In a CASE, DuckDB adapts the order of AND and OR to the rows it has seen. After some twenty rows have raised under
    TRY, the other operand comes first for all later rows. Inside a call, both operands are always evaluated.

    >>> with_whole_conditions("CASE WHEN a AND b THEN 1 ELSE CASE c WHEN 'WHEN' THEN 2 END END")
    "CASE WHEN greatest( a AND b ) THEN 1 ELSE CASE c WHEN 'WHEN' THEN 2 END END"
    """
    inserted: list[tuple[int, str]] = []
    searched: list[bool] = []
    words = [match for match in _CASES.finditer(sql) if match.group()[0] not in "'\""]
    for number, match in enumerate(words):
        word = match.group().upper()
        if word == "CASE":
            following = words[number + 1] if number + 1 < len(words) else match
            searched.append(following.group().upper() == "WHEN" and not sql[match.end() : following.start()].strip())
        elif not searched:
            raise InternalError("counting failed")
        elif word == "END":
            searched.pop()
        elif searched[-1]:
            inserted.append((match.end(), " greatest(") if word == "WHEN" else (match.start(), ") "))
    if searched:
        raise InternalError("counting failed")
    return _insert(sql, inserted)


def _insert(sql: str, texts: list[tuple[int, str]]) -> str:
    for place, text in sorted(texts, reverse=True):
        sql = sql[:place] + text + sql[place:]
    return sql
