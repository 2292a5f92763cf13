"""A search for an audit. It composes statements from parts that policies allow, and prefers the least tried parts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dpduck.auditor.statements import SELECT, StatementParts


@dataclass
class StatementSearch:
    """Search that composes statements from the parts that were tried least so far. seed: the source of all choices."""

    tables: list[StatementParts]
    seed: str
    accepted: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    number: int = 0

    def statement(self) -> tuple[str, tuple[str, ...]]:
        self.number += 1
        scope = self.tables[self.number % len(self.tables)]
        keys, key_part = self._keys(scope)
        aggregates = [self._aggregate(scope), *([self._aggregate(scope)] if self._chance("second", 3) == 0 else [])]
        grouping, group_part = self._grouping(keys)
        where, where_part = self._pick("where", _conditions(scope))
        option, option_part = self._pick("option", OPTIONS)
        tail, tail_part = self._pick("tail", ["", " ORDER BY ALL", " HAVING a1 > 0", " ORDER BY a1 DESC LIMIT 3"])
        listed = [*keys, *(f"{sql} AS a{place + 1}" for place, (sql, _) in enumerate(aggregates))]
        joined = scope.where if not where else f"{scope.where} AND ({where})" if scope.where else f" WHERE {where}"
        text = f"{SELECT} {scope.options(option)} {', '.join(listed)} FROM {scope.table}{joined}{grouping}{tail}"
        parts = (key_part, group_part, where_part, option_part, tail_part, *(part for _, part in aggregates))
        self.tried.update(set(parts))
        return text, parts

    def note(self, parts: Sequence[str], answered: bool) -> None:
        if answered:
            self.accepted.update(set(parts))

    def _chance(self, what: str, number: int) -> int:
        digest = hashlib.sha256(f"{self.seed} {self.number} {what}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % number

    def _pick(self, what: str, options: Sequence[str]) -> tuple[str, str]:
        """Returns one of the three options with the fewest tries, and its name. what: the kind of choice."""
        order = sorted(
            range(len(options)),
            key=lambda place: (self._tries(f"{what} {options[place]}"), self._chance(f"{what} {place}", 1 << 30)),
        )
        chosen = options[order[self._chance(what, min(3, len(order)))]]
        return chosen, f"{what} {chosen}"

    def _tries(self, part: str) -> int:
        """Returns the number of tries of a part. Tries of a part that was always refused count three times."""
        return self.tried[part] * (1 if self.accepted[part] or self.tried[part] < 2 else 3)

    def _keys(self, scope: StatementParts) -> tuple[list[str], str]:
        number = self._chance("number of keys", 1 + min(3, len(scope.keys)))
        start = self._chance("first key", max(len(scope.keys), 1))
        keys = [scope.keys[(start + place) % len(scope.keys)] for place in range(number)]
        return keys, f"keys {scope.table} {number}"

    def _aggregate(self, scope: StatementParts) -> tuple[str, str]:
        return self._pick(f"aggregate {scope.table}", _aggregates(scope))

    def _grouping(self, keys: Sequence[str]) -> tuple[str, str]:
        if not keys:
            return "", "grouping none"
        listed = ", ".join(keys)
        forms = [f"{listed}", f"CUBE ({listed})", f"ROLLUP ({listed})", f"GROUPING SETS (({listed}), ())", "ALL",
                 f"MARGINALS (1, {listed})"]  # fmt: skip
        names = ["list", "cube", "rollup", "sets", "all", "marginals"]
        name, part = self._pick("grouping", names)
        return f" GROUP BY {forms[names.index(name)]}", part


OPTIONS = (
    "", ", consistency = 'none'", ", consistency = 'l1'", ", consistency = 'linf'", ", nonnegative = TRUE",
    ", integer = TRUE", ", budgets = 'uniform'", ", confidence = 0.9", ", strategy = 'identity'",
    ", max_rows_contributed = 1", ", max_norm_contributed = 1",
)  # fmt: skip


def _aggregates(scope: StatementParts) -> list[str]:
    texts = ["count(*)", "count(*) FILTER (WHERE 1 = 1)"]
    for value in scope.clamped:
        texts += [f"{name}({value})" for name in ("sum", "avg", "min", "max", "median", "var_pop", "stddev", "count")]
        texts += [f"quantile_cont({value}, 0.25)", f"sum({value} * 2 + 1)", f"sum(abs({value}))"]
        texts += [f"sum({value}, contribution_bounds_per_group => (0, 8))", f"sum({value}) FILTER (WHERE {value} > 1)"]
    for value in scope.numbers:
        texts += [f"sum(least(greatest(1 / {value}, 0), 1))"]
    for key in scope.keys:
        texts += [f"count(DISTINCT {key})"]
    for value in scope.numbers:
        texts += [f"sum(CAST({value} AS TINYINT), contribution_bounds_per_row => (0, 3))"]
    for text in scope.texts:
        texts += [f"count({text})", f"sum(CAST({text} AS INTEGER), contribution_bounds_per_row => (0, 3))"]
        texts += [f"count(*) FILTER (WHERE CAST({text} AS DATE) > DATE '2020-01-01')"]
    if scope.unit is not None:
        texts += [f"count(DISTINCT {scope.unit})"]
    return [*texts, "count(*, contribution_bounds_per_group => (0, 2))"]


def _conditions(scope: StatementParts) -> list[str]:
    texts = ["", "1 = 1"]
    for key in scope.keys:
        texts += [f"{key} IS NOT NULL", f"{key} IS DISTINCT FROM {key}", f"coalesce({key} = {key}, FALSE)"]
    for value in scope.numbers:
        texts += [f"{value} > 1", f"100 / {value} > 1", f"CAST({value} AS TINYINT) < 9", f"{value} * {value} > 4",
                  f"sqrt({value}) > 1", f"{value} BETWEEN -5 AND 50 OR {value} IS NULL"]  # fmt: skip
    for text in scope.texts:
        texts += [f"{text} LIKE 'n%'", f"CAST({text} AS INTEGER) > 1", f"length({text}) > 3",
                  f"CAST({text} AS DATE) > DATE '2020-01-01'", f"regexp_matches({text}, 'o')"]  # fmt: skip
    return texts
