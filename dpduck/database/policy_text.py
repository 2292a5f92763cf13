"""Policies as JSON text and back, for the store."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpduck.frontend.rows.facts import Clamp, Policy
from dpduck.frontend.text.names import TableName
from dpduck.values.domain import Domain, RangeDomain, ValueDomain
from dpduck.values.privacy import Budget, PrivacyUnit, Reference


def policy_to_text(policy: Policy) -> str:
    """All of a policy as JSON; amounts as exact rationals."""
    return json.dumps(
        {
            "table": list(policy.table.parts),
            "unit": [policy.unit.key, policy.unit.column, policy.unit.max_rows],
            "reference": _reference_fields(policy.unit.reference),
            "budget": [
                _rational(amount)
                for amount in (policy.budget.epsilon, policy.budget.delta, policy.budget.delta_keys, policy.budget.rho)
            ],
            "domains": [[column, _domain_fields(domain)] for column, domain in policy.domains],
            "clamps": [[clamp.column, clamp.low, clamp.high, clamp.step] for clamp in policy.clamps],
            "expect_rows": policy.expect_rows,
            "max_epsilon": _rational(policy.max_epsilon),
            "min_epsilon": _rational(policy.min_epsilon),
            "revision": policy.revision,
            "epoch": policy.epoch,
        },
        sort_keys=True,
    )


def policy_from_text(text: str) -> Policy:
    """The policy that policy_to_text wrote."""
    fields = json.loads(text)
    epsilon, delta, delta_keys, rho = (_amount(amount) for amount in fields["budget"])
    return Policy(
        table=TableName(tuple(fields["table"])),
        unit=replace(PrivacyUnit(*fields["unit"]), reference=_reference(fields.get("reference"))),
        budget=Budget(epsilon, delta or Fraction(0), delta_keys or Fraction(0), rho),
        domains=tuple((column, _domain(domain)) for column, domain in fields["domains"]),
        clamps=tuple(Clamp(*clamp) for clamp in fields["clamps"]),
        expect_rows=fields["expect_rows"],
        max_epsilon=_amount(fields["max_epsilon"]),
        revision=fields["revision"],
        epoch=fields["epoch"],
        min_epsilon=_amount(fields.get("min_epsilon")),
    )


def _reference_fields(reference: Reference | None) -> list[Any] | None:
    return None if reference is None else [reference.column, list(reference.parent), reference.parent_column]


def _reference(fields: list[Any] | None) -> Reference | None:
    return None if fields is None else Reference(fields[0], tuple(fields[1]), fields[2])


def _rational(amount: Fraction | None) -> str | None:
    return None if amount is None else str(amount)


def _amount(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)


def _domain_fields(domain: Domain) -> dict[str, Any]:
    if isinstance(domain, ValueDomain):
        return {
            "type_name": domain.type_name,
            "values": list(domain.values),
            "with_null": domain.with_null,
            "other": domain.other,
        }
    return {
        "type_name": domain.type_name,
        "edges": list(domain.edges),
        "upper": domain.upper,
        "step": domain.step,
        "unit": domain.unit,
        "step_count": domain.step_count,
        "with_null": domain.with_null,
        "with_edges": domain.with_edges,
    }


def _domain(fields: dict[str, Any]) -> Domain:
    if "values" in fields:
        return ValueDomain(**{**fields, "values": tuple(fields["values"])})
    return RangeDomain(**{**fields, "edges": tuple(fields["edges"])})
