"""dp_draft: from the schema alone, or with what statements answer for a price, through the same door as anybody's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dpduck.database.cursors import Caller
from dpduck.engine.engine import Engine
from dpduck.owner.private_draft import Rows
from dpduck.values.errors import BudgetRefusal


def draft(engine: Engine, argument: str, caller: Caller) -> str:
    """Returns SQL with a policy to begin with, line by line."""
    return engine.about.draft(argument, caller, partial(_asked, engine, caller))


def _asked(engine: Engine, caller: Caller, statements: Sequence[str]) -> list[tuple[Rows, float | None]]:
    """Returns the answers to all statements, or, where the budget has no room for all of them, a refusal that costs
    nothing.
    """
    with engine.connections.cursor() as cursor:
        batch = engine.plan(";\n".join(statements), caller)
        ((fits,),) = cursor.execute(f"SELECT bool_and(fits) FROM ({batch}) WHERE number IS NULL").fetchall()
        if not fits:
            raise BudgetRefusal("the budget has no room for this private draft", accepted="a smaller epsilon")
        return [
            (
                cursor.execute(engine.run(one, caller)).fetchall(),
                engine.foresight.rank_error(engine.question_of(one, caller)[0]),
            )
            for one in statements
        ]
