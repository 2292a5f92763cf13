"""A statement of an audit with its plan on one made-up database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from dpduck.auditor.bounds import Claim
from dpduck.auditor.neighbours import require_database
from dpduck.database.functions import OWNER
from dpduck.kernel.door import compute_charge
from dpduck.kernel.price import Ask
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.registry import mechanism_of


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
