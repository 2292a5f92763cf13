"""Sums of published groups: each table has the paid noise, and norms are those of the job."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.door import require_paid
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan, price
from dpduck.kernel.queries import keys as module
from dpduck.kernel.queries.keys import Beside, KeyStream, PublishedKeys, Threshold, bounds_of
from dpduck.language.select.request import Aggregate, Operand
from dpduck.mechanisms.keys.measures import KeyMeasures, measures_of_keys
from dpduck.mechanisms.keys.plan import KeyPlan, plan_keys
from dpduck.values.errors import InternalError
from tests.kernel.doors import door_over
from tests.kernel.queries.keyed import Row, job_of, load
from tests.support.nodes import adds, as_own, selected

VALUE = Operand("CAST(t.unit AS DOUBLE)", Fraction(0), Fraction(100), Fraction(1))
BY_GROUP = replace(VALUE, per_group="sum", low=Fraction(-2), high=Fraction(50))
AVERAGED = replace(VALUE, per_group="average")
COUNT = Aggregate("", "count(*)")
SETS = (
    (Aggregate("", "sum(x)", "sum", VALUE),),
    (Aggregate("", "avg(x)", "avg", VALUE), Aggregate("", "sum(x)", "sum", VALUE), COUNT),
    (Aggregate("t.sex = 'F'", "sum(x)", "sum", BY_GROUP), Aggregate("", "avg(x)", "avg", AVERAGED)),
)


def asked(
    aggregates: tuple[Aggregate, ...], noise: NoiseKind, *, groups: int = 2, max_rows: int = 4, other: bool = False,
    amount: Fraction = Fraction(1, 2),
) -> tuple[Ask[PublishedKeys], KeyMeasures, KeyPlan]:  # fmt: skip
    """Returns the ask for these aggregates, with its measures and its plan."""
    measured = measures_of_keys(aggregates, (), other)
    counted = tuple(as_own(one.contribution) for one in measured.measures)
    rows = replace(job_of(groups, max_rows), aggregates=counted)
    job = selected(rows, job_of().texts, groups)
    plan = plan_keys(
        noise, amount, Fraction(1, 100), bounds_of(job), least=1, aggregates=len(aggregates), reused=(), other=other,
        measured=measured,
    )  # fmt: skip
    query = Threshold(
        plan.bounds, plan.least, plan.excess, plan.answers, len(plan.beside), plan.selecting, other, plan.beside
    )
    return Ask(AskScan(job, plan.bounds.l1), query, plan.selection), measured, plan


@pytest.mark.parametrize("noise", NoiseKind, ids=lambda noise: str(noise.value))
@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("aggregates", SETS, ids=["sum", "average", "by group"])
def test_the_price_is_the_same_twice(aggregates: tuple[Aggregate, ...], noise: NoiseKind, other: bool) -> None:
    """The release costs the planned epsilon or rho, and less noise on any table costs more."""
    ask, _, plan = asked(aggregates, noise, other=other)
    assert isinstance(ask.query, Threshold)
    cost = ask.cost
    paid = cost.epsilon if noise is NoiseKind.LAPLACE else cost.rho
    assert paid == Fraction(1, 2) and cost.delta <= Fraction(1, 100)
    require_paid([ask], cost)
    for number, one in enumerate(plan.beside):
        louder = replace(one, noise=Noise(noise, one.noise.parameter * Fraction(2, 3)))
        beside = (*plan.beside[:number], louder, *plan.beside[number + 1 :])
        dearer = replace(ask, query=replace(ask.query, beside=beside))
        assert price([dearer]).rho > cost.rho
        with pytest.raises(InternalError, match="cost more than the statement"):
            require_paid([dearer], cost)


@pytest.mark.parametrize("aggregates", SETS, ids=["sum", "average", "by group"])
def test_norms_are_those_of_the_job(aggregates: tuple[Aggregate, ...]) -> None:
    """A smaller norm than the job's for any table is refused before the charge, also one for a row less."""
    ask, _, plan = asked(aggregates, NoiseKind.GAUSSIAN)
    assert isinstance(ask.query, Threshold) and isinstance(ask.scan.job, CountingJob)
    for number, one in enumerate(plan.beside):
        for place in range(3):
            norms = [norm - (at == place) for at, norm in enumerate(one.norms)]
            claimed = Beside(one.noise, (norms[0], norms[1], norms[2]))
            query = replace(ask.query, beside=(*plan.beside[:number], claimed, *plan.beside[number + 1 :]))
            with pytest.raises(InternalError, match="what a unit adds to a group"):
                require_paid([replace(ask, query=query)], ask.cost)
    rows = replace(ask.scan.job, max_rows=5)
    with pytest.raises(InternalError, match="disagree about the contribution bounds"):
        require_paid([replace(ask, scan=AskScan(rows, ask.scan.l1))], ask.cost)
    plain = replace(ask.query, beside=())
    with pytest.raises(InternalError, match="disagree about"):
        require_paid([replace(ask, query=plain)], ask.cost)


def test_a_unit_by_group_costs_the_root_of_its_groups() -> None:
    """With a bound by group a unit adds the bound to each of C groups. Without one it adds all rows to one group."""
    summed, averaged, _ = SETS
    ask, measured, _ = asked((*averaged, *SETS[2]), NoiseKind.GAUSSIAN, groups=3, max_rows=8)
    assert isinstance(ask.query, Threshold) and isinstance(ask.scan.job, CountingJob)
    assert ask.scan.job.norms_beside(merged=False) == tuple(one.norms for one in ask.query.beside)
    found = {
        (one.form, one.operand.per_group if one.operand else ""): beside.norms
        for one, beside in zip(measured.measures, ask.query.beside, strict=True)
    }
    assert found["sum", ""] == (8 * 50, (8 * 50) ** 2, 8 * 50) and found["valued", ""] == (8, 64, 8)
    assert found["valued", "average"] == (3, 3, 1) and found["sum", "average"] == (150, 3 * 50 * 50, 50)
    assert found["count", ""] == (8, 64, 8)
    alone = asked(summed, NoiseKind.LAPLACE)[0].query
    assert isinstance(alone, Threshold) and alone.beside[0].norms == (400, 160_000, 400)


def test_every_table_has_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The selection draws once for each group. Then each table draws as planned, and so does the row for all others."""
    drawn: list[tuple[Fraction, int]] = []

    def counted(noise: Noise, count: int, entropy: object) -> NDArray[np.int64]:
        drawn.extend([(noise.parameter, count)] * (count > 0))
        return np.full(count, 1, np.int64)

    monkeypatch.setattr(module, "draw", counted)
    ask, measured, plan = asked(SETS[1], NoiseKind.GAUSSIAN, other=True, amount=Fraction(4))
    many: list[Row] = [(number, "many", "F") for number in range(60, 60 + plan.threshold + 9)]
    rows: list[Row] = [*many, (3, "rare", "M"), (4, "rare", "F")]
    assert isinstance(ask.scan.job, CountingJob)
    found: PublishedKeys = door_over(KeyStream(load(rows).cursor(), ask.scan.job, b"key"), [ask]).answer(ask)
    tables = [one.noise.parameter for one in plan.beside]
    assert drawn == [(plan.selection.parameter, 2), *((one, 1) for one in tables), *((one, 1) for one in tables)]
    assert len(set(tables)) == len(tables) == 3
    forms = [one.form for one in measured.measures]
    sums = {form: int(found.answers[place][0]) - 1 for place, form in enumerate(forms)}
    units = [min(unit, 100) for unit, _, _ in many if isinstance(unit, int)]
    assert sums == {"valued": len(units), "sum": sum(units) - 50 * len(units), "count": len(units)}
    assert found.other is not None
    assert dict(zip(forms, found.other, strict=True)) == {"valued": 3, "sum": 7 - 100 + 1, "count": 3}


def test_tables_of_several_integers_are_no_sums_of_groups() -> None:
    """Moments have several tables, and the price of groups covers one table for each aggregate."""
    moments = adds("", "moments", VALUE.sql, VALUE.low, VALUE.high, 100, 1)
    with pytest.raises(InternalError, match="counts and sums alone"):
        selected(replace(job_of(), aggregates=(moments,)), job_of().texts, 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("exact", "told"), [(0, 5), ((1 << 63) - 1, 4 - (1 << 63)), (-(1 << 63), 5 - (1 << 63))])
def test_numbers_wrap_as_all_tables_do(exact: int, told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row for all others wraps modulo 2^64 without an error, as published groups do. The noise is 5 here."""
    right = module._select_groups
    monkeypatch.setattr(module, "draw", lambda noise, count, entropy: np.full(count, 5, np.int64))
    monkeypatch.setattr(module, "_select_groups", lambda *given: (right(*given)[0], np.full(3, exact)))
    ask, _, _ = asked(SETS[1], NoiseKind.GAUSSIAN, other=True)
    assert isinstance(ask.scan.job, CountingJob)
    found = door_over(KeyStream(load([]).cursor(), ask.scan.job, b"key"), [ask]).answer(ask)
    assert found.other == (told,) * 3


@pytest.mark.filterwarnings("error")
def test_sums_of_what_is_suppressed_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact sums of suppressed groups wrap modulo 2^64: two groups of 2^62 each, and one row of each unit."""
    ask, _, _ = asked(SETS[0], NoiseKind.GAUSSIAN)
    assert isinstance(ask.scan.job, CountingJob) and isinstance(ask.query, Threshold)
    monkeypatch.setattr(module, "_tables", lambda groups, aggregates: [np.full(groups.num_rows, 1 << 62)])
    stream = KeyStream(load([(1, "a", "F"), (2, "b", "F")]).cursor(), ask.scan.job, b"key")
    _, suppressed = module._select_groups(stream, replace(ask.query, least=9), ask.law, operating_system_entropy())
    assert suppressed.tolist() == [-(1 << 63)]
