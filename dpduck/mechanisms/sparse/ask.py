"""Questions to open sessions, one after the other. Each answer is durable before it is returned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import duckdb
import numpy as np

from dpduck.kernel.door import open_gate
from dpduck.kernel.queries.key_counts import KeyDigests
from dpduck.kernel.queries.sessions import UNITS, SessionGate
from dpduck.mechanisms.parts import DatabaseParts
from dpduck.mechanisms.sparse.hypothesis import Hypothesis
from dpduck.mechanisms.sparse.plan import SessionPlan, plan_from_facts
from dpduck.mechanisms.sparse.projection import key_scan
from dpduck.mechanisms.sparse.questions import KeyQuestions
from dpduck.mechanisms.sparse.request import SparseRequest, fence_name, secret_name
from dpduck.mechanisms.sparse.store import SessionAnswer, SparseRecord, SparseStore
from dpduck.store.cursors import NamedLocks
from dpduck.values.errors import Refusal, StoreError

Recheck = Callable[[duckdb.DuckDBPyConnection], None]
Analysed = Callable[[], tuple[SparseRequest, Recheck]]
HYPOTHESIS, MEASURED, EXHAUSTED = "hypothesis", "measured", "hypothesis, unchecked"


@dataclass
class OpenSession:
    """Open session in memory. `gate` is None until a question needs it."""

    plan: SessionPlan
    hypothesis: Hypothesis
    updates: int
    commits: int
    answers: dict[str, SessionAnswer]
    gate: SessionGate | None = None


@dataclass
class _Turn:
    """Changes of one call: new answers, and new weights of the hypothesis."""

    answers: dict[str, SessionAnswer] = field(default_factory=dict)
    weights: dict[int, float] = field(default_factory=dict)


class OpenSessions:
    """All open sessions of a database. A lock serialises the callers of one session."""

    def __init__(self, parts: DatabaseParts, store: SparseStore) -> None:
        self._parts, self._store = parts, store
        self._locks = NamedLocks()
        self._open: dict[str, OpenSession] = {}

    def ask(self, named: SparseRecord, asked: KeyQuestions, analysed: Analysed) -> list[SessionAnswer]:
        """Returns the answer of each question. Repeats stored answers, and stores new answers before it returns any."""
        longest = max(asked.lengths)
        if longest > named.sparsity:
            raise Refusal(
                f"a question of {longest} keys in a session of sparsity {named.sparsity}",
                accepted=f"at most {named.sparsity} keys",
            )
        with self._locks.hold(named.digest):
            session = self._open_session(named)
            names = asked.names()
            new = {name: place for place, name in enumerate(names) if name not in session.answers}
            if new:
                try:
                    self._answer(named, session, asked, new, analysed)
                except BaseException:
                    self._open.pop(named.digest, None)  # the session in memory may be ahead of the store
                    self._burn(named, session)
                    raise
            return [session.answers[name] for name in names]

    def plan(self, named: SparseRecord) -> SessionPlan:
        return plan_from_facts(self._store.facts(named))

    def _open_session(self, named: SparseRecord) -> OpenSession:
        session = self._open.get(named.digest)
        if session is None:
            believed = self._store.read_state(named.digest)
            if believed.commits < int(self._parts.ledger.secrets.get(fence_name(named.digest)) or 0):
                raise StoreError(
                    "this store is older than a session in it; nothing is answered; accepted: the store as it was last"
                )
            plan = self.plan(named)
            hypothesis = Hypothesis(plan.total, plan.slots, believed.weights, believed.scale)
            session = OpenSession(plan, hypothesis, believed.updates, believed.commits, dict(believed.answers))
            self._open[named.digest] = session
        return session

    def _answer(
        self, named: SparseRecord, session: OpenSession, asked: KeyQuestions, new: dict[str, int], analysed: Analysed
    ) -> None:
        """Answers new questions in order and commits all answers. Only then are they visible."""
        if session.gate is None and session.updates < session.plan.law.updates:
            session.gate = self._gate(named, session.plan, *analysed())
        turn = _Turn()
        self._walk(session, asked, new, turn)
        self._parts.steps("answers computed")
        self._store.commit(
            named.digest, session.updates, session.hypothesis.scale, session.commits + 1, turn.weights, turn.answers
        )
        self._parts.steps("answers committed")
        session.commits += 1
        # by this count, an older copy of the store is refused: it would use a round's thresholds a second time
        self._parts.ledger.secrets.save(fence_name(named.digest), str(session.commits).encode())
        self._parts.steps("answers fenced")
        session.answers.update(turn.answers)

    def _burn(self, named: SparseRecord, session: OpenSession) -> None:
        """Spends the rounds of a failed call, since their thresholds were compared with data, which is done only once.

        The failure may depend on the data: memory may run out, or somebody may interrupt at the right moment.
        """
        believed = self._store.read_state(named.digest)
        if believed.commits != session.commits or believed.updates >= session.updates:
            return
        commits = believed.commits + 1
        try:
            self._store.commit(named.digest, session.updates, believed.scale, commits, {}, {})
        finally:
            # if even that fails, the session is closed for good: its store is now older than the fence
            self._parts.ledger.secrets.save(fence_name(named.digest), str(commits).encode())

    def _walk(self, session: OpenSession, asked: KeyQuestions, new: dict[str, int], turn: _Turn) -> None:
        starts = np.concatenate([[0], np.cumsum(asked.lengths)])
        runs = [(int(starts[place]), int(starts[place + 1])) for place in new.values()]
        chosen = np.concatenate([np.arange(start, end) for start, end in runs])
        digests = KeyDigests(asked.digests.high[chosen], asked.digests.low[chosen])
        lengths = [end - start for start, end in runs]
        left = session.plan.law.updates - session.updates
        questions = session.gate.prepare(digests, asked.weights[chosen], lengths, left) if session.gate else None
        all_keys, weights = asked.keys(), (asked.weights / UNITS).tolist()
        for number, (name, (start, end)) in enumerate(zip(new, runs, strict=True)):
            keys, shares = all_keys[start:end], weights[start:end]
            answer, source = session.hypothesis.answer(keys, shares), EXHAUSTED
            if session.updates < session.plan.law.updates and session.gate is not None and questions is not None:
                session.updates += 1  # taken back if the gate says that its round goes on: see _burn
                measured = session.gate.look(questions, number, round(answer * UNITS), session.updates - 1)
                source = HYPOTHESIS
                if measured is None:
                    session.updates -= 1
                else:
                    answer, source = measured / UNITS, MEASURED
                    change = session.hypothesis.towards(keys, shares, answer)
                    session.hypothesis.apply(change)
                    turn.weights.update(change.weights)
            order = len(session.answers) + len(turn.answers) + 1
            turn.answers[name] = SessionAnswer(order, answer, source, session.updates)

    def _gate(self, named: SparseRecord, plan: SessionPlan, sparse: SparseRequest, recheck: Recheck) -> SessionGate:
        """Opens the gate of a session. It holds exact counts, and lets only noisy comparisons and answers out.

        recheck: a second check of the request's public facts, in the transaction that counts.
        """
        return open_gate(
            plan.law, key_scan(sparse), secret_name(named.digest), self._store.paid_by(named),
            self._parts.ledger, self._parts.open_cursor, recheck, self._parts.entropy, self._parts.workers,
            self._parts.place_of(sparse.request.rows),
        )  # fmt: skip
