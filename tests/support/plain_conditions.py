"""A table with parts that are constant or NULL, and random conditions on it that a database's process evaluates."""

from __future__ import annotations

import random
from collections.abc import Mapping

VALUES = {
    "INTEGER": ("0", "1", "5", "2147483647", "-2147483648"),
    "TINYINT": ("0", "1", "5", "127", "-128"),
    "UBIGINT": ("0", "1", "5", "18446744073709551615"),
    "DOUBLE": ("0.0", "'-0.0'", "1.0", "-1.0", "0.1", "1e308", "5e-324", "16777217", "'nan'", "'inf'", "'-inf'"),
    "FLOAT": ("0.0", "'-0.0'", "1.0", "-1.0", "0.1", "16777217", "'nan'", "'inf'"),
    "DECIMAL(18,3)": ("0", "1", "0.001", "-1", "999999999999999.999"),
    "VARCHAR": ("''", "'a'", "'b'", "'A'", "'aaaaaaaa'", "'aaaaaaaaab'", "repeat('a', 300)", "chr(1114111)"),
    "BOOLEAN": ("true", "false"),
    "DATE": ("'2000-01-01'", "'0001-01-01'", "'infinity'", "'5881580-07-10'"),
    "TIMESTAMP": ("'2000-01-01'", "'2000-01-01 00:00:00.000001'", "'-infinity'"),
}  # fmt: skip
LITERALS = {
    "INTEGER": ("0", "1", "5", "-1", "200", "100000"),
    "TINYINT": ("0", "1", "5", "-1", "200"),
    "UBIGINT": ("0", "1", "5", "200"),
    "DOUBLE": ("0", "1", "-1", "0.1", "0.1000000001", "5", "16777217"),
    "FLOAT": ("0", "1", "-1", "0.1", "5", "16777217"),
    "DECIMAL(18,3)": ("0", "1", "0.001", "-1", "0.5"),
    "VARCHAR": ("''", "'a'", "'b'", "'z'", "'A'", "'aaaaaaaa'", "'aaaaaaaaab'", "'abcdefgh'"),
    "DATE": ("DATE '2000-01-01'", "DATE '0001-01-01'", "DATE '9999-12-31'"),
    "TIMESTAMP": ("TIMESTAMP '2000-01-01 00:00:00'", "TIMESTAMP '9999-12-31 00:00:00'"),
}
COLUMNS = {
    "number": "INTEGER", "other_number": "INTEGER", "small": "TINYINT", "large": "UBIGINT", "real": "DOUBLE",
    "other_real": "DOUBLE", "single": "FLOAT", "price": "DECIMAL(18,3)", "note": "VARCHAR", "other_note": "VARCHAR",
    "died": "BOOLEAN", "here": "BOOLEAN", "day": "DATE", "moment": "TIMESTAMP",
}  # fmt: skip
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
PATTERNS = ("a%", "%a", "%", "", "aaaaaaaa%", "%b%", "abcdefgh%i", "z%")
PARTS = 4
PART_ROWS = 2048
"""Of a part, which is a row group of a database with ROW_GROUP_SIZE 2048."""


def rows_sql(source: random.Random, columns: Mapping[str, str] = COLUMNS, rows: int = PART_ROWS) -> str:
    """SQL of a table in parts. In each part a column is NULL, constant, constant or NULL, or has many values.

    Half of the columns are alike in all parts, so that a table in one row group has some that are constant or NULL.

    Patient 0 has rows in every part, patients 1 to 4 in one each, patient 9 a few at the end, where no column is NULL.
    """
    alike = {name: source.choice(("null", "constant or null", "", "")) for name in columns}
    parts = [_part(source, columns, number, rows, alike) for number in range(PARTS)]
    last = ", ".join(f"{_some(source, of)} AS {name}" for name, of in columns.items())
    return " UNION ALL ".join([*parts, f"SELECT 9::INTEGER AS patient, {last} FROM range(3)"])


def _part(source: random.Random, columns: Mapping[str, str], number: int, rows: int, alike: Mapping[str, str]) -> str:
    """SQL of one part. alike: the kind of the columns that are alike in every part."""
    listed = []
    for place, (name, of) in enumerate(columns.items()):
        kind = alike[name] or source.choice(("null", "null", "constant", "constant or null", "many"))
        chosen = _some(source, of)
        if kind == "null":
            sql = f"NULL::{of}"
        elif kind == "constant":
            sql = chosen
        elif kind == "constant or null":
            sql = f"CASE WHEN range % {source.choice((2, 3, 64))} > 0 THEN {chosen} END"
        else:
            values = ", ".join(("NULL", *(f"({value})::{of}" for value in VALUES[of])))
            sql = f"[{values}][1 + (range * {place + 7}) % {len(VALUES[of]) + 1}]"
        listed.append(f"{sql} AS {name}")
    patient = f"CASE WHEN range % 2 = 0 THEN 0 ELSE {number + 1} END::INTEGER AS patient"
    return f"SELECT {patient}, {', '.join(listed)} FROM range({rows})"


def _some(source: random.Random, of: str) -> str:
    return f"({source.choice(VALUES[of])})::{of}"


class Conditions:
    """Random conditions: comparisons of stored columns with constants, below AND, OR and NOT."""

    def __init__(self, source: random.Random, columns: Mapping[str, str] = COLUMNS) -> None:
        self.source, self.columns = source, columns

    def one(self, depth: int = 2) -> str:
        """Returns a condition on one column, or on two."""
        names = self.source.sample(sorted(self.columns), self.source.choice((1, 1, 1, 2)))
        return self._condition(names, self.source.choice((0, 1, 1, 1, depth, depth)))

    def _condition(self, names: list[str], depth: int) -> str:
        kind = self.source.random()
        if depth == 0:
            return self._comparison(self.source.choice(names))
        if kind < 0.1:
            return f"NOT ({self._condition(names, depth - 1)})"
        operator = "OR" if kind < 0.8 else "AND"
        return f"({self._condition(names, depth - 1)} {operator} {self._condition(names, depth - 1)})"

    def _comparison(self, name: str) -> str:
        choose, of = self.source.choice, self.columns[name]
        absent = choose(("", "NOT "))
        forms = [f"{name} IS {absent}NULL"]
        if of == "BOOLEAN":
            forms += [name, f"NOT {name}", *2 * [f"{name} IS {absent}TRUE", f"{name} IS {absent}FALSE"]]
        else:
            first, second = choose(LITERALS[of]), self._operand(name)
            forms += 3 * [f"{name} {choose(OPERATORS)} {second}", f"{name} IS DISTINCT FROM {second}"]
            forms += [f"{name} IS NOT DISTINCT FROM {second}"]
            forms += [
                f"{first} {choose(OPERATORS)} {name}",
                f"{name} {absent}BETWEEN {first} AND {choose(LITERALS[of])}",
            ]
            forms += [
                f"{name} {absent}IN ({', '.join(choose(LITERALS[of]) for _ in range(self.source.randint(1, 6)))})"
            ]
        if of == "VARCHAR":
            forms.append(f"{name} {absent}LIKE '{choose(PATTERNS)}'")
        return choose(forms)

    def _operand(self, name: str) -> str:
        """Returns a literal, or another column of the type."""
        alike = [other for other, of in self.columns.items() if of == self.columns[name] and other != name]
        return self.source.choice((*LITERALS[self.columns[name]], *LITERALS[self.columns[name]], *alike))
