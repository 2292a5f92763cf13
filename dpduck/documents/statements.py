"""Facts about answers that the text of a statement tells: groups that are not shown, and answers that add up."""

from __future__ import annotations

from sqlglot import exp

from dpduck.language.statements.kinds import AskStatement, CreatePrivate
from dpduck.language.statements.parse import parse_statement
from dpduck.language.text.dialect import BOUNDS
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

_AFTER_NOISE = ("having", "qualify", "limit", "offset")
_COMPLETE = "geometric"
"""The summary that keeps every group."""


def hides_groups(statement: str) -> bool:
    """Tells whether groups are left out by their noisy numbers: by HAVING, QUALIFY, LIMIT, OFFSET or a summary.

    >>> hides_groups("CREATE PRIVATE VIEW v OPTIONS (epsilon = 1) AS SELECT a, count(*) AS n FROM t GROUP BY a LIMIT 3")
    True
    """
    parsed = _parse(statement)
    if parsed is None:
        return False
    return any(parsed.query.args.get(clause) for clause in _AFTER_NOISE) or any(map(_drops, parsed.options))


def has_own_bounds(statement: str) -> bool:
    """Tells whether a statement bounds rows, groups or values of its own, in an option or in an aggregate."""
    parsed = _parse(statement)
    if parsed is None:
        return False
    names = (fold(option.left.name) for option in parsed.options if isinstance(option, exp.EQ))
    given = any(name.startswith("max_") and name.endswith("_contributed") for name in names)
    return given or any(node.meta.get(BOUNDS) for node in parsed.query.walk())


def adding_answers(statement: str) -> frozenset[str] | None:
    """Returns the names of counts of rows and of sums, in lower case. Returns None for a statement without a SELECT.

    >>> sorted(adding_answers("CREATE PRIVATE VIEW v AS SELECT count(*) AS n, avg(x) AS m, sum(x) AS s FROM t"))
    ['n', 's']
    """
    parsed = _parse(statement)
    if parsed is None:
        return None
    return frozenset(fold(column.alias_or_name) for column in parsed.query.selects if _adds_up(column.unalias()))


def _parse(statement: str) -> AskStatement | CreatePrivate | None:
    try:
        parsed = parse_statement(statement)
    except Refusal:  # of another version of dpduck
        return None
    return parsed if isinstance(parsed, AskStatement | CreatePrivate) else None


def _drops(option: exp.Expr) -> bool:
    """Tells whether an option names a summary that keeps some groups alone."""
    return isinstance(option, exp.EQ) and fold(option.left.name) == "summary" and fold(option.right.name) != _COMPLETE


def _adds_up(answer: exp.Expr) -> bool:
    """Tells whether the answers of two groups have their sum as the answer of both together."""
    one = answer.this if isinstance(answer, exp.Filter) else answer
    return isinstance(one, exp.CountIf | exp.Sum) or (
        isinstance(one, exp.Count) and not isinstance(one.this, exp.Distinct)
    )
