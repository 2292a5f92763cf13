"""The order of a release: priced, charged, then counted. A door answers each ask as often as declared."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

from dpduck.algebra.dyadic import DyadicAxis
from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.kernel.columns.keys import KeyText, KeyTextPart
from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.door import Bill, Door, compute_charge, open_door, open_gate
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise.choice import exponential_choice
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy, operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.places.engine import EngineRows
from dpduck.kernel.places.rows import NumberedRows
from dpduck.kernel.price import Ask, AskScan, Query, price, pure
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.families import Candidate, Choice, Families
from dpduck.kernel.queries.histograms import EveryKey
from dpduck.kernel.queries.key_counts import KeyCounts, count_keys, keys_of
from dpduck.kernel.queries.keys import Threshold
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.operators import CentredFactor, Family, IdentityFactor, KroneckerQuery, Norms
from dpduck.kernel.queries.sessions import GateLaw, SparseVector
from dpduck.kernel.queries.sketches import Sketch
from dpduck.kernel.queries.summaries import Layers
from dpduck.kernel.queries.tables import Present, Table, Total
from dpduck.kernel.relations import Grouped, Source, Stored
from dpduck.kernel.worker.workers import Workers
from dpduck.mechanisms.certificate import plan_text
from dpduck.values.accounting import rho_of_laplace, rho_of_pure
from dpduck.values.errors import BudgetRefusal, InternalError, Refusal
from dpduck.values.privacy import ZERO, Budget, Charge
from tests.kernel.doors import door_over, key_ask, price_of, scan_of
from tests.kernel.queries.keyed import job_of, plan_of
from tests.support.nodes import by_digest, counts, own

UNIT, LAPLACE, GAUSSIAN = "main.t.ROW", NoiseKind.LAPLACE, NoiseKind.GAUSSIAN
ENTROPY = operating_system_entropy()
TABLE, TYPES = '"memory"."main"."t"', {'"r0"."u"': "BIGINT", '"r0"."k"': "VARCHAR"}
ROWS = counts(Source(Stored(TABLE, "r0")), (), '"r0"."u"', 2, ('"r0"."k"', '"r0"."u"'), (), (), (), TYPES)
KEY_TEXT = KeyText((KeyTextPart(RelationColumn("r0", "k", "VARCHAR")),))
JOB = by_digest(ROWS, KEY_TEXT)
POLICIES = f"""
CREATE TABLE private.dpduck.public_tables (table_name VARCHAR);
CREATE TABLE private.dpduck.policies (table_name VARCHAR, definition JSON, active BOOLEAN);
INSERT INTO private.dpduck.policies VALUES ('{TABLE}', '{{"unit": ["{UNIT}", "u", 2, null]}}', true);
"""


def total(scale: int = 4, scan: AskScan | None = None, times: int = 1) -> Ask[int]:
    """An ask for the number of rows at epsilon 2 / scale, as a unit has two rows."""
    return Ask(scan or scan_of(2, JOB), Total(), Noise(LAPLACE, Fraction(scale)), times)


def bill(epsilon: Fraction = Fraction(1, 2)) -> Bill:
    return Bill(UNIT, "t", Charge.pure(epsilon), "owner", "SELECT ..", "a total")


class Vault:
    """A table, a ledger with a budget of 3, and all events in order."""

    def __init__(self) -> None:
        self.con = duckdb.connect()
        self.con.execute("CREATE TABLE t AS SELECT i // 2 AS u, CAST(i % 5 AS VARCHAR) AS k FROM range(1000) AS r(i)")
        self.con.execute("ATTACH ':memory:' AS private")
        self.events: list[str] = []
        self.ledger = Ledger.open(
            self.con.cursor, "private", secrets_path=None, witness_directory=None, steps=self.events.append
        )
        self.con.execute(POLICIES)
        self.ledger.declare_budget(UNIT, "t", Budget(Fraction(3), ZERO, ZERO, None), "owner", "CREATE ..")
        self.events.clear()

    def unchanged(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.events.append("facts")
        assert cursor.execute("SELECT count(*) FROM memory.main.t").fetchone() == (1000,)

    def open(self, asks: list[Ask[Any]], paid: Bill | None = None, **given: Any) -> Any:
        unchanged = given.get("unchanged", self.unchanged)
        return open_door(
            asks, paid or bill(), self.ledger, self.con.cursor, unchanged, ENTROPY, self.events.append, Workers()
        )

    @property
    def charges(self) -> int:
        return len(self.ledger.entries()) - 1


def test_the_order_of_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts are checked in the transaction that counts, then the charge is durable, and only then rows are read."""
    vault, ask = Vault(), total(8, times=2)

    def noted(*given: Any) -> KeyCounts:
        vault.events.append("rows read")
        return count_keys(*given)

    monkeypatch.setattr("dpduck.kernel.door.count_keys", noted)
    with vault.open([ask]) as door:
        assert vault.events[:3] == ["facts", "before the charge", "charge begins"]
        assert vault.events[-1] == "charge returns" and vault.charges == 1
        assert door.entry == vault.ledger.last_entry()
        vault.con.execute("DELETE FROM t WHERE u > 10")  # after the transaction began: not seen by it
        assert abs(door.answer(ask) - 1000) < 8 * 60  # false alarm exp(-60)
    assert vault.events.index("rows read") > vault.events.index("charge returns")
    with pytest.raises(InternalError, match="not declared, or is used up"):  # though once is left
        door.answer(ask)


@pytest.mark.parametrize(
    ("rows", "unit"),
    [
        (replace(ROWS, unit=RelationColumn("r0", "k", "VARCHAR")), UNIT),
        (replace(ROWS, unit=None), UNIT),
        (replace(ROWS, unit=own('"r0"."u"')), UNIT),
        (replace(ROWS, source=Source(Grouped(TABLE, "r0"))), UNIT),
        (replace(ROWS, filters=(own("random() < 1"),)), UNIT),
        (ROWS, "main.other.u"),
    ],
    ids=["another column", "no unit", "SQL for a unit", "SQL for rows", "SQL for a condition", "another charge"],
)
def test_rows_of_another_unit_are_not_opened(rows: CountingJob, unit: str) -> None:
    """The kernel finds the unit of rows in the store itself, and charges nothing where a job declares another one."""
    vault = Vault()
    vault.ledger.declare_budget("main.other.u", "o", Budget(Fraction(3), ZERO, ZERO, None), "owner", "CREATE ..")
    before = vault.charges
    ask = total(4, scan_of(2, by_digest(rows, KEY_TEXT)))
    with pytest.raises(InternalError), vault.open([ask], replace(bill(), unit_key=unit)):
        pytest.fail("opened")
    assert vault.charges == before


def test_a_job_does_not_say_where_its_rows_lie() -> None:
    """The facts stored beside prepared rows are taken from their place, and never from a statement."""
    vault = Vault()
    for place in (NumberedRows("1", "0", "1"), EngineRows((), lambda order: ())):
        ask = total(4, scan_of(2, replace(JOB, place=place)))
        with pytest.raises(InternalError, match="where its rows lie; nothing was charged"), vault.open([ask]):
            pytest.fail("opened")
    assert vault.charges == 0


def test_a_policy_that_is_dropped_meanwhile_is_found() -> None:
    """A policy that was dropped after the statement was read is noticed, and the door stays closed."""
    vault = Vault()
    vault.con.execute("UPDATE private.dpduck.policies SET active = false")
    with pytest.raises(Refusal, match="changed meanwhile"), vault.open([total()]):
        pytest.fail("opened")
    assert vault.charges == 0


@pytest.mark.parametrize(
    "asks",
    [
        [total(3)],
        [total(4, times=2)],
        [total(8), total(8), total(10**6)],
        [total(4, scan_of(1, JOB))],
        [total(12, scan_of(3, JOB))],
        [Ask(scan_of(2, JOB), Total(), Noise(GAUSSIAN, Fraction(10**9)))],
        [],
    ],
    ids=[
        "less noise",
        "twice",
        "one more",
        "a smaller bound than the SQL's",
        "a larger one",
        "rho for epsilon",
        "nothing",
    ],
)
def test_asks_beyond_the_charge_are_a_defect(asks: list[Ask[Any]]) -> None:
    """Asks that cost more than the charge are a defect: nothing is charged, and no row is read."""
    vault = Vault()
    with pytest.raises(InternalError), vault.open(asks):
        pytest.fail("opened")
    assert vault.events == [] and vault.charges == 0


def test_a_refusal_charges_nothing() -> None:
    """A release without room in the budget, or over facts that have changed, is refused before the charge."""
    vault = Vault()

    def changed(cursor: duckdb.DuckDBPyConnection) -> None:
        raise Refusal("the table changed", accepted="asking again")

    with pytest.raises(BudgetRefusal), vault.open([total()], bill(Fraction(4))):
        pytest.fail("opened")
    assert vault.events == []
    with pytest.raises(Refusal, match="the table changed"), vault.open([total()], unchanged=changed):
        pytest.fail("opened")
    assert vault.charges == 0


def test_an_ask_is_answered_as_often_as_declared() -> None:
    """An ask declared twice is answered twice. An equal copy is another ask, and is refused."""
    ask = total(times=2)
    door = door_over(KeyCounts(*(np.arange(3, dtype=np.uint64),) * 2, np.arange(3)), [ask])
    for other in (replace(ask), replace(ask, noise=Noise(LAPLACE, Fraction(1))), total()):
        with pytest.raises(InternalError, match="not declared, or is used up"):
            door.answer(other)
    door.answer(ask)
    door.answer(ask)
    with pytest.raises(InternalError, match="not declared, or is used up"):
        door.answer(ask)


def test_a_family_is_paid_member_by_member() -> None:
    """Members of other kinds or beyond the limit are refused. One admitted twice is paid and answered twice."""
    scan = scan_of(1)
    family: Ask[None] = Ask(scan, Within(Fraction(1), pure=True, kinds=(Total,)))
    door = door_over(KeyCounts(*(np.arange(3, dtype=np.uint64),) * 2, np.arange(3)), [family])
    half = total(2, scan)
    for wrong in (total(10**6), Ask(scan, EveryKey(), Noise(LAPLACE, Fraction(10**6)))):
        with pytest.raises(InternalError, match="family"):
            door.admit(wrong, family)
    door.admit(half, family)
    door.admit(half, family)
    assert door.left(family) == 0
    with pytest.raises(InternalError, match="beyond its family"):
        door.admit(total(10**6, scan), family)
    with pytest.raises(InternalError, match="no family"):
        door.admit(half, Ask(scan, Within(Fraction(1), pure=True, kinds=(Total,))))
    door.answer(half)
    door.answer(half)
    with pytest.raises(InternalError, match="used up"):
        door.answer(half)
    with pytest.raises(InternalError):
        door.answer(family)


def test_a_door_is_hidden() -> None:
    """The text of a door shows nothing behind it, and it cannot be copied."""
    door = door_over(KeyCounts(*(np.arange(3, dtype=np.uint64),) * 2, np.array([123456, 1, 2])), [total()])
    door.count()
    assert "123456" not in repr(door)
    for leak in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InternalError):
            leak(door)


def test_bounds_of_selected_keys_are_those_of_the_sql() -> None:
    """A threshold priced for fewer groups or rows than the SQL keeps is refused before the charge."""
    vault, job = Vault(), job_of(2, 4)
    asks = [key_ask(job, plan_of(job_of(2, 3), Fraction(1, 2), noise=LAPLACE))]
    with pytest.raises(InternalError, match="disagree about the contribution bound"), vault.open(asks):
        pytest.fail("opened")
    assert vault.charges == 0


def test_a_delta_that_was_not_paid_is_a_defect() -> None:
    """A charge must cover the probability with which groups of one unit are published."""
    vault, job = Vault(), job_of(2, 4)
    ask = key_ask(job, plan_of(job, Fraction(1, 2), noise=LAPLACE))
    exact = ask.cost
    with pytest.raises(BudgetRefusal, match="pure"), vault.open([ask], replace(bill(), charge=exact)):
        pytest.fail("opened")
    with (
        pytest.raises(InternalError, match="cost more"),
        vault.open([ask], replace(bill(), charge=replace(exact, delta=ZERO))),
    ):
        pytest.fail("opened")
    assert vault.charges == 0


def test_a_session_is_reopened_for_what_was_paid() -> None:
    """A session that costs more than its entry in the ledger is not counted for, whatever the store says."""
    vault, scan = Vault(), scan_of(2, JOB)
    law = GateLaw(3, 2, 10, Fraction(10**6), Fraction(10**6), LAPLACE, Fraction(10**6), Fraction(10**6))
    asks: list[Ask[Any]] = [law.total_ask(scan), law.gate_ask(scan)]
    paid = price(asks).epsilon
    assert paid is not None
    with vault.open(asks, bill(paid)) as door:
        vault.ledger.secrets.save("session", door.answer(asks[1]))
    given = ("session", door.entry, vault.ledger, vault.con.cursor, vault.unchanged, ENTROPY, Workers())
    open_gate(law, scan, *given)
    vault.events.clear()
    for dearer in (replace(law, parameter=law.parameter / 2), replace(law, question_scale=law.question_scale - 1)):
        with pytest.raises(InternalError, match="cost more"):
            open_gate(dearer, scan, *given)
    assert vault.events == [], "refused before anything was looked at"


@pytest.mark.parametrize(("kind", "largest"), [(LAPLACE, 1 << 40), (GAUSSIAN, 1 << 80)])
def test_noise_that_cannot_be_drawn_is_not_made(kind: NoiseKind, largest: int) -> None:
    """Noise beyond 64-bit samplers is a refusal. No noise at all, or a floating-point parameter, is a defect."""
    assert Noise(kind, Fraction(largest)).variance > 0
    with pytest.raises(Refusal, match="would not fit 64-bit numbers"):
        Noise(kind, Fraction(largest) + Fraction(1, 3))
    for parameter in (Fraction(0), Fraction(-1), 1.0):
        with pytest.raises(InternalError, match="without noise"):
            Noise(kind, parameter)  # type: ignore[arg-type]


def test_prices_by_hand() -> None:
    """Every kind of query has the price computed by hand. Repeated answers add up. Other questions have no price."""
    two, four = Noise(LAPLACE, Fraction(2)), Noise(GAUSSIAN, Fraction(4))
    families = Families((Family((0,), (3,)),), whole=True)
    assert price_of(Total(), two, 3).epsilon == Fraction(3, 2)
    assert price_of(Total(), four, 3) == Charge.zcdp(Fraction(9, 8))
    assert price_of(Candidate(families), four, 2, times=5).rho == 5 * Fraction(4, 8)
    assert price_of(Sketch(5, 7, ()), two, 3).epsilon == Fraction(15, 2)
    gate = SparseVector(Noise(LAPLACE, Fraction(1024)), Noise(GAUSSIAN, Fraction(1024**2)))
    assert price_of(gate, Noise(LAPLACE, Fraction(512)), 1, times=4).rho == 4 * (Fraction(9, 2) + Fraction(1, 2))
    axis = DyadicAxis("dyadic", 8)
    layers = Layers((axis, None), MixedRadix((axis.nodes, 3)))
    assert price_of(layers, two, 3).epsilon == Fraction(4 * 3, 2), "8, 4, 2 and 1 label: four nodes for a row"
    one = KroneckerQuery((0,), (CentredFactor(1),))
    with pytest.raises(InternalError, match="no other query"):
        price_of(Present(KroneckerQuery((0,), (CentredFactor(2),)), 5), two, 3)
    assert price_of(Table(one), two, 3).epsilon == 0, "what is always 0 costs nothing"
    together = price([total(4), total(8, times=3)])
    assert together.epsilon == Fraction(2, 4) + 3 * Fraction(2, 8)
    assert together.rho == rho_of_laplace(2, 2, Fraction(4)) + rho_of_laplace(6, 2, Fraction(8)), "the sum is less"
    assert price_of(Within(Fraction(3), pure=True, kinds=(Total,)), None, 2).rho == rho_of_pure(Fraction(3))
    assert price_of(Choice(families, Fraction(1, 4), pure=True), None, 2).rho == rho_of_pure(Fraction(1))
    assert price_of(Sketch(5, 7, ()), two, 3).rho == rho_of_laplace(15, 3, Fraction(2))
    assert price_of(layers, two, 3).rho == rho_of_laplace(12, 3, Fraction(2))
    assert price_of(Present(KroneckerQuery((0,), (IdentityFactor(4),)), 2), two, 5).rho == (
        rho_of_laplace(5, 2, Fraction(2))
    )
    assert price_of(Table(KroneckerQuery((0,), (CentredFactor(3),))), two, 5).rho == (
        rho_of_laplace(20, 10, Fraction(2))
    ), "columns 2, -1, -1: 5 rows move no answer by more than 10"
    pure = price_of(
        SparseVector(Noise(LAPLACE, Fraction(1024)), Noise(LAPLACE, Fraction(1024))), Noise(LAPLACE, Fraction(512)), 1
    )
    assert pure == Charge(Fraction(4), rho_of_pure(Fraction(4)))
    with pytest.raises(InternalError, match="without its noise"):
        price_of(Total(), None)
    with pytest.raises(InternalError, match="one-sided geometric"):
        price_of(gate, four)
    with pytest.raises(InternalError, match="either Laplace or Gaussian"):
        job = job_of(1, 4)
        ask = key_ask(job, plan_of(job))
        assert isinstance(ask.query, Threshold)
        price([replace(ask, query=replace(ask.query, answers=two))])


@pytest.mark.parametrize("bound", [1, 3])
def test_counts_of_another_bound_are_not_answered(bound: int) -> None:
    """Counts record the bound of a unit, and an ask that declares another bound is not answered."""
    ask = total(scan=scan_of(2))
    counts = ExactCounts((np.arange(2),), np.ones((1, 2), np.int64), (2,), (bound,))
    with pytest.raises(InternalError, match="disagree about the contribution bound"):
        door_over(counts, [ask]).answer(ask)


@dataclass(frozen=True, eq=False)
class Doubled(Query[int]):
    """Twice the number of rows, which a unit moves by twice its rows. keyed: whether rows are to be counted by key."""

    keyed: bool = True

    def moves(self, scan: AskScan) -> Norms:
        return 2 * scan.l1, 4 * scan.l1**2, 2 * scan.l1

    def require(self, job: object) -> None:
        if not isinstance(job, CountingJob) or self.keyed != (job.digest is not None):
            raise InternalError("other counts than were priced; nothing was charged")

    def draw(self, counts: Hidden, ask: Ask[int], entropy: Entropy, chosen: object) -> int:
        return 2 * int(keys_of(counts)._exact_counts.sum()) + int(draw(ask.law, 1, entropy)[0])


@dataclass(frozen=True, eq=False)
class Crowded(Query[bool]):
    """Whether there are more than 500 rows, by randomised response: a unit moves one score by 2."""

    loss: Fraction
    has_noise = False

    def cost(self, ask: Ask[bool]) -> Charge:
        return pure(self.loss)

    def draw(self, counts: Hidden, ask: Ask[bool], entropy: Entropy, chosen: object) -> bool:
        scores = np.array([0, 1 if keys_of(counts)._exact_counts.sum() > 500 else -1])
        return exponential_choice(scores, self.loss / 2, entropy) == 1

    def certificate(self) -> dict[str, object]:
        return {"loss": self.loss}


def test_a_new_query_is_one_class() -> None:
    """Two queries of unknown classes are priced, certified, charged and drawn, and no other file lists them.

    Noise beyond 60 scales has a chance of exp(-60): a false alarm.
    """
    scan, noise = scan_of(2, JOB), Noise(LAPLACE, Fraction(32))
    twice, coin = Ask(scan, Doubled(), noise, times=2), Ask(scan, Crowded(Fraction(2)))
    assert twice.cost.epsilon == Fraction(2 * 4, 32) and coin.cost == Charge(Fraction(2), rho_of_pure(Fraction(2)))
    assert price([twice, coin]).epsilon == Fraction(9, 4)
    moved = {"query": "Doubled", "l1": 4, "l2_squared": 16, "most": 4, "times": 2}
    assert json.loads(plan_text([twice, coin])) == [
        {"noise": {"law": "discrete Laplace", "parameter": "32/1"}, "moved": [moved]},
        {"query": "Crowded", "l1": 2, "loss": "2/1", "times": 1},
    ]
    vault, other = Vault(), Ask(scan, Doubled(keyed=False), noise)
    for ask, paid in ((coin, Fraction(7, 4)), (other, Fraction(2))):
        with pytest.raises(InternalError, match="nothing was charged"), vault.open([ask], bill(paid)):
            pytest.fail("opened")
    assert vault.charges == 0
    with vault.open([twice, coin], bill(Fraction(9, 4))) as door:
        assert vault.charges == 1 and isinstance(door.answer(coin), bool)
        assert all(abs(door.answer(twice) - 2000) < 60 * 32 for _ in range(2))
        with pytest.raises(InternalError, match="used up"):
            door.answer(twice)


def test_a_query_is_nothing_that_it_does_not_say() -> None:
    """A kind of query that defines nothing has no price, no answer, no certificate and no members."""
    ask = Ask(scan_of(2, JOB), Query[None](), Noise(LAPLACE, Fraction(1)))
    door = door_over(KeyCounts(*(np.arange(1, dtype=np.uint64),) * 2, np.ones(1, np.int64)), [ask])
    for asked in (lambda: ask.cost, lambda: plan_text([ask]), lambda: door.answer(ask)):
        with pytest.raises(InternalError):
            asked()
    with pytest.raises(InternalError, match="no family"):
        door.admit(total(), ask)


def test_a_door_needs_no_ledger_to_refuse() -> None:
    """A door without declared asks answers nothing."""
    door = Door([], lambda job: pytest.fail("counted"), ENTROPY)
    door.count()
    assert door.tables([]) == []
    with pytest.raises(InternalError, match="not declared"):
        door.answer(total())


def test_what_the_ledger_is_charged() -> None:
    """A pure statement is charged the rho of its asks, at least the rho of MIN EPSILON, and at most its price."""
    asks, stated = [total(4, times=2)], Charge.pure(Fraction(1))
    cost = price(asks).rho
    assert cost < Fraction(1, 3)
    assert compute_charge(stated, asks, ZERO) == Charge(Fraction(1), cost)
    assert compute_charge(stated, asks, Fraction(1, 3)) == Charge(Fraction(1), Fraction(1, 3))
    assert compute_charge(stated, asks, Fraction(2)) == stated
    assert compute_charge(Charge.zcdp(Fraction(3)), asks, ZERO) == Charge.zcdp(Fraction(3))
