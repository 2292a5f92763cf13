"""dp_check of a statement: exact facts about its rows, for their owner alone. Nothing is charged or stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpduck.database.about import read_table_name
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.counting.unit_facts import UnitContributions, facts_of_units
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.places.engine import EnginePlace
from dpduck.kernel.places.place import RowPlace
from dpduck.kernel.rows import reader
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import RequestRows
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.norms.check import findings_sql, statement_check
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller, OpenCursor, require_owner
from dpduck.store.policies import PolicyStore
from dpduck.store.sandbox import Sandbox
from dpduck.store.terms import brought_up
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_text


@dataclass(frozen=True)
class StatementChecks:
    """Answers to dp_check of a statement. place_of: returns the place where rows are counted."""

    open_cursor: OpenCursor
    policies: PolicyStore
    ledger: Ledger
    place_of: Callable[[RequestRows], RowPlace]
    workers: Workers

    def check(self, name: str, question: object, request: SelectRequest, caller: Caller) -> str:
        """Returns SQL with the part of a statement's answers that each bound leaves out, and the error at each bound.

        name: a table that the statement reads. request: the request for the question's rows, perhaps by earlier
        policies that answered the statement.
        """
        require_owner(caller)
        rows = brought_up(request.rows, self.policies.now().policies)
        with Sandbox() as box, self.open_cursor() as cursor:
            reader.begin(cursor)
            catalog = Catalog(cursor, self.policies, box)
            if catalog.resolve(read_table_name(name)) not in request.asked_tables:
                read = ", ".join(table.table for table in request.asked_tables)
                raise Refusal(f"the statement does not read {name!r}", accepted=f"one of its tables: {read}")
            catalog.require_unchanged(rows)
            check, place = statement_check(question), self.place_of(rows)
            if isinstance(place, EnginePlace):
                accepted = f"dp_check({quote_text(name)}), without a statement"
                raise Refusal("dp_check of a statement does not look into an engine's tables", accepted=accepted)
            with place.open_rows(cursor, self.workers) as (second, over):

                def facts_of(job: CountingJob) -> UnitContributions:
                    return facts_of_units(second, over(job), self.ledger.bounding_key, self.workers)

                return findings_sql(check, facts_of)
