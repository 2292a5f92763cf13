"""A plan of a publication: statements that make private views, tables and streams, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.language.statements.kinds import STREAM, AskStatement, CreatePrivate, RefreshPrivate
from dpduck.language.statements.parse import parse_statement
from dpduck.language.statements.synthetic import CreateSynthetic, SampleRelease
from dpduck.mechanisms.batch import split_statements
from dpduck.values.errors import Refusal

ACCEPTED = "CREATE PRIVATE VIEW, TABLE or STREAM name .., and REFRESH PRIVATE STREAM name"


@dataclass(frozen=True)
class PlanStep:
    """One statement of a plan. name: the table that it makes or refreshes. has_price: whether it can be charged."""

    text: str
    name: str
    has_price: bool


def read_plan(text: str) -> list[PlanStep]:
    """Reads the statements of a plan. Refuses statements that publish nothing under a name."""
    steps = []
    for number, statement in enumerate(split_statements(text), 1):
        try:
            steps.append(_step(statement))
        except Refusal as error:
            raise type(error)(f"statement {number}: {error.what}", accepted=error.accepted) from None
    return steps


def _step(text: str) -> PlanStep:
    statement = parse_statement(text)
    if isinstance(statement, AskStatement) and statement.view is not None:
        return PlanStep(text, statement.view, True)
    if isinstance(statement, CreateSynthetic) or (isinstance(statement, CreatePrivate) and statement.kind == STREAM):
        return PlanStep(text, statement.name, True)
    if isinstance(statement, SampleRelease) or (isinstance(statement, RefreshPrivate) and statement.kind == STREAM):
        return PlanStep(text, statement.name, False)
    raise Refusal("a plan publishes tables under names", accepted=ACCEPTED)
