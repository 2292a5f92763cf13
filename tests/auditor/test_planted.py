"""The auditor finds planted weaknesses, and none in the product: each statement is audited with and without its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from math import inf

import pytest

from dpduck.auditor.audit import AuditFinding, Settings, audit_case
from dpduck.auditor.neighbours import CROWDED, SPREAD, Neighbours, neighbours
from dpduck.auditor.statements import Case
from dpduck.kernel.worker.workers import Workers
from tests.auditor.planted import PLANTED, Planted, shop

Pairs = dict[str, Neighbours]
ALL = [pytest.param(one, marks=() if one.quick else pytest.mark.audit, id=one.name) for one in PLANTED]
STATEMENTS = sorted({(one.statement, one.kind) for one in PLANTED})


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    """Made before anything is planted."""
    with ExitStack() as stack:
        source = stack.enter_context(shop())
        yield {kind: stack.enter_context(neighbours(source, kind)) for kind in (CROWDED, SPREAD)}


@pytest.fixture(scope="module")
def untouched() -> Iterator[Pairs]:
    """Databases without planted faults, since a connection remembers plans and prices."""
    with ExitStack() as stack:
        source = stack.enter_context(shop())
        yield {kind: stack.enter_context(neighbours(source, kind)) for kind in (CROWDED, SPREAD)}


def audited(pairs: Pairs, one: Planted, word: str, runs: int) -> AuditFinding:
    settings = Settings(seconds=inf, runs=runs)
    return audit_case(pairs[one.kind], Case("", one.statement), word, settings, Workers())


@pytest.mark.sampled
@pytest.mark.parametrize("planted", ALL)
def test_a_planted_weakness_is_found(pairs: Pairs, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted weakness is reported, of any kind: noise, bounds, messages, shapes, prices, charges."""
    planted.plant(monkeypatch)
    finding = audited(pairs, planted, f"planted{PLANTED.index(planted)}_", planted.runs)
    assert finding.broken, finding


def test_nothing_is_found_where_nothing_is_planted(pairs: Pairs) -> None:
    """The same statement of the product holds. False alarm: below 1e-9."""
    finding = audited(pairs, PLANTED[0], "whole", 1_000)
    assert finding.bounds and not finding.broken, finding


@pytest.mark.audit
@pytest.mark.parametrize(("statement", "kind"), STATEMENTS)
def test_no_statement_of_the_list_is_found_in_the_product(untouched: Pairs, statement: str, kind: str) -> None:
    """Statements and runs that find the planted faults find nothing in the product. False alarm: 1e-9 each."""
    most = max(one.runs for one in PLANTED if one.statement == statement)
    one = Planted("", lambda patch: None, statement, kind)
    assert not audited(untouched, one, f"sound{STATEMENTS.index((statement, kind))}_", most).broken
