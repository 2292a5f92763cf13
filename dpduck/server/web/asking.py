"""Offers of the page, and its guesses from an answer: prices that were shown, proofs of forms, keys of pictures."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from dpduck.publish.pictures import PictureKey, Shape, shape_of
from dpduck.server.clients.desk import MOST_COLUMNS, MOST_LETTERS, PageAnswer, Prices
from dpduck.server.limits import remember
from dpduck.values.column_notes import Nulls
from dpduck.values.sqltypes import sql_type

_ERRORS = ("stderr", "interval_low", "interval_high")
_LEVELS = re.compile(r"\b(CUBE|ROLLUP|SETS|MARGINALS)\b", re.IGNORECASE)


def names_of(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Lists the names that a statement may contain, each with its kind. columns: rows of dp_columns."""
    listed = {str(row["table_name"]): "a table" for row in columns}
    for row in columns:
        name, table = str(row["column_name"]), row["table_name"]
        listed[name] = f"{listed[name]}, {table}" if name in listed else f"{row['data_type']} of {table}"
    return sorted(listed.items())


def view_shape(columns: Sequence[Mapping[str, Any]]) -> Shape:
    """Returns the keys and answers of a view by its comments, without columns that a page cuts or leaves out."""
    there = [c for c in columns[:MOST_COLUMNS] if len(str(c["column_name"])) < MOST_LETTERS]
    return shape_of([(str(c["column_name"]), str(c["data_type"]), str(c["comment"] or "")) for c in there])


def answer_shape(answer: PageAnswer, text: str = "") -> Shape:
    """Guesses the keys of an answer: columns before its first number with errors, or otherwise before its last number.

    text: the statement. If it has only one grouping set, a NULL is a value and no total.
    """
    nulls = None if _LEVELS.search(text) else Nulls.VALUE
    names = set(answer.columns)
    numbers = [name for name, kind in zip(answer.columns, answer.types, strict=True) if sql_type(kind).is_numeric]
    plain = [name for name in numbers if name not in _ERRORS and not name.startswith("dp_")]
    pairs = _with_errors(names, plain)
    answers = tuple(pair for pair in pairs if pair[1] is not None) or pairs[-1:]
    if "stderr" in names and len(pairs) == 1:  # as in answers of dp_known
        answers = ((pairs[0][0], "stderr"),)
    first = answer.columns.index(answers[0][0]) if answers else 0
    return Shape(
        tuple(PictureKey(name, None, nulls) for name in answer.columns[:first] if name not in _ERRORS), answers
    )


def _with_errors(names: set[str], answers: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Returns each answer with its column of standard errors. Views and statements name such columns differently."""
    shown = [name for name in answers if not name.endswith("_stderr")]
    return tuple(
        (name, next((column for column in (f"{name}_stderr", f"dp_stderr({name})") if column in names), None))
        for name in shown
    )


def seal(key: bytes, session: str) -> str:
    """Returns a proof that a form belongs to this session, which only the server can make."""
    return hmac.new(key, session.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def has_seal(key: bytes, session: str, given: str) -> bool:
    """Tells in constant time whether a form belongs to this session."""
    return hmac.compare_digest(seal(key, session).encode(), given.encode("utf-8", "surrogatepass"))


MOST_OFFERS = 200
"""The largest number of shown and unpaid prices of one principal."""


class Offers:
    """Shown prices. Each allows one press of the button that pays. Many threads may use this."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, OrderedDict[str, bytes]] = {}

    def add(self, principal: str, session: str, text: str, prices: Prices) -> str:
        """Adds an offer, and returns its ticket. Forgets this principal's oldest offers beyond MOST_OFFERS."""
        ticket = secrets.token_urlsafe(32)
        with self._lock:
            mine = self._of.setdefault(principal, OrderedDict())
            remember(mine, ticket, _digest(session, text, prices), MOST_OFFERS)
        return ticket

    def take(self, principal: str, ticket: str) -> bytes | None:
        """Removes an offer, and returns its digest for is_offer, or None if there is no such offer."""
        with self._lock:
            return self._of.get(principal, OrderedDict()).pop(ticket, None)


def is_offer(offer: bytes, session: str, text: str, prices: Prices) -> bool:
    """Tells whether an offer was made for exactly this session, text, prices and policies."""
    return hmac.compare_digest(offer, _digest(session, text, prices))


def _digest(session: str, text: str, prices: Prices) -> bytes:
    return hashlib.sha256(repr((session, text, prices.facts())).encode("utf-8", "surrogatepass")).digest()
