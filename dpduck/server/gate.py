"""Gate: checks every statement of every client, over any protocol, and returns SQL for the public database."""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from dpduck.language.text.words import meant_or
from dpduck.server.answer_index import NOTHING
from dpduck.server.audit import Audit, kind_of
from dpduck.server.bare_statements import QUERIES, first_word
from dpduck.server.idle_vault import Keeping
from dpduck.server.inspection import ANSWERS, LISTING, OWN, Call, Inspected, inspect
from dpduck.server.limits import Debts, GivenUp, Limits, never, remember
from dpduck.server.principals import Principal, PrincipalBook, WatchedSecrets
from dpduck.server.public_database import PublicDatabase, answer_name
from dpduck.server.syntax import Syntax
from dpduck.server.vault import Vault
from dpduck.server.vault_client import VaultProcess
from dpduck.store.attaching import no_store
from dpduck.store.cursors import FREE_OF_CHARGE, Ceiling
from dpduck.store.store_files import store_files
from dpduck.values.child_process import ChildProcess
from dpduck.values.errors import NOTHING_PRIVATE, BusyRefusal, DpduckError, Refusal, StoreError
from dpduck.values.quoting import fold, quote_text

UNEXPECTED = "an unexpected failure at the gate; nothing was answered; accepted: a report to dpduck's makers"
FREE = frozenset(
    (
        "explain", "budget", "ledger_entries", "list_policies", "list_releases", "list_sessions", "list_streams",
        "check", "difference", "stderr_of", "ratio_of", "columns", "draft", "twin", "plan", "known", "errors",
        "compare", "certificate", "trial",
    )
)  # fmt: skip
"""Actions that charge nothing and change nothing. They also run when a client asks for columns alone."""
DESCRIBED = {"run": "describe", "ask": "describe_ask"}
"""Actions that use up budget, or a round of a session, each with the action that returns only the columns."""

ASKING = "SELECT WITH DIFFERENTIAL_PRIVACY .. FROM a table of dp_policies()"
NOT_CREATING = QUERIES | {"DROP", "REFRESH"}
"""First words of statements that make no private view."""

NO_ROOM = "the server has no room for more private views"
STREAMED = 5.0
"""Work of a principal within about ten seconds, in units of Limits.work, beyond which statements run in runners."""

_REMEMBERED, _REMEMBERED_LENGTH = 4_096, 20_000


class VaultRefusal(DpduckError):
    """Refusal in the words of the vault."""


@dataclass(frozen=True)
class ClientTerms:
    """Limits of a client for a statement. page: whether the page asks by itself, and nobody typed the statement.

    ceilings: the largest cost of each argument of dp, 0 for an argument without an entry. None sets no limits. letters:
    the largest length of texts, and of nested values as texts. None leaves values as they are.
    """

    ceilings: Mapping[str, Ceiling] | None = None
    letters: int | None = None
    page: bool = False

    def ceiling(self, argument: str | None) -> Ceiling | None:
        return None if self.ceilings is None else self.ceilings.get(argument or "", FREE_OF_CHARGE)


ANY = ClientTerms()


class Gate:
    """Checks statements of clients, and asks the vault for the answers that they need. Many threads may use it."""

    def __init__(self, vault: Vault, public: PublicDatabase, audit: Audit, limits: Limits) -> None:
        self._vault = vault
        self._public = public
        self._audit = audit
        self._limits = limits
        self._syntax = Syntax()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._ending = False
        self._running: Counter[str] = Counter()
        self._remembered: OrderedDict[str, Inspected] = OrderedDict()
        self._syncing = threading.Lock()
        self._left_out: dict[str, str] = {}
        self._owners: Counter[str] = Counter()
        self._streamed = Debts()  # beyond STREAMED, statements run in runners, where busy principals come last

    def admit(
        self, principal: Principal, text: str, given_up: GivenUp = never, terms: ClientTerms = ANY,
        entries: list[int] | None = None,
    ) -> str:  # fmt: skip
        """Returns SQL that reads the result of a statement, after the charges of all its calls. Logs the outcome.

        given_up: tells whether the client has gone. Then a statement over released tables ends, but a release goes on.
        entries: takes the ledger entries of the charges.
        """
        charged = list[int]() if entries is None else entries
        with self._noting_refusals(principal, text, charged, terms.page):
            sql = self._admit_statement(principal, text, charged, given_up, terms)
        event = "charged" if charged else "answered"
        self._audit.note(principal.name, event, text, charged=charged[-1] if charged else None, page=terms.page)
        return sql

    def charging(self, principal: Principal, text: str) -> list[Call]:
        """Lists the calls of a statement that may charge, without asking the vault. Logs a refusal."""
        with self._noting_refusals(principal, text, []):
            return [call for call in self.inspect(text).calls if call.action not in FREE]

    @contextmanager
    def _noting_refusals(
        self, principal: Principal, text: str, charged: list[int], page: bool = False
    ) -> Iterator[None]:
        """Counts a statement as running until the block ends. Logs the reason if the block raises."""
        try:
            with self._turn(principal.name):
                yield
        except DpduckError as error:
            self._note_refused(principal, text, charged, str(error), page)
            raise
        except RecursionError:
            deep = Refusal("the statement is nested too deeply", accepted="fewer levels")
            self._note_refused(principal, text, charged, str(deep), page)
            raise deep from None
        except Exception as error:
            self._note_refused(principal, text, charged, f"{UNEXPECTED}: {kind_of(error)}", page)
            raise DpduckError(UNEXPECTED) from None

    def _note_refused(self, principal: Principal, text: str, charged: list[int], why: str, page: bool) -> None:
        """Logs a refusal. The refusal stands even if logging fails, since any charge was logged as "asked" before."""
        with suppress(StoreError):
            entry = charged[-1] if charged else None
            self._audit.note(principal.name, "refused", text, charged=entry, why=why, page=page)

    def probe(self, principal: Principal, text: str) -> str:
        """Returns SQL for the public database with the columns of a statement and no rows. Charges nothing."""
        inspected = self._read_statement(text)
        with self._turn(principal.name):
            self._require_views(inspected)
            keys = []
            for call in inspected.calls:
                if call.action not in DESCRIBED and call.action not in FREE:
                    raise Refusal(f"the columns of {call.function} are not known before it runs", accepted="to run it")
                described = replace(call, action=DESCRIBED.get(call.action, call.action))
                keys.append(self._known_or_view(principal, described, [], text))
            return self._runnable_sql(principal, inspected, keys, only_columns=True)

    def inspect(self, text: str) -> Inspected:
        """Inspects a statement, or finds it in the cache. Charges nothing, and does not ask the vault."""
        with self._lock:
            statement = self._remembered.get(text)
        if statement is None:
            statement = inspect(text, self._syntax, longest=self._limits.characters)
            if len(text) <= _REMEMBERED_LENGTH:
                with self._lock:
                    remember(self._remembered, text, statement, _REMEMBERED)
        return statement

    def sync(self) -> None:
        """Makes the public database's private views equal to the vault's. Leaves out views that do not fit."""
        with self._syncing:
            present, wanted = self._public.marks(), self._vault.views()
            for name in present.keys() - {fold(name) for name in wanted}:
                self._public.drop_view(name)
                self._left_out.clear()  # there is room again
            for name, mark in wanted.items():
                if present.get(fold(name)) != mark and self._left_out.get(fold(name)) != mark:
                    self._put_view(name, mark)
            left = {fold(name) for name in wanted}
            self._left_out = {name: mark for name, mark in self._left_out.items() if name in left}
            self._owners = Counter(owner_of(mark) for mark in wanted.values())

    def end(self, seconds: float) -> bool:
        """Stops new statements, ends those over released tables, and waits for releases. True if no release is left."""
        with self._lock:
            self._ending = True
        self._public.end_statements()
        with self._idle:
            return self._idle.wait_for(lambda: not self._running, seconds)

    def accepts(self) -> bool:
        """Tells whether statements are accepted. False after `end`."""
        return not self._ending

    def running(self) -> int:
        """Counts the statements that run."""
        with self._lock:
            return self._running.total()

    def left_out(self) -> list[str]:
        """Lists the private views that do not fit into the public database."""
        return sorted(self._left_out)

    def _put_view(self, name: str, mark: str) -> None:
        rows = self._vault.view(name)
        used = sum(size.bytes for other, size in self._public.sizes().items() if other != fold(name))
        try:
            if used + rows.table.nbytes > self._limits.view_bytes:
                raise StoreError(NO_ROOM)
            self._public.put_view(name, mark, rows)
        except StoreError:
            self._public.drop_view(name)
            self._left_out[fold(name)] = mark

    def _require_view_room(self, principal: Principal) -> None:
        """Refuses a new view, before its charge, if this principal or the public database has no room for one."""
        marks, sizes = self._public.marks(), self._public.sizes()
        own = sum(sizes[name].bytes for name in sizes.keys() & marks.keys() if owner_of(marks[name]) == principal.name)
        most, bytes_each = self._limits.views_each, self._limits.view_bytes // 4
        if self._owners[principal.name] >= most or own >= bytes_each:
            raise Refusal(
                f"{principal.name} has {self._owners[principal.name]} private views of {own} bytes already",
                accepted=f"at most {most} of {bytes_each} bytes; DROP PRIVATE VIEW makes room",
            )
        if sum(size.bytes for size in sizes.values()) >= self._limits.view_bytes:
            raise Refusal(NO_ROOM, accepted="SELECT WITH DIFFERENTIAL_PRIVACY .., or a server with more memory")

    def _admit_statement(
        self, principal: Principal, text: str, charged: list[int], given_up: GivenUp, terms: ClientTerms
    ) -> str:
        inspected = self._read_statement(text)
        self._require_views(inspected)
        if any(call.action not in FREE for call in inspected.calls):
            self._audit.note(principal.name, "asked", text)
        keys = [self._known_or_view(principal, call, charged, text, terms) for call in inspected.calls]
        return self._runnable_sql(principal, inspected, keys, given_up=given_up, letters=terms.letters)

    def _read_statement(self, text: str) -> Inspected:
        """Inspects a statement. Puts a SELECT over unknown tables into dp_known, which reads only earlier releases."""
        inspected = self.inspect(text)
        here = all(self._public.size(view) is not None or view in self._left_out for view in inspected.views)
        if here or inspected.calls or inspected.listings or inspected.macros:
            return inspected
        return self.inspect(f"FROM dp_known({quote_text(text)})")

    def _known_or_view(
        self, principal: Principal, call: Call, charged: list[int], text: str, terms: ClientTerms = ANY
    ) -> str:
        """Returns the key of a call's answer. If dp_known finds no private table, refuses a missing view instead."""
        try:
            return self._ask_vault(principal, call, charged, terms)
        except VaultRefusal as refusal:
            if call.action == "known" and str(refusal).startswith(NOTHING_PRIVATE):
                self._require_views(self.inspect(text))
            raise

    def _require_views(self, inspected: Inspected) -> None:
        for view in inspected.views:
            if self._public.size(view) is None:
                if view in self._left_out:
                    raise Refusal(f"{view[:200]!r} was left out: {NO_ROOM}", accepted="a server with more memory")
                served = list(self._public.sizes())
                there = [*(name[:60] for name in served[:20]), ASKING]
                others = "a name of dp_releases()" if inspected.macros else ", ".join(there)
                raise Refusal(f"there is no private view {view[:200]!r}", accepted=meant_or(view, served, others))

    def _runnable_sql(
        self,
        principal: Principal,
        inspected: Inspected,
        keys: Sequence[str],
        *,
        only_columns: bool = False,
        given_up: GivenUp = never,
        letters: int | None = None,
    ) -> str:
        """Returns SQL over public tables: the statement if it may stream, otherwise a SELECT of its stored result."""
        sql = inspected.sql
        for call, key in zip(inspected.calls, keys, strict=True):
            sql = sql.replace(call.mark, answer_name(key))
        if only_columns:
            sql = f"SELECT * FROM ({sql}\n) LIMIT 0"  # the line break ends a comment
        work = self._work(inspected, keys) if inspected.plain else math.inf
        if work <= self._limits.work and self._streamed.of(principal.name) <= STREAMED:
            self._streamed.add(principal.name, work / self._limits.work)
            return sql
        tables = [(OWN, view) for view in inspected.views] + [(LISTING, listing) for listing in inspected.listings]
        tables += [(ANSWERS, answer_name(key)) for key in keys]
        result_key = self._public.run(principal.name, sql, list(dict.fromkeys(tables)), given_up, letters)
        return f"FROM {ANSWERS}.main.{answer_name(result_key)}"

    def _work(self, inspected: Inspected, keys: Sequence[str]) -> float:
        """Returns the work of a statement: rows times parts, or infinity if it reads too many rows to stream."""
        sizes = [self._public.size(view) or NOTHING for view in inspected.views]
        sizes += [self._public.answer_size(key) for key in keys]
        rows, columns = sum(size.rows for size in sizes), sum(size.columns for size in sizes)
        if rows > self._limits.rows:
            return math.inf
        return rows * (inspected.parts + inspected.stars * columns)

    def _ask_vault(self, principal: Principal, call: Call, charged: list[int], terms: ClientTerms) -> str:
        word = first_word(call.argument or "") if call.action == "run" else "SELECT"
        if word not in NOT_CREATING:  # the parser of dp() may see another word behind a comment
            self._require_view_room(principal)
        ceiling = terms.ceiling(call.argument)
        reply = self._vault.ask(principal.name, call.action, call.argument, self._limits.release_seconds, ceiling)
        if reply.charged is not None:
            charged.append(reply.charged)
        if reply.warning:
            self._audit.note(principal.name, "warned", charged=reply.charged, why=reply.warning)
        if reply.key is None:
            raise VaultRefusal(reply.refused or UNEXPECTED)
        if not self._public.has_answer(reply.key):
            rows = self._vault.rows(principal.name, reply.key, self._limits.rows, self._limits.result_bytes)
            self._public.put_answer(principal.name, reply.key, rows)
        if word not in QUERIES:
            self.sync()
        return reply.key

    @contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        """Counts a statement as running until the block ends. Refuses a statement beyond the limits."""
        with self._lock:
            if self._ending:
                raise Refusal("the server is ending", accepted="the same statement when it is there again")
            if self._running.total() >= self._limits.running or self._running[name] >= self._limits.running_each:
                raise BusyRefusal(
                    "too many statements at once",
                    accepted=f"{self._limits.running_each} at a time, {self._limits.running} of all principals",
                )
            self._running[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[name] -= 1
                if not self._running[name]:
                    del self._running[name]
                if not self._running:
                    self._idle.notify_all()


def owner_of(mark: str) -> str:
    """Returns the owner of a view from its mark.

    >>> owner_of("alice|17|2026-01-01 00:00:00|ab12")
    'alice'
    """
    return mark.partition("|")[0]


Prepare = Callable[[duckdb.DuckDBPyConnection], None]


@dataclass(frozen=True)
class Service:
    """Parts that the listener of any protocol needs: principals, gate, public database, vault and audit log."""

    book: PrincipalBook
    gate: Gate
    public: PublicDatabase
    vault: Vault
    audit: Audit

    def close(self) -> None:
        self.vault.close()
        self.public.close()
        self.audit.close()


def open_service(
    database: Path,
    store: Path | None,
    audit: Audit,
    limits: Limits,
    *,
    prepare: Prepare | None = None,
    vault: Vault | None = None,
    keeping: Keeping | None = None,
    idle: ChildProcess | None = None,
) -> Service:
    """Opens the vault, and a public database with its private views. idle: a started process, which opens the vault."""
    files = store_files(database, store)
    if files.secrets is None or not files.secrets.exists():
        raise no_store(database)
    vault = vault or VaultProcess(database, store, keeping, idle=idle)
    try:
        public = PublicDatabase(limits, prepare=prepare)
        if isinstance(vault, VaultProcess):  # it started in parallel with the public database
            vault.wait()
        gate = Gate(vault, public, audit, limits)
        gate.sync()
    except BaseException:
        vault.close()
        raise
    return Service(PrincipalBook(WatchedSecrets(files.secrets)), gate, public, vault, audit)
