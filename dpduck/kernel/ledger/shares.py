"""Parts of a budget for teams: projects, in which several principals share one, and reservations for one payer.

  project:      the charges of all its members together stay within its part. Members are listed in the secrets before
                they can ask. The list is read after the ledger's entries, so each charge of a member is counted.
  reservation:  an entry of the ledger without a charge. Its unspent part counts as spent for everybody but its payer,
                until its end or its release. The payer's charges since then use it up.

Both are checked in the transaction of a charge, as the budget is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction

from dpduck.kernel.ledger.secrets import Secrets
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.privacy import NOTHING, ZERO, Budget, Charge
from dpduck.values.records import as_object, read_record

PROJECTS = "projects"
RESERVED, RELEASED = "budget reserved", "reservation released"
"""The name of the record of projects in the secrets, and the ledger's words for entries about reservations."""


@dataclass(frozen=True)
class Project:
    """Principals who share a part of every budget. members: all who ever belonged to it, since their charges stay."""

    name: str
    share: Fraction
    members: tuple[str, ...] = ()


def read_projects(secrets: Secrets) -> tuple[Project, ...]:
    """Returns all projects of a store."""
    record = secrets.get(PROJECTS)
    return () if record is None else read_record(tuple[Project, ...], record)


def find_project(secrets: Secrets, name: str) -> Project:
    """Returns the project of this name. Refuses a name that is none, so that nobody spends without a bound."""
    for project in read_projects(secrets):
        if project.name == name:
            return project
    raise StoreError(f"there is no project {name!r} any more; accepted: dpduck principal project")


def change_project(secrets: Secrets, name: str, share: Fraction | None, member: str | None = None) -> Project:
    """Makes a project, changes its share, or adds a member. share: None to keep it. No member is ever taken out."""
    while True:  # another process may write meanwhile
        before = secrets.get(PROJECTS)
        present = {project.name: project for project in read_projects(secrets)}
        if name not in present and share is None:
            names = ", ".join(present) or "none yet: dpduck principal project DATABASE NAME --share 30%"
            raise Refusal(f"there is no project {name[:80]!r}", accepted=names)
        project = present.get(name) or Project(name, share or ZERO)
        members = dict.fromkeys([*project.members, *([] if member is None else [member])])
        project = replace(project, share=project.share if share is None else share, members=tuple(members))
        after = json.dumps([*({**present, name: project}).values()], default=as_object).encode()
        if secrets.replace(PROJECTS, before, after):
            return project


@dataclass(frozen=True)
class Reservation:
    """Part of a unit's budget for one payer: a principal, or a project. until: its last moment, None for no end.

    begun: what each principal had spent of the unit when it was made. It is no part of the record.
    """

    payer: str
    share: Fraction
    until: datetime | None = None
    begun: Mapping[str, Charge] = field(default_factory=dict, compare=False)

    def record(self) -> str:
        """Returns the reservation as JSON, for the ledger."""
        until = None if self.until is None else self.until.isoformat()
        return json.dumps({"payer": self.payer, "share": str(self.share), "until": until})

    def in_force(self, now: datetime) -> bool:
        return self.until is None or now <= self.until

    def unspent(self, budget: Budget, spent: Mapping[str, Charge]) -> Charge:
        """Returns the part that is not spent. spent: what each principal who may use it has spent of the unit."""
        used = [(charge, self.begun.get(name, NOTHING)) for name, charge in spent.items()]
        epsilon = sum(((now.epsilon or ZERO) - (then.epsilon or ZERO) for now, then in used), ZERO)
        rho, delta = (
            sum((getattr(now, measure) - getattr(then, measure) for now, then in used), ZERO)
            for measure in ("rho", "delta")
        )
        whole = ZERO if not budget.pure else budget.epsilon or ZERO
        return Charge(
            max(ZERO, whole * self.share - epsilon),
            max(ZERO, (budget.rho or ZERO) * self.share - rho),
            max(ZERO, budget.delta_keys * self.share - delta),
        )


def read_reservation(text: str) -> Reservation:
    """Returns the reservation that `record` wrote."""
    return read_record(Reservation, text)


def now_in_utc() -> datetime:
    """Returns this moment, which decides whether a reservation has ended."""
    return datetime.now(UTC)
