"""Statements that dp() takes, as frozen values. Nothing here has been checked against a database yet."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    """CREATE PRIVATE STREAM, PROJECTION, HISTOGRAM or SESSION name OPTIONS (..) AS SELECT .. | ON table (..) [WHERE ..]

    query: the SELECT, for ON table (columns) a SELECT of these columns. text: the text of the whole statement.
    """

    kind: str
    name: str
    query: exp.Query
    text: str
    options: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class RefreshPrivate:
    """REFRESH PRIVATE VIEW name, or REFRESH PRIVATE STREAM name [UNTIL 'day'].

    until: a day as text, "" without UNTIL. Only periods that end by the start of this day are released.
    """

    kind: str
    name: str
    until: str = ""


@dataclass(frozen=True)
class DropPrivate:
    """DROP PRIVATE VIEW | TABLE | STREAM | PROJECTION | HISTOGRAM | SESSION [IF EXISTS] name."""

    kind: str
    name: str
    if_exists: bool


@dataclass(frozen=True)
class UnitClause:
    """PRIVACY UNIT ROW [PER word OF column], or PRIVACY UNIT column [REFERENCES table.column] [PER ..] MAX ROWS m.

    period: the word and the column of PER. columns: for PRIVACY UNIT (a, b), all columns, and `column` is None.
    """

    column: str | None
    references: tuple[TableName, str] | None
    max_rows: int
    position: Position = field(compare=False)
    period: tuple[str, str] | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class BudgetClause:
    """BUDGET (epsilon = .. [, delta = .. [, delta_keys = ..]] or rho = ..) [PER word], or LIFETIME with amounts."""

    epsilon: Fraction | None
    delta: Fraction
    delta_keys: Fraction
    rho: Fraction | None
    position: Position = field(compare=False)
    per: str = ""


@dataclass(frozen=True)
class DomainClause:
    """DOMAIN column IN (..) | RANGE .. | FROM table.column | BOOLEAN | ENUM, WITH NULL | OTHER | EDGES.

    column: "" for ALL BOOLEAN or ALL ENUM columns. kind: 'values', 'range', 'public', 'boolean' or 'enum'.
    bare: whether some value in IN (..) is a number without quotes.
    """

    column: str
    kind: str
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
    bare: bool = False


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
    """ALTER PRIVACY POLICY ON t NEW EPOCH | SET item | DROP DOMAIN column | DROP CLAMP column.

    others: further tables that begin a new epoch.
    """

    table: TableName
    new_epoch: bool
    changes: PolicyClauses
    drop_domain: str | None
    drop_clamp: str | None
    others: tuple[TableName, ...] = ()
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class DropPolicy:
    """DROP PRIVACY POLICY [IF EXISTS] ON t."""

    table: TableName
    if_exists: bool
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class AskStatement:
    """Statement SELECT WITH DIFFERENTIAL_PRIVACY, or CREATE PRIVATE VIEW. view: the view's name, None without a view.

    options: options of CREATE PRIVATE VIEW .. OPTIONS (..), empty without a view.
    offset: the start of the SELECT in the statement's text.
    """

    query: exp.Query
    text: str
    offset: int
    view: str | None
    replace: bool
    options: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class PreparePolicy:
    """ALTER PRIVACY POLICY ON table [, ..] PREPARE, or UNPREPARE if `undo` is true."""

    tables: tuple[TableName, ...]
    undo: bool
    position: Position = field(compare=False)


OwnerStatement = DeclarePublicTable | CreatePolicy | AlterPolicy | PreparePolicy | DropPolicy
Statement = (
    OwnerStatement | AskStatement | CreateSynthetic | SampleRelease | CreatePrivate | RefreshPrivate | DropPrivate
)
