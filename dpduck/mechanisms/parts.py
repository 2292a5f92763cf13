"""Parts of a database that mechanisms with statements of their own share, and the reading of these statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.worker.workers import Workers
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.kinds import CreatePrivate
from dpduck.language.statements.synthetic import CreateSynthetic
from dpduck.mechanisms.release import PlaceOf, Steps
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller, OpenCursor, SandboxAnswers
from dpduck.store.policies import PolicyStore
from dpduck.store.releases import ReleaseStore, StoredRelease
from dpduck.store.sandbox import Sandbox
from dpduck.store.terms import PolicyTerms, as_answered
from dpduck.store.views import PrivateViews

S = TypeVar("S", CreatePrivate, CreateSynthetic)
Release = Callable[[object, SelectRequest, str, Caller, str], StoredRelease]
"""Returns the release of a question about the rows of a request, under a digest, for a caller and a statement."""


class _Digested(Protocol):
    def digest(self) -> str: ...


R = TypeVar("R", bound=_Digested)


@dataclass(frozen=True)
class DatabaseParts:
    """Parts of a database. place_of: returns the place where rows are counted."""

    open_cursor: OpenCursor
    policies: PolicyStore
    releases: ReleaseStore
    views: PrivateViews
    ledger: Ledger
    entropy: Entropy
    steps: Steps
    workers: Workers
    place_of: PlaceOf
    answered: SandboxAnswers
    release: Release

    def analyse(
        self,
        statement: S,
        analyse: Callable[[S, Catalog], R],
        digest: str = "",
        caller: Caller | None = None,
        box: Sandbox | None = None,
    ) -> R:
        """Returns the request of a statement, from one snapshot of public facts.

        A statement that was answered under earlier policy terms is read under those terms. digest: digest of the object
        that the statement made. It is empty if any release under the request's own digest is an answer.
        """
        with self.open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")

            def read_request(terms: PolicyTerms | None) -> R:
                fresh = replace(statement, query=statement.query.copy())  # a reading may change its tree
                return analyse(fresh, Catalog(cursor, self.policies, box, caller, terms=terms))

            def is_answered(request: R) -> bool:
                own = request.digest()
                return own == digest if digest else self.releases.by_digest(own) is not None

            return as_answered(read_request, is_answered, self.policies.earlier)
