"""Earlier terms with the same answers as the terms in force. Terms are the policies and budgets of one moment.

Such terms differ in budgets, limits of a price, and expected rows. If earlier terms answered a statement, it is read
under these terms again, so that its paid answer is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from dpduck.language.rows.facts import Policy, RequestRows
from dpduck.values.errors import PermissionRefusal, Refusal
from dpduck.values.privacy import ZERO, Budget

MOST_TERMS = 32
"""Most earlier terms that are tried, the latest first. Each takes a reading of a statement, some 20 ms."""

NO_BUDGET = Budget(None, ZERO, ZERO, None)
Read = TypeVar("Read")


@dataclass(frozen=True)
class PolicyTerms:
    """Policies by their tables' names in SQL, and budgets by privacy unit. All were in force together."""

    policies: Mapping[str, Policy]
    budgets: Mapping[str, Budget]


def same_answers(policy: Policy, other: Policy) -> bool:
    """Tells whether two policies of a table agree in everything that an answer depends on.

    They may differ in BUDGET, MAX EPSILON, MIN EPSILON and EXPECT ROWS, which do not change a paid answer.
    """
    return _bare(policy) == _bare(other)


def _bare(policy: Policy) -> Policy:
    return replace(policy, budget=NO_BUDGET, expect_rows=None, max_epsilon=None, min_epsilon=None, revision=0)


def earlier_terms(written: Iterable[Policy], in_force: Mapping[str, Policy]) -> tuple[PolicyTerms, ...]:
    """Returns earlier terms under which some table has the same answers as now, the latest first.

    written: every policy that was ever put in force, in order. in_force: the present policies, with the present
    budgets.
    """
    history = [_beside(policy, in_force.get(policy.table.sql)) for policy in written]
    last_change = {policy.table.sql: number for number, (policy, same) in enumerate(history) if not same}
    policies, budgets, earlier = dict[str, Policy](), dict[str, Budget](), list[PolicyTerms]()
    for number, (policy, _) in enumerate(history):
        name = policy.table.sql
        if number > last_change.get(name, -1):
            policies[name] = policy
        budgets[policy.unit.key] = policy.budget
        terms = {name: replace(latest, budget=budgets[latest.unit.key]) for name, latest in policies.items()}
        differs = any(latest != in_force[name] for name, latest in terms.items())
        if differs and (not earlier or earlier[-1].policies != terms):
            earlier = [*earlier[1 - MOST_TERMS :], PolicyTerms(terms, dict(budgets))]
    return tuple(reversed(earlier))


def _beside(policy: Policy, now: Policy | None) -> tuple[Policy, bool]:
    """Returns a policy, and whether its answers are as under `now`. If not, it loses its domains and clamps."""
    if now is None or not same_answers(policy, now):
        return replace(policy, domains=(), clamps=()), False
    result = replace(
        now,
        budget=policy.budget,
        expect_rows=policy.expect_rows,
        max_epsilon=policy.max_epsilon,
        min_epsilon=policy.min_epsilon,
        revision=policy.revision,
    )
    return result, True


def as_answered(
    read: Callable[[PolicyTerms | None], Read],
    is_answered: Callable[[Read], bool],
    earlier: Callable[[], Sequence[PolicyTerms]],
) -> Read:
    """Returns a statement's reading under the terms in force, or under earlier terms if only these answered it.

    If there is no answer, a refusal by the terms in force stands. read: reads the statement under terms, None for those
    in force.
    """
    try:
        reading = read(None)
    except PermissionRefusal:  # no terms let a caller ask about another table
        raise
    except Refusal:
        before = _find_answer(read, is_answered, earlier())
        if before is None:
            raise
        return before[0]
    terms = earlier()
    if not terms or is_answered(reading):
        return reading
    before = _find_answer(read, is_answered, terms)
    return reading if before is None else before[0]


def _find_answer(
    read: Callable[[PolicyTerms | None], Read], is_answered: Callable[[Read], bool], earlier: Sequence[PolicyTerms]
) -> tuple[Read] | None:
    for terms in earlier:
        try:
            reading = read(terms)
        except Refusal:
            continue
        if is_answered(reading):
            return (reading,)
    return None


def brought_up(rows: RequestRows, in_force: Mapping[str, Policy]) -> RequestRows:
    """Returns facts of rows that were read under earlier terms, with the revisions of the policies in force."""

    def revision(name: str, old: int) -> int:
        return in_force[name].revision if name in in_force else old

    reads = tuple(replace(read, revision=revision(read.table.sql, read.revision)) for read in rows.reads)
    return replace(rows, revision=revision(rows.table.sql, rows.revision), reads=reads)
