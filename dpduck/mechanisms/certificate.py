"""Writes down what a release will let out: every noise, and how far one privacy unit moves what it is added to.

It is stored with the charge, so that whoever gets the certificate of a release (publish/certify.py) can compute its
price again without dpduck (publish/checker.py). Everything here is public before anything is counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import duckdb

from dpduck.trusted.ask import Ask, Choice, Quantiles, SparseVector, Threshold, Within, norms_of
from dpduck.trusted.ledger.entries import rational_text
from dpduck.trusted.noise.law import Noise
from dpduck.values.errors import InternalError

Part = dict[str, object]


def plan_text(asks: Iterable[Ask[Any]]) -> str:
    """Returns the asks as JSON: queries by noise, with the norms of what one unit moves, and all others by parameters.

    Queries that move as far, under one noise, are one line with their number.
    """
    by_noise: dict[int, tuple[Noise, Counter[tuple[str, int, int, int]]]] = {}
    others: Counter[str] = Counter()
    for ask in asks:
        norms = norms_of(ask)
        if ask.noise is None or norms is None:
            others[json.dumps(_other(ask))] += ask.times
        else:
            _, counts = by_noise.setdefault(id(ask.noise), (ask.noise, Counter()))
            counts[type(ask.query).__name__, *norms] += ask.times
    parts: list[Part] = [
        {"noise": _noise(noise), "moved": [_moved(*key, times) for key, times in counts.items()]}
        for noise, counts in by_noise.values()
    ]
    parts += [{**json.loads(text), "times": times} for text, times in others.items()]
    return json.dumps(parts)


def versions_text() -> str:
    """Names what makes the release."""
    return f"dpduck {version('dpduck')}, DuckDB {duckdb.__version__}"


def _moved(query: str, l1: int, l2_squared: int, most: int, times: int) -> Part:
    return {"query": query, "l1": l1, "l2_squared": l2_squared, "most": most, "times": times}


def _noise(noise: Noise) -> dict[str, str]:
    return {"law": noise.kind.value, "parameter": rational_text(noise.parameter)}


def _other(ask: Ask[Any]) -> Part:
    """Describes a query whose price is not that of one noise on what a unit moves."""
    query, name = ask.query, type(ask.query).__name__
    part: Part = {"query": name, "l1": ask.scan.l1}
    if ask.noise is not None:
        part["noise"] = _noise(ask.noise)
    if isinstance(query, Within):
        return {**part, "limit": rational_text(query.limit), "pure": query.pure}
    if isinstance(query, Choice):
        return {**part, "rate": rational_text(query.rate), "pure": query.pure}
    if isinstance(query, Quantiles):
        return {**part, "rate": rational_text(query.rate), "largest_weight": max(query.below, query.above)}
    if isinstance(query, SparseVector):
        return {**part, "question": _noise(query.question), "measured": _noise(query.measured)}
    if isinstance(query, Threshold):
        bounds = query.bounds
        counts = {"groups": bounds.groups, "per_group": bounds.per_group, "total": bounds.total, "rows": bounds.rows}
        return {**part, **counts, "excess": query.excess, "answered": query.answered, "answers": _noise(query.answers)}
    raise InternalError("nobody can describe this question")
