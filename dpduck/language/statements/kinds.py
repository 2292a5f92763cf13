"""Statements that dp() takes, as frozen values. Nothing here has been checked against a database yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction

from sqlglot import exp

from dpduck.language.statements.synthetic import CreateSynthetic, SampleRelease
from dpduck.language.text.names import TableName
from dpduck.values.errors import Position

VIEW, TABLE, STREAM = "view", "table", "stream"
PROJECTION, HISTOGRAM, SESSION = "projection", "histogram", "session"
KINDS = (VIEW, TABLE, STREAM, PROJECTION, HISTOGRAM, SESSION)
"""Kinds of private objects with names. Statements spell the same words in capitals."""


@dataclass(frozen=True)
class CreatePrivate:
    """CREATE PRIVATE STREAM, PROJECTION, HISTOGRAM or SESSION name OPTIONS (..) AS SELECT .. or ON table (..)"""

    kind: str
    name: str
    query: exp.Query  # the SELECT. ON table (columns) becomes a SELECT of these columns
    text: str  # the text of the whole statement
    options: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class RefreshPrivate:
    """REFRESH PRIVATE VIEW name, or REFRESH PRIVATE STREAM name [UNTIL 'day']."""

    kind: str
    name: str
    until: str = ""  # a day as text, "" without UNTIL. Only periods that end by the start of this day are released


@dataclass(frozen=True)
class DropPrivate:
    """DROP PRIVATE VIEW | TABLE | STREAM | PROJECTION | HISTOGRAM | SESSION [IF EXISTS] name."""

    kind: str
    name: str
    if_exists: bool


@dataclass(frozen=True)
class UnitClause:
    """PRIVACY UNIT ROW [PER word OF column], or PRIVACY UNIT column [REFERENCES table.column] [PER ..] MAX ROWS m."""

    column: str | None
    references: tuple[TableName, str] | None
    max_rows: int
    position: Position = field(compare=False)
    period: tuple[str, str] | None = None  # the word and the column of PER
    columns: tuple[str, ...] = ()  # all columns of PRIVACY UNIT (a, b). Then `column` is None


@dataclass(frozen=True)
class BudgetClause:
    """BUDGET (epsilon = .. [, delta = .. [, delta_keys = ..]] or rho = ..) [PER word], or LIFETIME with amounts."""

    epsilon: Fraction | None
    delta: Fraction
    delta_keys: Fraction
    rho: Fraction | None
    position: Position = field(compare=False)
    per: str = ""  # the word of PER, "" for none


@dataclass(frozen=True)
class DomainClause:
    """DOMAIN column IN (..) | RANGE .. | FROM table.column | BOOLEAN | ENUM, WITH NULL | OTHER | EDGES."""

    column: str  # "" for ALL BOOLEAN or ALL ENUM columns
    kind: str  # 'values', 'range', 'public', 'boolean' or 'enum'
    values: tuple[str, ...]
    low: str
    high: str
    step: str
    unit: str
    source: tuple[TableName, str] | None
    with_null: bool
    other: str | None
    with_edges: bool
    position: Position = field(compare=False)
    bare: bool = False  # whether some value in IN (..) is a number without quotes


@dataclass(frozen=True)
class ClampClause:
    """CLAMP column BETWEEN low AND high [STEP step], with numbers as decimal texts. An absent step is empty."""

    column: str
    low: str
    high: str
    step: str
    position: Position = field(compare=False)


@dataclass(frozen=True)
class PolicyClauses:
    """Items between the parentheses of a policy. An absent item is None or empty."""

    unit: UnitClause | None = None
    budget: BudgetClause | None = None
    lifetime: BudgetClause | None = None
    domains: tuple[DomainClause, ...] = ()
    clamps: tuple[ClampClause, ...] = ()
    expect_rows: int | None = None
    max_epsilon: Fraction | None = None
    min_epsilon: Fraction | None = None


@dataclass(frozen=True)
class DeclarePublicTable:
    """DECLARE PUBLIC TABLE t, or UNDECLARE PUBLIC TABLE t if `withdraw` is true."""

    table: TableName
    withdraw: bool
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class CreatePolicy:
    """CREATE [OR REPLACE] PRIVACY POLICY ON t (..)."""

    table: TableName
    replace: bool
    clauses: PolicyClauses
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class AlterPolicy:
    """ALTER PRIVACY POLICY ON t NEW EPOCH | SET item | DROP DOMAIN column | DROP CLAMP column."""

    table: TableName
    new_epoch: bool
    changes: PolicyClauses
    drop_domain: str | None
    drop_clamp: str | None
    others: tuple[TableName, ...] = ()  # further tables that begin a new epoch
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class DropPolicy:
    """DROP PRIVACY POLICY [IF EXISTS] ON t."""

    table: TableName
    if_exists: bool
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class AskStatement:
    """Statement SELECT WITH DIFFERENTIAL_PRIVACY, or CREATE PRIVATE VIEW."""

    query: exp.Query
    text: str
    offset: int  # the start of the SELECT in the statement's text
    view: str | None  # the name of the view, None without a view
    replace: bool
    options: tuple[exp.Expr, ...]  # the options after CREATE PRIVATE VIEW name, empty without a view


@dataclass(frozen=True)
class PreparePolicy:
    """ALTER PRIVACY POLICY ON table [, ..] PREPARE, or UNPREPARE if `undo` is true."""

    tables: tuple[TableName, ...]
    undo: bool
    position: Position = field(compare=False)


@dataclass(frozen=True)
class ReserveBudget:
    """ALTER PRIVACY POLICY ON table RESERVE share FOR payer [UNTIL 'day'], or RELEASE payer without a share.

    share: a part of the budget. until: the last moment, None for no end.
    """

    table: TableName
    payer: str
    share: Fraction | None
    until: datetime | None
    position: Position = field(compare=False)


OwnerStatement = DeclarePublicTable | CreatePolicy | AlterPolicy | PreparePolicy | ReserveBudget | DropPolicy
Statement = (
    OwnerStatement | AskStatement | CreateSynthetic | SampleRelease | CreatePrivate | RefreshPrivate | DropPrivate
)
