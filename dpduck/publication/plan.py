"""A plan of a publication: statements that make private views, tables and streams, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.language.statements.kinds import STREAM, AskStatement, CreatePrivate, RefreshPrivate
from dpduck.language.statements.parse import parse_statement
from dpduck.language.statements.synthetic import CreateSynthetic, SampleRelease
from dpduck.mechanisms.batch import numbered, split_statements
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

ACCEPTED = "CREATE PRIVATE VIEW, TABLE or STREAM name .., and REFRESH PRIVATE STREAM name"


@dataclass(frozen=True)
class PlanStep:
    """One statement of a plan. name: the table that it makes or refreshes. has_price: whether it can be charged.

    makes: whether it makes the table. replaces: whether the table may exist before.
    reads: the release or stream that must exist before, "" for none.
    """

    text: str
    name: str
    has_price: bool
    makes: bool = True
    replaces: bool = False
    reads: str = ""


def read_plan(text: str) -> list[PlanStep]:
    """Reads the statements of a plan. Refuses statements that publish nothing under a name, and names made twice."""
    steps, made = list[PlanStep](), set[str]()
    for number, statement in enumerate(split_statements(text, ACCEPTED), 1):
        with numbered(number):
            step = _step(statement)
            if step.makes and fold(step.name) in made:
                raise Refusal(f"{step.name!r} is made twice", accepted="another name, or a plan of its own")
        steps.append(step)
        made |= {fold(step.name)} if step.makes else set()
    return steps


def _step(text: str) -> PlanStep:
    statement = parse_statement(text)
    if isinstance(statement, AskStatement) and statement.view is not None:
        return PlanStep(text, statement.view, True, replaces=statement.replace)
    if isinstance(statement, CreateSynthetic):
        return PlanStep(text, statement.name, True, replaces=statement.replace)
    if isinstance(statement, CreatePrivate) and statement.kind == STREAM:
        return PlanStep(text, statement.name, True)
    if isinstance(statement, SampleRelease):
        reads = "" if statement.columns else statement.source.table
        return PlanStep(text, statement.name, False, replaces=statement.replace, reads=reads)
    if isinstance(statement, RefreshPrivate) and statement.kind == STREAM:
        return PlanStep(text, statement.name, False, makes=False, reads=statement.name)
    raise Refusal("a plan publishes tables under names", accepted=ACCEPTED)
