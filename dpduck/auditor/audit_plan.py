"""A statement of an audit with its plan on one made-up database."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import duckdb

from dpduck.auditor.bounds import Claim
from dpduck.auditor.neighbours import require_database
from dpduck.database.functions import OWNER
from dpduck.kernel.door import Bill, Door, compute_charge, open_door
from dpduck.kernel.ledger.secrets import no_step
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.price import Ask, price
from dpduck.kernel.worker.workers import Workers
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.registry import mechanism_of
from dpduck.values.privacy import Charge


@dataclass(frozen=True)
class AuditPlan:
    """A statement with its plan on one database. claim: the charge for one release."""

    connection: duckdb.DuckDBPyConnection
    mechanism: Mechanism[Any, Any, Any]
    plan: Any
    asks: Sequence[Ask[Any]]
    question: object
    text: str
    claim: Claim

    def open_door(self, asks: Sequence[Ask[Any]], workers: Workers) -> AbstractContextManager[Door]:
        """Charges the made-up database for these asks, and opens the door to their answers."""
        database, rows, cost = require_database(self.connection), self.plan.request.rows, price(asks)
        periods = None if rows.periods is None else rows.periods.periods
        charge, name = Charge(cost.epsilon, cost.rho, cost.delta), self.mechanism.name
        bill = Bill(rows.unit_key, str(rows.table), charge, OWNER.name, self.text, name, None, periods)
        cursor = database.connections.cursor
        return open_door(
            asks, bill, database.ledger, cursor, lambda _: None, operating_system_entropy(), no_step, workers
        )


def plan_statement(connection: duckdb.DuckDBPyConnection, text: str) -> AuditPlan:
    """Plans a statement in the same way as dp()."""
    question, _ = require_database(connection).question_of(text.replace("{tag}", "planned"), OWNER)
    mechanism = mechanism_of(question)
    plan = mechanism.plan(question)
    asks, cost = mechanism.asks(plan), plan.request.price
    charge = compute_charge(cost.charge, asks, cost.least_rho)
    epsilon = None if charge.epsilon is None else float(charge.epsilon)
    return AuditPlan(
        connection, mechanism, plan, asks, question, text, Claim(epsilon, float(charge.rho), float(charge.delta))
    )
