"""What the page asks of the server: every statement through the gate, by the way of every other client's.

Nothing here reads the public database but what the gate admitted, and nothing asks the vault.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dpduck.frontend.text.names import quote_text
from dpduck.publish.report import KEYS, MOST_POINTS, Shape, is_number
from dpduck.server.flight.statements import Statements
from dpduck.server.gate import FREE, Service
from dpduck.server.limits import GivenUp, never
from dpduck.server.principals import Principal
from dpduck.server.syntax import is_ours
from dpduck.values.errors import DpduckError, Refusal

MOST_COLUMNS = 60
MOST_LETTERS = 1_000
"""Of a value that is shown."""

_ERRORS = ("stderr", "interval_low", "interval_high")

_WITH_ERRORS = re.compile(r"\s*(SELECT|CREATE\s+(OR\s+REPLACE\s+)?PRIVATE\s+VIEW)\b", re.IGNORECASE)
_CHANGES_NOTHING_PAID = re.compile(r"\s*DROP\b", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """Rows of a statement, as many as a page can use. more: whether there are others."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False
    left_out: int = 0

    def dicts(self) -> list[dict[str, Any]]:
        """Returns the rows by names of columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Asked:
    """A statement as the gate takes it. charging: what it asks the vault that may charge, as action and argument."""

    text: str
    charging: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Priced:
    """What a statement would cost and miss. plan: rows of dp_plan; errors: of dp_errors; note: dp_explain's."""

    statement: str
    plan: Sequence[Mapping[str, Any]] = ()
    errors: Answer | None = None
    note: str = ""


class Desk:
    """Asks for one principal, in one request."""

    def __init__(self, service: Service, statements: Statements, principal: Principal, gone: GivenUp = never) -> None:
        self._service, self._statements = service, statements
        self.principal, self._gone = principal, gone

    def ask(self, text: str, most: int = MOST_POINTS) -> Answer:
        """Returns the first rows of a statement, which may charge."""
        handle, _ = self._statements.run(self.principal, text, self._gone)
        schema, batches = self._statements.stream(self.principal, handle, self._gone)
        rows: list[tuple[Any, ...]] = []
        more, shown = False, min(len(schema), MOST_COLUMNS)
        try:
            for batch in batches:
                left = most - len(rows)
                rows += _values(batch.slice(0, left), shown)
                if more := batch.num_rows > left:
                    break
        except (duckdb.Error, pa.ArrowException):
            raise Refusal(
                "the statement fails over the released tables", accepted="expressions that every number can go through"
            ) from None
        names, types = schema.names[:shown], [str(kind) for kind in schema.types[:shown]]
        return Answer(tuple(names), tuple(types), tuple(rows), more, len(schema) - shown)

    def read(self, text: str) -> Answer | None:
        """Returns what a part of a page shows; None where this principal may not see it."""
        try:
            return self.ask(text)
        except DpduckError:
            return None

    def asked(self, text: str) -> Asked:
        """Reads a statement: as dp() has it, or any that the gate takes; nothing is asked, and nothing charged."""
        if is_ours(text):
            statement = text.strip().rstrip(";")
            return Asked(f"FROM dp({quote_text(statement)})", (("run", statement),))
        calls = self._service.gate.inspected(text).calls
        return Asked(text, tuple((call.action, call.argument or "") for call in calls if call.action not in FREE))

    def priced(self, asked: Asked) -> list[Priced]:
        """Returns the price and the errors of everything that may charge; a Refusal is the statement's own."""
        return [self._priced(statement) for action, statement in asked.charging if action == "run"]

    def _priced(self, statement: str) -> Priced:
        if _CHANGES_NOTHING_PAID.match(statement):
            return Priced(statement)
        quoted = quote_text(statement)
        plan = self.ask(f"FROM dp_plan({quoted})").dicts()
        explained = self.read(f"SELECT note FROM dp_explain({quoted}) WHERE chosen")
        note = str(explained.rows[0][0] or "") if explained and explained.rows else ""
        errors = self.read(f"FROM dp_errors({quoted})") if _WITH_ERRORS.match(statement) else None
        return Priced(statement, plan, errors, note)

    def names(self) -> list[tuple[str, str]]:
        """Lists what a statement may name, each with what it is."""
        found = self.read("SELECT table_name, column_name, data_type FROM dp_columns()")
        rows = () if found is None else found.rows
        listed = {str(table): "a table" for table, _, _ in rows}
        for table, column, kind in rows:
            name = str(column)
            listed[name] = f"{listed[name]}, {table}" if name in listed else f"{kind} of {table}"
        return sorted(listed.items())


def _values(batch: pa.RecordBatch, columns: int) -> list[tuple[Any, ...]]:
    """Returns rows of the first columns; long texts are cut before they become Python's."""
    made = []
    for column in batch.columns[:columns]:
        short = pc.utf8_slice_codeunits(column, 0, MOST_LETTERS) if pa.types.is_string(column.type) else column
        made.append(short.to_pylist())
    return list(zip(*made, strict=True)) if made else []


def view_shape(columns: Sequence[Mapping[str, Any]]) -> Shape:
    """Tells keys from answers by the comments on a view's columns; see publish/report.py."""
    names = {str(column["column_name"]) for column in columns}
    keys = tuple(str(c["column_name"]) for c in columns if str(c["comment"] or "").startswith(KEYS))
    numbers = [str(c["column_name"]) for c in columns if is_number(str(c["data_type"]))]
    return Shape(keys, _with_errors(names, [name for name in numbers if name not in keys]))


def answer_shape(answer: Answer) -> Shape:
    """Guesses what tells groups of an answer apart: the columns before its first number that has errors, or its last
    number.
    """
    names = set(answer.columns)
    numbers = [name for name, kind in zip(answer.columns, answer.types, strict=True) if _is_arrow_number(kind)]
    plain = [name for name in numbers if name not in _ERRORS and not name.startswith("dp_")]
    pairs = _with_errors(names, plain)
    found = tuple(pair for pair in pairs if pair[1] is not None) or pairs[-1:]
    if "stderr" in names and len(pairs) == 1:  # as dp_known has it
        found = ((pairs[0][0], "stderr"),)
    first = answer.columns.index(found[0][0]) if found else 0
    return Shape(tuple(name for name in answer.columns[:first] if name not in _ERRORS), found)


def _with_errors(names: set[str], answers: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Returns each answer with the column of its standard errors, under the names that views and statements give it."""
    shown = [name for name in answers if not name.endswith("_stderr")]
    return tuple(
        (name, next((one for one in (f"{name}_stderr", f"dp_stderr({name})") if one in names), None)) for name in shown
    )


def _is_arrow_number(kind: str) -> bool:
    return kind.startswith(("int", "uint", "float", "double", "decimal"))


def seal(key: bytes, session: str, statement: str) -> str:
    """Returns proof that this session was shown the price of this statement; none but the server can make it."""
    return hmac.new(key, f"{session}\n{statement}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def sealed(key: bytes, session: str, statement: str, given: str) -> bool:
    """Tells whether it is that proof, in constant time."""
    return hmac.compare_digest(seal(key, session, statement).encode(), given.encode("utf-8", "surrogatepass"))
