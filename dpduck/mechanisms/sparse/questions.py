"""Questions of sparse queries: canonical keys from lists, or from a SELECT over declared public tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.queries.key_counts import KeyDigests
from dpduck.kernel.queries.sessions import UNITS
from dpduck.mechanisms.sparse.keys import KeyPart, canonical_sql
from dpduck.mechanisms.sparse.public_keys import ALIAS, read_selection
from dpduck.store.catalog import Catalog
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

MOST_KEYS = 5_000_000
_OUTPUT = "CAST(md5_number(k) >> 64 AS UBIGINT) AS high, CAST(md5_number(k) & 18446744073709551615 AS UBIGINT) AS low"


@dataclass(frozen=True, eq=False)
class KeyQuestions:
    """Questions over canonical keys. Each has a label and a run of keys, sorted by digest. Weights are in 1/UNITS."""

    labels: tuple[str | None, ...]
    digests: KeyDigests
    weights: NDArray[np.int64]
    lengths: tuple[int, ...]

    def names(self) -> list[str]:
        """Returns one name for each question. The same keys with the same weights have the same name."""
        names, start = [], 0
        for length in self.lengths:
            run = slice(start, start + length)
            content = (self.digests.high[run], self.digests.low[run], self.weights[run])
            names.append(hashlib.sha256(b"".join(column.tobytes() for column in content)).hexdigest())
            start += length
        return names

    def keys(self) -> list[int]:
        halves = zip(self.digests.high.tolist(), self.digests.low.tolist(), strict=True)
        return [high << 64 | low for high, low in halves]


def read_key_list(
    cursor: duckdb.DuckDBPyConnection, parts: Sequence[KeyPart], keys: list[Any], weights: list[Any] | None
) -> KeyQuestions:
    """Reads one question from a list of keys and a list of their weights."""
    values = [_values(key, len(parts)) for key in keys]
    if not values or len(values) > MOST_KEYS:
        raise Refusal(f"a question of {len(values)} keys", accepted=f"1 to {MOST_KEYS} keys")
    if weights is not None and len(weights) != len(values):
        raise Refusal(f"{len(weights)} weights for {len(values)} keys", accepted="one weight for each key")
    columns = [[value[place] for value in values] for place in range(len(parts))]
    places = ", ".join(f"unnest(CAST(${place + 1} AS VARCHAR[])) AS p{place}" for place in range(len(parts)))
    given = [1.0] * len(values) if weights is None else [_weight(weight) for weight in weights]
    casts = [f"TRY_CAST(p{place} AS {part.type_name})" for place, part in enumerate(parts)]
    sql = (
        f"SELECT NULL AS question, {_OUTPUT}, weight FROM (SELECT {canonical_sql(casts, parts)} AS k, weight FROM "
        f"(SELECT {places}, unnest(CAST(${len(parts) + 1} AS DOUBLE[])) AS weight))"
    )
    return _run_questions(
        cursor, sql, [*columns, given], weights is None, "keys of the columns' types and weights from 0 to 1"
    )


def read_key_table(
    cursor: duckdb.DuckDBPyConnection, parts: Sequence[KeyPart], text: str, catalog: Catalog
) -> KeyQuestions:
    """Reads questions from a public table with `key` or the key's columns, and optionally `weight` and `question`."""
    chosen = read_selection(text, [part.name for part in parts], catalog)
    columns = {fold(name): sql for name, sql in chosen.columns}
    wanted = ["key"] if len(parts) == 1 and "key" in columns else [fold(part.name) for part in parts]
    missing = [column for column in wanted if column not in columns]
    if missing:
        raise Refusal(
            f"{chosen.table} gives no column {missing[0]!r}", accepted=f"columns {', '.join(wanted)}, weight, question"
        )
    casts = [f"TRY_CAST({columns[column]} AS {part.type_name})" for column, part in zip(wanted, parts, strict=True)]
    weighted = "weight" in columns
    weight = f"TRY_CAST({columns['weight']} AS DOUBLE)" if weighted else "CAST(1 AS DOUBLE)"
    question = f"CAST({columns['question']} AS VARCHAR)" if "question" in columns else "NULL"
    sql = (
        f"SELECT question, {_OUTPUT}, weight FROM (SELECT {question} AS question, {canonical_sql(casts, parts)} AS k, "
        f"{weight} AS weight FROM {chosen.table.sql} AS {ALIAS} WHERE {chosen.condition})"
    )
    once = chosen.distinct or not weighted
    return _run_questions(cursor, sql, [], once, "keys of the columns' types and weights from 0 to 1")


def _values(key: Any, parts: int) -> tuple[str | None, ...]:
    if isinstance(key, list):
        if len(key) != parts:
            raise Refusal(f"a key of {len(key)} values", accepted=f"keys of {parts}")
        return tuple(_text(value) for value in key)
    return split_netstrings(str(key), parts) if parts > 1 else (_text(key),)


def _members(pairs: list[tuple[str, Any]]) -> list[Any]:
    return [value for _, value in pairs]


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return None
    _require_unicode(str(value))
    return str(value)


def _require_unicode(text: str) -> None:
    """Refuses surrogates (halves of characters). JSON can express them, but no text of DuckDB can hold them."""
    if any(0xD800 <= ord(character) < 0xE000 for character in text):
        raise Refusal("this is not Unicode text", accepted="text that UTF-8 can hold")


def _weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise Refusal("a weight is not a number", accepted="weights from 0 to 1")
    try:
        return float(value)
    except OverflowError:
        raise Refusal("a weight is too large", accepted="weights from 0 to 1") from None


def _run_questions(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: list[Any], once: bool, accepted: str
) -> KeyQuestions:
    """Runs the SQL of questions and checks its rows. once: whether equal rows count once, so that keys may repeat."""
    columns = cursor.execute(
        f"SELECT {'DISTINCT' if once else ''} * FROM (SELECT * REPLACE (coalesce(question, '') AS question) "
        f"FROM ({sql})) ORDER BY question, high, low",
        parameters,
    ).fetchnumpy()
    high, low, weight = columns["high"], columns["low"], columns["weight"]
    values = np.ma.getdata(weight).astype(np.float64)
    bad = np.ma.getmaskarray(high).any() or np.ma.getmaskarray(weight).any() or not np.isfinite(values).all()
    if bad or (values < 0).any() or (values > 1).any():
        raise Refusal("a key or a weight of the question has no meaning here", accepted=accepted)
    if not len(high) or len(high) > MOST_KEYS:
        raise Refusal(f"questions of {len(high)} keys", accepted=f"1 to {MOST_KEYS} keys")
    digests = KeyDigests(np.ma.getdata(high).astype(np.uint64), np.ma.getdata(low).astype(np.uint64))
    labels = ["" if label is None or label is np.ma.masked else str(label) for label in columns["question"].tolist()]
    changes = [place for place in range(1, len(labels)) if labels[place] != labels[place - 1]]
    bounds = [0, *changes, len(labels)]
    same = (digests.high[1:] == digests.high[:-1]) & (digests.low[1:] == digests.low[:-1])
    same[np.array(changes, dtype=np.intp) - 1] = False
    if same.any():
        raise Refusal("a key has two weights in one question", accepted="each key once")
    lengths = tuple(after - before for before, after in pairwise(bounds))
    return KeyQuestions(
        tuple(labels[place] or None for place in bounds[:-1]),
        digests,
        np.rint(values * UNITS).astype(np.int64),
        lengths,
    )


def read_argument(text: str) -> tuple[str, list[Any] | str, list[Any] | None]:
    """Reads name, keys (or the text that selects keys) and weights from dp_ask's JSON. Numbers keep their digits."""
    try:
        # a tuple comes as an object with empty names
        name, keys, weights = json.loads(text, parse_float=Decimal, object_pairs_hook=_members)
    except (ValueError, TypeError, RecursionError):
        name = keys = weights = None
    if not isinstance(name, str) or not isinstance(keys, (list, str)) or not isinstance(weights, (list, type(None))):
        raise Refusal("dp_ask takes a name and a list of keys", accepted="FROM dp_ask('name', ['key', 'other key'])")
    _require_unicode(name)
    _require_unicode(keys if isinstance(keys, str) else "")
    return name, keys, weights


def split_netstrings(text: str, parts: int) -> tuple[str, ...]:
    """Splits the canonical text of a key of several columns into its values.

    >>> split_netstrings("5:E11.9,2:ab", 2)
    ('E11.9', 'ab')
    """
    rest = text.encode()
    values: list[str] = []
    while len(values) < parts:
        head, colon, tail = rest.partition(b":")
        if not colon or not head.isdigit() or len(head) > 9 or len(tail) < int(head):
            break
        values.append(tail[: int(head)].decode(errors="replace"))
        rest = tail[int(head) :]
        if len(values) < parts and not rest.startswith(b","):
            break
        rest = rest[1:] if len(values) < parts else rest
    if rest or len(values) != parts:
        raise Refusal(
            f"a key of {parts} columns is written otherwise", accepted=f"a list of {parts} values, or dp_key([..])"
        )
    return tuple(values)
