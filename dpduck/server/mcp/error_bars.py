"""Forms of a question that cost nothing beside it: the plain SELECT, and the same SELECT with its standard errors.

Both are read from the words of the text. If a form is not what its asker meant, the gate refuses it, and nothing is
charged: both are asked under a ceiling of nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpduck.server.bare_statements import parts_of
from dpduck.values.quoting import quote_identifier

_CLAUSE = ("SELECT", "WITH", "DIFFERENTIAL_PRIVACY")
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_BARS = frozenset(("DP_STDERR", "DP_INTERVAL_LOW", "DP_INTERVAL_HIGH"))
_NO_AGGREGATES = frozenset(("CAST", "CASE", "GROUPING", "RANGE_END", "TRY_CAST", "COALESCE"))


@dataclass(frozen=True)
class WordPlace:
    """Word or sign of a statement, in capitals, with its place."""

    word: str
    start: int
    end: int


@dataclass(frozen=True)
class _Question:
    """Places of a question in its parts: the clause, the first part after it, and FROM."""

    parts: tuple[WordPlace, ...]
    clause: int
    first: int
    end: int


def plain_select(statement: str) -> str | None:
    """Returns a question without its clause, or None if there is no clause.

    >>> plain_select("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits")
    'SELECT count(*) FROM visits'
    """
    question = _parse_question(statement)
    if question is None:
        return None
    select, first = question.parts[question.clause], question.parts[question.first]
    return f"{statement[: select.end]} {statement[first.start :]}"


def with_errors(statement: str, columns: Sequence[str]) -> str | None:
    """Returns a question that shows the standard error of each aggregate, too. None if it shows one, or has none.

    columns: the names of the columns of the question's answer.

    >>> with_errors("SELECT WITH DIFFERENTIAL_PRIVACY sex, count(*) AS n FROM visits GROUP BY sex", ["sex", "n"])
    'SELECT WITH DIFFERENTIAL_PRIVACY sex, count(*) AS n, dp_stderr(count(*)) AS "n_stderr" FROM visits GROUP BY sex'
    """
    question = _parse_question(statement)
    if question is None or any(part.word in _BARS for part in question.parts):
        return None
    items = _items(question)
    if len(items) != len(columns):  # a star, or DISTINCT ON
        return None
    added = []
    for item, column in zip(items, columns, strict=True):
        end = _end_of_call(item)
        if end is not None:
            call = statement[item[0].start : end]
            added.append(f", dp_stderr({call}) AS {quote_identifier(f'{column}_stderr')}")
    place = question.parts[question.end - 1].end
    return f"{statement[:place]}{''.join(added)}{statement[place:]}" if added else None


def _parse_question(statement: str) -> _Question | None:
    parts = tuple(WordPlace(*found) for found in parts_of(statement))
    words = [part.word for part in parts]
    clause = next((place for place in range(len(words)) if tuple(words[place : place + 3]) == _CLAUSE), None)
    if clause is None:
        return None
    first = clause + len(_CLAUSE)
    if words[first : first + 2] == ["OPTIONS", "("]:
        close = _closing(words, first + 1)
        if close is None:
            return None
        first = close + 1
    depth = 0
    for place in range(first, len(words)):
        depth += (words[place] in _OPEN) - (words[place] in _CLOSE)
        if words[place] == "FROM" and not depth:
            return _Question(parts, clause, first, place) if place > first else None
    return None


def _closing(words: Sequence[str], place: int) -> int | None:
    """Returns the place of the bracket that closes the one at a place."""
    depth = 0
    for other in range(place, len(words)):
        depth += (words[other] in _OPEN) - (words[other] in _CLOSE)
        if not depth:
            return other
    return None


def _items(question: _Question) -> list[tuple[WordPlace, ...]]:
    """Returns the parts of each item that a question selects."""
    items, item, depth = list[tuple[WordPlace, ...]](), list[WordPlace](), 0
    for part in question.parts[question.first : question.end]:
        depth += (part.word in _OPEN) - (part.word in _CLOSE)
        if part.word == "," and not depth:
            items.append(tuple(item))
            item = []
        else:
            item.append(part)
    return [*items, tuple(item)]


def _end_of_call(item: tuple[WordPlace, ...]) -> int | None:
    """Returns the end of an item's call of an aggregate. None if the item is anything else."""
    words = [part.word for part in item]
    if len(words) < 3 or words[1] != "(" or not words[0].isidentifier() or words[0] in _NO_AGGREGATES:
        return None
    close = _closing(words, 1)
    if close is None:
        return None
    rest = words[close + 1 :]
    is_named = not rest or (len(rest) == 2 and rest[0] == "AS") or (len(rest) == 1 and rest[0].isidentifier())
    return item[close].end if is_named else None
