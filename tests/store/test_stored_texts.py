"""Each text that a store, its secrets or its witness holds, byte for byte, as earlier versions' stores are read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import scipy

from dpduck.engines.prepared import PreparedThere
from dpduck.kernel.ledger.copies import ChainEnd, decode_position, encode_position
from dpduck.kernel.ledger.entries import budget_of, budget_text
from dpduck.kernel.ledger.secrets import SecretsInMemory
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.places.clamps import ClampedColumn
from dpduck.kernel.queries.operators import IdentityFactor, MatrixFactor
from dpduck.kernel.queries.sessions import GateLaw
from dpduck.language.rows.facts import Clamp, Policy
from dpduck.language.text.names import TableName
from dpduck.mechanisms.sparse.plan import SessionPlan, plan_from_facts, plan_to_facts
from dpduck.mechanisms.sparse.session import histogram_from_facts
from dpduck.mechanisms.sparse.store import SparseStore
from dpduck.mechanisms.streams.store import StreamRecord, StreamStore
from dpduck.mechanisms.streams.stream_plan import AnswerNoise, Part, StreamPlan
from dpduck.mechanisms.streams.stream_plan import plan_from_facts as stream_plan_from_facts
from dpduck.mechanisms.synthetic.distribution import Component, Distribution
from dpduck.mechanisms.synthetic.measure import Model, model_of, model_rows, model_text
from dpduck.server.principals import RECORD, Principal, PrincipalBook
from dpduck.store import layout
from dpduck.store.measured import (
    Measured,
    MeasuredColumn,
    MeasuredKey,
    MeasuredQuery,
    MeasuredTable,
    measurements_from_bytes,
    measurements_to_bytes,
)
from dpduck.store.policies import policy_from_text, policy_to_text
from dpduck.store.prepared_records import PreparedRecord, Records
from dpduck.store.releases import ReleaseStore, StoredRelease
from dpduck.strategies.recovery.covariances import (
    ComponentCovariances,
    TableCovariances,
    covariances_from_text,
    covariances_to_text,
)
from dpduck.strategies.recovery.intervals import ErrorLaw
from dpduck.strategies.time_axis import time_axis
from dpduck.values.arrays import IntegerArray
from dpduck.values.domain import RangeDomain, ValueDomain
from dpduck.values.errors import StoreError
from dpduck.values.periods import Period
from dpduck.values.privacy import ZERO, Budget, Charge, PrivacyUnit, Reference

TABLE = TableName(("clinic", "main", 'vis"its'))
PURE, BOTH = Budget(Fraction(3), ZERO, ZERO, None), Budget(None, Fraction(1, 10**6), Fraction(1, 7), Fraction(1, 3))


@pytest.fixture
def store() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS private")
        layout.create_tables(connection.cursor(), "private")
        yield connection


def rows_of(store: duckdb.DuckDBPyConnection, table: str) -> list[tuple[object, ...]]:
    return store.execute(f"FROM private.dpduck.{table}").fetchall()


SMALL = Policy(TABLE, PrivacyUnit("main.visits.ROW", None, 1), PURE, (), (), None, None, 1, 2)
SMALL_TEXT = (
    '{"budget": ["3", "0", "0", null], "clamps": [], "domains": [], "epoch": 2, "expect_rows": null, "max_epsilon": '
    'null, "min_epsilon": null, "reference": null, "revision": 1, "table": ["clinic", "main", "vis\\"its"], "unit": '
    '["main.visits.ROW", null, 1]}'
)
LARGE = Policy(
    TABLE,
    PrivacyUnit("main.p.id", "", 3, Reference("p", ("c", "m", "p"), "id"), Period("MONTH", "day")),
    Budget(*(BOTH.epsilon, BOTH.delta, BOTH.delta_keys, BOTH.rho), PURE),
    (
        ("sex", ValueDomain("VARCHAR", ("F", "é"), True, "other")),
        ("age", RangeDomain("INTEGER", ("0", "5"), "10", "5", "", 1, with_edges=True)),
    ),
    (Clamp("cost", "0", "10", "0.5"),),
    1000,
    Fraction(1, 2),
    7,
    1,
    Fraction(1, 100),
)
LARGE_TEXT = (
    '{"budget": [null, "1/1000000", "1/7", "1/3"], "clamps": [["cost", "0", "10", "0.5"]], "domains": [["sex", '
    '{"other": "other", "type_name": "VARCHAR", "values": ["F", "\\u00e9"], "with_null": true}], ["age", {"edges": '
    '["0", "5"], "step": "5", "step_count": 1, "type_name": "INTEGER", "unit": "", "upper": "10", "with_edges": '
    'true, "with_null": false}]], "epoch": 1, "expect_rows": 1000, "lifetime": ["3", "0", "0", null], '
    '"max_epsilon": "1/2", "min_epsilon": "1/100", "reference": ["p", ["c", "m", "p"], "id"], "revision": 7, '
    '"table": ["clinic", "main", "vis\\"its"], "unit": ["main.p.id", "", 3, null, ["MONTH", "day"]]}'
)
TUPLE = replace(SMALL, unit=PrivacyUnit("main.v.(a, b)", "", 4, columns=("a", "b")))
TUPLE_TEXT = SMALL_TEXT.replace('["main.visits.ROW", null, 1]', '["main.v.(a, b)", "", 4, null, null, ["a", "b"]]')


@pytest.mark.parametrize(("policy", "text"), [(SMALL, SMALL_TEXT), (LARGE, LARGE_TEXT), (TUPLE, TUPLE_TEXT)])
def test_a_policy(policy: Policy, text: str) -> None:
    assert policy_to_text(policy) == text
    assert policy_from_text(text) == policy


def test_a_policy_of_the_first_version() -> None:
    """A policy of the first version has no reference and no lowest price."""
    first = {name: value for name, value in json.loads(SMALL_TEXT).items() if name not in ("reference", "min_epsilon")}
    assert policy_from_text(json.dumps(first)) == SMALL


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (PURE, '{"epsilon": "3/1", "delta": "0/1", "delta_keys": "0/1", "rho": null}'),
        (
            Budget(None, ZERO, ZERO, Fraction(1, 2), BOTH),
            '{"epsilon": null, "delta": "0/1", "delta_keys": "0/1", "rho": "1/2", "lifetime": {"epsilon": null, '
            '"delta": "1/1000000", "delta_keys": "1/7", "rho": "1/3"}}',
        ),
    ],
)
def test_a_budget_of_the_ledger(budget: Budget, text: str) -> None:
    assert budget_text(budget) == text
    assert budget_of(text) == budget


def test_a_position() -> None:
    spent = {"b": Charge(None, Fraction(1, 3)), "a": Charge(Fraction(1), Fraction(1, 2), Fraction(1, 9))}
    position = ChainEnd(7, "ab", spent, {9: 1, 8: 2})
    text = (
        b'{"counter": 7, "head": "ab", "spent": {"a": ["1/1", "1/2", "1/9"], "b": [null, "1/3", "0/1"]}, '
        b'"begun": {"8": 2, "9": 1}}'
    )
    assert encode_position(position) == text
    assert decode_position(text, "witness") == position
    assert decode_position(b'{"counter": 7, "head": "ab", "spent": {}}', "witness") == ChainEnd(7, "ab", {})


LAWS = (
    (ErrorLaw(NoiseKind.LAPLACE, Fraction(1, 3), 2.5), ErrorLaw(NoiseKind.GAUSSIAN, None, 0.1, 0.5)),
    (ErrorLaw(NoiseKind.LAPLACE, Fraction(2), 1e30),),
)


def test_a_release(store: duckdb.DuckDBPyConnection) -> None:
    store.execute("CREATE TABLE private.main.r AS SELECT 1 AS n")
    release = StoredRelease(
        "r", "d", "SELECT", "I", None, ZERO, Fraction(1, 3), 5, "owner", 4, LAWS, "view", source="of"
    )
    releases = ReleaseStore(store.cursor, "private")
    releases.insert(store.cursor(), release, 5, "C")
    ((*row, at, laws, kind, covariances, source),) = store.execute(
        "SELECT * EXCLUDE (released_at, laws, kind, covariances, source), released_at, laws, kind, covariances, source "
        "FROM private.dpduck.releases"
    ).fetchall()
    assert row == ["r", "d", "SELECT", "I", None, "0", "1/3", 5, "owner", 4]
    assert isinstance(at, datetime)
    assert laws == '[[["LAPLACE", "1/3", 2.5, 1.0], ["GAUSSIAN", null, 0.1, 0.5]], [["LAPLACE", "2", 1e+30, 1.0]]]'
    assert (kind, covariances, source) == ("view", "C", "of")
    assert releases.find("r") == release
    store.execute("UPDATE private.dpduck.releases SET source = NULL, epsilon = '1/2', laws = '[]'")
    earlier = releases.find("R")
    assert earlier is not None
    assert (earlier.source, earlier.epsilon, earlier.laws) == ("", Fraction(1, 2), ())


def test_a_prepared_table(store: duckdb.DuckDBPyConnection) -> None:
    columns = (('"a"."b"', (("x", "INTEGER"), ("y", "VARCHAR"))),)
    cuts = (ClampedColumn("x", "INTEGER", "0", "9", "1"),)
    twin = PreparedRecord(
        '"a"."b"', "n", "2026-01-01 00:00:00", "m", "l", 2, (('"a"."b"', 3),), columns, ("x",), "INTEGER", 4096, "e",
        cuts, (("x",), ("x", "y")),
    )  # fmt: skip
    records = Records(store.cursor, "private")
    records.begin('"a"."b"', "n")
    assert rows_of(store, "prepared") == [('"a"."b"', "n", "writing", "{}", None)]
    records.save([twin])
    facts = (
        '["m", "l", 2, [["\\"a\\".\\"b\\"", 3]], [["\\"a\\".\\"b\\"", [["x", "INTEGER"], ["y", "VARCHAR"]]]], ["x"], '
        '"INTEGER", 4096, "e", [["x", "INTEGER", "0", "9", "1"]], [["x"], ["x", "y"]]]'
    )
    assert rows_of(store, "prepared") == [('"a"."b"', "n", "ready", facts, datetime(2026, 1, 1))]
    assert records.read_all() == ({'"a"."b"': twin}, [])
    for more in (2, 1):  # earlier versions recorded no cuts, and no keys of several columns
        store.execute("UPDATE private.dpduck.prepared SET facts = ?", [json.dumps(json.loads(facts)[:-more])])
        (earlier,) = records.read_all()[0].values()
        assert (earlier.cuts, earlier.keys_together) == ((), ()) if more == 2 else (cuts, ())
    store.execute("UPDATE private.dpduck.prepared SET facts = '[1]'")
    with pytest.raises(StoreError):
        records.read_all()


def test_tables_packed_in_an_engine(store: duckdb.DuckDBPyConnection) -> None:
    pack = '["lake", ["db.p", "i", "k", 3, [["\\"l\\".\\"b\\"", [["x", "int"]]]]], [["x", 2], [null, 0]], "2026"]'
    store.execute(
        "INSERT INTO private.dpduck.engine_packs VALUES ('lake', 'db.p', ?), ('lake', 'db.q', ?)", [pack, pack]
    )
    policies = None
    there = PreparedThere(store.cursor, "private", policies, None, lambda name: None)  # type: ignore[arg-type]
    there.read_records()
    record = there._packs[0]
    assert record.at == "2026"
    assert record.facts == (("x", 2), (None, 0))
    assert record.packed.tables == (('"l"."b"', (("x", "int"),)),)
    assert (record.engine, record.packed.there, record.packed.pieces) == ("lake", "db.p", 3)
    there._keep([record])
    assert rows_of(store, "engine_packs") == [("lake", "db.p", pack), ("lake", "db.q", None)]
    store.execute("UPDATE private.dpduck.engine_packs SET facts = '[\"lake\", 7]'")
    with pytest.raises(StoreError):
        there.read_records()


def test_a_stream(store: duckdb.DuckDBPyConnection) -> None:
    releases = ReleaseStore(store.cursor, "private")
    streams = StreamStore(store.cursor, "private", releases)
    named = StreamRecord("S", "d", "CREATE", "t", "n", 4, "[]", ("a", "b"), ("c", "d"), "ANSWERS", "day", 0, 0)
    release = StoredRelease("S", "d", "CREATE", "stream", None, ZERO, Fraction(1), 0, "owner", 4, (), "view")
    streams.note_creation(named, release, "SELECT 1 AS n", "PLAN")(store.cursor(), 4)
    facts = '["[]", ["a", "b"], ["c", "d"], "ANSWERS", "day", 0]'
    assert rows_of(store, "streams") == [("S", "d", "CREATE", "t", "n", 4, facts, 0)]
    assert streams.all() == [named]
    assert streams.find("s") == named
    store.execute("UPDATE private.dpduck.streams SET facts = '[1]'")
    with pytest.raises(StoreError):
        streams.all()


def test_the_plan_of_a_stream() -> None:
    axis, third = time_axis("tree", 4, 2), Fraction(1, 3)
    digest = "90cd5f6903b41998e0be22c50b0950d3e113298cc8c27949e174af611ea4b545"
    plain = StreamPlan(axis, NoiseKind.GAUSSIAN, (Part("", "I", ((None, "", third),)),))
    assert plain.to_facts() == f'["tree", 4, 2, "GAUSSIAN", "1/3", "{digest}"]'
    read = stream_plan_from_facts(plain.to_facts())
    assert (read.parts, read.told, read.kind, read.axis.name) == (plain.parts, (), plain.kind, "tree")
    parts = (Part("rows 1", "I", ((None, "", third),)), Part("m", "x", (((), "", third), ((0, 2), "IR", Fraction(2)))))
    told = (AnswerNoise("n", 0.0, 1.5),)
    text = (
        f'["tree", 4, 2, "GAUSSIAN", "1/3", "{digest}", [["rows 1", "I", [[null, "", "1/3"]]], '
        '["m", "x", [[[], "", "1/3"], [[0, 2], "IR", "2"]]]], [["n", 0.0, 1.5]]]'
    )
    assert StreamPlan(axis, NoiseKind.GAUSSIAN, parts, told).to_facts() == text
    read = stream_plan_from_facts(text)
    assert (read.parts, read.told) == (parts, told)
    with pytest.raises(StoreError, match="another matrix"):
        stream_plan_from_facts(text.replace(digest, "0"))


def test_a_name_of_sparse_queries(store: duckdb.DuckDBPyConnection) -> None:
    keys = '[{"sql": "r0.k", "name": "k", "type_name": "VARCHAR", "collation": "nocase"}]'
    store.execute(
        "INSERT INTO private.dpduck.sparse_names VALUES ('S', 'session', 'd', 'CREATE', 'o', 't', ?, 5, 7, 0.5, 'r')",
        [keys],
    )
    (named,) = SparseStore(store.cursor, "private").all()
    assert (named.keys[0].collation, named.beta, named.release, named.queries) == ("nocase", 0.5, "r", 7)
    store.execute("UPDATE private.dpduck.sparse_names SET keys = '[{\"sql\": 1}]'")
    with pytest.raises(StoreError):
        SparseStore(store.cursor, "private").all()


def test_the_facts_of_a_session() -> None:
    scales = Fraction(7), Fraction(9, 2)
    law = GateLaw(3, 2, 100, *scales, NoiseKind.GAUSSIAN, Fraction(11), Fraction(1, 3))
    plan = SessionPlan(law, 1.5, 2.5, 40, 1000.0)
    text = (
        '{"noisy_total": 998, "alpha": 1.5, "measured": 2.5, "slots": 40, "total": 1000.0, "updates": 3, "unit_bound": '
        '2, "threshold": 100, "threshold_scale": "7", "question_scale": "9/2", "noise": "GAUSSIAN", "spread": "11", '
        '"total_spread": "1/3"}'
    )
    assert json.dumps(plan_to_facts(plan, 998), default=str) == text
    assert plan_from_facts(text) == plan
    assert histogram_from_facts('{"noise": "LAPLACE", "spread": "3/2"}') == Noise(NoiseKind.LAPLACE, Fraction(3, 2))


def test_a_model() -> None:
    components = Component((0, 1), np.array([[0.5, 0.25], [0.125, 0.125]])), Component((1,), np.array([0.5, 0.5]))
    model = Model(Distribution((2, 2), components), 7.5)
    text = '{"sizes": [2, 2], "components": [[0, 1], [1]], "records": 7.5}'
    assert model_text(model) == text
    rows: pa.Table = model_rows(model)
    read = model_of(text, rows.take(list(reversed(range(rows.num_rows)))))
    assert (read.records, read.distribution.sizes) == (7.5, (2, 2))
    for component, again in zip(components, read.distribution.components, strict=True):
        assert component.members == again.members
        assert np.array_equal(component.table, again.table)


def test_measurements() -> None:
    factors = (IdentityFactor(2), MatrixFactor(scipy.sparse.csr_array(np.array([[1, 0], [2, -1]]))))
    table = MeasuredTable("counts", "", "", ZERO, Fraction(7, 2), Fraction(1), 1, 0, False, 0)
    values: tuple[tuple[tuple[IntegerArray, ...], ...], ...] = ((((np.zeros((2, 2), np.int64)),),),) * 2
    measured = Measured(
        "r", ("c > 1",), True, (MeasuredColumn("c", "d", 2),), (MeasuredKey((0,), 2, (0, -1)),) * 2,
        NoiseKind.LAPLACE, (table, replace(table, keys=(1,))),
        ((MeasuredQuery((0, 1), factors, Fraction(1, 3)),),), values,
    )  # fmt: skip
    noisy = measurements_to_bytes(measured)
    with np.load(io.BytesIO(noisy)) as archive:
        text = archive["facts"].tobytes().decode()
    common = '"form": "counts", "condition": "", "value": "", "low": "0", "high": "7/2", "step": "1", "steps": 1, '
    assert text == (
        '{"rows": "r", "filters": ["c > 1"], "bounded": true, "columns": [{"sql": "c", "domain": "d", "size": 2}], '
        '"keys": [[[0], 2, 3], [[0], 2, 4]], "noise": "LAPLACE", "tables": [{'
        f'{common}"degree": 0, "rest": false, "group": 0}}, {{{common}"degree": 0, "rest": false, "group": 0, '
        '"keys": [1]}], "queries": [[[[0, 1], [["identity", 2], ["matrix", 2, 2, 0, 1, 2]], "1/3"]]]}'
    )
    read = measurements_from_bytes(noisy)
    assert (read.rows, read.filters, read.bounded, read.columns) == ("r", ("c > 1",), True, measured.columns)
    assert (read.keys, read.noise, read.tables) == (measured.keys, measured.noise, measured.tables)
    ((query,),) = read.queries
    assert (query.keys, query.parameter, query.factors[0]) == ((0, 1), Fraction(1, 3), factors[0])
    assert isinstance(query.factors[1], MatrixFactor)
    assert (scipy.sparse.csr_array(query.factors[1].entries) != factors[1].entries).nnz == 0


def test_covariances() -> None:
    text = '{"sizes": [2, 3], "sources": [[[0], [0, 1], 2.5], [[], [0, 1], 4.0]]}'
    sources: dict[tuple[int, ...], tuple[tuple[int, ...], float]] = {(0,): ((0, 1), 2.5), (): ((0, 1), 4.0)}
    assert covariances_to_text(TableCovariances((2, 3), sources)) == text
    read = covariances_from_text(text)
    assert isinstance(read, TableCovariances)
    assert (read.sizes, read.sources) == ((2, 3), sources)
    text = '{"attributes": [1], "sizes": [3], "components": [[[], 0.5], [[1], 0.25]]}'
    components = covariances_from_text(text)
    assert isinstance(components, ComponentCovariances)
    assert components.variances.tolist() == [0.5, 0.25]
    assert covariances_to_text(components) == text


def test_principals() -> None:
    held = SecretsInMemory()
    text = (
        b'[{"name": "b", "share": null, "tables": null, "token_hash": "00", "until": null}, {"name": "a", "share": '
        b'"1/2", "tables": ["t", "u"], "token_hash": "11", "until": "2027-01-31T23:59:59+00:00"}, {"name": "c", '
        b'"share": null, "tables": [], "token_hash": "22"}]'  # a principal of an earlier version, without an end
    )
    held.save(RECORD, text)
    book, until = PrincipalBook(held), datetime(2027, 1, 31, 23, 59, 59, tzinfo=UTC)
    first = Principal("a", Fraction(1, 2), ("t", "u"), "11", until)
    assert book.all() == (first, Principal("b", None, None, "00"), Principal("c", None, (), "22"))
    book.revoke("B")
    written = (
        b'[{"name": "a", "share": "1/2", "tables": ["t", "u"], "token_hash": "11", "until": '
        b'"2027-01-31T23:59:59+00:00"}, {"name": "c", "share": null, "tables": [], "token_hash": "22", "until": null}]'
    )
    assert held.get(RECORD) == written
    wrong = (
        text.replace(b'"1/2"', b'"1/0"'),
        text.replace(b'"11"', b"11"),
        text.replace(b'"name": "a"', b'"names": "a"'),
    )
    for damaged in (b"[1]", b"{", b"{}", b"", b'[{"name": "b"}]', *wrong):
        held.save(RECORD, damaged)
        with pytest.raises(StoreError, match="the list of principals is damaged"):
            book.all()
